"""The broker's filters: allowed or not, compiled once, kept within bounds."""

import logging

import pytest

from sparrowmq.broker.sql_filters import MAX_FILTER_CHARACTERS, MAX_FILTERS, Filters
from sparrowmq.errors import RemoteError
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.selector import Selector
from sparrowmq.protocol.subscription import SQL92
from sparrowmq.remoting.log_limit import LINES
from sparrowmq.testing.clock import ManualClock


def selector(filters: Filters, expression: str) -> Selector:
    found = filters.selector(SQL92, expression)
    return found if isinstance(found, Selector) else at_once(found)


def refusal(filters: Filters, expression: str | None, kind: str = SQL92) -> tuple[int, str]:
    with pytest.raises(RemoteError) as caught:
        found = filters.selector(kind, expression)
        if not isinstance(found, Selector):
            at_once(found)
    return caught.value.code, caught.value.remark


def lets_through(filters: Filters, expression: str, properties: bytes) -> bool:
    predicate = selector(filters, expression).predicate
    return predicate is not None and predicate.holds(properties, 0, len(properties))


def test_an_expression_lets_messages_through() -> None:
    filters = Filters(True)
    assert lets_through(filters, "a > 5", b"a\x016\x02")
    assert not lets_through(filters, "a > 5", b"a\x015\x02")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TAGS = 'a'", {"a"}),
        ("'a' = TAGS", {"a"}),
        ("TAGS IN ('a', 'b')", {"a", "b"}),
        ("TAGS = 'a' OR TAGS IN ('b', 'c')", {"a", "b", "c"}),
        ("amount > 5 AND (TAGS = 'a' OR TAGS = 'b')", {"a", "b"}),
        ("TAGS = 'a' AND TAGS = 'b'", {"a"}),
        ("TAGS = 'a' OR amount > 5", None),
        ("TAGS IN ('a') OR TAGS IS NULL", None),
        ("TAGS <> 'a'", None),
        ("NOT TAGS = 'a'", None),
        ("TAGS NOT IN ('a')", None),
        ("region = 'a'", None),
        ("region IN ('a') AND TAGS IS NOT NULL", None),
        ("TAGS > 5", None),
        ("TAGS = 5", None),
        ("TAGS = 'ä'", None),
        ("TAGS = amount", None),
    ],
)
def test_where_certain_tags_are_wanted_other_entries_are_passed_over(expression: str, tags: set[str] | None) -> None:
    wanted = selector(Filters(True), expression)
    for word in ("a", "b", "c", "other", "ä"):
        assert wanted.wants(string_hash(word)) == (tags is None or word in tags)
    assert wanted.wants(0) == (tags is None)


def test_a_record_is_asked_too_where_certain_tags_are_wanted() -> None:
    filters = Filters(True)
    assert string_hash("Aa") == string_hash("BB")
    assert lets_through(filters, "TAGS = 'Aa'", b"TAGS\x01Aa\x02")
    assert not lets_through(filters, "TAGS = 'Aa'", b"TAGS\x01BB\x02")


def test_where_they_are_not_allowed_java_says_so() -> None:
    text = "The broker does not support consumer to filter message by "
    assert refusal(Filters(False), "a > 5") == (1, f"{text}SQL92")
    assert refusal(Filters(True), "a > 5", "XPATH\n") == (1, f"{text}XPATH\\n")


@pytest.mark.parametrize("expression", ["a > > 5", "", None])
def test_a_bad_expression_is_code_23_with_its_place_every_time(expression: str | None) -> None:
    filters = Filters(True)
    code, remark = refusal(filters, expression)
    assert code == 23
    assert remark.startswith("parse the consumer's subscription failed: ")
    assert (code, remark) == refusal(filters, expression)
    if expression:
        assert "line 1, column 5, before '> 5'" in remark


def test_an_expression_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = Filters(True)
    first = selector(filters, "a > 5")
    refusal(filters, "a >")
    monkeypatch.setattr(filters, "_parse_in_steps", None)
    assert selector(filters, "a > 5") is first
    refusal(filters, "a >")


def test_those_that_were_not_asked_for_lately_are_forgotten() -> None:
    filters = Filters(True)
    first = selector(filters, "a = 0")
    for number in range(1, MAX_FILTERS + 10):
        selector(filters, f"a = {number}")
        assert selector(filters, "a = 0") is first
    assert len(filters._by_expression) == MAX_FILTERS


def test_long_ones_are_kept_in_smaller_number() -> None:
    filters = Filters(True)
    first = selector(filters, "a = 0")
    for number in range(40):
        refusal(filters, f"{number:032000}")
    assert selector(filters, "a = 0") is not first
    assert sum(map(len, filters._by_expression)) == filters._cached_characters <= MAX_FILTER_CHARACTERS


def test_a_long_expression_weighs_more() -> None:
    filters = Filters(True)
    assert selector(filters, "a > 5 AND b IS NULL").weight == 1
    assert selector(filters, " OR ".join(["a > 5"] * 200)).weight == 13


def test_a_bad_expression_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    filters = Filters(True)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            refusal(filters, "a >\n> 5")
            selector(filters, "a > 5")
    assert len(caplog.records) == 1
    assert "a consumer asks for a bad SQL92 expression: line 2, column 1" in caplog.text


def test_few_bad_expressions_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    filters = Filters(True, ManualClock())
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            refusal(filters, f"a > > {number}")
    assert len(caplog.records) == LINES


def test_a_long_expression_is_compiled_in_steps_and_a_short_one_at_once() -> None:
    filters = Filters(True)
    assert isinstance(filters.selector(SQL92, "a > 5"), Selector)
    texts = ",".join(f"'{number}'" for number in range(1000))
    compiling = filters.selector(SQL92, f"a IN ({texts})")
    assert not isinstance(compiling, Selector)
    assert sum(1 for _ in compiling) > 2000
    assert isinstance(filters.selector(SQL92, f"a IN ({texts})"), Selector)
    assert filters._cached_characters == sum(map(len, filters._by_expression))


def test_two_may_compile_one_expression_at_once() -> None:
    filters = Filters(True)
    text = " OR ".join(f"a = {number}" for number in range(100))
    first, second = filters.selector(SQL92, text), filters.selector(SQL92, text)
    assert not isinstance(first, Selector) and not isinstance(second, Selector)
    for _ in zip(first, second, strict=False):
        pass
    assert list(filters._by_expression) == [text] and filters._cached_characters == len(text)
