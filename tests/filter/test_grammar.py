"""Texts become filters, or one error with the place; nothing else comes of them, whatever they are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrowmq.errors import InvalidFilter
from sparrowmq.filter.grammar import MAX_LENGTH, MAX_TOKENS, parse
from sparrowmq.filter.tree import Texts


def matches(expression: str, **properties: str) -> bool:
    wanted = parse(expression)
    return wanted.matches(Texts([properties.get(name) for name in wanted.names]))


def refusal(expression: str) -> InvalidFilter:
    with pytest.raises(InvalidFilter) as caught:
        parse(expression)
    return caught.value


def test_a_usual_expression():
    usual = "amount > 5 AND region IN ('EU', 'US') OR vip IS NOT NULL"
    assert matches(usual, amount="6", region="EU")
    assert not matches(usual, amount="5", region="EU")
    assert not matches(usual, amount="6", region="CN")
    assert matches(usual, amount="1", vip="")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a = 1 OR b = 1 AND c = 1", True),
        ("(a = 1 OR b = 1) AND c = 1", False),
        ("NOT (a = 2) AND a = 1", True),
        ("NOT a = 1", False),  # (NOT a) = 1
        ("NOT (a = 1)", False),
        ("a + 1 = 2", None),
        ("a = --1\n", None),
        ("a = --1", True),
        ("a=-+-1", True),
        ("a >= 1 = TRUE", True),
        ("a BETWEEN 0 AND 1 AND NOT (a BETWEEN 2 AND 3)", True),
        ("a NOT BETWEEN 2 AND 3", True),
    ],
)
def test_signs_and_words_bind_as_in_java(expression, expected):
    if expected is None:
        refusal(expression)
    else:
        assert matches(expression, a="1", b="2", c="3") is expected


def test_words_do_not_care_for_case_and_properties_do():
    assert matches("a iS nOt NuLl aNd Not (b BeTwEeN 1 aNd 2) oR fAlSe", a="x", b="3")
    assert not matches("A IS NOT NULL", a="x")


def test_numbers_of_any_form():
    for number in ("5", "5L", "5l", "5.", "5.0", "50e-1", ".5E1", "0.5e+1", "+5", "- -5"):
        assert matches(f"a = {number}", a="5"), number
    for number in ("05", "0x5", "5f", "5LL", "5e", "0L", "1e400", "9223372036854775808"):
        refusal(f"a = {number}")


def test_comments_and_space_are_passed_over():
    assert matches("/* a */ a -- one\n =\t/* b ** c */ 1\r\n-- end\n", a="1")
    refusal("a = 1 -- no end of the line")
    refusal("a = 1 /* no end")


def test_searches_are_words_only_where_an_operator_may_stand():
    assert matches("a CONTAINS 'b' AND a startswith 'a' AND a EndsWith 'c'", a="abc")
    assert matches("contains CONTAINS 'b' AND endswith = 1", contains="abc", endswith="1")
    assert matches("a NOT CONTAINS 'x'", a="abc")


@pytest.mark.parametrize(
    ("expression", "line", "column", "words"),
    [
        (
            "amount > > 5",
            1,
            10,
            "before '> 5': \">\" is not allowed here; allowed: (, +, -, FALSE, NOT, NULL",
        ),
        ("a = 1\n  AND AND b = 2", 2, 7, '"AND" is not allowed here'),
        ("(a = 1", 1, 7, "at the end: the end is not allowed here"),
        ("a = 1)", 1, 6, "complete expression"),
        ("a = 1 ADN b = 2", 1, 7, '"ADN" cannot follow a complete expression; AND or OR is missing'),
        ("a = 'x", 1, 5, "a ' is missing"),
        ("a # 5", 1, 3, "'#' means nothing here"),
        ("a = 1 AND\n\n b == 2", 3, 5, '"=" is not allowed here'),
        ("a LIKE 'x%'", 1, 3, "before \"LIKE 'x%'\""),
        ("a IN ()", 1, 7, "allowed: a 'text'"),
        ("", 1, 1, "the expression is empty"),
        (" \n ", 1, 1, "the expression is empty"),
        ("a = \u017f", 1, 5, "means nothing"),
        ("\u212a = 1", 1, 1, "means nothing"),
    ],
)
def test_an_error_tells_its_place(expression, line, column, words):
    error = refusal(expression)
    assert (error.line, error.column) == (line, column)
    assert words in str(error)


def test_length_and_words_have_a_limit():
    assert "characters, 32768 are allowed" in str(refusal("a" * (MAX_LENGTH + 1)))
    parse("a" * MAX_LENGTH)
    texts = ",".join(["'x'"] * 2000)
    assert matches(f"a IN ({texts})", a="x")
    more = refusal(f"a IN ({texts},{texts})")
    assert f"more than {MAX_TOKENS} words" in str(more)


def test_the_work_for_a_message_has_a_limit():
    parse(" OR ".join(["a > 5"] * 256))
    assert "more than 256 places that read a property" in str(refusal(" OR ".join(["a > 5"] * 257)))
    parse(" OR ".join(f"a{number} > 5" for number in range(64)))
    assert "more than 64 properties" in str(refusal(" OR ".join(f"a{number} > 5" for number in range(65))))
    parse(" OR ".join(["a CONTAINS 'x'"] * 64))
    assert "more than 64 searches in text" in str(refusal(" OR ".join(["a CONTAINS 'x'"] * 65)))


def test_parentheses_are_no_depth_but_count():
    assert matches("(" * 2000 + "a = 1" + ")" * 2000, a="1")
    assert f"more than {MAX_TOKENS} words" in str(refusal("(" * 10_000 + "a" + ")" * 10_000))
    refusal("(" * 10_000)


SIGNS = [
    "(",
    ")",
    ",",
    "=",
    "<>",
    ">",
    "<=",
    "+",
    "-",
    "5",
    "5.5",
    "'x'",
    "''",
    "--",
    "/*",
    "*/",
    "\n",
    "#",
    "'",
]
NAMES = ["a", "b", "AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "TRUE", "CONTAINS"]
WORDS = st.sampled_from(SIGNS + NAMES)


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join)), st.text(max_size=8))
def test_any_text_is_a_filter_or_the_one_error(expression, value):
    try:
        wanted = parse(expression)
    except InvalidFilter as error:
        lines = expression.split("\n")
        assert 1 <= error.line <= len(lines) and 1 <= error.column <= len(lines[error.line - 1]) + 1
    else:
        assert wanted.matches(Texts([value] * len(wanted.names))) in (True, False)


@settings(max_examples=100)
@given(st.binary(max_size=60))
def test_so_are_any_bytes_that_came_as_text(raw):
    try:
        parse(raw.decode("utf-8", "replace"))
    except InvalidFilter as error:
        assert str(error)
