"""Subscriptions."""

import re

import pytest

from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.protocol.subscription import MOST_TAGS, SQL92, Subscription, check_tags, parse_tags
from sparrowmq.protocol.wire import json


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("A", {"A"}),
        ("A||B", {"A", "B"}),
        (" A ||  B || A", {"A", "B"}),
        ("A|| ", {"A"}),
        ("A | B", {"A | B"}),
    ],
)
@pytest.mark.covers("S-CONS-15")
def test_tag_expressions_are_split_at_double_bars(expression: str, tags: set[str]) -> None:
    assert parse_tags(expression) == tags


@pytest.mark.parametrize("expression", ["||", " || ", " "])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(InvalidMessage, match="no tag"):
        parse_tags(expression)


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("UA && AA", "UA || AA"),
        ("a|b", "a || b"),
        ("a | b||c&&d", "a || b || c || d"),
        ("a|||b", "a || b"),
    ],
)
def test_other_operators_than_the_double_bar_are_refused_with_the_right_form(expression: str, advice: str) -> None:
    with pytest.raises(InvalidMessage, match=f"matches no message.*; write '{re.escape(advice)}' for"):
        check_tags(expression)
    assert Subscription.build("T", expression).tags, "other clients may send it, as to Apache's brokers"


@pytest.mark.parametrize("expression", ["*", "a", "R&D", " a || b ||", "a, b", "a-b"])
def test_expressions_that_may_match_are_accepted(expression: str) -> None:
    check_tags(expression)


def test_a_subscription_has_a_limit_of_tags() -> None:
    assert len(Subscription.build("T", "||".join(map(str, range(MOST_TAGS)))).tags) == MOST_TAGS
    with pytest.raises(InvalidMessage, match="at most 2500 tags"):
        Subscription.build("T", "||".join(map(str, range(MOST_TAGS + 2))))


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_no_expression_takes_every_message(expression: str | None) -> None:
    subscription = Subscription.build("T", expression)
    assert subscription.codes == frozenset()
    assert subscription.wants(None) and subscription.wants("x")


def test_a_tag_expression_filters_by_hash_and_by_tag() -> None:
    subscription = Subscription.build("T", "Aa || C")
    assert subscription.codes == frozenset({2112, 67})
    assert [subscription.wants(tag) for tag in ("Aa", "BB", "C", None)] == [True, False, True, False]


def test_sql_is_left_to_the_broker() -> None:
    subscription = Subscription.build("T", "a > 3", SQL92)
    assert (subscription.expression, subscription.codes, subscription.wants("x")) == ("a > 3", frozenset(), True)


def test_codes_are_computed_whatever_the_client_sends() -> None:
    sent = b'{"topic":"T","subString":"TagA","codeSet":[0,0],"tagsSet":["TagA"],"subVersion":"17"}\n'
    assert json.decode(sent, Subscription) == Subscription.build("T", "TagA", version=17)


@pytest.mark.parametrize(
    "sent",
    [
        b'{"topic":"T"}',
        b'{"topic":"T","subString":"","expressionType":""}',
        b'{"topic":"T","subString":null,"expressionType":null,"tagsSet":null,"codeSet":null}',
    ],
)
def test_a_subscription_of_a_heartbeat_may_lack_nearly_everything(sent: bytes) -> None:
    assert json.decode(sent, Subscription) == Subscription("T")


@pytest.mark.parametrize(
    "sent", [b"{}", b'{"topic":7}', b'{"topic":"T","subVersion":"x"}', b'{"topic":"T","subString":"||"}']
)
def test_a_subscription_that_cannot_be_read_is_refused(sent: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        json.decode(sent, Subscription)


def test_a_subscription_travels_as_java_writes_it() -> None:
    subscription = Subscription.build("T", "TagB || TagA", version=5)
    assert json.dumps(subscription) == (
        b'{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagB || TagA",'
        b'"subVersion":5,"tagsSet":["TagA","TagB"],"topic":"T"}'
    )
    assert json.decode(json.dumps(subscription), Subscription) == subscription
