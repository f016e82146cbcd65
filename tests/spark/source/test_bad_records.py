"""sparrowmq.spark.source.row_reader: of a damaged body the place is told."""

import re
import zlib

import pyarrow as pa
import pytest

from sparrowmq.spark.columns import RecordColumns
from sparrowmq.spark.source.row_reader import BadRecord, move_to_dlq, report_damaged
from tests import records

GOOD, BAD = zlib.compress(b"good"), b"bad"


def damaged(*bodies):
    """Records whose bodies were asked for."""
    block = b"".join(records.encoded("T", 3, body, queue_offset=70 + n, sys_flag=1) for n, body in enumerate(bodies))
    columns = RecordColumns(block)
    columns.column("body")
    return columns


def test_the_place_of_a_damaged_body_is_told(caplog):
    with pytest.raises(BadRecord, match=r"at offset 71 of T@broker-a\[3\] is damaged: .*zlib.*badRecords=null"):
        report_damaged(damaged(GOOD, BAD), "broker-a", None, fail=True)
    report_damaged(damaged(GOOD, BAD), "broker-a", None, fail=False)
    assert "offset 71 of T@broker-a[3] is damaged, and is null" in caplog.text


def test_rows_that_nobody_wants_may_be_damaged(caplog):
    report_damaged(damaged(BAD, GOOD), "broker-a", pa.array([False, True]), fail=True)
    assert not caplog.messages
    with pytest.raises(BadRecord):
        report_damaged(damaged(GOOD, BAD), "broker-a", pa.array([False, True]), fail=True)


def test_damaged_messages_are_buried_as_they_are_and_the_others_are_left(peer):
    options = peer.source(topic="T", badRecords="dlq", dlqTopic="D")
    peer.store("D", 0, [])
    for _ in range(2):
        left = move_to_dlq(damaged(GOOD, BAD, BAD), "broker-a", None, options)
        assert left is not None and left.to_pylist() == [True, False, False]
    wanted = pa.array([True, False, False])
    assert move_to_dlq(damaged(GOOD, BAD, BAD), "broker-a", wanted, options) is wanted
    messages = [message for queue in peer.queues["D"].values() for message in queue]
    assert len(messages) == 4
    assert all(b"at offset 7" not in message and b"\x01offset 7" in message for message in messages)
    ids = [key for message in messages for key in re.findall(rb"UNIQ_KEY\x01(\w+)\x02", message)]
    assert len(set(ids)) == 2  # a repeated task buries them under the same ids


def test_files_know_no_broker():
    with pytest.raises(BadRecord, match=r"T@\?\[3\]"):
        report_damaged(damaged(BAD), None, None, fail=True)
