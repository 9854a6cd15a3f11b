"""What a model says about image files: the same as about the images in them, whatever their size and mode."""

import numpy as np
import pytest
import torch
from PIL import Image

import ptn
from ptn.data.folder import load_folder
from ptn.data.meshes import read_mesh
from ptn.data.voxelize import voxelize
from ptn.errors import InputError
from ptn.evaluation import overlay, predict_files, scores

NAMES = ("ant", "bee", "cow")


def write(path, pixels):
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def pictures(tmp_path):
    """Seven colour files of several sizes."""
    rng = np.random.default_rng(0)
    sizes = [(20, 20), (31, 20), (20, 50), (8, 8), (64, 40), (20, 20), (100, 100)]
    pixels = [rng.integers(0, 255, (*size, 3), dtype=np.uint8) for size in sizes]
    return [write(tmp_path / f"{k}.png", picture) for k, picture in enumerate(pixels)]


@pytest.fixture
def model():
    """A small network that treats different images differently: its head is not at zero, its origin moves."""
    network = ptn.create_model("ptn_s", image_size=20, num_classes=3, in_chans=3).eval()
    torch.nn.init.normal_(network.transformer.predictor.head.weight)
    return network


@pytest.mark.parametrize("fit", ["resize", "pad"])
def test_a_file_is_seen_as_in_training(model, pictures, tmp_path, fit):
    for k, path in enumerate(pictures):
        target = tmp_path / "root" / NAMES[k % 3] / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    dataset = load_folder(tmp_path / "root", "train", image_size=20, fit=fit, valid_fraction=0, test_fraction=0)
    files = [tmp_path / "root" / name for name in dataset.meta["files"]]
    expected = model(dataset.images.float() / 255).softmax(dim=1).detach()
    predictions, faults = predict_files(model, NAMES, files, fit=fit, batch=3, top=3)
    assert faults == []
    assert [prediction.path for prediction in predictions] == files
    assert torch.equal(torch.stack([prediction.image for prediction in predictions]), dataset.images)
    for prediction, row in zip(predictions, expected, strict=True):
        best = int(row.argmax())
        assert prediction.class_name == NAMES[best]
        assert prediction.probability == pytest.approx(float(row[best]), abs=1e-5)
        assert dict(prediction.top) == pytest.approx(dict(zip(NAMES, row.tolist(), strict=True)), abs=1e-5)
        assert list(prediction.top) == sorted(prediction.top, key=lambda pair: -pair[1])


def test_origins_and_heatmaps_are_those_of_the_image(model, pictures):
    predictions, _ = predict_files(model, NAMES, pictures)
    images = torch.stack([prediction.image for prediction in predictions]).float() / 255
    seen = model.explain(images)
    assert seen.origins.std(dim=0).min() > 1e-3
    for prediction, origin, heatmap in zip(predictions, seen.origins, seen.heatmaps, strict=True):
        assert prediction.origin == pytest.approx(tuple(origin.tolist()), abs=1e-5)
        torch.testing.assert_close(prediction.heatmap, heatmap)


def test_a_model_without_an_origin_predicts_none(pictures):
    model = ptn.create_model("ccnn_s", image_size=20, num_classes=3)
    predictions, _ = predict_files(model, NAMES, pictures[:1])
    assert (predictions[0].origin, predictions[0].heatmap) == (None, None)


def test_files_that_cannot_be_read_are_named_and_the_others_predicted(model, pictures, tmp_path):
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "cut.png").write_bytes(pictures[4].read_bytes()[:1000])
    bad = [tmp_path / "text.png", tmp_path / "cut.png", tmp_path / "none.png", tmp_path]
    mixed = [bad[0], pictures[0], bad[1], pictures[1], bad[2], bad[3]]
    predictions, faults = predict_files(model, NAMES, mixed, batch=2)
    assert [prediction.path for prediction in predictions] == pictures[:2]
    assert [fault.path for fault in faults] == bad
    assert all(str(path) in reason for path, reason in faults)


def test_no_files_are_no_predictions(model):
    assert predict_files(model, NAMES, []) == ([], [])


def test_a_model_that_images_or_names_do_not_fit_is_refused(model, pictures):
    with pytest.raises(InputError, match=r"cylindrical takes .* which no image file holds"):
        predict_files(ptn.create_model("cylindrical", image_size=8, num_classes=3), NAMES, pictures)
    with pytest.raises(InputError, match="3 classes; got 2 names"):
        predict_files(model, NAMES[:2], pictures)
    with pytest.raises(InputError, match="top and batch must be at least 1"):
        predict_files(model, NAMES, pictures, top=0)
    with pytest.raises(InputError, match="unknown fit 'crop'"):
        predict_files(model, NAMES, pictures, fit="crop")


