"""Values and gradients of the geometric functions on small fixed inputs."""

import cases
import comparison
import pytest

EXPECTED, RECORDED_ON = comparison.read("geometry")
CASES = cases.geometry_cases()


def test_every_case_is_recorded() -> None:
    assert set(CASES) == set(EXPECTED)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_recorded(name: str, one_thread: None) -> None:
    same_machine = comparison.fingerprint() == RECORDED_ON
    for actual, expected in zip(CASES[name](), EXPECTED[name], strict=True):
        comparison.check(actual, expected, same_machine)
