"""HTTP server of the demo: the static page, the list of networks, and endpoints that run them."""

import asyncio
import base64
import json
import math
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import PackageNotFoundError, metadata
from typing import Annotated, Any, Literal

import torch
import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from torch import Tensor
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import InputError
from ..geometry import Similarity
from .inspect import count_correct, inspect_image, predict_ring
from .models import STATIC, Pair, SampleKind, encode_sheet, load_samples

MAX_SIDE = 512
MAX_BODY = 6 * MAX_SIDE**2 + 8192  # a color image and clutter of the largest size in base64, and the other fields
RING = 72  # angles at which the ring shows predictions

_HOSTS = ["127.0.0.1", "localhost"]
_MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_MAX_THREADS = 4
_PATIENCE = 10.0  # seconds for a whole request to arrive
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Picture(BaseModel):
    """An image as base64 of its bytes in row-major order, channels last."""

    model_config = ConfigDict(extra="forbid", val_json_bytes="base64")

    width: Annotated[int, Field(strict=True, ge=1, le=MAX_SIDE)]
    height: Annotated[int, Field(strict=True, ge=1, le=MAX_SIDE)]
    channels: Literal[1, 3]
    pixels: bytes

    @model_validator(mode="after")
    def _check_pixels(self) -> "Picture":
        expected = self.width * self.height * self.channels
        if len(self.pixels) != expected:
            raise ValueError(f"pixels are {len(self.pixels)} bytes, not width × height × channels = {expected}")
        return self

    def tensor(self) -> Tensor:
        """Returns the image as floats in [0, 1], (C, H, W)."""
        values = torch.frombuffer(bytearray(self.pixels), dtype=torch.uint8)
        return values.view(self.height, self.width, self.channels).permute(2, 0, 1).float() / 255


Offset = Annotated[float, Field(ge=-4096, le=4096, allow_inf_nan=False)]


class Posed(BaseModel):
    """The body of POST /test: a pair of networks, and the pose in which it is tested on the sample images.

    `turn` is in degrees, clockwise on the screen; `scale` and `shift` map pixels of an image to pixels of the
    networks' input.
    """

    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(max_length=4096)]
    turn: Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)] = 0.0
    scale: Annotated[float, Field(ge=0.02, le=64, allow_inf_nan=False)] = 1.0
    shift: tuple[Offset, Offset] = (0.0, 0.0)

    def pose(self) -> Similarity:
        return Similarity(math.radians(self.turn), self.scale, self.shift)


class Query(Posed):
    """The body of POST /look and POST /ring: an image, its pose, and the pair of networks to run.

    `pin` is a point to track, in pixels from the center of the image. `clutter` is a gray image of the size of the
    networks' input, combined with the image by the maximum.
    """

    image: Picture
    pin: tuple[Offset, Offset] = (0.0, 0.0)
    clutter: Picture | None = None

    def clutter_for(self, pair: Pair) -> Tensor | None:
        """Returns the clutter, (1, H, W)."""
        if self.clutter is None:
            return None
        size = self.clutter.height, self.clutter.width
        if size != pair.size or self.clutter.channels != 1:
            raise HTTPException(422, f"clutter must be gray, {pair.size[1]} × {pair.size[0]} pixels")
        return self.clutter.tensor()


def make_app(pairs: Sequence[Pair]) -> Starlette:
    """Returns the ASGI application for `pairs`."""
    by_key = {pair.key: pair for pair in pairs}
    # One thread per request: the networks are too small to gain from more.
    pool = ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1), initializer=partial(torch.set_num_threads, 1))

    async def call(request: Request, kind: type[Posed], function: Callable[..., dict[str, Any]]) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise HTTPException(415, "the body must be application/json")
        body = kind.model_validate_json(await _read_body(request))
        if body.model not in by_key:
            raise HTTPException(404, "there is no such model: reload the page")
        result = await asyncio.get_running_loop().run_in_executor(pool, function, by_key[body.model], body)
        return Response(_to_json(result), media_type="application/json")

    # Files are served from memory: no path from a request reaches the file system.
    contents = {f"/{path.name}": (path.read_bytes(), _MEDIA_TYPES[path.suffix]) for path in STATIC.iterdir()}
    contents["/"] = contents.pop("/index.html")
    for kind in sample_kinds(pairs):
        contents[f"/{kind}.png"] = (encode_sheet(load_samples(kind)), _MEDIA_TYPES[".png"])
    contents["/setup.json"] = (_to_json(setup(pairs)), "application/json")
    contents["/readme.txt"] = (readme().encode(), "text/plain")
    static = [
        Route(path, Response(content, media_type=media_type), methods=["GET"])
        for path, (content, media_type) in contents.items()
    ]
    calls = [
        Route(f"/{function.__name__}", partial(call, kind=kind, function=function), methods=["POST"])
        for kind, function in ((Query, look), (Query, ring), (Posed, test))
    ]
    return Starlette(
        routes=[*static, *calls],
        middleware=[Middleware(BaseHTTPMiddleware, _guard), Middleware(TrustedHostMiddleware, _HOSTS)],
        exception_handlers={HTTPException: _explain, ValidationError: _explain},
    )


