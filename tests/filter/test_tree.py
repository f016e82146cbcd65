"""Conditions have four outcomes, and AND, OR and NOT know what follows from them."""

import pytest

from sparrowmq.filter.tree import (
    FAILED,
    FALSE,
    INT,
    RAISED,
    TEXT,
    TRUE,
    UNKNOWN,
    Among,
    AnyOf,
    Condition,
    Constant,
    Every,
    Filter,
    Flag,
    Literal,
    Missing,
    Negated,
    Not,
    Property,
    Search,
    Texts,
)

F, T, U, X = (Constant(outcome) for outcome in (FALSE, TRUE, UNKNOWN, FAILED))
NONE = Texts([])


def outcomes(make: type[Every] | type[AnyOf], *parts: Condition) -> int:
    return make(list(parts)).truth(NONE)


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        (T, T, TRUE, TRUE),
        (T, F, FALSE, TRUE),
        (F, T, FALSE, TRUE),
        (F, F, FALSE, FALSE),
        (U, T, UNKNOWN, TRUE),
        (T, U, UNKNOWN, TRUE),
        (U, F, FALSE, UNKNOWN),
        (F, U, FALSE, UNKNOWN),
        (U, U, UNKNOWN, UNKNOWN),
        (X, F, FAILED, FAILED),
        (X, T, FAILED, FAILED),
        (F, X, FALSE, FAILED),
        (T, X, FAILED, TRUE),
        (U, X, FAILED, FAILED),
    ],
)
def test_two_conditions_together(left, right, both, either):
    assert outcomes(Every, left, right) == both
    assert outcomes(AnyOf, left, right) == either


def test_many_conditions_are_asked_in_their_order():
    assert outcomes(Every, T, U, T, F, X) == FALSE
    assert outcomes(Every, T, U, X, F) == FAILED
    assert outcomes(AnyOf, F, U, F, T, X) == TRUE
    assert outcomes(AnyOf, F, U, X, T) == FAILED


def test_not_turns_around_what_is_known():
    assert [Not(each).truth(NONE) for each in (F, T, U, X)] == [TRUE, FALSE, UNKNOWN, FAILED]


def test_a_condition_as_a_value():
    assert [each.value(NONE) for each in (F, T, U, X)] == [False, True, None, RAISED]


def test_a_property_in_place_of_a_condition_is_never_true():
    assert [Flag(0).truth(Texts([text])) for text in ("true", "", None)] == [FALSE, FALSE, UNKNOWN]


def test_null_is_what_a_message_lacks():
    assert [Missing(Property("a", 0)).truth(Texts([text])) for text in (None, "", "x")] == [
        TRUE,
        FALSE,
        FALSE,
    ]
    assert Missing(Literal(INT, 5)).truth(NONE) == FALSE
    assert [Missing(each).truth(NONE) for each in (F, U, X)] == [FALSE, TRUE, FAILED]


def test_a_minus_before_what_is_no_number_is_null():
    assert Negated(Literal(TEXT, "x")).value(NONE) is None
    assert Negated(X).value(NONE) is RAISED


def test_one_of_some_texts():
    within, without = (Among(0, frozenset({"a", "b"}), is_negated) for is_negated in (False, True))
    assert [within.truth(Texts([text])) for text in ("a", "c", None)] == [TRUE, FALSE, UNKNOWN]
    assert [without.truth(Texts([text])) for text in ("a", "c", None)] == [FALSE, TRUE, UNKNOWN]


@pytest.mark.parametrize(
    ("how", "text", "expected"),
    [
        ("CONTAINS", "bc", TRUE),
        ("CONTAINS", "cb", FALSE),
        ("STARTSWITH", "ab", TRUE),
        ("STARTSWITH", "bc", FALSE),
        ("ENDSWITH", "cd", TRUE),
        ("ENDSWITH", "bc", FALSE),
    ],
)
def test_a_search_in_text(how, text, expected):
    name, there = Property("a", 0), Texts(["abcd"])
    assert Search(name, how, text, False).truth(there) == expected
    assert Search(name, how, text, True).truth(there) == 1 - expected


def test_a_search_finds_nothing_where_there_is_no_text_and_not_turns_that_not_around():
    for is_negated in (False, True):
        assert Search(Property("a", 0), "CONTAINS", "x", is_negated).truth(Texts([None])) == FALSE
        assert Search(Property("a", 0), "CONTAINS", "", is_negated).truth(Texts(["x"])) == FALSE
        assert Search(T, "CONTAINS", "x", is_negated).truth(NONE) == FALSE
        assert Search(X, "CONTAINS", "x", is_negated).truth(NONE) == FAILED
        assert Search(X, "CONTAINS", "", is_negated).truth(NONE) == FALSE


def test_only_a_true_filter_matches():
    assert [Filter((), each, 1).matches(NONE) for each in (F, T, U, X)] == [False, True, False, False]


def test_values_answer_by_their_text():
    values = Texts(["5", None])
    assert (values.text(0), values.text(1), values.short_number(0)) == ("5", None, -1)
    assert values.is_same(0, "5", b"5") and not values.is_same(0, "6", b"6") and not values.is_same(1, "5", b"5")
    assert values.is_missing(1) and not values.is_missing(0)
