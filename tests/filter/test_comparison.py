"""Comparisons of values of every kind with each other."""

import pytest

from sparrowmq.filter.comparison import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, comparison
from sparrowmq.filter.tree import (
    DOUBLE,
    FAILED,
    FALSE,
    INT,
    LONG,
    TEXT,
    TRUE,
    UNKNOWN,
    Constant,
    Literal,
    Negated,
    Property,
    Texts,
)

NONE = Texts([None, None])
A, B = Property("a", 0), Property("b", 1)


def of(left, how, right, *texts):
    return comparison(left, how, right).truth(Texts(list(texts)))


def literal(value):
    if isinstance(value, str):
        return Literal(TEXT, value)
    return Literal(DOUBLE if isinstance(value, float) else INT if value < 1 << 31 else LONG, value)


@pytest.mark.parametrize(
    ("text", "number", "above", "at_least", "below", "at_most", "equal"),
    [
        ("7", 5, TRUE, TRUE, FALSE, FALSE, FALSE),
        ("5", 5, FALSE, TRUE, FALSE, TRUE, TRUE),
        ("-6", 5, FALSE, FALSE, TRUE, TRUE, FALSE),
        ("5.0", 5.0, FALSE, TRUE, FALSE, TRUE, TRUE),
        ("NaN", 5.0, TRUE, TRUE, FALSE, FALSE, FALSE),
        ("9223372036854775807", 2**40, TRUE, TRUE, FALSE, FALSE, FALSE),
        ("5.0", 5, FAILED, FAILED, FAILED, FAILED, FAILED),
        ("9223372036854775807", 5, FAILED, FAILED, FAILED, FAILED, FAILED),
        ("abc", 5.5, FAILED, FAILED, FAILED, FAILED, FAILED),
        (None, 5, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ],
)
def test_a_property_with_a_number(text, number, above, at_least, below, at_most, equal):
    hows = (ABOVE, AT_LEAST, BELOW, AT_MOST, EQUAL)
    expected = [above, at_least, below, at_most, equal]
    assert [of(A, how, literal(number), text) for how in hows] == expected
    # With the sides exchanged the same is meant, but for null, which is not equal there instead of unknown.
    mirrored = (BELOW, AT_MOST, ABOVE, AT_LEAST, EQUAL)
    if text is None:
        expected[-1] = FALSE
    assert [of(literal(number), how, A, text) for how in mirrored] == expected


def test_two_properties_are_equal_as_texts_and_ordered_as_numbers():
    assert of(A, EQUAL, B, "5", "5.0") == FALSE
    assert of(A, EQUAL, B, "abc", "abc") == TRUE
    assert of(A, AT_LEAST, B, "5", "5.0") == TRUE
    assert of(A, ABOVE, B, "10", "9") == TRUE
    assert of(A, ABOVE, B, "10", "abc") == FAILED


def test_two_nulls_are_equal():
    assert of(A, EQUAL, B, None, None) == TRUE
    assert of(A, EQUAL, B, None, "x") == UNKNOWN
    assert of(A, EQUAL, B, "x", None) == FALSE
    assert of(A, ABOVE, B, "1", None) == UNKNOWN


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (5, 5, TRUE),
        (5, 5.0, TRUE),
        (2**53 + 1, float(2**53), TRUE),
        (2**53 + 1, 2**53, FALSE),
        (5, 2**40, FALSE),
        ("x", "x", TRUE),
        ("x", "y", FALSE),
        ("5", 5, TRUE),
        (5, "5", TRUE),
        (5, "x", FAILED),
        (5.5, "5.5", TRUE),
        (2**40, str(2**40), TRUE),
    ],
)
def test_literals_with_each_other(left, right, expected):
    assert of(literal(left), EQUAL, literal(right)) == expected


def test_booleans_with_everything():
    true, false = Constant(TRUE), Constant(FALSE)
    assert of(true, EQUAL, true) == of(false, EQUAL, false) == TRUE
    assert of(true, EQUAL, false) == FALSE
    assert [of(A, EQUAL, true, text) for text in ("TRUE", "tRue", "1", None)] == [TRUE, TRUE, FALSE, UNKNOWN]
    assert [of(A, EQUAL, false, text) for text in ("false", "other", "true")] == [TRUE, TRUE, FALSE]
    assert of(true, EQUAL, A, "true") == FAILED
    assert of(true, EQUAL, literal(1)) == of(literal(1), EQUAL, true) == FALSE
    assert of(Constant(UNKNOWN), EQUAL, true) == UNKNOWN
    assert of(Constant(FAILED), EQUAL, true) == of(true, EQUAL, Constant(FAILED)) == FAILED


def test_what_is_always_null_is_unknown():
    assert of(Negated(A), ABOVE, literal(5), "7") == UNKNOWN
    assert of(A, ABOVE, Negated(B), "7", "5") == UNKNOWN


def test_a_text_is_the_same_or_not():
    assert [of(A, EQUAL, literal("é"), text) for text in ("é", "e", None)] == [TRUE, FALSE, UNKNOWN]
    assert [of(literal("é"), EQUAL, A, text) for text in ("é", "e", None)] == [TRUE, FALSE, FALSE]
