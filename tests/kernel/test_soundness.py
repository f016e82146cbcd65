"""kernel/records.py: what passes is what `record.check` finds nothing wrong with, and the pass stops where it would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.record_layout import MAGIC_BLANK, PREFIX
from sparrowmq.kernel.records import Passed, pass_sound
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record as records
from tests.records import encoded

NEVER = 1 << 62
V4, V6 = hosts.pack("127.0.0.1:10911"), hosts.pack("[::1]:10911")


def row(*made: Mapping[str, Any], place: int = 0) -> tuple[bytes, list[int]]:
    """Records end to end from `place` on, and where each of them ends."""
    content, ends = b"", []
    for changes in made:
        content += encoded(**{"properties": b"TAGS\x01a\x02", **changes}, physical_offset=place + len(content))
        ends.append(len(content))
    return content, ends


MIXED: tuple[Mapping[str, Any], ...] = (
    {"topic": "Orders", "body": b"first", "store_timestamp_ms": 5},
    {"topic": "o" * 200, "body": b"", "born_host": V6, "store_timestamp_ms": 9},
    {"topic": "O", "body": b"\0" * 300, "store_host": V6, "store_timestamp_ms": 7},
    {"topic": "Java", "body": b"without a CRC over all", "crc": False},
)


@pytest.mark.parametrize("place", [0, 1 << 40])
def test_sound_records_pass_in_one_go_and_the_time_of_the_last_is_known(place: int):
    content, ends = row(*MIXED, place=place)
    passed = Passed()
    assert pass_sound(content, place, NEVER, passed) == ends[-1]
    assert (passed.count, passed.last_ms, passed.finished_halves) == (4, 1, set())


def test_a_record_without_its_own_crc_stops_it_where_each_must_have_one():
    content, ends = row(*MIXED)
    assert pass_sound(content, 0, ends[2], Passed()) == ends[2]
    assert pass_sound(content, 0, ends[2] + 1, Passed()) == ends[3]


def test_what_does_not_lie_where_it_says_does_not_pass():
    content, _ = row(*MIXED)
    assert pass_sound(content, 1, NEVER, Passed()) == 0


@pytest.mark.parametrize("rest", [b"", PREFIX.pack(500, MAGIC_BLANK), bytes(500)])
def test_it_stops_at_a_blank_at_zeros_and_at_a_record_that_is_not_all_there(rest: bytes):
    content, ends = row(*MIXED)
    assert pass_sound(content + rest, 0, NEVER, Passed()) == ends[-1]
    for missing in range(1, ends[3] - ends[2]):
        assert pass_sound(content[:-missing], 0, NEVER, Passed()) == ends[2]


def test_ends_of_transactions_are_remembered():
    commit = {"sys_flag": 0x8, "prepared_offset": 77}
    rollback = {"sys_flag": 0xC, "prepared_offset": 78}
    content, _ = row({}, commit, rollback, {"sys_flag": 0x4})
    passed = Passed()
    pass_sound(content, 0, NEVER, passed)
    assert passed.finished_halves == {77, 78}


@pytest.mark.parametrize("crc", [True, False])
def test_it_passes_no_flipped_bit_that_check_finds(crc: bool):
    content, _ = row({"topic": "Orders", "body": b"0123456789", "crc": crc})
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        passes = pass_sound(bytes(flipped) + bytes(40), 0, NEVER, Passed()) == len(content)
        assert not passes or records.check(flipped, 0) is None, bit
        assert not (crc and passes), bit


@given(st.binary(max_size=200), st.integers(0, 200), st.booleans())
def test_it_looks_beyond_no_end(noise: bytes, at: int, crc: bool):
    content, _ends = row({"topic": "Orders", "body": b"x" * 30, "crc": crc}, {"crc": crc})
    broken = content[:at] + noise + content[at + len(noise) :]
    end = pass_sound(broken, 0, NEVER, Passed())
    assert 0 <= end <= len(broken)
    begin = 0
    while begin < end:
        size = PREFIX.unpack_from(broken, begin)[0]
        assert records.check(broken[begin : begin + size], begin) is None
        begin += size
