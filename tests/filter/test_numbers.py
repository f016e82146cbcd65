"""Numbers out of text, as Java's valueOf reads them; tests/interop compares them with Java itself."""

import math
from time import thread_time

import pytest

from sparrowmq.filter.comparison import double, double_order, integer, whole_order


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        ("+5", 5),
        ("-5", -5),
        ("-0", 0),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-2147483648", -2147483648),
        ("-2147483649", None),
        ("٣", 3),
        ("５5", 55),
        ("𝟝", None),
        ("0" * 500 + "12", 12),
        ("0" * 5000, None),
        ("9" * 5000, None),
        ("", None),
        ("+", None),
        ("--5", None),
        ("5.0", None),
        ("5L", None),
        ("1_0", None),
        (" 5", None),
        ("²", None),
    ],
)
def test_whole_numbers_have_a_sign_and_digits_and_fit(text, expected):
    assert integer(text, 32) == expected


def test_a_long_has_64_bits():
    assert integer("9223372036854775807", 64) == 2**63 - 1
    assert integer("-9223372036854775808", 64) == -(2**63)
    assert integer("9223372036854775808", 64) is None
    assert integer("-9223372036854775809", 64) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5.0),
        (" \t5.5\n", 5.5),
        ("5.", 5.0),
        (".5", 0.5),
        ("-.5e1", -5.0),
        ("1e400", math.inf),
        ("-1E400", -math.inf),
        ("1e-400", 0.0),
        ("1d", 1.0),
        ("1.5F", 1.5),
        ("0x1p3", 8.0),
        ("-0x1.8P1d", -3.0),
        ("0x.8p0", 0.5),
        ("0x1p99999", math.inf),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("inf", None),
        ("nan", None),
        ("0x1", None),
        ("1_0", None),
        ("٣", None),
        ("\u00a05", None),
        ("", None),
        (".", None),
        ("e1", None),
        ("1" * 1200, None),
    ],
)
def test_doubles_are_as_java_writes_them(text, expected):
    assert double(text) == expected


def test_no_text_takes_quadratic_time():
    begin = thread_time()
    assert [double("0" * 1000 + "x") for _ in range(20)] == [None] * 20
    assert thread_time() - begin < 0.2  # it was 0.7 s


def test_not_a_number_is_a_number_to_java():
    for text in ("NaN", "-NaN", "+NaN"):
        found = double(text)
        assert found is not None and math.isnan(found)


def test_every_double_can_be_told_from_every_other():
    ordered = [-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
    for i, left in enumerate(ordered):
        for j, right in enumerate(ordered):
            assert double_order(left, right) == whole_order(i, j) == (i > j) - (i < j)
