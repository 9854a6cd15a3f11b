"""The page without a socket, and networks to show on it."""

import asyncio
import json
from typing import NamedTuple

import pytest

import ptn
from ptn.demo import find_pairs
from ptn.models import save_weights


@pytest.fixture(scope="session")
def untrained(tmp_path_factory):
    """Weights files of a PTN and a plain CNN that have learned nothing."""
    folder = tmp_path_factory.mktemp("weights")
    metadata = {"classes": json.dumps([str(digit) for digit in range(10)]), "dataset": "untrained"}
    files = []
    for name in ("ptn_s", "ccnn_s"):
        files.append(folder / f"{name}.safetensors")
        save_weights(ptn.create_model(name), files[-1], metadata=metadata)
    return [str(file) for file in files]


@pytest.fixture(scope="session")
def pair(untrained):
    return find_pairs(untrained)[0]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def reason(self):
        return json.loads(self.body)["reason"]


@pytest.fixture(scope="session")
def ask():
    """`ask(app, "POST", "/look", body)` -> status, headers, body; `messages` replaces how the body arrives."""

    def send_request(app, method, path, body=b"", *, headers=(), messages=None):
        given = {"host": "127.0.0.1:8028", "content-type": "application/json", **dict(headers)}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(key.encode(), value.encode("latin-1")) for key, value in given.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8028),
        }
        waiting = list(messages or [{"type": "http.request", "body": body, "more_body": False}])
        answer = []

        async def receive():
            if waiting:
                return waiting.pop(0)
            await asyncio.sleep(3600)
            raise AssertionError("nobody waits that long")

        async def send(message):
            answer.append(message)

        asyncio.run(app(scope, receive, send))
        if not answer:
            return None
        start, *rest = answer
        headers = {key.decode(): value.decode() for key, value in start["headers"]}
        return Reply(start["status"], headers, b"".join(part.get("body", b"") for part in rest))

    return send_request
