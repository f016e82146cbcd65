"""The base of handlers: the parts that they share, and common refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.remoting.handler import LargeAnswers
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class SharedParts:
    store: MessageStore
    writer: Writer
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    consumption: Consumption
    clock: Clock
    quotas: Quotas
    accepts_writes: Callable[[], bool]  # no while the lead is handed over


class Handler:
    def __init__(self, shared: SharedParts) -> None:
        self._store = shared.store
        self._writer = shared.writer
        self._topics = shared.topics
        self._groups = shared.groups
        self._offsets = shared.offsets
        self._clients = shared.clients
        self._consumption = shared.consumption
        self._clock = shared.clock
        self._quotas = shared.quotas
        self._accepts_writes = shared.accepts_writes
        self._large = LargeAnswers()

    def _record_at(self, offset: int) -> memoryview:
        view = self._store.record_at(offset)
        if view is None:
            raise system_error(f"can not find message by the offset, {offset}")
        return view

    def _known_topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise RemoteError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic


def system_error(remark: str) -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_ERROR, remark)


def body_too_large(size_bytes: int, limit_bytes: int) -> RemoteError:
    return RemoteError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"the body takes {size_bytes} bytes; this broker's maxMessageSize is {limit_bytes}",
    )


def physical_offset_of(msg_id: str) -> int:
    try:
        return parse_offset_id(msg_id).physical_offset
    except RemoteProtocolError as error:
        raise system_error(f"msgId: {error}") from error


def no_topic(name: str) -> RemoteError:
    return RemoteError(
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[{name}] not exist, apply first please! It is created by mqadmin updateTopic, or by a send where "
        "autoCreateTopicEnable is true",
    )
