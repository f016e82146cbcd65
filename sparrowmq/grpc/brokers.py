"""The brokers behind the gRPC port: one interface for a broker in the same process and for a whole cluster.

    LOCAL     the port is the broker's own: requests go to its dispatcher, without a socket (broker/grpc_port.py)
    CLUSTER   the port is that of `mqproxy`: requests go to the brokers of a cluster (mqproxy/)

A call of a client becomes requests of the remoting protocol, whose answers say the same as to any other client.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar

from sparrowmq.http2.calls import Call
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.client_bodies import (
    ConsumeOutcome,
    ConsumerBeat,
    ConsumerConnections,
    ConsumerRunning,
)
from sparrowmq.protocol.requests.headers import CheckTransactionState
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)

ASK_S = 3.0


# A broker asks for the end of a transaction: its name, what it asks, the half message, and the clients that may be
# asked.
OnCheck = Callable[[str, CheckTransactionState, StoredMessage, Collection[str]], object]


class ClientCommands(Protocol):
    """Commands for the clients of a port (commands.py), by their ids with accounts."""

    def consumers(self, group: str) -> ConsumerConnections: ...

    async def running(self, client_id: str, *, has_stacks: bool) -> ConsumerRunning: ...

    async def verify(self, client_id: str, stored: StoredMessage) -> ConsumeOutcome: ...


class Cluster(Protocol):
    """The brokers that a port serves.

    Attributes:
        on_check: is called when a broker asks for the end of a transaction of an announced producer.
        commands: for the clients of the port, once it is open.
    """

    on_check: OnCheck
    commands: ClientCommands | None

    def brokers_for(self, call: Call, client_id: str) -> Brokers:
        """The brokers as this caller may use them. Raises: AccessDenied."""

    def left(self, client_id: str) -> None:
        """A client has ended, or was silent for too long. Its id is that of its account (`caller.client_of`)."""


class NearBroker(Protocol):
    """The one broker of a LOCAL port: it is in this process, so its settings need no request.

    Attributes:
        name: of the broker.
    """

    @property
    def name(self) -> str: ...

    def topic_config(self, name: str) -> TopicConfig:
        """The settings of a topic. Raises: NoRoute."""

    def writable_queues(self, config: TopicConfig) -> int:
        """The number of queues of a topic that take messages."""

    def ask_soon(
        self,
        request: Request[Any],
        body: bytes,
        answered: Callable[[Response[Any] | None, Exception | None], object],
        *,
        accept: Collection[int] = (),
    ) -> None:
        """Send a request, and call `answered(answer, error)` later, one of them None."""


class Brokers(Protocol):
    """The brokers, for one client.

    Attributes:
        account: the access key that signed the client's calls, or the name in its certificate. Without one, "" or the
            client's address.
        is_known: whether the client has signed a call, or a request of it was allowed.
        near: the only broker, if it is in this process.
    """

    @property
    def near(self) -> NearBroker | None: ...

    @property
    def account(self) -> str: ...

    @property
    def is_known(self) -> bool: ...

    def announce(self, producers: Sequence[str], consumer: ConsumerBeat | None) -> None:
        """Let the brokers know the client's groups, for some time from now on: all of them, with those of half
        messages first."""

    async def demand_sight(self, topic: str) -> None:
        """Do nothing if the client may send to a topic or consume it. Raises: AccessDenied, RemoteError, NetworkError.

        The questions below are answered for any name. So the methods call this, or `demand_consumer`, first.
        """

    async def demand_consumer(self, group: str, topics: Collection[str]) -> None:
        """Do nothing if the client may consume the topics as a group. Raises: as `demand_sight`."""

    async def route(self, topic: str) -> TopicRoute:
        """The brokers of a topic. Raises: NoRoute, NetworkError."""

    async def topic(self, name: str) -> TopicConfig:
        """The settings of a topic. Raises: NoRoute, NetworkError, RemoteError."""

    async def group(self, name: str) -> GroupConfig | None:
        """The settings of a consumer group; None if there is none. Raises: NetworkError, RemoteError."""

    async def ask(
        self,
        broker_name: str,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = ASK_S,
        accept: Collection[int] = (),
    ) -> Response[R]:
        """Send a request to a broker's master. Raises: RemoteError, NetworkError."""
