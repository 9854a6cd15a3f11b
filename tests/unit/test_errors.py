"""Errors of invalid input."""

from ptn import InputError


def test_a_message_is_one_line_of_limited_length():
    assert str(InputError("403 Forbidden\nRequest ID: 1")) == "403 Forbidden Request ID: 1"
    assert len(str(InputError("x" * 10**6))) < 3000
