"""The messages of a queue by message group."""

import pytest

from sparrowmq.broker.pop.message_groups import NO_GROUP, MessageGroups, key_of
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties
from tests.store.stores import HOST


def message_groups(*messages):
    """Lanes with messages: the key, and whether it is hidden."""
    made = MessageGroups(())
    for offset, (key, is_hidden) in enumerate(messages):
        made.add(offset, key, is_hidden)
    return made


def test_only_messages_of_free_lanes_are_ready_and_in_their_order():
    some = message_groups((1, True), (2, False), (1, False), (3, False), (2, False))
    assert list(some.ready()) == [1, 3, 4]
    assert [some.is_free(key) for key in (1, 2, 3, 4)] == [False, True, True, True]


def test_a_lane_is_free_again_when_its_last_hidden_message_is_visible_or_done():
    some = message_groups((1, True), (1, True), (1, False))
    assert not some.has_ready()
    some.show(1)
    assert not some.has_ready()
    some.drop(0)
    assert some.has_ready()
    assert list(some.ready()) == [1, 2]


def test_a_message_that_was_put_back_is_ready_again():
    some = message_groups((1, False), (2, False), (1, False))
    ready = some.ready()
    assert [next(ready), next(ready)] == [0, 1]
    some.put_back(1)
    some.hide(0)
    assert list(some.ready()) == [1]


def test_a_message_that_is_offered_twice_is_ready_once():
    some = message_groups((1, False), (1, False))
    for _ in range(2):
        some.hide(0)
        some.show(0)
    assert list(some.ready()) == [0, 1]


def test_a_lane_without_messages_costs_nothing():
    some = message_groups((1, True), (2, False))
    for offset in (0, 1, 1, 7):
        some.drop(offset)
    assert (len(some), some.has_ready(), list(some.ready())) == (0, False, [])


def test_messages_without_a_lane_are_left_alone():
    some = MessageGroups([4, 9])
    some.hide(4)
    some.show(4)
    some.drop(9)
    assert (some.unread, some.has_ready()) == ([9, 4], False)


def test_leading_messages_have_no_others_before_them():
    some = message_groups((1, True), (2, True), (1, True), (2, True), (3, True))
    assert some.leading([0, 2, 3, 4]) == [0, 2, 4]
    assert some.leading([2, 9]) == []


@pytest.mark.parametrize(
    ("properties", "group"),
    [
        ("KEYS\x01k\x02__SHARDINGKEY\x01a\x02TAGS\x01t\x02", "a"),
        ("__SHARDINGKEY\x01a\x02", "a"),
        ("KEYS\x01k\x02__SHARDINGKEY\x01a", "a"),
        ("__SHARDINGKEY\x01b\x02__SHARDINGKEY\x01a\x02", "a"),
        ("__SHARDINGKEY\x01a\x02__SHARDINGKEY\x01\x02", "a"),
        ("__SHARDINGKEY\x01a\x02my__SHARDINGKEY\x01b\x02", "a"),
        ("my__SHARDINGKEY\x01b\x02", ""),
        ("__SHARDINGKEY\x01\x02", ""),
        ("", ""),
    ],
)
def test_key_is_that_of_the_message_group(properties, group):
    def key(text):
        entry = Entry("orders", 0, b"__SHARDINGKEY\x01body\x02", Properties(text), 7, HOST)
        return key_of(memoryview(record.encode(entry, Placed(0, 0, 0, HOST))))

    assert key(properties) == (key(f"__SHARDINGKEY\x01{group}\x02") if group else NO_GROUP)
    assert key("__SHARDINGKEY\x01other\x02") != key(properties)
