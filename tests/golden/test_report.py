"""The numbers of `ptn report`, row by row."""

import adapter
import comparison
import pytest
import record

EXPECTED, _ = comparison.read("report")


@pytest.fixture(scope="module")
def rows() -> dict[str, dict]:
    return record.record_report()


def test_keys_of_rows_are_unique(rows: dict[str, dict]) -> None:
    assert len(rows) == len(adapter.report_rows(record.RESULTS))


def test_no_row_is_added_or_lost(rows: dict[str, dict]) -> None:
    """Remove a row from expected/report.json when the library removes it deliberately."""
    assert list(rows) == list(EXPECTED)


@pytest.mark.parametrize("key", EXPECTED)
def test_numbers_are_those_recorded(key: str, rows: dict[str, dict]) -> None:
    if key not in rows:
        pytest.skip("there is no such row any more")
    actual, expected = rows[key], EXPECTED[key]
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name
