"""SendMessage and AckMessage at a broker's own port: the two calls that each message needs, without a task.

    call ── checks ── request to the broker in this process ── its answer ── answer of the call

Nothing must be asked for before, so these are plain functions. Coroutines handle all other calls (send_methods.py,
ack_methods.py): at mqproxy, sends of packed bodies or to topics that do not take them, and acknowledgements that are
refused or must wait for a renewal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from sparrowmq.errors import ConfigError, InvalidName, NoRoute, RemoteError, SparrowError
from sparrowmq.grpc.brokers import LocalBroker, queue_index_of_message_group
from sparrowmq.grpc.call_limits import check_count
from sparrowmq.grpc.caller import Caller
from sparrowmq.grpc.client_settings import MAX_BODY_BYTES
from sparrowmq.grpc.clients import Clients
from sparrowmq.grpc.message_in import body_of, has_digest, is_packed, request_to, send_request, type_of
from sparrowmq.grpc.renewals import Renewals
from sparrowmq.grpc.send_methods import STORED_CODES, check_types, entry_of, topic_of_all
from sparrowmq.grpc.statuses import status, status_of, status_of_all
from sparrowmq.grpc.wire_types import MessageType, message_class, read
from sparrowmq.http2.calls import Pending
from sparrowmq.kernel.grpc_messages import acked_message, field, number_field, sent_message
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.property_names import OPEN, RESERVED
from sparrowmq.protocol.names import check_group, check_new_topic, with_namespace
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.protocol.requests.pop_headers import AckMessage

_OK: Final = bytes(status().SerializeToString())
_OK_FIELD: Final = field(1, _OK)
_PREPARED_FLAG: Final = int(SysFlag.PREPARED)


_NORMAL: Final = (MessageType.NORMAL,)
_SEND_CLASS: Final = message_class("SendMessageRequest")
# A property of a client with such a name makes a message special.
_RESERVED: Final = frozenset(name.encode() for name in RESERVED | OPEN)


@lru_cache(4096)
def _topic(namespace: str, name: str) -> str | None:
    """The full name of a topic; None if it is no name that a client may use."""
    try:
        return check_new_topic(with_namespace(namespace, name))
    except InvalidName:
        return None


@lru_cache(4096)
def _group(namespace: str, name: str) -> str | None:
    try:
        return check_group(with_namespace(namespace, name))
    except InvalidName:
        return None


class LocalCalls:
    """The calls of clients whose broker is in this process. Each returns None for a call of another kind."""

    def __init__(self, clients: Clients, renewals: Renewals, clock: Clock, next_number: Callable[[], int]) -> None:
        self._clients = clients
        self._renewals = renewals
        self._clock = clock
        self._next_number = next_number

    def send(self, caller: Caller, raw: bytes) -> Pending | None:
        """SendMessage. Raises: SparrowError."""
        local_broker = caller.brokers.local_broker
        if local_broker is None:
            return None
        return self._send_plain(local_broker, raw) or self._send(caller, local_broker, read(_SEND_CLASS, raw))

    def _send_plain(self, local_broker: LocalBroker, raw: bytes) -> Pending | None:
        """Send the one message of a call, if nothing is special about it."""
        sent = sent_message(raw, _RESERVED)
        if sent is None:
            return None
        topic_name, message_id, properties, body, born_ms, digest_type, checksum = sent
        topic = _topic(*topic_name)
        if topic is None or len(body) > MAX_BODY_BYTES:
            return None
        try:
            config = local_broker.topic_config(topic)
            check_types(topic, config, _NORMAL)
        except (NoRoute, RemoteError):
            return None
        queue_count = local_broker.count_writable_queues(config)
        if not queue_count or (checksum and not has_digest(body, digest_type, checksum.upper())):
            return None
        place = local_broker.name, self._next_number() % queue_count
        request = request_to(topic, place, born_ms or self._clock.now_ms(), properties)
        sends = _Sends([message_id])
        on_answer = partial(sends.on_answer, 0, request)
        local_broker.ask_soon(request, body, on_answer, accepted_codes=STORED_CODES)
        return sends.pending

    def _send(self, caller: Caller, local_broker: LocalBroker, request: Any) -> Pending | None:
        check_count(request.messages)
        # To go through protobuf's own list costs more than to make this one.
        messages = [request.messages[index] for index in range(len(request.messages))]
        if True in [is_packed(message) for message in messages]:
            return None
        topic = topic_of_all(messages)
        types = [type_of(message) for message in messages]
        try:
            config = local_broker.topic_config(topic)
            check_types(topic, config, types)
        except (NoRoute, RemoteError):
            return None  # the error is for those who may know the topic
        bodies = [body_of(message) for message in messages]
        queue_count = local_broker.count_writable_queues(config)
        if not queue_count:
            return None
        message_group = messages[0].system_properties.message_group
        queue_id = (
            queue_index_of_message_group(message_group, queue_count)
            if message_group
            else self._next_number() % queue_count
        )
        now_ms, place = self._clock.now_ms(), (local_broker.name, queue_id)
        requests = [send_request(message, topic, place, now_ms) for message in messages]
        if MessageType.TRANSACTION in types:
            self._clients.note_half_topic(caller.client_id, topic, caller.brokers, caller.address)
        sends = _Sends([str(message.system_properties.message_id) for message in messages])
        for number, send in enumerate(requests):
            on_answer = partial(sends.on_answer, number, send)
            local_broker.ask_soon(send, bodies[number], on_answer, accepted_codes=STORED_CODES)
        return sends.pending

    def ack(self, caller: Caller, raw: bytes) -> Pending | None:
        """AckMessage with one entry, whose handle may be valid."""
        local_broker, acked = caller.brokers.local_broker, acked_message(raw)
        if local_broker is None or acked is None:
            return None
        group_name, topic_name, message_id, text = acked
        topic, group = _topic(*topic_name), _group(*group_name)
        if topic is None or group is None:
            return None
        try:
            handle = ReceiptHandle.parse(text)
        except ConfigError:
            return None
        is_late = handle.visible_ms < self._clock.now_ms()
        is_renewed = self._renewals.contains(caller.brokers.account, group, text)
        if is_late or handle.broker_name != local_broker.name or is_renewed:
            return None
        pending = Pending()
        on_answer = partial(_on_ack_answer, pending, message_id, text)
        local_broker.ask_soon(AckMessage.of(group, topic, handle, text), b"", on_answer)
        return pending


class _Sends:
    """The sends of one call, by the ids of its messages. The call is answered when all of them are."""

    def __init__(self, message_ids: Sequence[str]) -> None:
        self.pending = Pending()
        self._message_ids = message_ids
        self._entries: list[Any] = [None] * len(message_ids)
        self._unanswered_count = len(message_ids)

    def on_answer(self, number: int, request: SendMessageV2, answer: Any, error: Exception | None) -> None:
        try:
            self._note_answer(number, request, answer, error)
        except (SparrowError, ValueError) as failure:  # of an answer that has another form
            self.pending.fail(failure)

    def _note_answer(self, number: int, request: SendMessageV2, answer: Any, error: Exception | None) -> None:
        is_plain = not request.sys_flag & _PREPARED_FLAG and len(self._message_ids) == 1
        if error is None and is_plain and not answer.code and not answer.header.recall_handle:
            self.pending.answer(send_response(self._message_ids[0], answer.header.queue_offset))
            return
        if error is not None and not isinstance(error, SparrowError):
            self.pending.fail(error)
            return
        entry = entry_of(request, answer, error)
        entry.message_id = self._message_ids[number]
        self._entries[number] = entry
        self._unanswered_count -= 1
        if not self._unanswered_count:
            response = message_class("SendMessageResponse")(entries=self._entries, status=status_of_all(self._entries))
            self.pending.answer(response.SerializeToString())


def _on_ack_answer(pending: Pending, message_id: str, text: str, _: Any, error: Exception | None) -> None:
    if error is None:
        pending.answer(ack_response(message_id, text))
    elif isinstance(error, SparrowError):
        entry = message_class("AckMessageResultEntry")(message_id=message_id, receipt_handle=text)
        entry.status.code, entry.status.message = status_of(error)
        pending.answer(message_class("AckMessageResponse")(entries=[entry], status=entry.status).SerializeToString())
    else:
        pending.fail(error)


def send_response(message_id: str, queue_offset: int) -> bytes:
    offset = number_field(4, queue_offset) if queue_offset else b""
    return _OK_FIELD + field(2, _OK_FIELD + field(2, message_id.encode()) + offset)


def ack_response(message_id: str, text: str) -> bytes:
    own_id = field(1, message_id.encode()) if message_id else b""
    return _OK_FIELD + field(2, own_id + field(2, text.encode()) + field(3, _OK))
