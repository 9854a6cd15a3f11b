"""`ptn.fit`: any model, data of any kind, the same trainer."""

from dataclasses import replace

import pytest
import torch
from PIL import Image
from torch import nn

import ptn
from ptn.data import VoxelDataset
from ptn.training import fitting


def fit(model, *data, **options):
    return ptn.fit(model, *data, **{"epochs": 2, "batch": 32, "device": "cpu", "progress": False, **options})


def weights(model):
    return {key: value.clone() for key, value in model.state_dict().items()}


def different(a, b):
    return [key for key in a if not torch.equal(a[key], b[key])]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ptn.create_model("ptn_s", image_size=20)


def test_the_best_epoch_on_validation_data_is_kept(model, digits):
    history = fit(model, digits.train, digits.valid, epochs=4, augment={"rotation_deg": 20})
    errors = [epoch.valid_error for epoch in history.epochs]
    assert [epoch.epoch for epoch in history.epochs] == [1, 2, 3, 4]
    assert history.epochs[-1].loss < history.epochs[0].loss
    assert history.best_epoch == 1 + errors.index(min(errors))
    assert ptn.evaluate(model, digits.valid).error == min(errors)
    assert not model.training
    assert model.classes == digits.train.classes
    assert model.mean.item() == pytest.approx(digits.train.images.float().mean().item() / 255, abs=1e-4)


def test_tensors_bytes_and_data_sets_give_the_same_weights(digits):
    results = []
    images, labels, classes = digits.train.images, digits.train.labels, digits.train.classes
    for data in (digits.train, (images, labels), (images.float() / 255, labels), (images.numpy(), labels.tolist())):
        torch.manual_seed(0)
        model = ptn.create_model("ptn_s", image_size=20)
        model.classes = classes
        assert fit(model, data, epochs=1).best_epoch == 1
        results.append(weights(model))
    assert [different(results[0], other) for other in results[1:]] == [[], [], []]


def test_a_folder_of_images_is_loaded_at_the_size_of_the_model(tmp_path):
    generator = torch.Generator().manual_seed(0)
    for label, name in enumerate(("dark", "light")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            values = torch.randint(0, 100, (12, 14, 3), generator=generator) + 150 * label
            Image.fromarray(values.byte().numpy()).save(tmp_path / "photos" / name / f"{number}.png")
    model = ptn.create_model("ccnn_s", num_classes=2, image_size=16, in_chans=3)
    history = fit(model, str(tmp_path / "photos"), batch=7, epochs=5)
    assert model.classes == ("dark", "light")
    assert history.epochs[history.best_epoch - 1].valid_error == 0
    backbone = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    own = ptn.polarize(backbone, image_size=16)
    assert len(fit(own, tmp_path / "photos", batch=7, epochs=1).epochs) == 1


def test_any_module_can_be_trained(digits):
    torch.manual_seed(0)
    polar = ptn.PolarTransformer(ptn.PolarGrid(angles=16, radii=8))
    model = nn.Sequential(polar, ptn.WrapConv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    model(digits.train.images[:2] / 255)
    history = fit(model, digits.train, epochs=3)
    assert history.epochs[-1].loss < history.epochs[0].loss
    assert model.classes == digits.train.classes


def test_voxels_can_be_trained():
    labels = torch.arange(16) % 2
    packed = torch.where(labels[:, None] == 0, 17, 255).expand(16, 64).to(torch.uint8)
    data = VoxelDataset("shapes", "train", packed.contiguous(), 8, labels, ("thin", "thick"))
    model = ptn.create_model("cylindrical", num_classes=2, image_size=8)
    assert len(fit(model, data, batch=8).epochs) == 2
    assert model.classes == ("thin", "thick")


def test_an_interrupted_fit_keeps_its_weights_and_resumes(model, digits, tmp_path, monkeypatch):
    start = weights(model)
    whole = fit(model, digits.train, epochs=3)
    expected = weights(model)
    model.load_state_dict(start)

    class Interrupted(fitting.Run):
        def steps(self):
            for count, _ in enumerate(super().steps(), start=1):
                if count == 6:
                    self.save()
                    raise KeyboardInterrupt
                yield

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "Run", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            fit(model, digits.train, epochs=3, folder=tmp_path)
    assert different(weights(model), start)
    assert not model.training
    resumed = fit(model, digits.train, epochs=3, folder=tmp_path)
    assert resumed.epochs == whole.epochs
    assert different(weights(model), expected) == []
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]
    assert different(weights(ptn.load_model(tmp_path)), expected) == []


def test_the_normalization_of_a_model_and_global_settings_of_torch_are_kept(model, digits):
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic
    model.set_normalization([0.25], [0.5])
    fit(model, digits.train, epochs=1)
    assert (model.mean.item(), model.std.item()) == (0.25, 0.5)
    assert (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic) == before


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (lambda d: (d.images.float(), d.labels), {}, r"floats in \[0, 1\]"),
        (lambda d: (d.images[:, 0], d.labels), {}, r"shape \(N, C, H, W\)"),
        (lambda d: (d.images, d.labels + 9), {}, "labels"),
        (lambda d: (d.images, d.labels[:-1]), {}, "labels"),
        (lambda d: (d.images, d.labels.float()), {}, "labels .* got torch.float32"),
        (lambda d: (d.images[:0], d.labels[:0]), {}, "no images"),
        (lambda d: replace(d, classes=(*d.classes, "ten")), {}, "num_classes=11"),
        (lambda d: d, {"augment": {"rotation": 3}}, "did you mean 'rotation_deg'"),
        (lambda d: d, {"settings": {"dropout": 0.3}}, "not a setting of fit"),
    ],
)
def test_bad_input_is_named(model, digits, data, options, message):
    with pytest.raises(ptn.InputError, match=message):
        fit(model, data(digits.train), **options)
    with pytest.raises(ptn.InputError, match=r"torch\.nn\.Module.* got 'ptn_s'"):
        fit("ptn_s", digits.train)


def test_frozen_parameters_stay_and_the_origin_has_a_rate_of_its_own(digits):
    model = ptn.create_model("ptn_s", image_size=20, heatmap="evidence")
    frozen = model.classifier.features[0].conv
    for parameter in frozen.parameters():
        parameter.requires_grad = False
    before = weights(model)
    fit(model, digits.train, epochs=1, settings={"optimizer.lr": 1e-4, "optimizer.origin_scale": 100})
    changes = {key: (model.state_dict()[key] - before[key]).abs().max().item() for key in before}
    assert changes["classifier.features.0.conv.weight"] == 0
    assert changes["transformer.predictor.head.weight"] > 20 * changes["classifier.head.weight"] > 0
