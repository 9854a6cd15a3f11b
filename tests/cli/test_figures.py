"""`ptn figures`: pictures by name, and mistakes."""

import pytest


def test_a_picture_by_name(ptn_cli, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("mlxtend")
    outcome = ptn_cli("figures", "logpolar", "-o", tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.strip() == str(tmp_path / "logpolar.png")
    assert (tmp_path / "logpolar.png").read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_one_line(ptn_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    mistakes = {
        "unknown figure 'azimut'; did you mean 'azimuth'": ["logpolar", "azimut"],
        "train the recipes of modelnet40 first": ["azimuth", "--results", tmp_path],
        "ptn data fetch modelnet40": ["cylinder"],
        "ptn data fetch": ["rotsvhn"],
        "train svhn and rotsvhn by the paper's recipe first": ["angles", "--results", tmp_path],
        "no weights at": ["origins", "--weights", tmp_path / "none.safetensors"],
    }
    for says, arguments in mistakes.items():
        outcome = ptn_cli("figures", *arguments, "-o", tmp_path / "out")
        assert (outcome.code, outcome.out) == (2, ""), says
        assert says in outcome.err
        assert outcome.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_real_shapes_can_be_drawn(ptn_cli, real_data, tmp_path):
    pytest.importorskip("matplotlib")
    outcome = ptn_cli("figures", "cylinder", "-o", tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / "cylinder.png").stat().st_size > 20_000
