"""sparrowmq.core.digits: whole numbers that others write."""

from __future__ import annotations

import pytest

from sparrowmq.core.digits import whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("9" * 18, 10**18 - 1),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("²", None),
        ("٣", None),
        ("-1", None),
        ("+1", None),
        ("1_0", None),
        (" 1", None),
        ("", None),
        (None, None),
    ],
)
def test_numbers_are_those_of_ascii_digits_that_fit(text, number):
    assert whole_number(text) == number
