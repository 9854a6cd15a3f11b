"""Accuracy against azimuth, drawn from records."""

import pytest

from ptn import InputError
from ptn.reporting.figures import azimuth as figure

DEGREES = [0, 90, 180, 270]


def metrics(*accuracy, degrees=DEGREES):
    return {"azimuth_deg": degrees, "azimuth_accuracy": list(accuracy)}


def test_a_curve_is_the_mean_over_the_newest_run_of_each_seed(made_up):
    records = [
        made_up(seed=0, row="Fixed axis", metrics=metrics(1, 1, 1, 1), started="2026-01-01T00:00:00+00:00"),
        made_up(seed=0, row="Fixed axis", metrics=metrics(90, 80, 70, 60), started="2026-01-02T00:00:00+00:00"),
        made_up(seed=1, row="Fixed axis", metrics=metrics(80, 70, 60, 50)),
        made_up(seed=0, row="Fixed axis, no rotation aug.", metrics=metrics(80, 10, 20, 30)),
        made_up(seed=0, row="strong+vote", metrics={}),
        made_up(seed=2, row="Fixed axis", form="paper", metrics=metrics(5, 5, 5, 5)),
        made_up(seed=0, table=None, row=None, metrics=metrics(5, 5, 5, 5)),
    ]
    fixed, unturned = figure.curves(records)
    assert fixed == figure.Curve("Fixed axis", True, (0, 90, 180, 270), (85, 75, 65, 55), 2)
    assert unturned == figure.Curve("Fixed axis", False, (0, 90, 180, 270), (80, 10, 20, 30), 1)


def test_runs_measured_at_different_angles_have_no_mean(made_up):
    records = [
        made_up(seed=0, row="Fixed axis", metrics=metrics(90, 80, 70, 60)),
        made_up(seed=1, row="Fixed axis", metrics=metrics(90, 80, degrees=[0, 180])),
    ]
    with pytest.raises(InputError, match="measured at different angles"):
        figure.curves(records)


def test_the_picture_has_a_panel_for_each_way_of_training(made_up, tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    turned = [
        made_up(row="Cylindrical Transformer", metrics=metrics(90, 89, 90, 89)),
        made_up(row="Cartesian control", metrics=metrics(88, 87, 88, 87)),
    ]
    unturned = [made_up(row="Cartesian control, no rotation aug.", metrics=metrics(88, 30, 20, 30))]
    assert len(figure.draw(turned, tmp_path / "one.png")) == 2
    assert len(figure.draw(turned + unturned, tmp_path / "two.png")) == 3
    one, two = (image_module.open(tmp_path / name).convert("RGB") for name in ("one.png", "two.png"))
    assert two.width == pytest.approx(2 * one.width, abs=2)
    colours = {colour for _, colour in two.getcolors(1 << 24)}
    assert {(0, 0x72, 0xB2), (0xD5, 0x5E, 0)} <= colours


def test_without_records_it_says_what_to_train(made_up, tmp_path):
    with pytest.raises(InputError, match="train the recipes of modelnet40 first"):
        figure.draw([made_up()], tmp_path / "none.png")
    assert list(tmp_path.iterdir()) == []
