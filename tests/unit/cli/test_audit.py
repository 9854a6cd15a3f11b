"""`ptn audit`: a report for labeled and unlabeled images."""

import json

import pytest

pytest.importorskip("matplotlib", reason="figures need pip install 'ptn[figures]'")


def test_a_report_is_printed_and_written(ptn_cli, animals, bees, tmp_path):
    out = tmp_path / "report"
    outcome = ptn_cli("audit", bees, "--folder", animals, "--step", 90, "-o", out)
    assert outcome.code == 0, outcome.err
    assert "10 images of animals test, 1 × 20 × 20, 3 classes; accuracy 30.0%" in outcome.out
    expected = ["rotation", "100.0%", "at", "90°", "100.0%", "0.000", "30.0%", "100.0%", "0.000", "30.0%"]
    assert expected in outcome.cells
    assert outcome.out.splitlines()[-3:] == [str(out / f"audit.{suffix}") for suffix in ("json", "md", "png")]
    read = json.loads((out / "audit.json").read_text())
    assert (read["model"], read["data"]) == (str(bees), "animals test")
    assert [p["amount"] for p in read["points"] if p["kind"] == "rotation"] == [0, 90, 180, 270]
    assert {layer["layer"] for layer in read["layers"]} >= {"transformer", "classifier.features.0"}


def test_a_folder_without_class_folders_has_no_labels(ptn_cli, animals, bees, tmp_path):
    flat = animals / "test" / "ant"
    (flat / "broken.png").write_bytes(b"not an image")
    outcome = ptn_cli("audit", bees, "--folder", flat, "--step", 180, "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert "5 images of ant (of 6), 1 × 20 × 20, 3 classes; no labels" in outcome.out
    assert "broken.png" in outcome.err


def test_some_images_are_drawn(ptn_cli, animals, bees, tmp_path):
    options = ["--step", 180, "--count", 5, "--json", "-o", tmp_path / "out"]
    result = ptn_cli("audit", bees, "--folder", animals, *options).json
    assert (result["images"], result["data"]) == (5, "animals test (of 10)")
    assert result == json.loads((tmp_path / "out" / "audit.json").read_text())
