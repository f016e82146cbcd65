"""SendMessage, EndTransaction and RecallMessage.

Each message of a call is one send to a broker. Those of one call go to one queue, in their order, and each has a result
of its own. Unlike Java, whose proxy makes one batch of them, and answers one result for all.

The id of a transaction, which its client gives back when it ends the transaction, says where the half message is:

    base64, URL-safe:   v1 BROKER-NAME STATE-OFFSET LOG-OFFSET UNIQUE-ID      with one blank between; names have none

So any port can end the transaction, also after a restart. Unlike Java, whose proxy keeps the place in its memory.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import AccessDenied, ConfigError, RemoteError, SparrowError
from sparrowmq.grpc.brokers import Brokers, accepted_types, has_type, queue_of_message_group, writable_queues
from sparrowmq.grpc.call_limits import check_count
from sparrowmq.grpc.caller import Caller, topic_of
from sparrowmq.grpc.clients import Clients
from sparrowmq.grpc.message_in import body_of, is_packed, send_request, type_of, unpack_bodies
from sparrowmq.grpc.statuses import Status, refusal, status, status_of, status_of_all
from sparrowmq.grpc.wire_types import SERVER_CHECK, MessageType, Resolution, message_class
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import gather
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests import headers
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.remoting.request_in_flight import Response

# The message is stored, but not as safely as the broker's settings demand.
STORED_CODES: Final = (
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)
MAX_UNPACKED_IN_FLIGHT: Final = 64 << 20  # bytes of unpacked bodies that are not stored yet, of all clients
_SYS_FLAG_BY_RESOLUTION: Final = {
    Resolution.COMMIT: SysFlag.COMMIT,
    Resolution.ROLLBACK: SysFlag.ROLLBACK,
    Resolution.UNSPECIFIED: SysFlag.NOT_TRANSACTION,
}
_ID_VERSION: Final = "v1"
_ID_FIELD_COUNT: Final = 5
_MAX_OFFSET_DIGITS: Final = 19


class SendMethods:
    """The calls of producers."""

    def __init__(self, clients: Clients, clock: Clock, next_number: Callable[[], int]) -> None:
        self._clients = clients
        self._clock = clock
        self._next_number = next_number
        self._unpack_lock = asyncio.Lock()  # held by the one call whose bodies are unpacked
        self._unpacked_bytes = 0  # of bodies that are not stored yet

    async def send(self, caller: Caller, request: Any) -> Any:
        messages = request.messages
        check_count(messages)
        topic = topic_of_all(messages)
        types = [type_of(sent_message) for sent_message in messages]
        await caller.brokers.check_topic_access(topic)
        check_types(topic, await caller.brokers.topic(topic), types)
        queues = writable_queues(topic, await caller.brokers.route(topic))
        if not queues:
            raise refusal(Status.FORBIDDEN, f"topic {topic} has no queue that takes messages")
        message_group = messages[0].system_properties.message_group
        queue = queues[self._next_number() % len(queues)]
        if message_group:
            queue = queue_of_message_group(message_group, queues)
        now_ms = self._clock.now_ms()
        place = (queue.broker_name, queue.queue_id)
        requests = [send_request(sent_message, topic, place, now_ms) for sent_message in messages]
        if MessageType.TRANSACTION in types:
            self._clients.note_half_topic(caller.client_id, topic, caller.brokers, caller.address)
        async with self._unpacked_bodies(messages) as bodies:
            sends = [_send_one(caller.brokers, send, body) for send, body in zip(requests, bodies, strict=True)]
            entries = await gather(sends)
        for entry, sent_message in zip(entries, messages, strict=True):
            entry.message_id = sent_message.system_properties.message_id
        return message_class("SendMessageResponse")(entries=entries, status=status_of_all(entries))

    @asynccontextmanager
    async def _unpacked_bodies(self, messages: Any) -> AsyncIterator[list[bytes]]:
        """The bodies of messages, until they are stored. Raises: RemoteError. A thread unpacks them, one call after
        another, because a few kilobytes may become many megabytes."""
        bodies, are_packed = [body_of(message) for message in messages], [is_packed(message) for message in messages]
        size = 0
        if any(are_packed):
            async with self._unpack_lock:
                if self._unpacked_bytes > MAX_UNPACKED_IN_FLIGHT:
                    raise refusal(
                        Status.TOO_MANY_REQUESTS,
                        f"unpacked bodies of {self._unpacked_bytes:,} bytes wait for the broker; send this again later",
                    )
                bodies = await asyncio.to_thread(unpack_bodies, bodies, are_packed)
                size = sum(map(len, bodies))
                self._unpacked_bytes += size
        try:
            yield bodies
        finally:
            self._unpacked_bytes -= size

    async def end_transaction(self, caller: Caller, request: Any) -> Any:
        topic = topic_of(request.topic)
        transaction = TransactionId.parse(request.transaction_id)
        sys_flag = _SYS_FLAG_BY_RESOLUTION.get(request.resolution)
        if sys_flag is None:
            raise refusal(Status.BAD_REQUEST, f"the resolution {request.resolution} is unknown; commit or roll back")
        broker_request = headers.EndTransaction(
            producer_group=topic,
            tran_state_table_offset=transaction.state_offset,
            commit_log_offset=transaction.log_offset,
            commit_or_rollback=sys_flag,
            msg_id=transaction.unique_id,
            topic=topic,
            from_transaction_check=request.source == SERVER_CHECK,
            transaction_id=transaction.unique_id,
        )
        try:
            await caller.brokers.ask(transaction.broker_name, broker_request)
        except RemoteError as error:
            if error.code == ResponseCode.SYSTEM_ERROR and not isinstance(error, AccessDenied):
                raise refusal(Status.INVALID_TRANSACTION_ID, error.remark) from None
            raise
        return message_class("EndTransactionResponse")(status=status())

    async def recall(self, caller: Caller, request: Any) -> Any:
        topic = topic_of(request.topic)
        try:
            handle = RecallHandle.parse(request.recall_handle)
        except ConfigError as error:
            raise refusal(Status.BAD_REQUEST, str(error)) from None
        if handle.topic != topic:
            raise refusal(Status.BAD_REQUEST, "the recall handle is that of another topic")
        broker_request = headers.RecallMessage(topic=topic, recall_handle=request.recall_handle, producer_group=topic)
        answer = await caller.brokers.ask(handle.broker_name, broker_request)
        return message_class("RecallMessageResponse")(status=status(), message_id=answer.header.msg_id)


def topic_of_all(messages: Any) -> str:
    """The topic of the messages of one call. Raises: RemoteError, there is no message, or more than one topic."""
    if not messages:
        raise refusal(Status.MESSAGE_CORRUPTED, "the call has no message")
    topic = topic_of(messages[0].topic)
    if len(messages) > 1 and any(topic_of(message.topic) != topic for message in messages):
        raise refusal(Status.MESSAGE_CORRUPTED, "the messages have several topics; send them one by one")
    return topic


def check_types(topic: str, config: TopicConfig, types: Sequence[MessageType]) -> None:
    """Raises: RemoteError, the topic does not take messages of one of these types."""
    if not has_type(config):
        return
    accepted = accepted_types(config)
    refused_type = next((kind for kind in types if kind not in accepted), None)
    if refused_type is not None:
        raise refusal(
            Status.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"topic {topic} takes {' or '.join(kind.name for kind in accepted) or 'no'} messages, and this one is "
            f"{refused_type.name}; send it to another topic, or change message.type of the topic",
        )


async def _send_one(brokers: Brokers, request: headers.SendMessageV2, body: bytes) -> Any:
    try:
        answer = await brokers.ask(request.broker_name or "", request, body, accepted_codes=STORED_CODES)
    except SparrowError as error:
        return entry_of(request, None, error)
    return entry_of(request, answer, None)


def entry_of(request: headers.SendMessageV2, answer: Response[Any] | None, error: SparrowError | None) -> Any:
    """The `SendResultEntry` for what a broker answered to a send: an answer or an error."""
    entry = message_class("SendResultEntry")()
    if answer is None:
        assert error is not None, "there is an answer or an error"
        entry.status.code, entry.status.message = status_of(error)
        return entry
    reply = answer.header
    if answer.code:
        entry.status.code, entry.status.message = status_of(RemoteError(answer.code, answer.remark))
    else:
        entry.status.CopyFrom(status())
    entry.offset = reply.queue_offset
    entry.recall_handle = reply.recall_handle or ""
    if request.sys_flag & SysFlag.PREPARED:
        log_offset = parse_offset_id(reply.msg_id).physical_offset
        unique_id = Properties(request.properties or "").unique_key or ""
        entry.transaction_id = str(TransactionId(request.broker_name or "", reply.queue_offset, log_offset, unique_id))
    return entry


class TransactionId(NamedTuple):
    """The parts of an id: `state_offset` is the queue offset of the half message, `log_offset` its byte in the log."""

    broker_name: str
    state_offset: int
    log_offset: int
    unique_id: str

    def __str__(self) -> str:
        parts = (_ID_VERSION, self.broker_name, str(self.state_offset), str(self.log_offset), self.unique_id)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> TransactionId:
        """Raises: RemoteError, the text is no id."""
        try:
            parts = base64.b64decode(text.encode("ascii"), b"-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeError):
            parts = []
        if len(parts) != _ID_FIELD_COUNT or parts[0] != _ID_VERSION or not all(parts):
            raise _invalid_id()
        _, broker_name, state_offset, log_offset, unique_id = parts
        return cls(broker_name, _number(state_offset), _number(log_offset), unique_id)


def _number(text: str) -> int:
    number = whole_number(text, _MAX_OFFSET_DIGITS)
    if number is None:
        raise _invalid_id()
    return number


def _invalid_id() -> Exception:
    return refusal(Status.INVALID_TRANSACTION_ID, "the transaction id is invalid; give the one that the send returned")
