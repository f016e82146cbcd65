"""Puts the acknowledgements of many messages into few: one for the messages that one pop got of one queue.

    START-OFFSET 5, offsets 5 7 8    bits 1011 from the lowest on: places behind the start offset

Messages of an orderly pop are left out, and so are those whose time was changed: each of these has a pop of its own.
Source: BatchAck, Java 5.4.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.client.popping.message_runs import runs_of
from sparrowmq.client.popping.popped_message import PoppedMessage, Receipt
from sparrowmq.protocol.requests.pop_headers import BatchAck

MOST_BITS: Final = 1024  # of one acknowledgement
_LEAST: Final = 2


@dataclass(slots=True)
class Batch:
    """The body of one request, and the messages that it acknowledges."""

    acks: list[BatchAck] = field(default_factory=list)
    messages: list[PoppedMessage] = field(default_factory=list)


@dataclass(slots=True)
class _OfPop:
    """Messages of one pop of one queue, and the bits of their places, the lowest place in the lowest bit."""

    receipt: Receipt
    messages: list[PoppedMessage] = field(default_factory=list)
    bits: int = 0

    def add(self, place: int, run: Sequence[PoppedMessage]) -> None:
        """Add messages that follow each other from a place on."""
        self.messages += run
        self.bits |= (1 << place + len(run)) - (1 << place)


def batches_of(group: str, messages: Iterable[PoppedMessage]) -> tuple[list[PoppedMessage], dict[str, Batch]]:
    """Return the messages that are acknowledged one by one, and the batches of each broker."""
    some = list(messages)
    alone: list[PoppedMessage] = []
    pops: dict[tuple[object, ...], _OfPop] = {}
    for begin, end in runs_of(some):
        run = some[begin:end]
        receipt, handle = run[0]._receipt, run[0]._receipt.handle
        place = run[0]._handle_offset - handle.start_offset
        fitting = 0 if handle.is_orderly or place < 0 else max(MOST_BITS - place, 0)
        alone += run[fitting:]
        if fitting:
            key = (receipt.topic, *handle[:7])
            of_pop = pops.get(key) or pops.setdefault(key, _OfPop(receipt))
            of_pop.add(place, run[:fitting])
    batches: dict[str, Batch] = {}
    for of_pop in pops.values():
        if len(of_pop.messages) < _LEAST:
            alone += of_pop.messages
        else:
            batch = batches.setdefault(of_pop.receipt.handle.broker_name, Batch())
            batch.acks.append(_ack(group, of_pop))
            batch.messages += of_pop.messages
    return alone, batches


def _ack(group: str, of_pop: _OfPop) -> BatchAck:
    handle, bits = of_pop.receipt.handle, of_pop.bits
    written = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return BatchAck(
        group,
        of_pop.receipt.topic,
        str(int(handle.kind)),
        handle.start_offset,
        handle.queue_id,
        handle.revive_queue,
        handle.pop_time_ms,
        handle.invisible_ms,
        base64.b64encode(written).decode(),
    )
