"""`ptn predict`: class and probability of image files, overlays, and files that are no images."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

import ptn


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / "one.png", tmp_path / "two.jpg", tmp_path / "three.png"]
    for path in paths:
        Image.fromarray(rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(path)
    return paths


@pytest.fixture
def weights(tmp_path):
    """A network that says bee to everything with probability 3/4, and cow with 1/6, ant with 1/12."""
    return save(tmp_path / "bees.safetensors", classes=json.dumps(["ant", "bee", "cow"]))


def save(path, model="ptn_s", image_size=20, in_chans=1, **metadata):
    network = ptn.create_model(model, image_size=image_size, in_chans=in_chans, num_classes=3)
    torch.nn.init.zeros_(network.classifier.head.weight)
    with torch.no_grad():
        network.classifier.head.bias.copy_(torch.tensor([math.log(p) for p in (1 / 12, 3 / 4, 1 / 6)]))
    ptn.save_weights(network, path, metadata=metadata)
    return path


def test_a_line_for_each_image(ptn_cli, weights, pictures):
    outcome = ptn_cli("predict", weights, *pictures)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [f"{path}\tbee\t75.0%" for path in pictures]


def test_images_that_are_strange_to_the_network_are_named(ptn_cli, tmp_path):
    """The networks that come with the package learned from white digits on black."""
    digit = np.zeros((28, 28), dtype=np.uint8)
    digit[4:24, 13:15] = 255
    for name, picture in (("known", digit), ("inverted", 255 - digit), ("again", 255 - digit)):
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    assert ptn_cli("predict", "ptn_b.rotmnist", tmp_path / "known.png").err == ""
    outcome = ptn_cli("predict", "ptn_b.rotmnist", tmp_path / "known.png", tmp_path / "inverted.png")
    assert outcome.code == 0
    assert f"{tmp_path / 'inverted.png'} is much brighter" in outcome.err
    assert "again.png and 1 more are" in ptn_cli("predict", "ptn_b.rotmnist", tmp_path).err


def test_top_names_more_classes(ptn_cli, weights, pictures):
    outcome = ptn_cli("predict", weights, pictures[0], "--top", 2)
    assert outcome.out == f"{pictures[0]}\tbee\t75.0%\tcow\t16.7%\n"
    assert len(ptn_cli("predict", weights, pictures[0], "--top", 99).out.split("\t")) == 7


def test_json(ptn_cli, weights, pictures):
    outcome = ptn_cli("predict", weights, pictures[1], "--json", "--top", 3)
    (row,) = json.loads(outcome.out)
    assert (row["path"], row["class"], row["overlay"]) == (str(pictures[1]), "bee", None)
    assert row["probability"] == pytest.approx(0.75)
    assert [answer["class"] for answer in row["top"]] == ["bee", "cow", "ant"]
    assert row["origin"] == pytest.approx([0, 0], abs=1e-6)  # an untrained predictor points at the middle


def test_without_names_classes_are_numbers(ptn_cli, tmp_path, pictures):
    path = save(tmp_path / "nameless.safetensors", model="ccnn_s")
    assert ptn_cli("predict", path, pictures[0]).out == f"{pictures[0]}\t1\t75.0%\n"
    (row,) = json.loads(ptn_cli("predict", path, pictures[0], "--json").out)
    assert row["origin"] is None


def test_what_cannot_be_read_is_an_error_line_and_the_others_are_printed(ptn_cli, weights, pictures, tmp_path):
    text = tmp_path / "text.png"
    text.write_text("not a picture")
    outcome = ptn_cli("predict", weights, pictures[0], text, tmp_path / "none.png", pictures[1])
    assert outcome.code == 2
    assert outcome.out.splitlines() == [f"{path}\tbee\t75.0%" for path in pictures[:2]]
    first, second = outcome.err.splitlines()
    assert first == f"ptn: {text}: not an image"
    assert second == f"ptn: no file at {tmp_path / 'none.png'}: check the path"
    outcome = ptn_cli("predict", weights, pictures[0], text, "--json")
    assert outcome.code == 2
    good, bad = json.loads(outcome.out)
    assert good["class"] == "bee"
    assert bad["path"] == str(text)
    assert bad["error"] == f"{text}: not an image"


def test_overlays_show_the_image_and_its_origin(ptn_cli, weights, pictures, tmp_path):
    outcome = ptn_cli("predict", weights, *pictures, "--overlay", tmp_path / "out", "--json")
    assert outcome.code == 0, outcome.err
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["one.overlay.png", "three.overlay.png", "two.overlay.png"]
    assert json.loads(outcome.out)[0]["overlay"] == str(tmp_path / "out" / "one.overlay.png")
    picture = np.asarray(Image.open(tmp_path / "out" / "one.overlay.png"))
    assert picture.shape[1] == 380
    assert picture[190, 190].tolist() == [40, 230, 90]
    assert f"overlays are in {tmp_path / 'out'}: the green cross is the origin, and the redder" in outcome.err


def test_overlays_say_what_they_lack(ptn_cli, weights, pictures, tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX files need ptn[export]")
    ptn.export(ptn.create_model("ptn_s", image_size=20, num_classes=3), tmp_path / "bees.onnx")
    for path, says in (
        (save(tmp_path / "middle.safetensors", "pcnn_s"), "the origin, which this network does not choose"),
        (save(tmp_path / "plain.safetensors", "ccnn_s"), "no heatmap and no origin, for this network has none"),
        (tmp_path / "bees.onnx", "no origin, which an ONNX file does not give: take the .safetensors file"),
    ):
        outcome = ptn_cli("predict", path, pictures[0], "--overlay", tmp_path / path.stem)
        assert outcome.code == 0
        assert (tmp_path / path.stem / "one.overlay.png").exists()
        assert outcome.err.startswith(f"ptn: overlays are in {tmp_path / path.stem}: ")
        assert says in outcome.err
        assert outcome.err.count("\n") == 1


@pytest.fixture
def album(tmp_path, pictures):
    """A folder with pictures, a folder of pictures in it, and what is no picture."""
    folder = tmp_path / "album"
    (folder / "older").mkdir(parents=True)
    (folder / ".cache").mkdir()
    for path, target in zip(pictures, ("b.png", "a.jpg", "older/b.png"), strict=True):
        path.rename(folder / target)
    (folder / "notes.txt").write_text("no picture")
    (folder / ".cache" / "b.png").write_text("hidden")
    return folder


def test_a_folder_is_all_its_images_in_order(ptn_cli, weights, album):
    outcome = ptn_cli("predict", weights, album)
    assert outcome.code == 0
    assert outcome.out.splitlines() == [f"{album / name}\tbee\t75.0%" for name in ("a.jpg", "b.png", "older/b.png")]
    assert outcome.err == f"ptn: skipped {album / 'notes.txt'}: not an image\n"


def test_overlays_may_lie_beside_the_images_again_and_again(ptn_cli, weights, album):
    first, second = (ptn_cli("predict", weights, album, "--overlay", album) for _ in range(2))
    assert (first.code, second.code) == (0, 0), second.err
    assert first.out == second.out


def test_overlays_of_a_folder_lie_as_its_images_do_and_are_not_looked_at_again(ptn_cli, weights, album):
    for _ in range(2):
        outcome = ptn_cli("predict", weights, album, "--overlay", album / "seen")
        assert outcome.code == 0
        assert len(outcome.out.splitlines()) == 3
    names = sorted(path.relative_to(album / "seen").as_posix() for path in (album / "seen").rglob("*.png"))
    assert names == ["a.overlay.png", "b.overlay.png", "older/b.overlay.png"]


def test_a_folder_with_a_damaged_image_is_predicted_all_the_same(ptn_cli, weights, album):
    (album / "a.jpg").write_bytes((album / "a.jpg").read_bytes()[:400])
    outcome = ptn_cli("predict", weights, album)
    assert outcome.code == 2
    assert len(outcome.out.splitlines()) == 2
    assert f"ptn: {album / 'a.jpg'}: cannot be read as an image: " in outcome.err


def test_a_folder_without_images_is_an_error(ptn_cli, weights, tmp_path):
    (tmp_path / "empty").mkdir()
    outcome = ptn_cli("predict", weights, tmp_path / "empty")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"ptn: {tmp_path / 'empty'} has no image in it")


def test_overlays_never_meet_nor_fall_on_an_image(ptn_cli, weights, pictures, tmp_path):
    twin = tmp_path / "twin" / "one.jpg"
    twin.parent.mkdir()
    Image.open(pictures[0]).save(twin)
    outcome = ptn_cli("predict", weights, pictures[0], twin, "--overlay", tmp_path / "out")
    assert outcome.code == 2
    assert "one.overlay.png: predict them apart" in outcome.err
    assert not (tmp_path / "out").exists()
    marked = pictures[0].rename(tmp_path / "one.overlay.png")
    before = marked.read_bytes()
    (tmp_path / "one.png").write_bytes(before)
    outcome = ptn_cli("predict", weights, tmp_path / "one.png", marked, "--overlay", tmp_path)
    assert outcome.code == 2
    assert "is one of the images" in outcome.err
    assert marked.read_bytes() == before


@pytest.fixture
def meshes(tmp_path):
    """A box in each format."""
    trimesh = pytest.importorskip("trimesh")
    pytest.importorskip("scipy")
    paths = [tmp_path / f"box.{kind}" for kind in ("off", "ply", "stl", "obj")]
    for path in paths:
        trimesh.creation.box((1, 2, 3)).export(path)
    return paths


def test_a_line_for_each_mesh(ptn_cli, meshes, tmp_path):
    names = json.dumps(["ant", "bee", "cow"])
    for channels, options in ((1, {"occupancy": "solid"}), (2, {"occupancy": "surface+solid", "size": 32})):
        path = tmp_path / f"voxels{channels}.safetensors"
        save(path, "ccnn_3d", 32, channels, classes=names, dataset_options=json.dumps(options))
        outcome = ptn_cli("predict", path, *meshes)
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.out.splitlines() == [f"{mesh}\tbee\t75.0%" for mesh in meshes]


def test_a_folder_of_meshes(ptn_cli, meshes, tmp_path):
    folder = tmp_path / "meshes"
    folder.mkdir()
    for path in meshes:
        path.rename(folder / path.name)
    (folder / "box.png").write_text("a picture of it")
    outcome = ptn_cli("predict", save(tmp_path / "voxels.safetensors", "ccnn_3d", 32), folder)
    assert outcome.code == 0
    names = [line.split("\t")[0] for line in outcome.out.splitlines()]
    assert names == [str(folder / f"box.{kind}") for kind in ("obj", "off", "ply", "stl")]
    assert outcome.err == f"ptn: skipped {folder / 'box.png'}: not a mesh\n"


def test_what_is_no_mesh_is_an_error_line_and_the_others_are_printed(ptn_cli, meshes, pictures, tmp_path):
    weights = save(tmp_path / "voxels.safetensors", "cylindrical", 32)
    broken, flat = tmp_path / "broken.off", tmp_path / "flat.off"
    broken.write_text("OFF\n3 1 0\n0 0 0\n")
    flat.write_text("OFF\n3 1 0\n5 5 5\n5 5 5\n5 5 5\n3 0 1 2\n")
    bad = [broken, flat, tmp_path / "none.ply", pictures[0]]
    outcome = ptn_cli("predict", weights, meshes[0], *bad, "--overlay", tmp_path / "seen")
    assert outcome.code == 2
    assert outcome.out == f"{meshes[0]}\t1\t75.0%\n"
    *lines, explanation = outcome.err.splitlines()
    assert "overlays are in" in explanation
    assert len(lines) == 4
    assert all(line.startswith("ptn: ") and str(path) in line for line, path in zip(lines, bad, strict=True))
    assert "cannot be scaled into the grid" in lines[1]
    assert "No such file" in lines[2]
    assert "unknown mesh format" in lines[3]
    assert ".off, .ply, .stl, .obj" in lines[3]
    picture = np.asarray(Image.open(tmp_path / "seen" / "box.overlay.png"))
    assert picture[192, 192].tolist() == [40, 230, 90]  # the axis, from above


def test_mistakes_are_one_line(ptn_cli, weights, pictures, tmp_path):
    (tmp_path / "blocked").write_text("a file where a folder should be")
    voxels = save(tmp_path / "voxels.safetensors", model="cylindrical")
    mistakes = {
        "no weights at": [tmp_path / "none.safetensors", pictures[0]],
        "weights are a .safetensors or .onnx file": [pictures[0], pictures[0]],
        "which no image file holds, nor do meshes become surface of that size": [voxels, pictures[0]],
        "cannot create folder": [weights, pictures[0], "--overlay", tmp_path / "blocked" / "out"],
        "unknown device": [weights, pictures[0], "--device", "gpu"],
    }
    for says, arguments in mistakes.items():
        outcome = ptn_cli("predict", *arguments)
        assert (outcome.code, outcome.out) == (2, ""), says
        assert says in outcome.err
        assert outcome.err.count("\n") == 1, outcome.err