def look(pair: Pair, query: Query) -> dict[str, Any]:
    return vars(inspect_image(pair, query.image.tensor(), query.pose(), query.pin, query.clutter_for(pair)))


def ring(pair: Pair, query: Query) -> dict[str, Any]:
    labels = predict_ring(pair, query.image.tensor(), query.pose(), RING, query.clutter_for(pair))._asdict()
    return {name: None if values is None else values.tolist() for name, values in labels.items()}


def test(pair: Pair, posed: Posed) -> dict[str, Any]:
    if not has_samples(pair):
        raise HTTPException(422, "there are no sample images of the classes of this network")
    return count_correct(pair, load_samples(pair.samples), posed.pose())


def serve(pairs: Sequence[Pair], *, port: int, on_ready: Callable[[str], None]) -> None:
    """Serves the page on 127.0.0.1 until interrupted; calls `on_ready` with the address; port 0 is any free one."""
    config = uvicorn.Config(
        make_app(pairs),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        http=_ImpatientProtocol,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    # With the protocol stated, asyncio sets TCP_NODELAY: responses are not delayed by Nagle's algorithm.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
        except OSError as error:
            reason = f"port {port} cannot be used: {error.strerror}; choose another with --port"
            raise InputError(reason) from error
        on_ready(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        uvicorn.Server(config).run(sockets=[listener])


class _ImpatientProtocol(H11Protocol):
    """Closes connections on which a request has begun, or none has, for too long."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Starts to wait for a request, or stops if it has arrived."""
        arrived = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if arrived and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif not arrived and self._deadline is None:
            self._deadline = self.loop.call_later(_PATIENCE, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)


async def _guard(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Refuses scripts of other pages, and sets the security headers of every response."""
    own = request.headers.get("origin") in (None, f"http://{request.headers.get('host')}")
    refusal = JSONResponse({"reason": "requests of other pages are refused"}, 403)
    response = await call_next(request) if own else refusal
    response.headers.update(_HEADERS)
    return response


async def _read_body(request: Request) -> bytes:
    # Starlette's own limit replies in plain text, which the page cannot show.
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"the image is too large, more than {MAX_BODY // 1024} KiB")
    except ClientDisconnect:
        raise HTTPException(400, "the request is incomplete") from None
    return bytes(body)


async def _explain(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"reason": error.detail}, error.status_code, headers=error.headers)
    assert isinstance(error, ValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"reason": f"{place}: {first['msg']}" if place else first["msg"]}, 422)


def setup(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Returns the content of setup.json: the pairs, and facts about the sheets of sample images."""
    sheets = {
        kind: {"side": images.shape[-1], "labels": labels.tolist(), "source": source}
        for kind, (images, labels, source) in ((kind, load_samples(kind)) for kind in sample_kinds(pairs))
    }
    models = [pair.facts() | {"tested": has_samples(pair)} for pair in pairs]
    return {"models": models, "samples": sheets, "ring": RING, "links": {"README": "readme.txt"}}


def readme() -> str:
    """Returns the README from the metadata of the installed package."""
    try:
        return str(metadata("ptn").json["description"])
    except PackageNotFoundError:
        return "ptn: Polar Transformer Networks. The package is not installed; its README is in the source."


def sample_kinds(pairs: Sequence[Pair]) -> list[SampleKind]:
    """Returns the kinds of sample images that the pairs need."""
    return sorted({pair.samples for pair in pairs})


def has_samples(pair: Pair) -> bool:
    """True if the classes of the pair include all digits."""
    return set("0123456789") <= set(pair.classes)


def _to_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, default=_encode).encode()


def _encode(image: Tensor) -> dict[str, int | str]:
    """Returns an image (C, H, W) or (H, W), uint8 or floats in [0, 1], in the format of `Picture`."""
    image = image if image.dim() == 3 else image[None]
    if image.is_floating_point():
        image = (image.clamp(0, 1) * 255).round().to(torch.uint8)
    channels, height, width = image.shape
    pixels = base64.b64encode(image.permute(1, 2, 0).contiguous().numpy().tobytes()).decode("ascii")
    return {"width": width, "height": height, "channels": channels, "pixels": pixels}
