"""The picture of turned shapes: what is measured for it, and that it can be drawn."""

import numpy as np
import pytest
import torch

from ptn.reporting.figures import cylinder as figure


def corner_tower(size=24):
    """A low slab with a tower at +x."""
    volume = torch.zeros(size, size, size)
    volume[6:18, 6:18, :4] = 1
    volume[15:18, 10:14, :20] = 1
    return volume


def test_turning_shifts_the_cylindrical_image_as_theory_says():
    turned = figure.turn(corner_tower(), (0, 90, 135, 300))
    assert turned.volumes.shape == (4, 24, 24, 24)
    assert turned.cylinders.shape == (4, 48, 24, 24)
    assert turned.theory == (0, 12, 18, 40)
    assert turned.columns == pytest.approx(turned.theory, abs=0.15)
    assert torch.allclose(turned.cylinders[1], turned.cylinders[0].roll(12, 0), atol=1e-9)


def test_an_unrolled_cylinder_shows_how_far_out_a_shape_reaches():
    cylinder = torch.zeros(8, 4, 3)
    cylinder[2, :3, 0] = 1
    cylinder[5, 3, 2] = 1
    unrolled = figure.unroll(cylinder)
    assert unrolled.shape == (3, 8)
    assert unrolled[2, 2] == 0.75  # low z is below
    assert unrolled[0, 5] == 1
    assert unrolled.count_nonzero() == 2


def test_a_rendered_shape_hides_what_is_behind_and_has_no_holes():
    picture = figure.render(torch.ones(8, 8, 8))
    drawn = ~np.isnan(picture)
    inside = drawn.argmax(axis=1), drawn.shape[1] - drawn[:, ::-1].argmax(axis=1)
    assert all(row[first:last].all() for row, first, last in zip(drawn, *inside, strict=True) if row.any())
    assert np.nanmin(picture) >= 0.35
    assert np.nanmax(picture) <= 1
    assert np.isnan(figure.render(torch.zeros(8, 8, 8))).all()
    # a high tower stands higher in the picture than a flat slab
    flat, tower = corner_tower() * 1, corner_tower()
    flat[:, :, 4:] = 0
    top = [int((~np.isnan(figure.render(volume))).any(axis=1).argmax()) for volume in (flat, tower)]
    assert top[1] < top[0] - 20


def test_the_picture_can_be_drawn(tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    path = tmp_path / "made" / "cylinder.png"
    (drawn,) = figure.draw([("a_tower", corner_tower(16))], path)
    assert drawn.degrees == figure.ROTATIONS
    colours = {colour for _, colour in image_module.open(path).convert("RGB").getcolors(1 << 24)}
    assert {(0, 0x9E, 0x73), (0xF0, 0xE4, 0x42)} <= colours
    assert list(path.parent.iterdir()) == [path]
