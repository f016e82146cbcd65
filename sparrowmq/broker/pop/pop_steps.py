"""The steps of pop consumption, as the journal of a master has them. Applied in their order, they make the state.

    PopStep      messages were given to a consumer: offsets as runs (begin, count, begin, count, ...), and the next
                 offset that no consumer got. Skipped messages, which no consumer wants, are acknowledged.
                 With attempt 0, no consumer got the messages: they wait for others of their message group
    AckStep      messages were acknowledged, or moved to the dead-letter queue
    Changed      a message becomes visible at another time, and has another handle
    RestartStep  a queue begins, or begins again after a reset: all before `next_offset` is acknowledged
    Restored     one chunk of a queue, in a snapshot behind its RestartStep
    Dropped      a queue is deleted

A message that becomes visible again makes no step: its time says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from sparrowmq.broker.pop.message_groups import NO_ATTEMPT
from sparrowmq.errors import RemoteProtocolError

_LARGEST_PIECE: Final = 128 << 10  # bytes of steps in one record


class Step(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    group: str
    queue_id: int


class PopStep(Step, array_like=True, frozen=True, tag=0):
    """Messages were given for the `attempt`-th time; 0: they wait. `pop` is the attempt id of an orderly pop."""

    runs: list[int]
    next_offset: int
    pop_ms: int
    due_ms: int
    token: int
    attempt: int
    pop: int = NO_ATTEMPT


class AckStep(Step, array_like=True, frozen=True, tag=1):
    runs: list[int]


class Changed(Step, array_like=True, frozen=True, tag=2):
    offset: int
    pop_ms: int
    due_ms: int
    token: int


class RestartStep(Step, array_like=True, frozen=True, tag=3):
    """The queue has no state but this."""

    next_offset: int


class Restored(Step, array_like=True, frozen=True, tag=4):
    """A chunk as it is: `live` has a bit for each unacknowledged message, `pops` pairs of index and attempt id."""

    number: int
    live: int
    cells: bytes
    pops: list[int] = []


class Dropped(Step, array_like=True, frozen=True, tag=5):
    """The queue has no state."""


AnyStep = PopStep | AckStep | Changed | RestartStep | Restored | Dropped

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(AnyStep).decode


def encoded(steps: Iterable[AnyStep]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    size = 0
    for step in steps:
        content = _encode(step)
        piece.append(content)
        size += len(content)
        if size > _LARGEST_PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def decoded(piece: Iterable[bytes]) -> Iterator[AnyStep]:
    try:
        for content in piece:
            yield _decode(content)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"a step of pop consumption cannot be read: {error}") from error


def runs_of(offsets: Sequence[int]) -> list[int]:
    """Return sorted offsets as runs: begin, count, begin, count, ... Each offset is in them once."""
    if not offsets:
        return []
    first_offset, count = offsets[0], len(offsets)
    is_run = isinstance(offsets, range)
    if is_run or (
        offsets[-1] - first_offset == count - 1 and offsets == list(range(first_offset, first_offset + count))
    ):
        return [first_offset, count]
    runs = [first_offset, 1]
    for offset_before, offset in pairwise(offsets):
        if offset == offset_before + 1:
            runs[-1] += 1
        elif offset != offset_before:
            runs += [offset, 1]
    return runs
