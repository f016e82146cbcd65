"""Each flipped bit of a record with a checksum is found, wherever it lies; Java's records are looked at when asked."""

import random

import numpy as np
import pytest

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Placed
from sparrowmq.spark.source.log_files import sound_mask
from tests.store.stores import HOST, message

ORIGIN = 4096


def block(sealed: list[bool]):
    """Records end to end: their bytes, and where each begins and ends."""
    raw, starts = b"", []
    for number, with_crc in enumerate(sealed):
        starts.append(len(raw))
        placed = Placed(ORIGIN + len(raw), number, 1_700_000_000_000, HOST)
        raw += record.encode(message(b"body %d" % number, tag="a"), placed, with_crc)
    return raw, np.array(starts), np.array([*starts[1:], len(raw)])


def test_whole_records_are_sound():
    raw, starts, ends = block([True] * 5)
    assert sound_mask(raw, starts, ends, ORIGIN, all_of_them=False).all()
    assert not sound_mask(raw, starts, ends, ORIGIN + 1, all_of_them=False).any()


def test_each_flipped_bit_is_found():
    raw, starts, ends = block([True] * 3)
    for bit in range(int(starts[1]) * 8, int(ends[1]) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        found = sound_mask(bytes(changed), starts, ends, ORIGIN, all_of_them=False)
        assert found.tolist() == [True, False, True], f"bit {bit - starts[1] * 8}"


def test_a_record_of_javas_is_looked_at_beside_ours_and_when_that_is_asked():
    raw, starts, ends = block([False, False])
    changed = bytearray(raw)
    changed[raw.index(b"body 1")] ^= 1
    assert sound_mask(bytes(changed), starts, ends, ORIGIN, all_of_them=False).all()
    assert sound_mask(bytes(changed), starts, ends, ORIGIN, all_of_them=True).tolist() == [True, False]
    raw, starts, ends = block([True, False])
    changed = bytearray(raw)
    changed[raw.index(b"body 1")] ^= 1
    assert sound_mask(bytes(changed), starts, ends, ORIGIN, all_of_them=False).tolist() == [True, False]


@pytest.mark.parametrize("seed", range(20))
def test_nonsense_is_not_sound(seed: int):
    raw, starts, ends = block([True] * 3)
    junk = bytearray(raw)
    junk[starts[1] : ends[1]] = random.Random(seed).randbytes(int(ends[1] - starts[1]))
    assert sound_mask(bytes(junk), starts, ends, ORIGIN, all_of_them=False).tolist() == [True, False, True]


def test_no_records_are_no_damage():
    none = np.array([], np.int64)
    assert len(sound_mask(b"", none, none, 0, all_of_them=True)) == 0
