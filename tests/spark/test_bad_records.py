"""sparrowmq.spark.bad_records: of a damaged body the place is told."""

import zlib

import pyarrow as pa
import pytest

from sparrowmq.spark.bad_records import BadRecord, tell_damaged
from sparrowmq.spark.columns.records import RecordColumns
from tests import records

GOOD, BAD = zlib.compress(b"good"), b"bad"


def damaged(*bodies):
    """Records whose bodies were asked for."""
    block = b"".join(
        records.encoded("T", 3, body, queue_offset=70 + n, sys_flag=1) for n, body in enumerate(bodies)
    )
    columns = RecordColumns(block)
    columns.column("body")
    return columns


def test_the_place_of_a_damaged_body_is_told(caplog):
    with pytest.raises(
        BadRecord, match=r"at offset 71 of T@broker-a\[3\] is damaged: .*zlib.*badRecords=null"
    ):
        tell_damaged(damaged(GOOD, BAD), "broker-a", None, fail=True)
    tell_damaged(damaged(GOOD, BAD), "broker-a", None, fail=False)
    assert "offset 71 of T@broker-a[3] is damaged, and is null" in caplog.text


def test_rows_that_nobody_wants_may_be_damaged(caplog):
    tell_damaged(damaged(BAD, GOOD), "broker-a", pa.array([False, True]), fail=True)
    assert not caplog.messages
    with pytest.raises(BadRecord):
        tell_damaged(damaged(GOOD, BAD), "broker-a", pa.array([False, True]), fail=True)


def test_files_know_no_broker():
    with pytest.raises(BadRecord, match=r"T@\?\[3\]"):
        tell_damaged(damaged(BAD), None, None, fail=True)
