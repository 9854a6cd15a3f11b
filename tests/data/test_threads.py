"""Slices worked on in threads."""

import pytest
import torch

from ptn.data.threads import in_threads, slices


def test_slices_cover_everything_once():
    assert [list(range(10)[rows]) for rows in slices(10, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(slices(0, 4)) == []


def test_results_come_in_order_from_single_threads():
    results = in_threads(lambda rows: (rows.start, torch.get_num_threads()), 10, 3)
    assert results == [(0, 1), (3, 1), (6, 1), (9, 1)]


def test_an_error_comes_through_and_the_number_of_threads_is_as_before():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda rows: 1 // rows.start, 10, 3)
    assert torch.get_num_threads() == before
    assert in_threads(lambda rows: rows.stop, 2, 1) == [1, 2]
