"""Every recorded entry has a case, and every case is recorded."""

import pytest

import golden
from record import CASES


@pytest.mark.parametrize("name", CASES)
def test_the_recorded_entries_are_those_of_the_cases(name: str) -> None:
    assert golden.read(name).keys() == {"fingerprint", *CASES[name]}
