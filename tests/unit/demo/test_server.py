"""The server answers one kind of request, from this machine only; anything else is refused with a reason."""

import base64
import json
import threading
from http.client import HTTPConnection

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="pip install 'ptn[demo]'")

from ptn import InputError
from ptn.demo import server
from ptn.demo.inspect import inspect_image
from ptn.demo.models import sample_digits
from ptn.demo.server import MAX_BODY, STATIC, make_app, make_server
from ptn.geometry import Similarity


@pytest.fixture(scope="module")
def app(pair):
    return make_app([pair], sample_digits())


@pytest.fixture(scope="module")
def query(pair):
    pose = {"turn": 40, "scale": 1.2, "shift": [1, -2.5], "pin": [0, -11]}
    return {"model": pair.key, "image": picture(28, 28), **pose}


def picture(width, height, channels=1):
    pixels = bytes(range(256)) * (width * height * channels // 256 + 1)
    text = base64.b64encode(pixels[: width * height * channels]).decode()
    return {"width": width, "height": height, "channels": channels, "pixels": text}


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


def post(ask, app, query, **options):
    return ask(app, "POST", "/look", json.dumps(query).encode(), **options)


def test_the_reply_is_that_of_inspect_image(app, ask, pair, query):
    reply = post(ask, app, query)
    assert reply.status == 200
    answer = json.loads(reply.body)
    pose = Similarity(torch.tensor(40.0).deg2rad().item(), 1.2, (1, -2.5))
    expected = inspect_image(pair, decode(query["image"])[None] / 255, pose, (0, -11))
    for name in ("polar_scores", "plain_scores", "origin", "pin", "polar_pin"):
        assert answer[name] == pytest.approx(getattr(expected, name), abs=1e-5)
    difference = decode(answer["polar_image"]).int() - (expected.polar_image[0] * 255).round().int()
    assert difference.abs().max() <= 1


@pytest.mark.parametrize("shape", [(1, 1, 1), (512, 300, 1), (13, 200, 3)])
def test_images_of_any_size_are_accepted(app, ask, query, shape):
    assert post(ask, app, {**query, "image": picture(*shape)}).status == 200


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        ("image.width", 513, "image.width"),
        ("image.height", 0, "image.height"),
        ("image.channels", 4, "image.channels"),
        ("image.pixels", "no base64!", "base64"),
        ("image.pixels", "AAAA", "3 bytes"),
        ("turn", "a lot", "turn"),
        ("turn", float("nan"), "turn"),
        ("scale", 0, "scale"),
        ("shift", [1], "shift"),
        ("colour", "red", "colour"),
        ("model", None, "model"),
    ],
)
def test_invalid_fields_are_named(app, ask, query, path, value, word):
    reply = post(ask, app, changed(query, path, value))
    assert reply.status == 422
    assert word in reply.reason


def test_unknown_models_paths_and_methods(app, ask, query):
    assert post(ask, app, {**query, "model": "../../secret"}).status == 404
    assert ask(app, "GET", "/look").status == 405
    assert ask(app, "POST", "/", b"").status == 405


def test_every_static_file_is_served_and_no_other(app, ask):
    assert ask(app, "GET", "/").headers["content-type"].startswith("text/html")
    for path in STATIC.iterdir():
        if path.name != "index.html":
            reply = ask(app, "GET", f"/{path.name}")
            assert (reply.status, reply.body) == (200, path.read_bytes())
    for path in (
        "/../server.py",
        "/..%2fserver.py",
        "/%2e%2e/server.py",
        "//etc/passwd",
        "/main.js/../../server.py",
    ):
        assert ask(app, "GET", path).status == 404, path


def test_setup_lists_networks_and_digits(app, ask, pair):
    setup = json.loads(ask(app, "GET", "/setup.json").body)
    (model,) = setup["models"]
    assert (model["key"], model["width"], model["height"], model["channels"]) == (pair.key, 28, 28, 1)
    assert model["classes"] == list("0123456789")
    assert {digit["image"]["width"] for digit in setup["digits"]} <= {28}


def test_every_reply_forbids_foreign_resources(app, ask, query):
    foreign = ask(app, "GET", "/", headers={"host": "evil.example"})
    replies = [ask(app, "GET", "/"), ask(app, "GET", "/nothing"), ask(app, "POST", "/look", b"{"), foreign]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert "http" not in (STATIC / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8028", "", "[::1]"])
def test_requests_to_another_host_name_are_refused(app, ask, host):
    """Protects against DNS rebinding."""
    assert ask(app, "GET", "/", headers={"host": host}).status == 400


def test_scripts_and_forms_of_other_pages_are_refused(app, ask, query):
    for origin, status in (("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:8028", 200)):
        assert post(ask, app, query, headers={"origin": origin}).status == status
    # A form of another page can send text without a preflight request, but not JSON.
    assert post(ask, app, query, headers={"content-type": "text/plain"}).status == 415


def test_large_bodies_are_refused(app, ask):
    stated = ask(app, "POST", "/look", b"", headers={"content-length": str(MAX_BODY + 1)})
    endless = [{"type": "http.request", "body": b"[" * 65536, "more_body": True}] * 5
    for reply in (stated, ask(app, "POST", "/look", messages=endless)):
        assert reply.status == 413
    exact = b'"' + b"a" * (MAX_BODY - 2) + b'"'
    assert ask(app, "POST", "/look", exact).status == 422


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["model", "image", "image.width", "image.channels", "image.pixels", "turn", "scale", "shift", "pin", "new"]
MALFORMED = [b"", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"NaN", b"1" * 10_000, b'"\\ud800"']


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:16]))
def test_malformed_json_is_refused(app, ask, body):
    reply = ask(app, "POST", "/look", body)
    assert reply.status == 422
    assert reply.reason


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_arbitrary_bodies_never_crash_the_server(app, ask, query, data):
    kind = data.draw(st.sampled_from(["bytes", "json", "changed", "changed", "cut"]))
    whole = json.dumps(query).encode()
    if kind == "bytes":
        body = data.draw(st.binary(max_size=200))
    elif kind == "json":
        body = json.dumps(data.draw(JSON)).encode()
    elif kind == "changed":
        body = json.dumps(changed(query, data.draw(st.sampled_from(FIELDS)), data.draw(JSON))).encode()
    else:
        body = whole[: data.draw(st.integers(0, len(whole) - 1))]
    reply = ask(app, "POST", "/look", body)
    assert reply.status in ({200, 404, 413, 422} if kind == "changed" else {413, 422}), reply
    if reply.status != 200:
        assert reply.reason


@pytest.fixture(scope="module")
def address(pair):
    """The server on a real socket in another thread: (host, port)."""
    running = make_server([pair], [])
    with server.listen(0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()
        running.should_exit = True
        thread.join()


def test_simultaneous_requests_get_the_same_replies(address, query):
    def ask_all():
        connection = HTTPConnection(*address)
        replies = []
        for turn in range(0, 360, 30):
            body = json.dumps({**query, "turn": turn})
            connection.request("POST", "/look", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            replies.append((response.status, response.read()))
        connection.close()
        return replies

    alone = ask_all()
    together = []
    threads = [threading.Thread(target=lambda: together.append(ask_all())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for status, _ in alone} == {200}
    assert together == [alone] * 8


def test_it_listens_on_loopback_only(address, pair):
    assert address[0] == "127.0.0.1"
    with pytest.raises(InputError, match="--port"):
        server.serve([pair], [], port=address[1])
