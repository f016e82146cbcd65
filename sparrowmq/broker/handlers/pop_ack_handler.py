"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151) and CHANGE_MESSAGE_INVISIBLETIME (200053).

A handle is valid as long as the message is with the consumer that has it: its token must be the one of the last pop or
change. A message whose time is over can still be acknowledged, until another consumer gets it. The answer leaves when
the change is as safe as an acknowledged message.

    the message is acknowledged already      success: the answer to the first request may have been lost
    the handle is not valid, or not ours     208, and nothing happens

Unlike Java, which answers success to nearly all requests, and takes every handle whose numbers fit.
Source: AckMessageProcessor and ChangeInvisibleTimeProcessor, Java 5.4.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Final

from sparrowmq.broker.journal import Journal
from sparrowmq.broker.pop.pop_queue import PopQueue
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from sparrowmq.protocol.requests.pop_headers import (
    AckMessage,
    BatchAck,
    BatchAckMessage,
    BatchAckReply,
    BatchAcks,
    ChangeInvisibleTime,
    ChangeInvisibleTimeReply,
)
from sparrowmq.remoting.handler import PendingReply, Reply, handles
from sparrowmq.remoting.peer import Peer

_MAX_ACKS: Final = 4096  # messages of one request
_SOME_BITS: Final = re.compile(rb"[^\0]")


class PopAckHandler:
    """Take acknowledgements. At a slave, which has no journal, the guard refuses these requests."""

    def __init__(self, pops: PopState, journal: Journal | None, clock: Clock, broker_name: str) -> None:
        self._pops = pops
        self._journal = journal
        self._clock = clock
        self._broker_name = broker_name

    @handles(AckMessage)
    def ack(self, header: AckMessage, body: bytes, peer: Peer) -> Reply | PendingReply:
        handle = self._handle(header)
        queue = self._pops.current(header.topic, header.consumer_group, header.queue_id)
        if queue is None:
            raise _unknown(header.topic, header.offset)
        if queue.is_done(header.offset):
            return self._answer(None)
        if not _is_valid(queue, header.offset, handle.revive_queue):
            raise _unknown(header.topic, header.offset)
        self._pops.settle(queue, [header.offset])
        return self._answer(None)

    @handles(BatchAckMessage)
    def ack_batch(self, header: BatchAckMessage, body: bytes, peer: Peer) -> Reply | PendingReply:
        """Acknowledge messages of several pops. Those without a valid handle are left out, and counted."""
        acks = BatchAcks.of_request(body).acks
        if not acks:
            raise RemoteError(ResponseCode.NO_MESSAGE, "the request names no message")
        remaining_count, invalid_count = _MAX_ACKS, 0
        for ack in acks:
            offsets = _offsets_of(ack)
            remaining_count -= len(offsets)
            if remaining_count < 0:
                raise RemoteError(
                    ResponseCode.INVALID_PARAMETER,
                    f"a request acknowledges at most {_MAX_ACKS} messages; send several requests",
                )
            queue = self._pops.current(_topic_of(ack), ack.consumer_group, ack.queue_id)
            valid = queue.with_token(offsets, ack.revive_queue_id) if queue is not None else []
            invalid_count += len(offsets) - len(valid)
            if queue is not None and valid:
                self._pops.settle(queue, valid)
        return self._answer(Reply(header=BatchAckReply(invalid_count)))

    @handles(ChangeInvisibleTime)
    def change(self, header: ChangeInvisibleTime, body: bytes, peer: Peer) -> Reply | PendingReply:
        handle = self._handle(header)
        if header.invisible_time < 0:
            raise RemoteError(ResponseCode.INVALID_PARAMETER, "invisibleTime must be 0 or more")
        queue = self._pops.current(header.topic, header.consumer_group, header.queue_id)
        if queue is None or not _is_valid(queue, header.offset, handle.revive_queue):
            raise _unknown(header.topic, header.offset)
        now_ms = self._clock.now_ms()
        token = self._pops.change(queue, header.offset, now_ms, now_ms + header.invisible_time)
        new_handle = handle._replace(pop_time_ms=now_ms, invisible_ms=header.invisible_time, revive_queue=token)
        reply = ChangeInvisibleTimeReply(now_ms, header.invisible_time, token, str(new_handle))
        return self._answer(Reply(header=reply))

    def _handle(self, header: AckMessage | ChangeInvisibleTime) -> ReceiptHandle:
        try:
            handle = ReceiptHandle.parse(header.extra_info)
        except ConfigError as error:
            raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        place = (header.queue_id, header.offset)
        if handle.broker_name != self._broker_name or (handle.queue_id, handle.queue_offset) != place:
            raise _unknown(header.topic, header.offset)
        return handle

    def _answer(self, answer: Reply | None) -> Reply | PendingReply:
        if self._journal is None:
            return answer or Reply()
        return self._journal.answer_soon(answer)


def _is_valid(queue: PopQueue, offset: int, token: int) -> bool:
    cell = queue.cell(offset) if offset >= 0 else None
    return cell is not None and cell.token == token


def _topic_of(ack: BatchAck) -> str:
    kind = Kind(int(ack.retry)) if ack.retry in ("1", "2") else Kind.NORMAL
    return kind.topic_of(ack.topic, ack.consumer_group)


def _offsets_of(ack: BatchAck) -> Sequence[int]:
    try:
        raw = base64.b64decode(ack.bits, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, "the bits of an acknowledgement are not base64") from error
    bits = int.from_bytes(raw, "little")
    if bits.bit_count() > _MAX_ACKS:
        raise RemoteError(ResponseCode.INVALID_PARAMETER, f"a request acknowledges at most {_MAX_ACKS} messages")
    if not bits & bits + 1:  # without gaps
        return range(ack.start_offset, ack.start_offset + bits.bit_length())
    bytes_at_offset = [(ack.start_offset + 8 * match.start(), raw[match.start()]) for match in _SOME_BITS.finditer(raw)]
    return [offset + place for offset, byte in bytes_at_offset for place in range(8) if byte >> place & 1]


def _unknown(topic: str, offset: int) -> RemoteError:
    return RemoteError(
        ResponseCode.NO_MESSAGE,
        f"the receipt handle of message {offset} of topic {topic} is not valid: the message was given to another "
        "consumer, its invisible time was changed, or the handle was not given by this broker",
    )
