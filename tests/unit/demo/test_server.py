"""The server accepts one kind of request, from this machine only, and refuses all others with a reason."""

import base64
import json
import math
import socket
import threading
from http.client import HTTPConnection
from queue import Queue
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import torch

pytest.importorskip("starlette", reason="pip install 'ptn[demo]'")

from ptn.demo.inspect import count_correct, inspect_image, predict_ring
from ptn.demo.models import STATIC, load_samples
from ptn.demo.server import MAX_BODY, RING, serve
from ptn.geometry import Similarity


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def picture(width, height, channels=1):
    pixels = bytes(range(256)) * (width * height * channels // 256 + 1)
    text = base64.b64encode(pixels[: width * height * channels]).decode()
    return {"width": width, "height": height, "channels": channels, "pixels": text}


@pytest.fixture(scope="module")
def ask(pair):
    """`ask("POST", "/look", body, {"Origin": "null"})` -> Reply, of a server on a real socket."""
    ready = Queue()
    options = {"port": 0, "on_ready": ready.put}
    threading.Thread(target=serve, args=([pair],), kwargs=options, daemon=True).start()
    address = urlsplit(ready.get(timeout=60))
    assert address.hostname == "127.0.0.1"

    def request(method, path, body=None, headers=()):
        connection = HTTPConnection(address.hostname, address.port, timeout=60)
        connection.request(method, path, body, {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        reply = Reply(
            response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
        )
        connection.close()
        return reply

    return request


@pytest.fixture(scope="module")
def query(pair):
    pose = {"turn": 40, "scale": 1.2, "shift": [1, -2.5], "pin": [0, -11]}
    return {"model": pair.key, "image": picture(28, 28), **pose}


def decode(picture):
    pixels = torch.frombuffer(bytearray(base64.b64decode(picture["pixels"])), dtype=torch.uint8)
    return pixels.view(picture["height"], picture["width"])


def changed(query, path, value):
    """Returns a copy of `query` with another value at `path`, such as "image.width"."""
    copy = json.loads(json.dumps(query))
    *parents, last = path.split(".")
    place = copy
    for parent in parents:
        place = place[parent]
    place[last] = value
    return copy


def look(ask, query, headers=(), path="/look"):
    return ask("POST", path, json.dumps(query), headers)


def test_the_reply_is_that_of_inspect_image(ask, pair, query):
    reply = look(ask, query)
    assert reply.status == 200
    pose = Similarity(math.radians(40), 1.2, (1, -2.5))
    expected = inspect_image(pair, decode(query["image"])[None] / 255, pose, (0, -11))
    for name in ("polar_probabilities", "plain_probabilities", "origin", "pin", "polar_pin"):
        assert reply.json[name] == pytest.approx(getattr(expected, name), abs=1e-5)
    difference = decode(reply.json["polar_image"]).int() - (expected.polar_image[0] * 255).round().int()
    assert difference.abs().max() <= 1


def test_the_ring_and_the_test_are_those_of_the_networks(ask, pair, query):
    pose = Similarity(math.radians(40), 1.2, (1, -2.5))
    clutter = picture(28, 28)
    expected = predict_ring(pair, decode(query["image"])[None] / 255, pose, RING, decode(clutter)[None] / 255)
    reply = look(ask, {**query, "clutter": clutter}, path="/ring")
    assert reply.json == {"polar": expected.polar.tolist(), "plain": expected.plain.tolist()}
    posed = {key: query[key] for key in ("model", "turn", "scale", "shift")}
    assert look(ask, posed, path="/test").json == count_correct(pair, load_samples("digits"), pose)


def test_images_of_any_size_are_accepted(ask, query):
    for shape in ((1, 1, 1), (13, 200, 3), (512, 512, 3)):
        assert look(ask, {**query, "image": picture(*shape)}).status == 200


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("image.width", 513, "image.width"),
        ("image.channels", 4, "image.channels"),
        ("image.pixels", "no base64!", "base64"),
        ("image.pixels", "AAAA", "3 bytes"),
        ("turn", float("nan"), "turn"),
        ("scale", 0, "scale"),
        ("shift", [1], "shift"),
        ("clutter", picture(27, 28), "clutter"),
        ("colour", "red", "colour"),
    ],
)
def test_invalid_fields_are_named(ask, query, path, value, word):
    reply = look(ask, changed(query, path, value))
    assert reply.status == 422
    assert word in reply.json["reason"]


def test_every_static_file_is_served_and_no_other(ask, query):
    assert look(ask, {**query, "model": "../../secret"}).status == 404
    for path in ("/look", "/ring", "/test"):
        assert ask("GET", path).status == 405
    assert ask("GET", "/").headers["content-type"].startswith("text/html")
    for path in STATIC.iterdir():
        if path.name != "index.html":
            reply = ask("GET", f"/{path.name}")
            assert (reply.status, reply.body) == (200, path.read_bytes())
    for path in ("/../server.py", "/..%2fserver.py", "//etc/passwd", "/main.js/../../server.py"):
        assert ask("GET", path).status == 404, path


def test_setup_lists_networks_and_samples(ask, pair):
    setup = ask("GET", "/setup.json").json
    (model,) = setup["models"]
    assert (model["key"], model["width"], model["height"], model["channels"]) == (pair.key, 28, 28, 1)
    assert model["classes"] == list("0123456789")
    sheets = {kind: (sheet["side"], len(sheet["labels"])) for kind, sheet in setup["samples"].items()}
    assert sheets == {"digits": (28, 1000)}


def test_every_reply_forbids_foreign_resources(ask):
    requests = [("GET", "/"), ("GET", "/nothing"), ("POST", "/look", b"{"), ("GET", "/", None, {"Host": "evil"})]
    for headers in (ask(*request).headers for request in requests):
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_requests_to_another_host_name_are_refused(ask):
    """Protects against DNS rebinding."""
    for host in ("evil.example", "127.0.0.1.evil.example:8028", "", "[::1]"):
        assert ask("GET", "/", headers={"Host": host}).status == 400


def test_scripts_and_forms_of_other_pages_are_refused(ask, query):
    own = {"Host": "127.0.0.1:8028", "Origin": "http://127.0.0.1:8028"}
    assert look(ask, query, own).status == 200
    for origin in ("http://evil.example", "null"):
        assert look(ask, query, {**own, "Origin": origin}).status == 403
    # A form of another page can send text without a preflight request, but not JSON.
    reply = look(ask, query, {"Content-Type": "text/plain"})
    assert (reply.status, "application/json" in reply.json["reason"]) == (415, True)


def test_large_bodies_are_refused(ask):
    for body in (b"[" * (MAX_BODY + 1), iter([b"[" * 65536] * 30)):
        reply = ask("POST", "/look", body)
        assert (reply.status, "too large" in reply.json["reason"]) == (413, True)
    assert ask("POST", "/look", b'"' + b"a" * (MAX_BODY - 2) + b'"').status == 422


def test_malformed_json_is_refused(ask):
    for body in (b"", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"NaN", b"1" * 10_000, b'"\\ud800"'):
        reply = ask("POST", "/look", body)
        assert (reply.status, bool(reply.json["reason"])) == (422, True)


def test_simultaneous_requests_get_the_same_replies(ask, query):
    def ask_all():
        replies = [look(ask, {**query, "turn": turn}) for turn in range(0, 360, 30)]
        return [(reply.status, reply.body) for reply in replies]

    alone = ask_all()
    together = []
    threads = [threading.Thread(target=lambda: together.append(ask_all())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in alone} == {200}
    assert together == [alone] * 8


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "POST /look HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        "POST /look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HT",
        "POST /look HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: abc\r\n\r\n",
    ],
)
def test_half_sent_requests_are_closed(monkeypatch, caplog, sent):
    monkeypatch.setattr("ptn.demo.server._PATIENCE", 0.2)
    ready = Queue()
    threading.Thread(target=serve, args=([],), kwargs={"port": 0, "on_ready": ready.put}, daemon=True).start()
    with socket.create_connection(("127.0.0.1", urlsplit(ready.get(timeout=60)).port), timeout=10) as client:
        client.sendall(sent.encode())
        while client.recv(65536):  # until the server closes the connection
            pass
    assert "Traceback" not in caplog.text
