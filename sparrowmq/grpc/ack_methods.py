"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue.

A handle is worth something until its message is visible again. If the port has renewed the message meanwhile, the
client still has the first handle, and the port uses the latest one.
Source: AckMessageActivity, ChangeInvisibleDurationActivity and ForwardMessageToDLQActivity, Java 5.4.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.errors import ConfigError, SparrowError
from sparrowmq.grpc.brokers import Brokers
from sparrowmq.grpc.call_limits import check_count
from sparrowmq.grpc.caller import Caller, consumer_group_of, topic_of
from sparrowmq.grpc.client_settings import ms_of
from sparrowmq.grpc.renewals import Renewals
from sparrowmq.grpc.statuses import Status, refusal, status, status_of, status_of_all
from sparrowmq.grpc.wire_types import message_class
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import gather
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack
from sparrowmq.protocol.requests.pop_headers import AckMessage, ChangeInvisibleTime

MIN_INVISIBLE_MS: Final = 10_000  # of a receive; a push consumer lets a failed message come again after 1 s
MAX_INVISIBLE_MS: Final = 12 * 3_600_000
_DLQ_DELAY_LEVEL: Final = -1  # the delay level of a message that goes to the dead-letter topic
_PRUNE_PERIOD_MS: Final = 10_000

# The account, the group, the topic and the message's place. No account shares a result with another, as any client may
# invent a handle.
_MessageKey = tuple[str | int, ...]


@dataclass(slots=True)
class _DeadLetter:
    """A message for the dead-letter topic. If it is not acknowledged, it is visible again at `end_ms`."""

    key: _MessageKey
    end_ms: int
    is_copied: bool = False
    task: asyncio.Task[None] | None = None