def test_a_diverged_model_predicts_nothing(model, pictures):
    torch.nn.init.constant_(model.classifier.head.bias, torch.nan)
    with pytest.raises(InputError, match="not finite"):
        predict_files(model, NAMES, pictures)


def test_an_overlay_marks_the_origin_and_the_heat():
    image = torch.full((1, 32, 32), 200, dtype=torch.uint8)
    heatmap = torch.zeros(16, 16)
    heatmap[2:4, 12:14] = 1.0  # top right
    picture = np.asarray(overlay(image, (-0.5, 0.5), heatmap, caption="ant (97.0%)"))
    high = wide = 32 * 12
    assert picture.shape == (high + 26, wide, 3)
    cross = picture[3 * high // 4, wide // 4]
    assert cross.tolist() == [40, 230, 90]
    hot = picture[3 * high // 16, 13 * wide // 16]
    assert hot[0] > hot[1] + 60 > 60
    assert picture[high // 4, wide // 4].tolist() == [200] * 3  # as it was, where nothing was found
    assert picture[high:].max() > 200  # the caption


def test_a_negative_heatmap_shows_what_its_centroid_sees():
    image = torch.zeros(1, 16, 16, dtype=torch.uint8)
    heatmap = torch.zeros(4, 4)
    heatmap[0, 0] = -1.0
    assert overlay(image, None, heatmap).tobytes() == overlay(image, None, -heatmap).tobytes()
    assert overlay(image, None, heatmap).getpixel((0, 0))[0] > 100


def test_a_uniform_heatmap_and_a_long_name_do_no_harm():
    image = torch.randint(0, 255, (3, 300, 40), dtype=torch.uint8)
    picture = overlay(image, (1.0, -1.0), torch.ones(5, 5), caption="a very long name of a class indeed (12.3%)")
    assert np.array_equal(np.asarray(picture)[20:300, :20], image.permute(1, 2, 0).numpy()[20:, :20])


def write_wedge(path):
    """A closed wedge, higher towards +x, wider along y."""
    corners = [(0, 0, 0), (1, 0, 0), (1, 2, 0), (0, 2, 0), (1, 0, 1), (1, 2, 1)]
    faces = [(0, 1, 2), (0, 2, 3), (0, 1, 4), (3, 5, 2), (1, 2, 5), (1, 5, 4), (0, 4, 5), (0, 5, 3)]
    lines = [f"{len(corners)} {len(faces)} 0", *(" ".join(map(str, row)) for row in corners)]
    path.write_text("\n".join(["OFF", *lines, *(f"3 {a} {b} {c}" for a, b, c in faces)]) + "\n")
    return path


@pytest.mark.parametrize(("channels", "occupancy"), [(1, "solid"), (2, None)])
def test_meshes_are_voxelised_for_networks_of_voxels(tmp_path, channels, occupancy):
    pytest.importorskip("scipy")
    path = write_wedge(tmp_path / "wedge.off")
    model = ptn.create_model("cylindrical", image_size=32, in_chans=channels, num_classes=3).eval()
    kind = occupancy or "surface+solid"
    grids = torch.from_numpy(voxelize(*read_mesh(path), occupancy=kind)).view(1, channels, 32, 32, 32)
    (prediction,), faults = predict_files(model, NAMES, [path], occupancy=occupancy, top=3)
    assert faults == []
    expected = scores(model, grids.float())[0]
    assert dict(prediction.top) == pytest.approx(dict(zip(NAMES, expected.tolist(), strict=True)), abs=1e-5)
    seen = prediction.image
    assert seen.shape == (1, 32, 32)
    assert torch.equal(seen[0] > 0, grids[0].any(dim=0).any(dim=2).T)
    columns = seen[0, 16][seen[0, 16] > 0].tolist()
    assert columns == sorted(columns)  # the wedge is higher, and so brighter, towards +x
    assert columns[-1] > columns[0] + 50


def test_the_occupancy_must_fit_the_network(tmp_path):
    path = write_wedge(tmp_path / "wedge.off")
    model = ptn.create_model("ccnn_3d", image_size=32, num_classes=3)
    with pytest.raises(InputError, match=r"takes \(1, 32, 32, 32\), .* nor do meshes become surface\+solid"):
        predict_files(model, NAMES, [path], occupancy="surface+solid")
    with pytest.raises(InputError, match="unknown occupancy 'sold'; did you mean 'solid'"):
        predict_files(model, NAMES, [path], occupancy="sold")
