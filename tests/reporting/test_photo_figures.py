"""Pictures of house numbers: samples, origins among other digits, accuracy by angle from records."""

import pytest
import torch

import ptn
from ptn import InputError
from ptn.data import Dataset
from ptn.reporting.figures import angles, origins, rotsvhn

PIL = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")


def picture_size(path):
    with PIL.open(path) as picture:
        return picture.size


def house_numbers(count=60, *, size=32, classes=10, **meta):
    """Random pictures, three to a photo."""
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8)
    known = {"image_id": torch.arange(count) // 3, "frac_outside": torch.zeros(count), **meta}
    return Dataset("rotsvhn", "test", images, torch.arange(count) % classes, tuple("0123456789")[:classes], known)


def test_samples_have_contrast_and_lie_inside_their_photos():
    digits = house_numbers(100)
    digits.images[:50] //= 4  # dull ones
    digits.meta["frac_outside"][50:60] = 0.1
    chosen = rotsvhn.pick(digits, 2)
    assert chosen.shape == (2, 10)
    assert torch.equal(digits.labels[chosen], torch.arange(10).expand(2, 10))
    assert len(chosen.unique()) == 20
    many = rotsvhn.pick(house_numbers(20), 2)
    assert sorted(many.flatten().tolist()) == list(range(20))


def test_the_sheet_shows_upright_turned_wide_and_shrunk_digits(tmp_path):
    angle, scale = torch.rand(60) * 6, 0.6 + 0.4 * torch.rand(60)
    turned = house_numbers(classes=2, rotation=angle)
    shrunk = house_numbers(classes=2, rotation=angle, scale=scale)
    rotsvhn.draw(house_numbers(classes=2), turned, house_numbers(size=48), shrunk, tmp_path / "rotsvhn.png")
    assert min(picture_size(tmp_path / "rotsvhn.png")) > 200


def test_neighbours_are_counted_within_a_photo():
    digits = house_numbers(7, image_id=torch.tensor([1, 1, 1, 2, 3, 3, 4]))
    assert origins.neighbours(digits).tolist() == [1, 2, 1, 0, 1, 1, 0]
    unknown = house_numbers(3)
    del unknown.meta["image_id"]
    with pytest.raises(InputError, match="does not say which digits share a photo"):
        origins.neighbours(unknown)


def test_origins_are_shown_and_measured_from_the_middle(tmp_path):
    model = ptn.create_model("ptn_s", image_size=32, in_chans=3)
    medians = origins.draw(model, "PTN-S", house_numbers(), tmp_path / "origins.png")
    # untrained, every origin is in the middle
    assert medians == pytest.approx({"one digit beside it": 0, "between two digits": 0}, abs=1e-4)
    assert min(picture_size(tmp_path / "origins.png")) > 500


@pytest.mark.parametrize(
    ("model", "digits", "says"),
    [
        ("ccnn_s", house_numbers(), "has no origin to show: take a PTN"),
        ("ptn_s", house_numbers(9), "too few digits of a kind to show 10"),
    ],
)
def test_what_cannot_be_shown_is_said(tmp_path, model, digits, says):
    network = ptn.create_model(model, image_size=32, in_chans=3)
    with pytest.raises(InputError, match=says):
        origins.draw(network, model, digits, tmp_path / "origins.png")
    assert list(tmp_path.iterdir()) == []


def metrics(*accuracy):
    return {"angle_deg": [0, 90, 180, 270], "angle_accuracy": list(accuracy)}


def test_curves_are_those_of_the_papers_recipe_by_data_set(made_up, tmp_path):
    def record(dataset, row, *accuracy, form="paper", seed=0):
        return made_up(table="svhn", dataset=dataset, row=row, form=form, seed=seed, metrics=metrics(*accuracy))

    records = [
        record("svhn", "ResNet32", 96, 20, 30, 20),
        record("svhn", "PTN-ResNet32", 95, 40, 50, 40, seed=0),
        record("svhn", "PTN-ResNet32", 97, 42, 52, 42, seed=1),
        record("rotsvhn", "PTN-ResNet32", 93, 93, 93, 93),
        record("rotsvhn", "PTN-ResNet32", 99, 99, 99, 99, form="modern"),
        record("rotsvhn", "PTN-ResNet32+", 99, 99, 99, 99),
    ]
    made = angles.draw(records, tmp_path / "one.png")
    assert [(curve.title, curve.accuracy, curve.n) for curve in made["svhn"]] == [
        ("PTN-ResNet32", (96, 41, 51, 41), 2),
        ("ResNet32", (96, 20, 30, 20), 1),
    ]
    assert [curve.turned for curve in made["rotsvhn"]] == [True]
    assert set(made) == {"svhn", "rotsvhn"}
    angles.draw([*records, record("rotsvhn-minus", "ResNet32", 95, 94, 95, 94)], tmp_path / "two.png")
    (_, one), (_, two) = (picture_size(tmp_path / name) for name in ("one.png", "two.png"))
    assert two == pytest.approx(2 * one, abs=2)


def test_without_records_it_says_what_to_train(made_up, tmp_path):
    with pytest.raises(InputError, match="train svhn and rotsvhn by the paper's recipe first"):
        angles.draw([made_up()], tmp_path / "none.png")