class AckMethods:
    """The calls of consumers that have a message."""

    def __init__(self, renewals: Renewals, clock: Clock) -> None:
        self._renewals = renewals
        self._clock = clock
        # Those that are copied, or are being copied: a client may invent any number of handles.
        self._dead_letters: dict[_MessageKey, _DeadLetter] = {}
        self._last_pruned_ms = 0

    async def ack(self, caller: Caller, request: Any) -> Any:
        topic, group = topic_of(request.topic), consumer_group_of(request.group)
        if not request.entries:
            raise refusal(Status.BAD_REQUEST, "the call has no entry; name the messages to acknowledge")
        check_count(request.entries)
        entries = await gather([self._ack_one(caller.brokers, topic, group, entry) for entry in request.entries])
        return message_class("AckMessageResponse")(entries=entries, status=status_of_all(entries))

    async def _ack_one(self, brokers: Brokers, topic: str, group: str, entry: Any) -> Any:
        result = message_class("AckMessageResultEntry")(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle
        )
        try:
            async with self._renewals.latest_handle(brokers.account, group, entry.receipt_handle) as handle_text:
                await self.acknowledge(brokers, topic, group, handle_text)
            result.status.CopyFrom(status())
        except SparrowError as error:
            result.status.code, result.status.message = status_of(error)
        return result

    async def acknowledge(self, brokers: Brokers, topic: str, group: str, handle_text: str) -> None:
        handle = self._parse_handle(handle_text)
        await brokers.ask(handle.broker_name, AckMessage.of(group, topic, handle, handle_text))

    async def change_invisible(self, caller: Caller, request: Any) -> Any:
        topic, group = topic_of(request.topic), consumer_group_of(request.group)
        invisible_ms = invisible_ms_of(request, min_ms=0)
        brokers = caller.brokers
        async with self._renewals.latest_handle(brokers.account, group, request.receipt_handle) as latest:
            handle_text = await self.renew(brokers, topic, group, latest, invisible_ms)
        return message_class("ChangeInvisibleDurationResponse")(status=status(), receipt_handle=handle_text)

    async def renew(self, brokers: Brokers, topic: str, group: str, handle_text: str, invisible_ms: int) -> str:
        """Keep a message invisible for this time from now on. Returns its new handle. Raises: RemoteError."""
        handle = self._parse_handle(handle_text)
        request = ChangeInvisibleTime.of(group, topic, handle, handle_text, invisible_ms)
        return (await brokers.ask(handle.broker_name, request)).header.new_handle(handle)[0]

    async def forward_to_dlq(self, caller: Caller, request: Any) -> Any:
        topic, group = topic_of(request.topic), consumer_group_of(request.group)
        brokers = caller.brokers
        async with self._renewals.latest_handle(brokers.account, group, request.receipt_handle) as handle_text:
            await self.move_to_dlq(brokers, topic, group, handle_text, request.message_id)
        return message_class("ForwardMessageToDeadLetterQueueResponse")(status=status())

    async def move_to_dlq(self, brokers: Brokers, topic: str, group: str, handle_text: str, message_id: str) -> None:
        """Move a message to the dead-letter topic of its group, and acknowledge it. Raises: SparrowError. Calls for the
        same message make one copy, and one acknowledgement, until the message is visible again. They share a task, so
        that a client that goes away leaves nothing in doubt."""
        handle = self._parse_handle(handle_text)
        dead_letter = self._dead_letter(brokers.account, topic, group, handle)
        task = dead_letter.task
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.create_task(self._move_to_dlq(dead_letter, brokers, topic, group, handle_text, message_id))
            task.add_done_callback(_retrieve_error)
            dead_letter.task = task
        await asyncio.shield(task)

    def _dead_letter(self, account: str, topic: str, group: str, handle: ReceiptHandle) -> _DeadLetter:
        now_ms = self._clock.now_ms()
        if now_ms >= self._last_pruned_ms + _PRUNE_PERIOD_MS:
            self._dead_letters = {key: each for key, each in self._dead_letters.items() if each.end_ms >= now_ms}
            self._last_pruned_ms = now_ms
        place = handle.broker_name, handle.kind, handle.queue_id, handle.queue_offset
        key = account, group, topic, *place
        dead_letter = self._dead_letters.get(key)
        if dead_letter is None or dead_letter.end_ms < now_ms:
            dead_letter = self._dead_letters[key] = _DeadLetter(key, now_ms)
        dead_letter.end_ms = max(dead_letter.end_ms, min(handle.visible_ms, now_ms + MAX_INVISIBLE_MS))
        return dead_letter

    async def _move_to_dlq(
        self, dead_letter: _DeadLetter, brokers: Brokers, topic: str, group: str, handle_text: str, message_id: str
    ) -> None:
        if not dead_letter.is_copied:
            try:
                handle = self._parse_handle(handle_text)
                request = ConsumerSendMsgBack(
                    offset=handle.commit_log_offset,
                    group=group,
                    delay_level=_DLQ_DELAY_LEVEL,
                    origin_msg_id=message_id,
                    origin_topic=handle.kind.topic_of(topic, group),
                    max_reconsume_times=0,
                )
                await brokers.ask(handle.broker_name, request)
                dead_letter.is_copied = True
            finally:
                if not dead_letter.is_copied and self._dead_letters.get(dead_letter.key) is dead_letter:
                    del self._dead_letters[dead_letter.key]
        await self.acknowledge(brokers, topic, group, handle_text)

    def _parse_handle(self, handle_text: str) -> ReceiptHandle:
        try:
            handle = ReceiptHandle.parse(handle_text)
        except ConfigError as error:
            raise refusal(Status.INVALID_RECEIPT_HANDLE, str(error)) from None
        if handle.visible_ms < self._clock.now_ms():
            raise refusal(
                Status.INVALID_RECEIPT_HANDLE,
                "the receipt handle has expired: the message is visible again; use a longer invisible duration",
            )
        return handle


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a task whose clients may all have left. Otherwise the loop logs it with a traceback."""
    if not task.cancelled():
        task.exception()


def invisible_ms_of(request: Any, min_ms: int = MIN_INVISIBLE_MS) -> int:
    """The invisible duration of a call. Raises: RemoteError, it is too short or too long."""
    invisible_ms = ms_of(request.invisible_duration)
    if not min_ms <= invisible_ms <= MAX_INVISIBLE_MS:
        raise refusal(
            Status.ILLEGAL_INVISIBLE_TIME,
            f"the invisible duration is {invisible_ms} ms; give {min_ms} to {MAX_INVISIBLE_MS} ms",
        )
    return invisible_ms
