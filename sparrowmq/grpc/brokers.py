"""The brokers behind the gRPC port: one interface for a broker in the same process and for a whole cluster.

    LOCAL     the port is the broker's own: requests go to its dispatcher, without a socket (broker/grpc_port.py)
    CLUSTER   the port is that of `mqproxy`: requests go to the brokers of a cluster (mqproxy/)

A call of a client becomes requests of the remoting protocol. A client sends each request for a queue to the endpoints
in the answer to QueryRoute: those that it has asked, or the address of the port. It sees the queues on the masters.
Source: RouteActivity, Java 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from sparrowmq.core.digits import whole_number
from sparrowmq.grpc.wire_types import AddressScheme, MessageType, Permission, message_class
from sparrowmq.http2.calls import Call
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.messages import message_types
from sparrowmq.protocol.messages.message import MessageQueue, Perm, StoredMessage
from sparrowmq.protocol.messages.message_types import MESSAGE_TYPE, type_of_topic
from sparrowmq.protocol.requests.bodies import MASTER, GroupConfig, QueueRoute, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerBeat, ConsumerRunning
from sparrowmq.protocol.requests.headers import CheckTransactionState
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)
ASK_TIMEOUT_S = 3.0
_HASH_MULTIPLIER: Final = 2862933555777941757
_HASH_MASK: Final = (1 << 64) - 1

# A broker asks for the end of a transaction: its name, what it asks, the half message, and the clients that may be
# asked.
OnCheck = Callable[[str, CheckTransactionState, StoredMessage, Collection[str]], object]


class ClientCommands(Protocol):
    """Commands for the clients of a port (telemetry.py), by their ids with accounts."""

    async def running_info(self, client_id: str, *, wants_stacks: bool) -> ConsumerRunning: ...

    async def verify(self, client_id: str, stored_message: StoredMessage) -> ConsumeOutcome: ...


class Cluster(Protocol):
    """The brokers that a port serves. `on_check` is called when a broker asks for the end of a transaction of an
    announced producer. `commands` are for the clients of the port, once it is open."""

    on_check: OnCheck
    commands: ClientCommands | None

    def brokers_for(self, call: Call, client_id: str) -> Brokers:
        """The brokers as this caller may use them. Raises: AccessDenied."""

    def client_left(self, client_id: str) -> None:
        """A client has ended, or was silent for too long. Its id is that of its account (`caller.client_id_of`)."""


class LocalBroker(Protocol):
    """The one broker of a LOCAL port: it is in this process, so its settings need no request."""

    @property
    def name(self) -> str: ...

    def topic_config(self, name: str) -> TopicConfig:
        """The settings of a topic. Raises: NoRoute."""

    def count_writable_queues(self, config: TopicConfig) -> int:
        """The number of queues of a topic that take messages."""

    def ask_soon(
        self,
        request: Request[Any],
        body: bytes,
        on_answer: Callable[[Response[Any] | None, Exception | None], object],
        *,
        accepted_codes: Collection[int] = (),
    ) -> None:
        """Send a request, and call `on_answer(answer, error)` later, one of them None."""


class Brokers(Protocol):
    """The brokers, for one client. Each method raises AccessDenied, RemoteError or NetworkError.

    `account` is the access key that signed the client's calls, or the name in its certificate; without one, "" or the
    client's address. `is_known`: the client has signed a call, or a request of it was allowed. `local_broker` is the
    only broker, if it is in this process.
    """

    @property
    def local_broker(self) -> LocalBroker | None: ...

    @property
    def account(self) -> str: ...

    @property
    def is_known(self) -> bool: ...

    def announce(self, producers: Sequence[str], consumer: ConsumerBeat | None) -> None:
        """Let the brokers know the client's groups, for some time from now on: all of them, with those of half
        messages first."""

    async def check_topic_access(self, topic: str) -> None:
        """Do nothing if the client may send to a topic or consume it. The questions below are answered for any name. So
        the methods call this, or `check_consumer_access`, first."""

    async def check_consumer_access(self, group: str, topics: Collection[str]) -> None:
        """Check that the client may consume the topics as a group."""

    async def route(self, topic: str) -> TopicRoute:
        """The brokers of a topic. Raises: NoRoute."""

    async def topic(self, name: str) -> TopicConfig:
        """The settings of a topic. Raises: NoRoute."""

    async def group(self, name: str) -> GroupConfig | None:
        """The settings of a consumer group; None if there is none."""

    async def ask(
        self,
        broker_name: str,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = ASK_TIMEOUT_S,
        accepted_codes: Collection[int] = (),
    ) -> Response[R]:
        """Send a request to a broker's master."""


