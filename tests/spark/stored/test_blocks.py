"""sparrowmq.spark.source.log_files: files in blocks of whole records, and the way past damage."""

import logging

import pytest

pytest.importorskip("pyspark")

from sparrowmq.kernel.record_layout import MAGIC_BLANK
from sparrowmq.spark.source.log_files import BLOCK_BYTES, LogFile, OpenLogFile, Span, blocks
from sparrowmq.spark.source.partition_ranges import RowsLost
from sparrowmq.store.layout import BLANK
from tests import records


def flat(blocks):
    return [number for block in blocks for number in block]


class Log:
    """A log file of records; `places` says where each begins, and where the last one ends."""

    def __init__(self, folder, bodies, begin=0, room=1000):
        self.places, content = [0], b""
        for number, body in enumerate(bodies):
            content += records.encoded(body=body, queue_offset=number, physical_offset=begin + len(content))
            self.places.append(len(content))
        self.content = bytearray(content + BLANK.pack(room, MAGIC_BLANK) + bytes(room - BLANK.size))
        self.path = folder / f"{begin:020}"
        self.begin = begin

    def offsets(self, start=0, end=None, **given):
        """The queue offsets of the records in a span, by block."""
        self.path.write_bytes(self.content)
        file = LogFile(str(self.path), self.begin, len(self.content))
        with OpenLogFile(file) as opened:
            return [
                [self.places.index(start) for start, _ in block.places()]
                for block in blocks(opened, Span(file, start, end or file.size), **given)
            ]


def test_blocks_hold_whole_records_and_follow_each_other(tmp_path):
    log = Log(tmp_path, [b"x" * 1000] * 3000, begin=1 << 30)
    found = log.offsets()
    assert flat(found) == list(range(3000))
    assert len(found) == -(-log.places[-1] // BLOCK_BYTES)
    assert log.offsets(log.places[10], log.places[20]) == [list(range(10, 20))]


def test_a_record_that_is_larger_than_a_block_is_one(tmp_path):
    log = Log(tmp_path, [b"a", b"b" * (2 * BLOCK_BYTES), b"c"])
    assert log.offsets() == [[0], [1], [2]]


def test_a_file_may_be_full_to_its_last_bytes(tmp_path):
    log = Log(tmp_path, [b"a", b"b"], room=8)
    assert log.offsets() == [[0, 1]]
    log.content = log.content[: log.places[-1] + 7]
    assert log.offsets() == [[0, 1]]


@pytest.mark.parametrize("field", ["size", "magic", "zeros", "huge size"])
def test_damage_is_told_with_its_place_or_passed_over(tmp_path, caplog, field):
    log = Log(tmp_path, [b"x" * 100] * 10, begin=4096)
    at, end = log.places[4], log.places[5]
    match field:
        case "size":
            log.content[at + 2] ^= 0xFF
        case "magic":
            log.content[at + 5] ^= 1
        case "zeros":
            log.content[at:end] = bytes(end - at)
        case "huge size":
            log.content[at : at + 4] = b"\x7f\xff\xff\xff"
    with pytest.raises(RowsLost, match=rf"is damaged from offset {4096 + at} to {4096 + end}\. Read another copy"):
        log.offsets()
    with caplog.at_level(logging.WARNING):
        assert flat(log.offsets(fail=False)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert f"damaged from offset {4096 + at} to {4096 + end}" in caplog.text


def test_damage_up_to_the_end_ends_the_span(tmp_path):
    log = Log(tmp_path, [b"x" * 100] * 10)
    log.content[log.places[7] :] = b"\xff" * (len(log.content) - log.places[7])
    with pytest.raises(RowsLost, match=f"from offset {log.places[7]} to {len(log.content)}"):
        log.offsets()
    assert log.offsets(fail=False) == [list(range(7))]
    assert log.offsets(log.places[2], log.places[8], fail=False) == [list(range(2, 7))]


def test_a_copy_of_a_record_in_a_body_is_not_taken_for_one(tmp_path):
    log = Log(tmp_path, [b"a", records.encoded(body=b"copied", physical_offset=0), b"c"])
    log.content[log.places[1] + 5] ^= 1
    assert flat(log.offsets(fail=False)) == [0, 2]


def test_where_the_log_may_end_it_ends_quietly(tmp_path):
    log = Log(tmp_path, [b"x"] * 5)
    log.content[log.places[3] :] = bytes(len(log.content) - log.places[3])
    assert log.offsets(may_end=True) == [[0, 1, 2]]
