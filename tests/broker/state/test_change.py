"""Records of the journal, and what they make one after the other."""

from __future__ import annotations

import pytest

from sparrowmq.broker.change_log import BEGIN, END, Change
from sparrowmq.broker.journal_records import BEGIN_CODE, Tables
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.requests.bodies import DataVersion, GroupConfig, TopicConfig

RECORDS = [
    (Change(mark=BEGIN), b'{"mark":"begin"}'),
    (Change(no_topic="orders", topics_version=DataVersion(7, 9)), None),
    (Change(topics=[TopicConfig("orders", 3, 2)], topics_version=DataVersion(8, 9)), None),
    (Change(groups=[GroupConfig("g", retry_max_times=3)], groups_version=DataVersion(1, 1)), None),
    (Change(no_group="g"), b'{"noGroup":"g"}'),
    (
        Change(offsets={"orders@g": {0: 7, 12: 1 << 40}}),
        b'{"offsets":{"orders@g":{"0":7,"12":1099511627776}}}',
    ),
    (Change(no_offsets="g"), b'{"noOffsets":"g"}'),
]


@pytest.mark.parametrize(("change", "body"), RECORDS)
def test_a_record_is_read_as_it_was_written(change: Change, body: bytes | None) -> None:
    entry = change.entry(1, b"host")
    assert Change.of(bytes(entry.body)) == change
    assert body is None or entry.body == body
    assert (entry.tags_code == BEGIN_CODE) == (change.mark == BEGIN)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"topics":7}'])
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="rmq_sys_sparrow_state cannot be read"):
        Change.of(body)


def test_a_later_version_may_say_more() -> None:
    assert Change.of(b'{"mark":"end","delays":{"1":7}}') == Change(mark=END)


def test_a_deleted_topic_goes_with_its_offsets_and_says_where() -> None:
    tables = Tables()
    tables.apply(Change(topics=[TopicConfig("a"), TopicConfig("b")], topics_version=DataVersion(1)), 10)
    tables.apply(Change(offsets={"a@g": {0: 1}, "b@g": {0: 2}, "a@h": {1: 3}}), 20)
    tables.apply(Change(no_topic="a", topics_version=DataVersion(2)), 30)
    assert set(tables.topics) == {"b"} and tables.topics_version.counter == 2
    assert tables.offsets == {"g": {"b": {0: 2}}, "h": {}} and tables.deleted == {"a": 30}


def test_a_deleted_group_keeps_its_offsets_until_they_are_deleted() -> None:
    tables = Tables()
    tables.apply(Change(groups=[GroupConfig("g")], offsets={"a@g": {0: 1}}), 1)
    tables.apply(Change(no_group="g"), 2)
    assert not tables.groups and tables.offsets == {"g": {"a": {0: 1}}}
    tables.apply(Change(no_offsets="g"), 3)
    assert not tables.offsets
