"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

A handle is worth something until its message is visible again. If the port has renewed the message meanwhile, the
client still has the first handle, and the port uses the latest one.
Source: AckMessageActivity, ChangeInvisibleDurationActivity and ForwardMessageToDLQActivity, Java 5.4.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from sparrowmq.errors import ConfigError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack
from sparrowmq.protocol.requests.pop_headers import AckMessage, ChangeInvisibleTime
from sparrowmq.proxy.brokers import Brokers
from sparrowmq.proxy.caller import Caller, consumer_group_of, topic_of
from sparrowmq.proxy.renewals import Renewals
from sparrowmq.proxy.settings_answer import ms_of
from sparrowmq.proxy.statuses import Status, refused, status, status_of, status_of_all
from sparrowmq.proxy.wire_types import message

LEAST_INVISIBLE_MS: Final = 10_000
MOST_INVISIBLE_MS: Final = 12 * 3_600_000
_GIVE_UP: Final = -1  # the delay level of a message that goes to the dead-letter topic


class Acknowledging:
    """The calls of consumers that have a message."""

    def __init__(self, renewals: Renewals, clock: Clock) -> None:
        self._renewals = renewals
        self._clock = clock

    async def ack(self, caller: Caller, request: Any) -> Any:
        """AckMessage."""
        topic, group = topic_of(request.topic), consumer_group_of(request.group)
        if not request.entries:
            raise refused(Status.BAD_REQUEST, "the call has no entry; name the messages to acknowledge")
        entries = await asyncio.gather(
            *(self._acked(caller.brokers, topic, group, entry) for entry in request.entries)
        )
        return message("AckMessageResponse")(entries=entries, status=status_of_all(entries))

    async def _acked(self, brokers: Brokers, topic: str, group: str, entry: Any) -> Any:
        result = message("AckMessageResultEntry")(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle
        )
        try:
            await self.drop(brokers, topic, group, self._taken(group, entry.receipt_handle))
            result.status.CopyFrom(status())
        except SparrowError as error:
            result.status.code, result.status.message = status_of(error)
        return result

    async def drop(self, brokers: Brokers, topic: str, group: str, text: str) -> None:
        """Acknowledge a message. Raises: SparrowError."""
        handle = self._parsed(text)
        await brokers.ask(handle.broker_name, AckMessage.of(group, topic, handle, text))

    async def change_invisible(self, caller: Caller, request: Any) -> Any:
        """ChangeInvisibleDuration."""
        topic, group = topic_of(request.topic), consumer_group_of(request.group)
        invisible_ms = ms_of(request.invisible_duration)
        if not LEAST_INVISIBLE_MS <= invisible_ms <= MOST_INVISIBLE_MS:
            raise illegal_invisible_time(invisible_ms)
        taken = self._taken(group, request.receipt_handle)
        text = await self.renewed(caller.brokers, topic, group, taken, invisible_ms)
        return message("ChangeInvisibleDurationResponse")(status=status(), receipt_handle=text)

    async def renewed(self, brokers: Brokers, topic: str, group: str, text: str, invisible_ms: int) -> str:
        """Keep a message invisible for this time from now on. Returns its new handle. Raises: RemoteError."""
        handle = self._parsed(text)
        ask = ChangeInvisibleTime.of(group, topic, handle, text, invisible_ms)
        return (await brokers.ask(handle.broker_name, ask)).header.renewed(handle)[0]

    async def forward(self, caller: Caller, request: Any) -> Any:
        """ForwardMessageToDeadLetterQueue."""
        topic, group = topic_of(request.topic), consumer_group_of(request.group)
        text = self._taken(group, request.receipt_handle)
        await self.give_up(caller.brokers, topic, group, text, request.message_id)
        return message("ForwardMessageToDeadLetterQueueResponse")(status=status())

    async def give_up(self, brokers: Brokers, topic: str, group: str, text: str, message_id: str) -> None:
        """Move a message to the dead-letter topic of its group, and acknowledge it. Raises: RemoteError."""
        handle = self._parsed(text)
        ask = ConsumerSendMsgBack(
            offset=handle.commit_log_offset,
            group=group,
            delay_level=_GIVE_UP,
            origin_msg_id=message_id,
            origin_topic=handle.kind.topic_of(topic, group),
            max_reconsume_times=0,
        )
        await brokers.ask(handle.broker_name, ask)
        await self.drop(brokers, topic, group, text)

    def _taken(self, group: str, text: str) -> str:
        """The latest handle of a message, which is renewed no more."""
        return self._renewals.take(group, text)

    def _parsed(self, text: str) -> ReceiptHandle:
        try:
            handle = ReceiptHandle.parse(text)
        except ConfigError as error:
            raise refused(Status.INVALID_RECEIPT_HANDLE, str(error)) from None
        if handle.visible_ms < self._clock.now_ms():
            raise refused(
                Status.INVALID_RECEIPT_HANDLE,
                "the receipt handle has expired: the message is visible again; use a longer invisible duration",
            )
        return handle


def illegal_invisible_time(invisible_ms: int) -> SparrowError:
    """The error for an invisible duration that is too short or too long."""
    return refused(
        Status.ILLEGAL_INVISIBLE_TIME,
        f"the invisible duration is {invisible_ms} ms; give {LEAST_INVISIBLE_MS} to {MOST_INVISIBLE_MS} ms",
    )
