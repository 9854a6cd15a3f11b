"""Curves of cost: axes that can be read, however far the values reach."""

import pytest

from ptn.reporting.figures import cost, style


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.17, 1.3, 5.8], [0.1, 0.2, 0.5, 1, 2, 5, 10]),
        ([0.026, 71], [0.01, 0.1, 1, 10, 100]),
        ([1.0, 10.0], [1, 2, 5, 10]),
        ([3.0], [2, 5]),
    ],
)
def test_values_lie_between_round_numbers(values, ticks):
    assert cost._round_numbers(values) == ticks


def test_every_panel_has_numbers_on_its_axis(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need matplotlib: pip install 'ptn[figures]'")
    curve = cost.Curve(
        "sampling", "angles", [8, 16], {"ptn": [700.0, 1900.0], "other": [800.0, 1500.0]}, "batch 32"
    )
    with style.paper():
        cost.draw([curve], tmp_path / "cost.svg", title="a machine")
    text = (tmp_path / "cost.svg").read_text(encoding="utf-8")
    for label in ("8", "16", "500", "1,000", "2,000"):
        assert f">{label}</text>" in text
