"""Messages: what a producer's message becomes, and what a stored one tells."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import KeptTag, Message, MessageQueue, Property, StoredMessage


def stored(**properties: str) -> StoredMessage:
    return StoredMessage(
        "Orders", 1, 7, 100, 91, 0, 0, 0, 1, "10.0.0.9:55", 2, "127.0.0.1:11911", 0, 0, b"abc", properties
    )  # fmt: skip


@pytest.mark.covers("S-PROD-17")
def test_tag_keys_delay_and_wait_become_properties() -> None:
    message = Message("Orders", b"x", tag="paid", keys=["a", "b"], properties={"shop": "7"}, delay_level=3)
    assert properties.parse(message._render_properties()) == {
        "shop": "7",
        "KEYS": "a b",
        "TAGS": "paid",
        "DELAY": "3",
        "WAIT": "true",
    }
    assert Message("Orders", b"x", wait_stored=False)._render_properties() == "WAIT\x01false\x02"


def test_one_key_may_be_given_as_text() -> None:
    assert Message("Orders", b"x", keys="a").keys == ("a",)
    assert Message("Orders", b"x", keys="").keys == ""
    assert Message("Orders", b"x", keys=None).keys == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["keys", "properties"])
def test_zero_is_neither_keys_nor_properties(name) -> None:
    wrong: dict[str, Any] = {name: 0}
    with pytest.raises(InvalidMessage, match=name):
        Message("Orders", b"x", **wrong)


@pytest.mark.parametrize("body", [bytearray(b"one"), memoryview(b"one"), memoryview(bytearray(b"oonnee"))[::2]])
def test_what_is_like_bytes_is_copied(body) -> None:
    message = Message("Orders", body)
    if isinstance(body, bytearray):
        body[:] = b"two"
    assert type(message.body) is bytes and message.body == b"one"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("body", 5, "the body is int; give bytes"),
        ("body", None, "the body is NoneType; give bytes"),
        ("topic", 5, "the topic is int"),
        ("tag", ["a"], "the tag is list"),
        ("keys", 5, "give one key, or a sequence"),
        ("keys", ["a", 5], "give one key, or a sequence"),
        ("keys", {"a"}, "give one key, or a sequence"),
        ("properties", {"a": 1}, "property 'a' is 1: names and values must be text"),
        ("properties", {"a": ""}, "property 'a' is empty, and consumers drop empty properties; leave it out"),
        ("properties", {1: "a"}, "property 1 is 'a'"),
        ("properties", ["a"], "not a mapping"),
        ("flag", "1", "flag='1' is not a whole number"),
        ("flag", 1 << 31, "is not a whole number of 32 bits"),
        ("wait_stored", "no", "wait_stored='no': give True or False"),
        ("wait_stored", None, "wait_stored=None: give"),
        ("delay_level", -1, "delay_level=-1: levels begin with 1"),
        ("delay_level", True, "delay_level=True"),
        ("delay_level", "10s", "delay_level='10s'"),
    ],
)
def test_a_field_of_a_wrong_type_is_refused_when_it_is_made_and_when_it_is_sent(field, value, words) -> None:
    with pytest.raises(InvalidMessage, match=re.escape(words)):
        Message(**{"topic": "Orders", "body": b"x", field: value})
    message = Message("Orders", b"x")
    setattr(message, field, value)
    with pytest.raises(InvalidMessage, match=re.escape(words)):
        message.check()


@pytest.mark.parametrize("tag", ["", " ", "a b", " a", "a ", "a\tb", "a||b", "||", "*", "a|b", "a&&b"])
def test_a_tag_that_no_filter_can_ask_for_is_refused(tag) -> None:
    with pytest.raises(InvalidMessage, match="no filter can ask for this tag; give one word"):
        Message("Orders", b"x", tag=tag)


def test_any_other_tag_is_sent_and_a_copy_keeps_that_of_its_message() -> None:
    for tag in ("paid", "a&b", "\u652f\u4ed8", "**"):
        assert Message("Orders", b"x", tag=tag).tag == tag
    kept = Message("Orders", b"x", tag=KeptTag("a||b"))
    assert properties.parse(kept._render_properties())["TAGS"] == "a||b"
    with pytest.raises(InvalidMessage, match="no filter"):
        Message("Orders", b"x", tag="a||b")


@pytest.mark.parametrize("fields", [{"tag": "\ud800"}, {"keys": "\ud800"}, {"properties": {"\ud800": "x"}}])
def test_half_a_surrogate_pair_is_refused(fields) -> None:
    with pytest.raises(InvalidMessage, match="half of a surrogate pair"):
        Message("Orders", b"x", **fields)._render_properties()


@pytest.mark.parametrize(
    ("delay", "level", "delay_ms"), [("10s", 3, 0), (timedelta(seconds=10), 3, 0), ("15s", 0, 15_000)]
)
def test_message_takes_the_delay_that_a_send_takes(delay, level, delay_ms) -> None:
    message = Message("Orders", b"x", delay=delay)
    assert (message.delay_level, message.delay_ms, message.deliver_at_ms) == (level, delay_ms, 0)
    assert replace(message, tag="a").delay_level == level


def test_message_takes_the_time_that_a_send_takes() -> None:
    assert Message("Orders", b"x", deliver_at=datetime(1970, 1, 2, tzinfo=UTC)).deliver_at_ms == 86_400_000


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"delay": 10}, "could be seconds or a level"),
        ({"delay": "10s", "delay_level": 3}, "give one of delay, deliver_at"),
        ({"delay": "10s", "deliver_at": datetime(2026, 1, 1, tzinfo=UTC)}, "give one of delay="),
    ],
)
def test_message_refuses_a_delay_that_a_send_refuses_or_two(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        Message("Orders", b"x", **fields)


@pytest.mark.parametrize("keys", [["a b"], [""]])
def test_a_key_with_a_blank_is_refused(keys: list[str]) -> None:
    with pytest.raises(InvalidMessage, match="blank"):
        Message("Orders", b"x", keys=keys)._render_properties()


def test_a_reserved_property_is_refused_and_an_open_one_passes() -> None:
    with pytest.raises(InvalidMessage, match="'UNIQ_KEY'"):
        Message("Orders", b"x", properties={"UNIQ_KEY": "1"})._render_properties()
    assert "TTL\x019\x02" in Message("Orders", b"x", properties={"TTL": "9"})._render_properties()


def test_a_stored_message_tells_its_tag_keys_and_ids() -> None:
    message = stored(TAGS="paid", KEYS="a  b", UNIQ_KEY="0A")
    assert (message.tags, message.keys, message.unique_key, message.message_id) == (
        "paid",
        ["a", "b"],
        "0A",
        "0A",
    )
    assert message.offset_id == "7F00000100002E870000000000000064"
    assert str(message) == "Orders[1]@7 0A 3 bytes"


def test_a_stored_message_without_properties_is_named_by_its_place() -> None:
    message = stored()
    assert (message.tags, message.keys, message.unique_key) == (None, [], None)
    assert message.message_id == message.offset_id


def test_a_stored_message_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        stored().queue_id = 2  # type: ignore[misc]


def test_queues_sort_by_topic_broker_and_number_and_serve_as_keys() -> None:
    queues = [
        MessageQueue("T", "b", 0),
        MessageQueue("T", "a", 10),
        MessageQueue("T", "a", 2),
        MessageQueue("S", "z", 9),
    ]
    assert [str(queue) for queue in sorted(queues)] == ["S@z[9]", "T@a[2]", "T@a[10]", "T@b[0]"]
    assert {MessageQueue("T", "a", 2): 1}[queues[2]] == 1


def test_property_names_are_those_of_java() -> None:
    assert (Property.UNIQ_KEY, Property.TRAN_MSG, Property.REAL_QID) == ("UNIQ_KEY", "TRAN_MSG", "REAL_QID")
