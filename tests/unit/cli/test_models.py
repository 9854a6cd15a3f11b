"""`ptn models`, `ptn export` and `ptn demo`."""

import http.client
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

import ptn


def test_every_model_with_its_parameters(ptn_cli):
    rows = ptn_cli("models", "--json").json
    assert {row["model"] for row in rows} == set(ptn.list_models())
    assert {"model": "ptn_b", "input": [1, 28, 28], "classes": 10, "params": 131_959} in rows
    assert next(row for row in rows if row["model"] == "cylindrical")["input"] == [1, 32, 32, 32]
    table = ptn_cli("models").out
    assert all(row["model"] in table and f"{row['params']:,}" in table for row in rows)
    assert all(tag in " ".join(table.split()) for tag in ptn.list_pretrained())


@pytest.mark.slow
def test_an_export_is_only_written_if_it_agrees(ptn_cli, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    monkeypatch.chdir(tmp_path)
    ptn.save_weights(ptn.create_model("ccnn_s", image_size=20), tmp_path / "random.safetensors")
    refused = ptn_cli("export", "random.safetensors", "--tolerance", 0)
    assert (refused.code, "differ" in refused.err, (tmp_path / "random.onnx").exists()) == (2, True, False)
    result = ptn_cli("export", "random.safetensors", "--json").json
    assert (result["path"], result["format"]) == ("random.onnx", "onnx")
    assert result["bytes"] == (tmp_path / "random.onnx").stat().st_size
    assert result["largest_difference"] <= 1e-4
    again = ptn_cli("export", "random.onnx", "-o", "other.onnx")
    assert (again.code, "ONNX file already" in again.err) == (2, True)


def test_a_port_in_use_is_an_error(ptn_cli):
    pytest.importorskip("starlette", reason="the demo needs pip install 'ptn[demo]'")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = ptn_cli("demo", "--no-open", "--port", taken.getsockname()[1])
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "--port" in outcome.err


@pytest.mark.slow
def test_the_demo_as_a_process():
    pytest.importorskip("starlette", reason="the demo needs pip install 'ptn[demo]'")
    command = [sys.executable, "-m", "ptn", "demo", "--no-open", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        address = urlsplit(server.stdout.readline().split()[0])
        connection = http.client.HTTPConnection(address.hostname, address.port)
        connection.request("GET", "/")
        response = connection.getresponse()
        assert (response.status, b"Polar Transformer Networks" in response.read()) == (200, True)
        connection.close()
        server.send_signal(signal.SIGINT)
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out.strip(), err) == (0, "", "")
