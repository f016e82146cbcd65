"""Puts the receipts of many messages into few acknowledgements: one for the messages that one pop got of one queue.

    START-OFFSET 5, offsets 5 7 8    bits 1011 from the lowest on: places behind the start offset

Messages of an orderly pop are left out, and so are those whose time was changed: each of these has a pop of its own.
Source: BatchAck, Java 5.4.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.client.popping.popped_message import Receipt
from sparrowmq.protocol.requests.pop_headers import BatchAck

MOST_BITS: Final = 1024  # of one acknowledgement
_LEAST: Final = 2


@dataclass(slots=True)
class Batch:
    """The body of one request, and the receipts that it acknowledges."""

    acks: list[BatchAck] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)


def batches_of(group: str, receipts: Iterable[Receipt]) -> tuple[list[Receipt], dict[str, Batch]]:
    """Return the receipts that are acknowledged one by one, and the batches of each broker."""
    alone: list[Receipt] = []
    pops: dict[tuple[object, ...], list[Receipt]] = {}
    shared: dict[tuple[str, int], list[Receipt]] = {}  # by the identity of their pop
    for receipt in receipts:
        pop = receipt.pop
        some = shared.get((receipt.topic, id(pop)))
        if some is None:
            some = alone if pop.is_orderly else pops.setdefault((receipt.topic, *pop[:7]), [])
            shared[receipt.topic, id(pop)] = some
        is_near = 0 <= receipt.offset - pop.start_offset < MOST_BITS
        (some if is_near else alone).append(receipt)
    batches: dict[str, Batch] = {}
    for some in pops.values():
        if len(some) < _LEAST:
            alone += some
        else:
            batch = batches.setdefault(some[0].pop.broker_name, Batch())
            batch.acks.append(_ack(group, some))
            batch.receipts += some
    return alone, batches


def _ack(group: str, receipts: list[Receipt]) -> BatchAck:
    """The acknowledgement of messages of one pop of one queue."""
    handle = receipts[0].pop
    bits = bytearray(MOST_BITS // 8)
    for receipt in receipts:
        place = receipt.offset - handle.start_offset
        bits[place >> 3] |= 1 << (place & 7)
    text = base64.b64encode(bits.rstrip(b"\0")).decode()
    return BatchAck(
        group,
        receipts[0].topic,
        str(int(handle.kind)),
        handle.start_offset,
        handle.queue_id,
        handle.revive_queue,
        handle.pop_time_ms,
        handle.invisible_ms,
        text,
    )
