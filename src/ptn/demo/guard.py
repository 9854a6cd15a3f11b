"""What stands before the page: who may ask, how much, for how long, and what browsers may do with the answer."""

import asyncio
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 256 * 1024
LONGEST_SECONDS = 2.0
HOSTS = ("127.0.0.1", "localhost")

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


class _TooLargeError(Exception):
    """A body beyond the limit."""


class _GoneError(Exception):
    """The client hung up before it had said all."""


def refusal(status: int, reason: str) -> JSONResponse:
    """An answer that says in one line why there is no other."""
    return JSONResponse({"reason": reason}, status)


class Guard:
    """Passes requests on to `app` whole, in time, and only if they come from a page of this machine.

    A name that a stranger's server resolves to 127.0.0.1 is not one of `HOSTS`, and another page's script has
    another origin: neither gets an answer.
    """

    def __init__(self, app: ASGIApp, *, seconds: float = LONGEST_SECONDS) -> None:
        self.app = app
        self.seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = {"read": False, "answered": False}

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["answered"] = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            async with asyncio.timeout(self.seconds):
                answer = _refuse_stranger(Headers(scope=scope))
                if answer is None:
                    body = await _read_body(scope, receive)
                    state["read"] = True
                    await self.app(scope, _replay(body, receive), send_guarded)
                    return
        except _TooLargeError:
            answer = refusal(413, f"the request is larger than {LARGEST_BODY // 1024} KB: send a smaller image")
        except _GoneError:
            return
        except TimeoutError:
            if state["answered"]:
                raise
            if state["read"]:
                answer = refusal(503, f"no answer within {self.seconds:g} s: too many ask at once, try again")
            else:
                answer = refusal(408, f"the request was not there within {self.seconds:g} s")
        await answer(scope, receive, send_guarded)


def _refuse_stranger(headers: Headers) -> JSONResponse | None:
    host = headers.get("host", "")
    if _hostname(host) not in HOSTS:
        return refusal(421, "this page is only for the machine it runs on: http://127.0.0.1")
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return refusal(403, "only the page itself may ask")
    return None


def _hostname(host: str) -> str:
    name, _, port = host.partition(":")
    return name if not port or port.isdecimal() else ""


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    stated = Headers(scope=scope).get("content-length", "0")
    if stated.isdecimal() and int(stated[:12]) > LARGEST_BODY:
        raise _TooLargeError
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > LARGEST_BODY:
            raise _TooLargeError
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body at once, then what comes."""
    waiting: Iterable[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def replay() -> Message:
        for message in waiting:
            return message
        return await receive()

    return replay
