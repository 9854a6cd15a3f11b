"""`ptn figures`: pictures by name, and mistakes."""

import pytest
from PIL import Image

import ptn


def test_a_picture_by_name(ptn_cli, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("mlxtend")
    outcome = ptn_cli("figures", "logpolar", "-o", tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.strip() == str(tmp_path / "logpolar.png")
    assert (tmp_path / "logpolar.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_pictures_for_dark_pages(ptn_cli, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("mlxtend")
    outcome = ptn_cli("figures", "logpolar", "--dark", "-o", tmp_path)
    assert outcome.out.strip() == str(tmp_path / "logpolar.dark.png")
    with Image.open(tmp_path / "logpolar.dark.png") as picture:
        assert picture.convert("RGB").getpixel((0, 0)) == (13, 17, 23)


@pytest.mark.parametrize(
    ("name", "recipe"), [("sim2mnist", "sim2mnist/ptn_b"), ("origins", "rotsvhn/ptn_resnet32")]
)
def test_without_weights_it_says_how_to_give_them(ptn_cli, tmp_path, monkeypatch, name, recipe):
    monkeypatch.setattr("ptn.models.zoo.WEIGHTS", tmp_path)
    outcome = ptn_cli("figures", name, "-o", tmp_path / "out")
    assert outcome.code == 2
    assert f"give its file with --weights FILE, say the weights.safetensors of `ptn train {recipe}/" in outcome.err
    assert outcome.err.count("\n") == 1


def test_sim2mnist_needs_a_network_that_was_trained_on_it(ptn_cli, tmp_path):
    pytest.importorskip("matplotlib")
    weights = tmp_path / "ccnn_s.safetensors"
    ptn.save_weights(ptn.create_model("ccnn_s", image_size=96), weights)
    outcome = ptn_cli("figures", "sim2mnist", "--weights", weights, "-o", tmp_path / "out")
    assert (outcome.code, outcome.out) == (2, "")
    assert "is no polar network trained on sim2mnist: train sim2mnist/ptn_b/modern" in outcome.err


def test_pictures_of_a_network_in_light_and_dark_and_for_print(ptn_cli, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("mlxtend")
    weights = tmp_path / "made.safetensors"
    ptn.save_weights(ptn.create_model("ptn_s", image_size=36), weights)
    outcome = ptn_cli("figures", "architecture", "--weights", weights, "-o", tmp_path, "--dark", "--format", "svg")
    assert (outcome.code, outcome.err) == (0, "")
    text = (tmp_path / "architecture.dark.svg").read_text(encoding="utf-8")
    assert "ptn_s: 27,931 parameters" in text
    assert "36 angles × 36 radii" in text


def test_of_all_figures_those_that_cannot_be_drawn_are_left_out(ptn_cli, tmp_path, monkeypatch):
    from ptn import InputError
    from ptn.cli import figures

    def needs_more(path, sources):
        raise InputError("train something first")

    monkeypatch.setattr(
        figures, "_FIGURES", {"one": needs_more, "two": lambda path, sources: path.parent.mkdir(exist_ok=True)}
    )
    pytest.importorskip("matplotlib")
    outcome = ptn_cli("figures", "-o", tmp_path / "out")
    assert (outcome.code, outcome.out) == (0, f"{tmp_path / 'out' / 'two.png'}\n")
    assert outcome.err == "ptn: one is left out: train something first\n"
    assert ptn_cli("figures", "one", "-o", tmp_path / "out").code == 2


def test_mistakes_are_one_line(ptn_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("PTN_DATA", str(tmp_path))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    mistakes = {
        "unknown figure 'azimut'; did you mean 'azimuth'": ["logpolar", "azimut"],
        "train the recipes of modelnet40 first": ["azimuth", "--results", tmp_path],
        "ptn data fetch modelnet40": ["cylinder"],
        "unknown format 'gif'": ["logpolar", "--format", "gif"],
        "no weights at": ["architecture", "--weights", tmp_path / "gone.safetensors"],
        "ptn data fetch": ["rotsvhn"],
        "train svhn and rotsvhn by the paper's recipe first": ["angles", "--results", tmp_path],
        "no weights at ": ["origins", "--weights", tmp_path / "none.safetensors"],
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
