"""What may not meet is refused before any message is looked at, with the place of the sign at fault."""

import pytest

from sparrowmq.errors import InvalidFilter
from sparrowmq.filter.grammar import MAX_DEPTH, parse
from sparrowmq.filter.tree import Texts


@pytest.mark.parametrize(
    ("expression", "column", "words"),
    [
        ("a = NULL", 3, "write IS NULL"),
        ("NULL <> a", 6, "write IS NULL"),
        ("TRUE = 5", 6, "TRUE and FALSE"),
        ("FALSE <> 'x'", 7, "TRUE and FALSE"),
        ("a > 'x'", 3, "> compares numbers and properties"),
        ("TRUE <= a", 6, "<= compares"),
        ("NULL > 5", 6, "> compares"),
        ("(a = 1) > 5", 9, "> compares"),
        ("a > 1 > 2", 7, "> compares"),
        ("a BETWEEN 'a' AND 'b'", 3, "BETWEEN compares"),
        ("a between 5 and 1", 3, "the first number is above"),
        ("a BETWEEN 5.5 AND 5", 3, "the first number is above"),
        ("5 IN ('5')", 3, "IN needs a property"),
        ("a AND 5", 3, "a condition is needed beside AND"),
        ("'x' or a", 5, "a condition is needed beside OR"),
        ("NOT 5", 1, "a condition is needed beside NOT"),
        ("-a", 1, "a condition is needed"),
        ("5", 1, "a condition is needed"),
        ("a = 9223372036854775808", 5, "the largest is 9223372036854775807"),
        ("a = " + "9" * 5000, 5, "the largest is 9223372036854775807"),
        ("a > 1e400", 5, "too large"),
        ("a > 0.0", 5, "write 0"),
        ("a > 1e-400", 5, "too small"),
    ],
)
def test_what_java_refuses_is_refused_with_its_place(expression, column, words):
    with pytest.raises(InvalidFilter) as caught:
        parse(expression)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "a = -NULL",
        "5 = TRUE",
        "TRUE = a",
        "a > -'x'",
        "a BETWEEN -1 AND -5",
        "a NOT BETWEEN 5 AND 1",
        "(a) IN ('x')",
        "+a IN ('x')",
        "NULL",
        "TRUE",
        "a",
        "NOT a = 5",
        "a = -9223372036854775807",
        "a > 4.9e-324",
        "5 CONTAINS 'x'",
    ],
)
def test_what_java_takes_is_taken_however_odd(expression):
    parse(expression)


def test_properties_are_looked_up_once_however_often_they_are_named():
    assert parse("b = 1 OR a = 2 AND b = 3 OR NOT (c IN ('x') OR a CONTAINS 'y')").names == ("b", "a", "c")


def test_apostrophes_in_text_are_doubled():
    assert parse("a = 'it''s'").matches(Texts(["it's"]))
    assert parse("a IN ('''')").matches(Texts(["'"]))


@pytest.mark.parametrize("repeated", ["NOT ", "- ", "a = ", "(NOT a) = "])
def test_operands_in_each_other_have_a_limit(repeated):
    end = "a IS NULL" if repeated == "- " else "a"
    parse(repeated * (MAX_DEPTH // 4) + end)
    with pytest.raises(InvalidFilter, match=f"more than {MAX_DEPTH} operands are nested"):
        parse(repeated * (MAX_DEPTH + 1) + end)


@pytest.mark.parametrize("joint", ["AND", "OR"])
def test_conditions_beside_each_other_have_no_depth(joint):
    many = parse(f" {joint} ".join(["a = 1"] * 250))
    assert many.matches(Texts(["1"])) and not many.matches(Texts(["2"]))
