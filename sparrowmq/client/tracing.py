"""Reports to the trace topic what this client does with each message: `connect(..., trace=True)`.

    hooks ────────────────┬─ a record each ──> waiting, bounded ── 100 at once, or after a second ──> one message in
    ends of transactions ─┘                                                                           the trace topic

Tracing never makes a send wait or fail. A record without room is dropped and counted, and a trace that cannot be sent
is reported in the log. Traces that wait when the client is left are sent then. Traces, retries and failed sends are not
traced, as in Java. Source: AsyncTraceDispatcher, SendMessageTraceHookImpl,
ConsumeMessageTraceHookImpl and EndTransactionTraceHookImpl, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from sparrowmq.client.consuming.received_message import ConsumeHooks, ReceivedMessage
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.send_hooks import SendHooks
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.client.sending.transaction import End
from sparrowmq.errors import RemoteProtocolError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import KEY_SEPARATOR, Message, Property
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.messages.trace import (
    DEFAULT_REGION,
    EndTransactionTrace,
    PubTrace,
    Reaction,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
    TracedKind,
    encode,
)
from sparrowmq.protocol.names import without_namespace

log = logging.getLogger(__name__)
TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
MAX_WAITING: Final = 10_000
MAX_RECORDS: Final = 100  # records of one trace message; their keys must fit into its properties
MAX_BODY_BYTES: Final = 118_000  # (Java: maxMsgSize less 10,000)
MAX_KEYS_BYTES: Final = 16_000
BATCHING_S: Final = 1.0
DRAIN_LIMIT_S: Final = 3.0
_STATE_NAMES: Final = {True: "COMMIT_MESSAGE", False: "ROLLBACK_MESSAGE", None: "UNKNOW"}  # Java: LocalTransactionState
LOG_PAUSE_S: Final = 60.0  # between two lines of the log about traces that are lost


class Tracing:
    """The traces of one client. `producer` sends them, and nothing else. They leave the namespace out of names."""

    def __init__(
        self, topic: str, producer: Producer, clock: Clock, next_id: Callable[[], str], namespace: str = ""
    ) -> None:
        self.topic = topic
        self._namespace = namespace
        self.clock = clock
        self.next_id = next_id
        self.lost_count = 0
        self._producer = producer
        self._waiting_traces: deque[tuple[str, Trace]] = deque()
        self._not_empty = asyncio.Event()
        self._batch_ready = asyncio.Event()
        self._logged_at = -LOG_PAUSE_S

    def send_hooks(self, group: str) -> TracingSendHooks:
        return TracingSendHooks(self, group)

    def consume_hooks(self, group: str) -> TracingConsumeHooks:
        return TracingConsumeHooks(self, group)

    def on_transaction_end(self, end: End) -> None:
        """Report the end of a transaction that was sent to its broker."""
        if end.request.topic != self.topic:
            self.add(_end_trace(end, self._namespace, self.clock.now_ms()))

    def add(self, trace: Trace) -> None:
        if len(self._waiting_traces) >= MAX_WAITING:
            self._count_lost(1, "more come than can be sent")
            return
        self._waiting_traces.append((encode(trace), trace))
        self._not_empty.set()
        if len(self._waiting_traces) >= MAX_RECORDS:
            self._batch_ready.set()

    async def run(self) -> None:
        """Send the waiting traces until cancelled."""
        while True:
            await self._not_empty.wait()
            with suppress(TimeoutError):
                await self.clock.wait_for(self._batch_ready.wait(), BATCHING_S)
            await self._send_all()

    async def drain(self) -> None:
        """Send the waiting traces, and return when they are stored, after 3 s at the latest."""

        async def send_and_flush() -> None:
            await self._send_all()
            await self._producer.flush()

        with suppress(TimeoutError):
            await self.clock.wait_for(send_and_flush(), DRAIN_LIMIT_S)
        if self._waiting_traces:
            self._count_lost(len(self._waiting_traces), "the client is closed")

    async def _send_all(self) -> None:
        self._not_empty.clear()
        self._batch_ready.clear()
        while self._waiting_traces:
            await self._producer.drain()
            count, message = self._next_message()
            try:
                future = self._producer.send_soon(message)
            except SparrowError as error:
                self._count_lost(count, error)
            else:
                future.add_done_callback(partial(self._on_sent, count))

    def _next_message(self) -> tuple[int, Message]:
        """As many records as fit into one message, the oldest first."""
        texts: list[str] = []
        keys: dict[str, None] = {}
        body_size = keys_size = 0
        while self._waiting_traces and len(texts) < MAX_RECORDS:
            text, trace = self._waiting_traces[0]
            keys_of_trace = dict.fromkeys(_search_keys(trace))
            keys_size += sum(len(key.encode()) + 1 for key in keys_of_trace if key not in keys)
            body_size += len(text.encode())
            if texts and (body_size > MAX_BODY_BYTES or keys_size > MAX_KEYS_BYTES):
                break
            self._waiting_traces.popleft()
            texts.append(text)
            keys |= keys_of_trace
        return len(texts), Message(self.topic, "".join(texts).encode(), keys=tuple(keys))

    def _on_sent(self, count: int, future: asyncio.Future[SendResult]) -> None:
        if future.cancelled():
            self._count_lost(count, "sending it was cancelled")
        elif (error := future.exception()) is not None:
            self._count_lost(count, error)

    def _count_lost(self, count: int, reason: object) -> None:
        self.lost_count += count
        now = self.clock.monotonic()
        if now - self._logged_at >= LOG_PAUSE_S:
            self._logged_at = now
            log.warning(
                "%d traces are lost by now: %s; topic %s must exist (traceTopicEnable=true)",
                self.lost_count,
                reason,
                self.topic,
            )


class TracingSendHooks(SendHooks):
    """Reports the messages that a producer group sends."""

    def __init__(self, tracing: Tracing, group: str) -> None:
        self._tracing = tracing
        self._group = group
        # The begin and the kind of each message under way. Both hooks of a send get the same object, which no other
        # send has.
        self._in_flight: dict[int, tuple[int, TracedKind]] = {}

    def before_send(self, message: Message) -> None:
        kind = TracedKind.DELAYED if message.delay_level else TracedKind.NORMAL
        self._in_flight[id(message)] = self._tracing.clock.now_ms(), kind

    def before_half(self, message: Message) -> None:
        self._in_flight[id(message)] = self._tracing.clock.now_ms(), TracedKind.HALF

    def after_send(self, message: Message, outcome: SendResult | BaseException | None) -> None:
        begun_ms, kind = self._in_flight.pop(id(message))
        if isinstance(outcome, SendResult) and message.topic != self._tracing.topic:
            cost_ms = self._tracing.clock.now_ms() - begun_ms
            self._tracing.add(
                PubTrace(
                    begun_ms,
                    self._group,
                    message.topic,
                    outcome.msg_id,
                    message.tag,
                    KEY_SEPARATOR.join(message.keys) or None,
                    _store_host(outcome.offset_msg_id),
                    len(message.body),
                    cost_ms,
                    kind,
                    outcome.offset_msg_id,
                    outcome.status is SendStatus.OK,
                )
            )


class TracingConsumeHooks(ConsumeHooks):
    """Reports the messages that a consumer of a group handles, and the outcome."""

    def __init__(self, tracing: Tracing, group: str) -> None:
        self._tracing = tracing
        self._group = group
        self._in_flight: dict[int, tuple[str, int]] = {}

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        begun_ms = self._tracing.clock.now_ms()
        request_id = self._tracing.next_id()
        self._in_flight[id(messages)] = request_id, begun_ms
        for message in self._traced(messages):
            region = message.properties.get(Property.MSG_REGION, DEFAULT_REGION)
            keys = message.properties.get(Property.KEYS)
            self._tracing.add(
                SubBeforeTrace(begun_ms, self._group, request_id, message.msg_id, message.reconsume_times, keys, region)
            )

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        request_id, begun_ms = self._in_flight.pop(id(messages))
        now_ms = self._tracing.clock.now_ms()
        cost_ms = (now_ms - begun_ms) // len(messages)
        reaction = Reaction.SUCCESS if error is None else Reaction.EXCEPTION
        for message in self._traced(messages):
            keys = message.properties.get(Property.KEYS)
            self._tracing.add(
                SubAfterTrace(request_id, message.msg_id, cost_ms, error is None, keys, reaction, now_ms, self._group)
            )

    def _traced(self, messages: Sequence[ReceivedMessage]) -> Iterator[ReceivedMessage]:
        """The messages to trace. A broker may forbid it (traceOn), and traces are not traced."""
        for message in messages:
            if message.properties.get(Property.TRACE_ON) != "false" and message.full_topic != self._tracing.topic:
                yield message


def _end_trace(end: End, namespace: str, now_ms: int) -> EndTransactionTrace:
    request = end.request
    return EndTransactionTrace(
        now_ms,
        without_namespace(namespace, request.producer_group),
        without_namespace(namespace, request.topic or ""),
        request.msg_id,
        end.tag,
        KEY_SEPARATOR.join(end.keys) or None,
        end.broker,
        request.transaction_id,
        _STATE_NAMES[end.commit],
        bool(request.from_transaction_check),
    )


def _store_host(offset_msg_id: str) -> str:
    try:
        return parse_offset_id(offset_msg_id).store_host
    except RemoteProtocolError:
        return ""


def _search_keys(trace: Trace) -> list[str]:
    message_keys = (trace.keys or "").split()
    return [trace.msg_id, *message_keys] if sum(map(len, message_keys)) < MAX_KEYS_BYTES // 4 else [trace.msg_id]