def accepted_types(config: TopicConfig) -> Sequence[MessageType]:
    """The types of messages of a topic, as its route lists them. Unlike Java, where it takes normal messages only, a
    topic without a type is as one of the type MIXED. PRIORITY is not among them: clients of Java before 5.2.0 do not
    know it, and refuse a list that has it."""
    topic_type = type_of_topic(config.attributes) if has_type(config) else message_types.MessageType.MIXED
    return [MessageType[kind.name] for kind in message_types.accepted_types(topic_type)]


def has_type(config: TopicConfig) -> bool:
    return MESSAGE_TYPE in (config.attributes or {})


def endpoints_of(address: str) -> Any:
    host, port = split_address(address)
    is_ipv4 = all(whole_number(part) is not None for part in host.split("."))
    scheme = AddressScheme.IPV4 if is_ipv4 else AddressScheme.DOMAIN_NAME
    endpoints = message_class("Endpoints")(scheme=AddressScheme.IPV6 if ":" in host else scheme)
    endpoints.addresses.add(host=host, port=port)
    return endpoints


def message_queues(topic: Any, route: TopicRoute, types: Sequence[int], endpoints: Any) -> Iterator[Any]:
    """Each `MessageQueue` of a topic on brokers with a master. `topic` is the `Resource` of the client."""
    for row in _rows_of_masters(route):
        readable = row.read_queue_nums if row.perm & Perm.READ else 0
        writable = row.write_queue_nums if row.perm & Perm.WRITE else 0
        for queue_id in range(max(readable, writable)):
            place = row.broker_name, queue_id, _permission(queue_id < readable, queue_id < writable)
            yield message_queue(topic, place, types, endpoints)


def message_queue(topic: Any, place: tuple[str, int, Permission], types: Sequence[int], endpoints: Any) -> Any:
    """One `MessageQueue`. `place`: the name of its broker, its id and its permission."""
    broker_name, queue_id, permission = place
    queue = message_class("MessageQueue")(id=queue_id, permission=permission, accept_message_types=types)
    queue.topic.CopyFrom(topic)
    queue.broker.name = broker_name
    queue.broker.id = MASTER
    queue.broker.endpoints.CopyFrom(endpoints)
    return queue


def _permission(is_readable: bool, is_writable: bool) -> Permission:
    if is_readable:
        return Permission.READ_WRITE if is_writable else Permission.READ
    return Permission.WRITE


def writable_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues that take messages, by broker name and id."""
    return [
        MessageQueue(topic, row.broker_name, queue_id)
        for row in _rows_of_masters(route)
        if row.perm & Perm.WRITE
        for queue_id in range(row.write_queue_nums)
    ]


def _rows_of_masters(route: TopicRoute) -> list[QueueRoute]:
    masters = {row.broker_name for row in route.broker_datas if MASTER in row.broker_addrs}
    rows = [row for row in route.queue_datas if row.broker_name in masters]
    return sorted(rows, key=lambda row: row.broker_name)


def queue_of_message_group(group: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a message group: the same one at each port, also Apache's."""
    return queues[queue_index_of_message_group(group, len(queues))]


def queue_index_of_message_group(group: str, queue_count: int) -> int:
    """The index of a message group's queue: few groups move when a queue is added (Guava's `consistentHash`)."""
    state, index = string_hash(group) & _HASH_MASK, 0
    while True:
        state = (state * _HASH_MULTIPLIER + 1) & _HASH_MASK
        next_index = int((index + 1) / (((state >> 33) + 1) / (1 << 31)))
        if next_index >= queue_count:
            return index
        index = next_index
