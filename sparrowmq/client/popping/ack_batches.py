"""Puts the acknowledgements of many messages into few: one for the messages that one pop got of one queue.

    START-OFFSET 5, offsets 5 7 8    bits 1011 from the lowest on: places behind the start offset

Messages of an orderly pop are left out, and so are those whose time was changed: each of these has a pop of its own.
Source: BatchAck, Java 5.4.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress, groupby
from operator import attrgetter, not_
from typing import Final

from sparrowmq.client.popping.message_runs import follow
from sparrowmq.client.popping.popped_message import PoppedMessage, Receipt
from sparrowmq.protocol.requests.pop_headers import BatchAck

MOST_BITS: Final = 1024  # of one acknowledgement
_LEAST: Final = 2
_RECEIPT: Final = attrgetter("_receipt")


@dataclass(slots=True)
class Batch:
    """The body of one request, and the messages that it acknowledges."""

    acks: list[BatchAck] = field(default_factory=list)
    messages: list[PoppedMessage] = field(default_factory=list)


def batches_of(group: str, messages: Iterable[PoppedMessage]) -> tuple[list[PoppedMessage], dict[str, Batch]]:
    """Return the messages that are acknowledged one by one, and the batches of each broker."""
    some = list(messages)
    if (ack := _ack_of_run(group, some)) is not None:
        return [], {some[0]._receipt.handle.broker_name: Batch([ack], some)}
    return _batches_by_pop(group, some)


def _ack_of_run(group: str, messages: list[PoppedMessage]) -> BatchAck | None:
    """The acknowledgement of all messages, if they share a receipt, and follow each other."""
    count = len(messages)
    if count < _LEAST:
        return None
    receipt = messages[0]._receipt
    begin = messages[0].offset - receipt.handle.start_offset
    if receipt.handle.is_orderly or begin < 0 or begin + count > MOST_BITS:
        return None
    return _ack(group, receipt, range(begin, begin + count)) if follow(messages) else None


def _batches_by_pop(
    group: str, messages: list[PoppedMessage]
) -> tuple[list[PoppedMessage], dict[str, Batch]]:
    alone: list[PoppedMessage] = []
    pops: dict[tuple[object, ...], tuple[Receipt, list[PoppedMessage], list[int]]] = {}
    for receipt, run in groupby(messages, _RECEIPT):
        some, handle = list(run), receipt.handle
        if handle.is_orderly:
            alone += some
            continue
        start = handle.start_offset
        places = [each.offset - start for each in some]
        if receipt.is_own:
            places = [handle.queue_offset - start] * len(some)
        if min(places) < 0 or max(places) >= MOST_BITS:
            is_near = [0 <= place < MOST_BITS for place in places]
            alone += compress(some, map(not_, is_near))
            some, places = list(compress(some, is_near)), list(compress(places, is_near))
        of_pop = pops.setdefault((receipt.topic, *handle[:7]), (receipt, [], []))
        of_pop[1].extend(some)
        of_pop[2].extend(places)
    batches: dict[str, Batch] = {}
    for receipt, some, places in pops.values():
        if len(some) < _LEAST:
            alone += some
        else:
            batch = batches.setdefault(receipt.handle.broker_name, Batch())
            batch.acks.append(_ack(group, receipt, places))
            batch.messages += some
    return alone, batches


def _ack(group: str, receipt: Receipt, places: Sequence[int]) -> BatchAck:
    """The acknowledgement of messages of one pop of one queue, by their places behind its start offset."""
    handle = receipt.handle
    text = base64.b64encode(_bits_of(places)).decode()
    return BatchAck(
        group,
        receipt.topic,
        str(int(handle.kind)),
        handle.start_offset,
        handle.queue_id,
        handle.revive_queue,
        handle.pop_time_ms,
        handle.invisible_ms,
        text,
    )


def _bits_of(places: Sequence[int]) -> bytes:
    """The bits of places, the lowest place in the lowest bit of the first byte."""
    if isinstance(places, range):
        run = (1 << places.stop) - (1 << places.start)
        return run.to_bytes((places.stop + 7) // 8, "little")
    bits = bytearray(MOST_BITS // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits.rstrip(b"\0"))
