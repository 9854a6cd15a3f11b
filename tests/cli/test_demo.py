"""`ptn demo`."""

import http.client
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

import ptn
from ptn.demo import models
from ptn.models import save_weights

pytest.importorskip("fastapi", reason="the page needs fastapi: pip install 'ptn[demo]'")


@pytest.fixture
def weights(tmp_path):
    save_weights(ptn.create_model("ptn_s"), tmp_path / "mine.safetensors")
    return tmp_path / "mine.safetensors"


@pytest.fixture
def served(monkeypatch):
    """What would be served, and which addresses browsers would open."""
    seen = {"opened": []}

    def serve(pairs, digits, *, port, on_ready):
        seen.update(pairs=pairs, port=port)
        on_ready(f"http://127.0.0.1:{port}/")
        raise KeyboardInterrupt

    monkeypatch.setattr("ptn.demo.server.serve", serve)
    monkeypatch.setattr("webbrowser.open", seen["opened"].append)
    return seen


def test_it_says_where_it_is_and_opens_a_browser(ptn_cli, served, weights):
    outcome = ptn_cli("demo", "--port", "8123", "--weights", weights)
    assert outcome.code == 0
    assert outcome.out.startswith("http://127.0.0.1:8123/")
    assert served["opened"] == ["http://127.0.0.1:8123/"]
    assert served["pairs"][0].polar_name == "PTN-S"


def test_it_opens_no_browser_if_told_not_to(ptn_cli, served, weights):
    assert ptn_cli("demo", "--no-open", "--weights", weights).code == 0
    assert served["opened"] == []


def test_without_weights_it_says_what_to_do(ptn_cli, monkeypatch):
    monkeypatch.setattr(models, "list_pretrained", list)
    outcome = ptn_cli("demo", "--no-open")
    assert outcome.code == 2
    assert "run `ptn quickstart`" in outcome.err
    assert outcome.err.count("\n") == 1


def test_without_its_packages_it_says_what_to_install(ptn_cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    outcome = ptn_cli("demo", "--no-open")
    assert (outcome.code, outcome.err) == (2, "ptn: this needs the package uvicorn: pip install 'ptn[demo]'\n")


def test_mistakes_are_one_line(ptn_cli, weights):
    missing = ptn_cli("demo", "--no-open", "--weights", "nothing.safetensors")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = ptn_cli("demo", "--no-open", "--weights", weights, "--port", port)
    wild = ptn_cli("demo", "--port", "70000")
    for outcome, says in ((missing, "no weights at"), (busy, "choose another with --port"), (wild, "65535")):
        assert outcome.code == 2
        assert says in outcome.err
        assert outcome.err.count("\n") == 1


@pytest.mark.slow
def test_as_a_user_runs_it(weights):
    command = [sys.executable, "-m", "ptn", "demo", "--no-open", "--port", "0", "--weights", str(weights)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        place = urlsplit(server.stdout.readline().split()[0])
        connection = http.client.HTTPConnection(place.hostname, place.port)
        connection.request("GET", "/")
        response = connection.getresponse()
        assert response.status == 200
        assert b"Polar Transformer Networks" in response.read()
        connection.close()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, err) == (0, "")
    assert out.strip() == ""
