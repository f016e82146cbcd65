"""The sound records of a block, by the checksums over all of their bytes: about 0.3 us a record.

    ... properties | __CRC32#\\x01dddddddddd\\x02       the last 20 bytes: a name, ten digits, an end

`soundness.py` passes a whole block, as nearly all are. After the place where it stops, a few numpy calls check names,
digits and places of the records, and only the checksums themselves need a loop, to find the damaged ones.
A record without a checksum at its end is Java's, whose checksum covers the body alone. Among records that have one it
is checked by itself, because the name itself may be damaged (`record.check`).
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages import record_layout as layout
from sparrowmq.protocol.messages.record import CRC_MASK, CRC_NAME, PROPERTY_CRC_SIZE
from sparrowmq.protocol.messages.soundness import Passed, pass_sound
from sparrowmq.spark.columns.slices import Mask, Positions, at

_LEAST: Final = layout.MIN_SIZE_BYTES + PROPERTY_CRC_SIZE
_POWERS: Final = 10 ** np.arange(10, dtype=np.int64)  # the first digit is that of the ones


def sound(raw: bytes, starts: Positions, ends: Positions, origin: int, *, all_of_them: bool) -> Mask:
    """True for each record `[start, end)` of `raw` that is sound.

    They are end to end; `raw` begins at `origin` in the log.

    Args:
        all_of_them: whether a block of Java's records is checked, too.
    """
    found, passed = np.ones(len(starts), np.bool_), Passed()
    if len(starts):
        pass_sound(raw, origin, origin, passed, int(starts[0]), int(ends[-1]))
    if (count := passed.count) < len(starts):
        found[count:] = _each(raw, starts[count:], ends[count:], origin, all_of_them=all_of_them or count > 0)
    return found


def _each(raw: bytes, starts: Positions, ends: Positions, origin: int, *, all_of_them: bool) -> Mask:
    """`sound`, one by one."""
    is_sealed = ends - starts > _LEAST
    is_sealed[is_sealed] = at(raw, ends[is_sealed] - PROPERTY_CRC_SIZE, f"S{len(CRC_NAME)}") == CRC_NAME
    found = np.ones(len(starts), np.bool_)
    found[is_sealed] = _sealed(raw, starts[is_sealed], ends[is_sealed], origin)
    if all_of_them or is_sealed.any():
        view = memoryview(raw)
        for row in np.flatnonzero(~is_sealed).tolist():
            start, end = int(starts[row]), int(ends[row])
            found[row] = record.check(view[start:end], origin + start) is None
    return found


def _sealed(raw: bytes, starts: Positions, ends: Positions, origin: int) -> Mask:
    """The same of records that end as one with a checksum does."""
    tails = ends - PROPERTY_CRC_SIZE
    view = memoryview(raw)
    begins, covered = starts.tolist(), tails.tolist()
    wanted = [crc32(view[begin:tail]) & CRC_MASK for begin, tail in zip(begins, covered, strict=True)]
    digits = np.frombuffer(raw, np.uint8)[tails[:, None] + np.arange(9, 19)].astype(np.int64) - ord("0")
    are_digits = ((digits >= 0) & (digits <= 9)).all(axis=1)
    is_whole = at(raw, ends - 1, "u1") == 2
    is_there = at(raw, starts + layout.PHYSICAL_OFFSET_AT, ">i8") == starts + origin
    mask: Mask = are_digits & is_whole & is_there & (digits @ _POWERS == np.array(wanted, np.int64))
    return mask
