"""Predictions for files, PIL images, arrays and tensors are those for the same images in training."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import ptn
from ptn.data.folder import load_folder
from ptn.data.voxelize import read_voxels
from ptn.errors import InputError
from ptn.evaluation import Unreadable, predict, predict_each, scores

NAMES = ("ant", "bee", "cow")


@pytest.fixture
def pictures(tmp_path):
    """Seven color images of several sizes."""
    rng = np.random.default_rng(0)
    sizes = [(20, 20), (31, 20), (20, 50), (8, 8), (64, 40), (20, 20), (100, 100)]
    paths = [tmp_path / f"{k}.png" for k in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)).save(path)
    return paths


def read(path):
    with Image.open(path) as picture:
        return np.array(picture)


@pytest.fixture
def model():
    """A small network whose predictions and origins depend on the image."""
    network = ptn.create_model("ptn_s", image_size=20, num_classes=3, in_chans=3).eval()
    torch.nn.init.normal_(network.transformer.predictor.head.weight)
    network.classes = NAMES
    return network


@pytest.mark.parametrize("fit", ["resize", "pad"])
def test_a_file_is_read_as_in_training(model, pictures, tmp_path, fit):
    for k, path in enumerate(pictures):
        target = tmp_path / "root" / NAMES[k % 3] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    dataset = load_folder(tmp_path / "root", "train", image_size=20, fit=fit, valid_fraction=0, test_fraction=0)
    files = [tmp_path / "root" / name for name in dataset.meta["files"]]
    model.metadata = {"fit": fit}
    predictions = predict(model, files, batch=3, top=3)
    assert [prediction.path for prediction in predictions] == files
    assert torch.equal(torch.stack([prediction.image for prediction in predictions]), dataset.images)
    explanation = model.explain(dataset.images.float() / 255)
    assert explanation.origins.std(dim=0).min() > 1e-3
    for index, prediction in enumerate(predictions):
        row = explanation.logits[index].softmax(dim=0)
        assert (prediction.label, prediction.class_name) == (int(row.argmax()), NAMES[int(row.argmax())])
        assert prediction.probability == pytest.approx(float(row.max()), abs=1e-5)
        assert dict(prediction.top) == pytest.approx(dict(zip(NAMES, row.tolist(), strict=True)), abs=1e-5)
        assert list(prediction.top) == sorted(prediction.top, key=lambda pair: -pair[1])
        assert prediction.origin == pytest.approx(tuple(explanation.origins[index].tolist()), abs=1e-5)
        torch.testing.assert_close(prediction.heatmap, explanation.heatmaps[index])


def test_images_in_memory_are_predicted_like_files(model, pictures):
    (expected,) = predict(model, pictures[4])
    pixels = read(pictures[4])
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    arrays = [pixels, pixels / np.float32(255), tensor, tensor.float() / 255]
    for source in (str(pictures[4]), Image.fromarray(pixels), *arrays):
        for images in (source, [source]):
            (prediction,) = predict(model, images)
            assert torch.equal(prediction.image, expected.image)
            assert dict(prediction.top) == pytest.approx(dict(expected.top))
    assert len(predict(model, tensor[None].expand(3, -1, -1, -1))) == 3
    assert predict(model, []) == []


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK"])
def test_pil_images_of_any_mode_are_read_like_files(model, pictures, tmp_path, mode):
    picture = Image.fromarray(read(pictures[4])).convert(mode)
    path = tmp_path / f"{mode}.tif"
    picture.save(path)
    assert torch.equal(predict(model, picture)[0].image, predict(model, path)[0].image)


def test_unreadable_files_are_reported_and_the_others_predicted(model, pictures, tmp_path):
    (tmp_path / "text.png").write_text("not an image")
    (tmp_path / "cut.png").write_bytes(pictures[4].read_bytes()[:1000])
    bad = [tmp_path / "text.png", tmp_path / "cut.png", tmp_path / "none.png", tmp_path]
    mixed = [bad[0], pictures[0], bad[1], pictures[1], bad[2], bad[3]]
    results = list(predict_each(model, mixed, batch=2))
    assert [result.path for result in results] == mixed
    assert [isinstance(result, Unreadable) for result in results] == [True, False, True, False, True, True]
    assert all(str(result.path) in result.reason for result in results if isinstance(result, Unreadable))
    with pytest.raises(InputError, match=r"text\.png"):
        predict(model, mixed)


def test_a_model_without_an_origin_or_names(pictures, tmp_path):
    ptn.save_weights(ptn.create_model("ccnn_s", image_size=20, num_classes=3), tmp_path / "model.safetensors")
    (prediction,) = predict(tmp_path / "model.safetensors", pictures[0])
    assert (prediction.origin, prediction.heatmap) == (None, None)
    assert prediction.class_name == str(prediction.label)


def test_invalid_input(model, pictures):
    cases = [
        (torch.nn.Flatten(), pictures, "Flatten"),
        (ptn.create_model("cylindrical", image_size=8), pictures, "neither images nor meshes"),
        (model, torch.rand(3, 20, 20) * 255, "floats in"),
        (model, torch.zeros(3, 20, 20, dtype=torch.int64), "int64"),
        (model, np.zeros((2, 20, 20, 3), dtype=np.uint8), "got shape"),
        (model, {"image": pictures[0]}, "got dict"),
    ]
    for which, images, word in cases:
        with pytest.raises(InputError, match=word):
            predict(which, images)
    torch.nn.init.constant_(model.classifier.head.bias, torch.nan)
    with pytest.raises(InputError, match="not finite"):
        predict(model, pictures)


def write_wedge(path):
    """Writes a closed wedge, higher towards +x, wider along y."""
    corners = [(0, 0, 0), (1, 0, 0), (1, 2, 0), (0, 2, 0), (1, 0, 1), (1, 2, 1)]
    faces = [(0, 1, 2), (0, 2, 3), (0, 1, 4), (3, 5, 2), (1, 2, 5), (1, 5, 4), (0, 4, 5), (0, 5, 3)]
    lines = [f"{len(corners)} {len(faces)} 0", *(" ".join(map(str, row)) for row in corners)]
    path.write_text("\n".join(["OFF", *lines, *(f"3 {a} {b} {c}" for a, b, c in faces)]) + "\n")
    return path


@pytest.mark.parametrize(("channels", "occupancy"), [(1, "solid"), (2, None)])
def test_meshes_are_voxelized(tmp_path, channels, occupancy):
    pytest.importorskip("scipy")
    pytest.importorskip("trimesh")
    path = write_wedge(tmp_path / "wedge.off")
    model = ptn.create_model("cylindrical", image_size=32, in_chans=channels, num_classes=3).eval()
    model.metadata = {"dataset_options": {"occupancy": occupancy}}
    grids = read_voxels(path, size=32, occupancy=occupancy or "surface+solid")[None]
    (prediction,) = predict(model, path, top=3)
    expected = scores(model, grids.float())[0]
    assert dict(prediction.top) == pytest.approx(dict(zip("012", expected.tolist(), strict=True)), abs=1e-5)
    assert dict(predict(model, grids.byte())[0].top) == pytest.approx(dict(prediction.top))
    assert torch.equal(prediction.image[0] > 0, grids[0].any(dim=0).any(dim=2).T)
    row = prediction.image[0, 16]
    shades = row[row > 0].tolist()
    assert shades == sorted(shades)  # seen from above, the wedge is brighter towards +x
    model.metadata = {"dataset_options": {"occupancy": "solid" if channels == 2 else "surface+solid"}}
    with pytest.raises(InputError, match="neither images nor meshes"):
        predict(model, path)


def test_networks_without_a_configuration_have_numbered_classes():
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    model = ptn.polarize(backbone, image_size=16, in_chans=1)
    for network in (model, ptn.Ensemble([model, model])):
        (prediction,) = ptn.predict(network, torch.rand(1, 16, 16))
        assert prediction.class_name in ("0", "1", "2")
