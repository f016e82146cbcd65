"""A batch in one pass becomes what its messages become one by one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrowmq.errors import InvalidMessage
from sparrowmq.kernel.log_tail import KeyHashes, NewEntries, QueueTail
from sparrowmq.kernel.record_layout import PROPERTY_CRC_SIZE
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.plain_batch import PlainBatch, scan
from sparrowmq.protocol.messages.properties import MAX_SIZE_BYTES, Properties
from sparrowmq.store.index_keys import add_keys

HOST, V6_HOST = hosts.pack("127.0.0.1:10911"), hosts.pack("[::1]:10911")
SUFFIX = "CLUSTER\x01C\x02"
NOT_PLAIN = (b"DELAY", b"TIMER_DEL", b"CLUSTER")

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "WAITS", "TAG", "region", "", "\0", "D", "TIMER"])
VALUES = st.sampled_from(["", "a", "a b", " a\tb ", "true", "false", "x\x01y", "\x7f", "0123456789ABCDEF"])
PAIRS = st.builds(
    "{}{}{}{}".format, NAMES, st.sampled_from(["\x01", "\x01", "\x01", ""]), VALUES, st.sampled_from("\x02")
)
TEXTS = st.builds(
    "{}{}".format,
    st.lists(PAIRS, max_size=6).map("".join),
    st.sampled_from(["", "", "a\x01b", "WAIT\x01true", "x"]),
)
PARTS = st.lists(
    st.builds(BatchPart, st.binary(max_size=20), TEXTS.map(str.encode), st.integers(-(2**31), 2**31 - 1)),
    min_size=1,
    max_size=4,
)


def shared(topic: str = "Orders", born_host: bytes = HOST, sys_flag: int = 0) -> Entry:
    return Entry(topic, 3, b"", Properties(), 1_700_000_000_000, born_host, sys_flag=sys_flag)


def scanned(parts: list[BatchPart], common: Entry) -> PlainBatch | None:
    content = batches.encode(parts)
    return scan(common, content, batches.places(content), NOT_PLAIN, SUFFIX.encode())


def completed(part: BatchPart) -> Properties:
    """As `Writer` does it for one message."""
    properties = Properties.decode(part.properties)
    properties.strike("\x02WAIT\x01true\x02")
    properties.add(SUFFIX)
    return properties


@given(PARTS, st.sampled_from(["T", "T" * 127, "T" * 128]), st.sampled_from([HOST, V6_HOST]), st.booleans())
@example([BatchPart(b"", b"TAGS\x01a\x02TAGS\x01\x02")], "T", HOST, True)
@example([BatchPart(b"", b"WAIT\x01true\x02TAGS\x01a\x02WAIT\x01true\x02")], "T", HOST, True)
@example([BatchPart(b"", b"WAIT\x01true"), BatchPart(b"", b"")], "T", HOST, False)
@example([BatchPart(b"", b"TAGS\x02KEYS\x01k")], "T", HOST, True)
def test_records_and_terms_are_those_of_single_messages(parts, topic, born_host, crc):
    common = shared(topic, born_host)
    found = scanned(parts, common)
    assert found is not None and len(found) == len(parts)
    first = Placed(1000, 50, 1_700_000_000_123, V6_HOST if len(topic) == 128 else HOST)
    whole, offsets = found.encode(first, crc), found.offsets
    first.end = first.offset + len(whole)
    added, queue, expected_queue, expected_keys = NewEntries(), QueueTail(), QueueTail(), KeyHashes()
    found.add_entries(added, queue, first)
    offset = first.offset
    for index, part in enumerate(parts):
        properties = completed(part)
        entry = Entry(topic, 3, part.body, properties, common.born_timestamp_ms, born_host, part.flag)
        placed = Placed(offset, 50 + index, first.store_timestamp_ms, first.store_host)
        alone = record.encode(entry, placed, crc)
        assert offsets[index] == offset and whole[offset - 1000 : offset - 1000 + len(alone)] == alone
        expected_queue.add(offset, len(alone), properties.tags_code)
        add_keys(expected_keys, topic, offset, first.store_timestamp_ms, properties.keys, properties.unique_key)
        offset += len(alone)
    assert len(whole) == offset - 1000
    assert queue.unwritten.content() == expected_queue.unwritten.content()
    assert (added.queues_to_write, added.added, added.added_bytes) == ([queue], len(parts), len(whole))
    assert added.keys.columns.content() == expected_keys.columns.content()


def test_keys_are_not_added_without_an_index():
    found = scanned([BatchPart(b"x", b"UNIQ_KEY\x01a\x02KEYS\x01b c\x02")], shared())
    first, added = Placed(0, 0, 1, HOST), NewEntries(has_keys=False)
    assert found is not None
    first.end = len(found.encode(first, True))
    found.add_entries(added, QueueTail(), first)
    assert (added.added, len(added.keys)) == (1, 0)


@pytest.mark.parametrize(
    "text",
    [
        "DELAY\x013\x02",
        "DELAY\x01\x02",
        "a\x01b\x02DELAY\x013",
        "TIMER_DELIVER_MS\x011\x02",
        "TIMER_DEL\x01",
        "CLUSTER\x01D\x02",
        "städte\x01b\x02",
        "a\x01ü\x02",
        "a\x01\x80\x02",
    ],
)
def test_a_message_that_goes_another_way_or_is_not_ascii_is_not_plain(text):
    raw = text.encode("latin-1" if "\x80" in text else "utf-8")
    assert scanned([BatchPart(b"x", b"a\x01b\x02"), BatchPart(b"x", raw)], shared()) is None
    assert scanned([BatchPart(b"x", b"a\x01b\x02"), BatchPart(raw, b"a\x01DELAY\x02")], shared()) is not None


def test_a_message_of_a_transaction_is_not_plain_nor_is_one_whose_properties_leave_no_room():
    assert scanned([BatchPart(b"x", b"")], shared(sys_flag=SysFlag.PREPARED)) is None
    room = MAX_SIZE_BYTES - PROPERTY_CRC_SIZE - len(SUFFIX) - 1
    longest = b"a\x01" + b"b" * (room - 3) + b"\x02"
    assert scanned([BatchPart(b"x", longest)], shared()) is not None
    assert scanned([BatchPart(b"x", longest.replace(b"bb", b"bbb", 1))], shared()) is None


def test_a_number_that_fits_no_record_is_refused():
    common = shared()
    common.queue_id = 2**31
    found = scanned([BatchPart(b"x", b"")], common)
    assert found is not None
    with pytest.raises(InvalidMessage, match="does not fit"):
        found.encode(Placed(0, 0, 1, HOST), True)


def test_a_batch_knows_whether_each_of_its_messages_has_a_unique_key():
    keyed, other = BatchPart(b"x", b"UNIQ_KEY\x011\x02"), BatchPart(b"x", b"UNIQ_KEY\x01\x02")
    for parts in ([keyed, keyed], [keyed, other], [other, keyed]):
        found = scanned(parts, shared())
        assert found is not None and found.have_unique_keys == (other not in parts)
