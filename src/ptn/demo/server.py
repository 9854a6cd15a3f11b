"""The server of the page: a few files held in memory, and one question that it answers."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from ..errors import InputError
from .guard import LONGEST_SECONDS, Guard, refusal
from .look import look
from .messages import Answer, Digit, Network, Picture, Question, Setup
from .models import Pair
from .samples import Sample

PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_MOST_THREADS = 4


def make_app(pairs: Sequence[Pair], digits: Sequence[Sample] = (), *, seconds: float = LONGEST_SECONDS) -> Guard:
    """The page as an ASGI application, guarded.

    All who ask share the networks, which keep nothing between answers. Each answer is computed by one thread.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    by_key = {pair.key: pair for pair in pairs}
    pool = ThreadPoolExecutor(
        min(_MOST_THREADS, os.cpu_count() or 1), "look", initializer=partial(torch.set_num_threads, 1)
    )
    for path, (content, kind) in _page_files().items():
        app.add_api_route(path, _reply(content, kind), methods=["GET"])
    app.add_api_route("/setup.json", _reply(_setup(pairs, digits), "application/json"), methods=["GET"])

    @app.post("/look")
    async def answer(question: Question) -> Response:
        pair = by_key.get(question.model)
        if pair is None:
            return refusal(404, "there is no such model: reload the page")
        answer = await asyncio.get_running_loop().run_in_executor(pool, _answer, pair, question)
        return Response(answer, media_type="application/json")

    @app.exception_handler(RequestValidationError)
    async def say_what_is_wrong(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return refusal(422, f"{place}: {first['msg']}" if place else str(first["msg"]))

    @app.exception_handler(HTTPException)
    async def say_why(request: Request, error: HTTPException) -> Response:
        return refusal(error.status_code, str(error.detail))

    return Guard(app, seconds=seconds)


def serve(
    pairs: Sequence[Pair],
    digits: Sequence[Sample],
    *,
    port: int,
    on_ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the page on 127.0.0.1 until interrupted; port 0 is any that is free.

    `on_ready` gets the address as soon as it can be asked.
    """
    with _listen(port) as listener:
        on_ready(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        make_server(pairs, digits).run(sockets=[listener])


def make_server(pairs: Sequence[Pair], digits: Sequence[Sample]) -> uvicorn.Server:
    """The page as a server that does not run yet."""
    config = uvicorn.Config(
        make_app(pairs, digits),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def _listen(port: int) -> socket.socket:
    # said to be TCP, or asyncio would let the end of every answer wait for the client to confirm its beginning
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise InputError(f"port {port} cannot be used: {error.strerror}; choose another with --port") from error
    return listener


def _answer(pair: Pair, question: Question) -> str:
    sight = look(pair, question.image.tensor(), question.pose, question.pin)
    return Answer.of(sight).model_dump_json()


def _setup(pairs: Sequence[Pair], digits: Sequence[Sample]) -> bytes:
    held = [Digit(image=Picture.of(digit.image), label=digit.label) for digit in digits]
    return Setup(models=[Network.of(pair) for pair in pairs], digits=held).model_dump_json().encode()


def _page_files() -> dict[str, tuple[bytes, str]]:
    """The page's files by their address, with their types: all that can be read, and read once."""
    files = {f"/{path.name}": (path.read_bytes(), _TYPES[path.suffix]) for path in PAGE.iterdir()}
    return {"/": files.pop("/index.html"), **files}


def _reply(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def reply() -> Response:
        return Response(content, media_type=kind)

    return reply
