"""Properties are found in a record where they lie, whatever stands around them."""

from collections.abc import Callable
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.broker.sql_filters import NumberFilter, RecordFilter, RecordValues, predicate
from sparrowmq.filter.grammar import parse
from sparrowmq.filter.tree import _contains


def values(
    raw: bytes, *names: str, before: bytes = b"body\x02a\x011\x02", after: bytes = b"\x02a\x019\x02"
) -> RecordValues:
    """Those of a record whose neighbours have properties too."""
    found = RecordValues(names)
    found.move(before + raw + after, len(before), len(before) + len(raw))
    return found


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a\x015\x02", "5"),
        (b"a\x015", "5"),
        (b"b\x011\x02a\x015\x02c\x012\x02", "5"),
        (b"b\x011\x02a\x015", "5"),
        (b"a\x011\x02a\x015\x02", "5"),
        (b"b\x010\x02a\x011\x02a\x015\x02", "5"),
        (b"a\x015\x02a\x01\x02", "5"),
        (b"a\x01\x02", None),
        (b"", None),
        (b"xa\x015\x02", None),
        (b"b\x01a\x02", None),
        (b"a\x01x\x01y\x02", "x\x01y"),
        ("a\x01é😀\x02".encode(), "é😀"),
        (b"a\x01\xff\x02", "\ufffd"),
    ],
)
def test_a_value_is_the_last_one_of_its_name_that_is_not_empty(raw, expected):
    found = values(raw, "a")
    assert found.text(0) == expected
    assert found.is_missing(0) == (expected is None)


@given(
    raw=st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba", b"\x01", b"\x02"]), max_size=24).map(b"".join),
    before=st.sampled_from([b"", b"\x02", b"ab\x011\x02"]),
)
def test_wherever_a_name_stands_it_is_found_only_where_a_property_begins(raw, before):
    """Compared with taking all of it apart."""
    pairs = [pair.partition(b"\x01") for pair in raw.split(b"\x02")]
    for name in ("a", "ab", "aba", "x"):
        of_name = [value.decode() for found, _, value in pairs if found == name.encode() and value]
        assert values(raw, name, before=before).text(0) == (of_name[-1] if of_name else None)


def test_letters_that_a_name_has_twice_do_not_hide_it():
    assert values(b"abb\x01bb", "abb").text(0) == "bb"


def test_a_name_may_be_longer_than_what_one_byte_tells_of_it():
    name = "".join(chr(ord("a") + number % 26) for number in range(300))
    raw = f"x\x01{'z' * 300}\x02{name}\x017\x02y\x01{'q' * 299}\x02".encode()
    assert values(raw, name).text(0) == "7"
    assert values(raw, name[1:]).is_missing(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        ("999999999", 999999999),
        ("1234567890", -1),
        ("-1", -1),
        ("1.0", -1),
        ("x", -1),
    ],
)
def test_a_few_digits_are_a_number_at_once(text, expected):
    assert values(f"a\x01{text}\x02".encode(), "a").short_number(0) == expected


def test_no_value_is_no_number():
    assert values(b"b\x011\x02", "a").short_number(0) == -1


def test_a_text_is_the_same_byte_by_byte():
    found = values("a\x01né\x02b\x01\x02".encode(), "a", "b")
    assert found.is_same(0, "né", "né".encode())
    assert not found.is_same(0, "ne", b"ne") and not found.is_same(0, "néx", "néx".encode())
    assert not found.is_same(1, "", b"")
    broken = values(b"a\x01n\xff\x02", "a")
    assert broken.is_same(0, "n\ufffd", "n\ufffd".encode())


def test_the_next_record_has_its_own_values():
    found = RecordValues(("a", "b"))
    found.move(b"a\x011\x02b\x012\x02", 0, 8)
    assert (found.text(0), found.text(1), found.text(0)) == ("1", "2", "1")
    found.move(b"xb\x013\x02", 1, 5)
    assert (found.text(0), found.text(1)) == (None, "3")
    found.leave()


def test_a_filter_holds_for_a_record_or_not():
    wanted = RecordFilter(parse("a > 5 AND b = 'x' AND c IS NULL"))
    for raw, expected in (
        (b"a\x016\x02b\x01x\x02", True),
        (b"a\x016\x02b\x01x\x02c\x01y", False),
        (b"", False),
    ):
        assert wanted.holds(raw, 0, len(raw)) is expected


@pytest.mark.parametrize("how", ["=", ">", ">=", "<", "<="])
@pytest.mark.parametrize("number", ["0", "5", "-1", "999999999", "3000000000", str(2**63 - 1)])
def test_one_comparison_with_a_number_is_quick_and_says_the_same(how, number):
    for expression in (f"a {how} {number}", f"{number} {how} a"):
        wanted = parse(expression)
        quick, slow = predicate(wanted), RecordFilter(wanted)
        assert isinstance(quick, NumberFilter)
        for value in (
            "0",
            "1",
            "4",
            "5",
            "6",
            "999999998",
            "999999999",
            "1000000000",
            "",
            "-1",
            "-2",
            "+5",
            "05",
            "3000000000",
            "2999999999",
            "5.0",
            "x",
            "9" * 20,
        ):
            for raw in (f"b\x011\x02a\x01{value}\x02".encode(), f"a\x01{value}".encode()):
                assert quick.holds(raw, 0, len(raw)) is slow.holds(raw, 0, len(raw)), (expression, raw)
        quick.leave()


def test_other_filters_are_not_taken_for_one_comparison():
    for expression in ("NOT (a > 5)", "a > 5 AND a < 7", "a <> 5", "a > 5.5", "a = '5'", "a > b"):
        assert isinstance(predicate(parse(expression)), RecordFilter), expression


def cost(work: Callable[[], object]) -> float:
    """Return the CPU time of ten calls, in seconds."""

    def ten() -> float:
        begin = thread_time()
        for _ in range(10):
            work()
        return thread_time() - begin

    return min(ten() for _ in range(5))


def test_a_search_in_a_long_text_takes_linear_time_and_finds_the_same():
    text = "a" * 29_000
    slow = "a" * 45 + "b" + "a" * 45
    assert 2 * cost(lambda: _contains(text, slow)) < cost(lambda: slow in text), "45 comparisons for each character"
    for where in (0, 14_000, len(text) - len(slow)):
        assert _contains(text[:where] + slow + text[where + len(slow) :], slow)
    assert not _contains(text + slow[:-1], slow) and not _contains(text, "a" + " " * 50)


def test_a_text_is_decoded_once_for_a_message():
    values = RecordValues(("a",))
    for word in ("one", "two"):
        raw = f"a\x01{word}\x02".encode()
        values.move(raw, 0, len(raw))
        assert values.text(0) == word and values.text(0) is values.text(0)
