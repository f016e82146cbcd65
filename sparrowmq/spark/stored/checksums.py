"""Which records of a block are sound, by the checksums over all of their bytes: some 0.5 us a record.

    ... properties | __CRC32#\\x01dddddddddd\\x02       the last 20 bytes: a name, ten digits, an end

Names, digits and places of all records are looked at in a few numpy calls; a loop is left for the checksums themselves.
A record without one is Java's, whose checksum covers the body alone; among records that have one it is looked at by
itself, as the name may be what is damaged (`record.check`).
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages import record_layout as layout
from sparrowmq.protocol.messages.record import CRC_MASK, CRC_NAME, PROPERTY_CRC_SIZE
from sparrowmq.spark.columns.slices import Mask, Positions, at

_LEAST: Final = layout.MIN_SIZE_BYTES + PROPERTY_CRC_SIZE
_POWERS: Final = 10 ** np.arange(10, dtype=np.int64)  # the first digit is that of the ones


def sound(raw: bytes, starts: Positions, ends: Positions, origin: int, *, all_of_them: bool) -> Mask:
    """True for each record `[start, end)` of `raw` that is sound; `raw` lies at `origin` in the log.

    Args:
        all_of_them: whether a block of Java's records is checked, too.
    """
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
