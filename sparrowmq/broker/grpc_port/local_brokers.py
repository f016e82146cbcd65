"""The one broker behind its own gRPC port, with a connection inside the process for each client.

A connection is that of one client id, account, address and certificate. It ends with its client. The signature of a
call is checked here, with the time that the client signed. The requests to the broker are signed again with the
account's key. So the broker's guard decides about them as about those of any other connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sparrowmq.auth.grpc_signature import Signer
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.grpc_port.local_link import linked
from sparrowmq.broker.topics import Topics
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import BrokerUnreachable, NoRoute, RemoteError
from sparrowmq.grpc.brokers import ASK_S, ClientCommands, OnCheck
from sparrowmq.grpc.caller import client_of
from sparrowmq.grpc.clients import MOST_CLIENTS, too_many_clients
from sparrowmq.http2.calls import Call
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.names import is_system_topic
from sparrowmq.protocol.requests.bodies import (
    MASTER,
    BrokerRoute,
    GroupConfig,
    QueueRoute,
    TopicConfig,
    TopicRoute,
)
from sparrowmq.protocol.requests.client_bodies import (
    ClientConfigCheck,
    ConsumerBeat,
    ConsumerStatus,
    Heartbeat,
    ProducerBeat,
)
from sparrowmq.protocol.requests.headers import (
    CheckClientConfig,
    CheckTransactionState,
    ConsumeMessageDirectly,
    GetConsumerRunning,
    GetConsumerStatus,
    GetMinOffset,
    HeartBeat,
    NotifyConsumerIdsChanged,
    PushReply,
    ResetConsumerClientOffset,
    UnregisterClient,
)
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.protocol.signature import signed_fields
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.linked_session import LinkedSession
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Header)
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

IDLE_S: Final = 180.0  # longer than a client may be silent


# The account that signed a call; None for a call without a signature. Raises: AccessDenied.
AccountOf = Callable[[Call], Signer | None]


@dataclass(frozen=True)
class Home:
    """The broker: its names, its address, its topics and groups, and how to connect to it."""

    cluster: str
    name: str
    address: tuple[str, int]
    topics: Topics
    groups: Groups
    connect: Callable[[], LinkedSession]  # makes the broker's session of a connection


class LocalBrokers:
    """The links of all clients.

    Args:
        is_guarded: whether the broker has access control. Then a client without an account is that of its address:
            only some addresses may do something, and another address may not take the place of their clients.
    """

    def __init__(
        self, home: Home, clock: Clock, spawn: Spawn, account_of: AccountOf, *, is_guarded: bool = False
    ) -> None:
        self.home = home
        self.is_guarded = is_guarded
        self.on_check: OnCheck = lambda *_: None
        self.commands: ClientCommands | None = None
        self.lines = LogLimit(clock)  # a client may have many ids, and name any group
        self._clock = clock
        self._spawn = spawn
        self._account_of = account_of
        self._links: defaultdict[tuple[str, str], dict[str, LocalLink]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._links.values()))

    def brokers_for(self, call: Call, client_id: str) -> LocalLink:
        """The connection of the caller.

        Raises:
            AccessDenied: the signature is wrong.
            RemoteError: the account has too many clients at this address.
        """
        account = self._account_of(call)
        name = self._name_of(account, call)
        client = client_of(name, client_id)
        links = self._links[call.peer.host, name]
        link = links.get(client)
        if link is None or link.is_closed:
            if len(links) >= MOST_CLIENTS:
                raise too_many_clients(call.peer.host)
            link = links[client] = LocalLink(self, call, client_id, account, name)
        link.signer = account  # with its secret of now
        link.used = self._clock.monotonic()
        return link

    def _name_of(self, account: Signer | None, call: Call) -> str:
        if account is not None:
            return account.access_key
        if call.peer.certificate is not None:
            return f"CN={call.peer.certificate}"
        return f"IP={call.peer.host}" if self.is_guarded else ""

    def left(self, client_id: str) -> None:
        """Close the connections of a client."""
        for owner, links in list(self._links.items()):
            if client_id in links:
                self._close(owner, client_id)

    def expire(self) -> Steps[None]:
        """Close connections that are not used any more."""
        oldest = self._clock.monotonic() - IDLE_S
        return self._close_all(lambda link: link.used < oldest)

    def close(self) -> None:
        at_once(self._close_all(lambda link: True))

    def _close_all(self, is_over: Callable[[LocalLink], bool]) -> Steps[None]:
        for owner, links in list(self._links.items()):
            for client, link in list(links.items()):
                if links.get(client) is link and is_over(link):
                    self._close(owner, client)
                yield

    def _close(self, owner: tuple[str, str], client: str) -> None:
        links = self._links[owner]
        links.pop(client).close()
        if not links:
            del self._links[owner]

    def session(self, pushes: object, sign: Sign | None) -> LinkedSession:
        """A session for a client, which is to be connected."""
        return LinkedSession(Dispatcher(Role.CLIENT, [pushes], self._spawn), self._clock, sign=sign)


class LocalLink:
    """The broker for one client. (Implements `grpc.brokers.Brokers` and `NearBroker`.)

    Attributes:
        client_id: with its account.
        signer: the account that signs its requests; None without one.
        used: the time of its last call.
    """

    def __init__(self, all_links: LocalBrokers, call: Call, client_id: str, account: Signer | None, name: str) -> None:
        self._home = home = all_links.home
        self.account = name
        self.client_id = client_of(self.account, client_id)
        self._own_id = client_id
        self.signer = account
        self.used = 0.0
        self._producers: frozenset[str] = frozenset()
        self._group: str | None = None
        self._refusal = ""
        self._is_guarded = all_links.is_guarded
        self._lines = all_links.lines
        sign = None if account is None else self._sign
        self._session = all_links.session(Pushes(all_links, self.client_id), sign)
        self._served = linked(self._session, home.connect, (call.peer.host, call.peer.port), home.address)
        if call.peer.certificate is not None:
            self._served.certified(call.peer.certificate)

    @property
    def is_closed(self) -> bool:
        return self._session.closed

    @property
    def is_known(self) -> bool:
        return self.signer is not None or self._served.is_introduced

    def close(self) -> None:
        self._session.close()

    def _sign(self, fields: dict[str, str], body: bytes) -> dict[str, str]:
        assert self.signer is not None, "an account has another name than a client without one"
        return signed_fields(fields, body, self.signer.access_key, self.signer.key)

    def announce(self, producers: Sequence[str], consumer: ConsumerBeat | None) -> None:
        """Send a heartbeat, and leave the groups of the last one that are not in it. A client whose requests fill the
        memory has to wait for its next heartbeat."""
        if not self._session.has_room_for(b""):
            return
        group = consumer.group_name if consumer is not None else None
        for gone in self._producers.difference(producers):
            self._session.tell(UnregisterClient(self._own_id, producer_group=gone))
        if self._group is not None and self._group != group:
            self._session.tell(UnregisterClient(self._own_id, consumer_group=self._group))
        self._producers, self._group = frozenset(producers), group
        if producers or consumer is not None:
            beats = [ProducerBeat(each) for each in producers]
            beat = Heartbeat(self._own_id, beats, [consumer] if consumer is not None else [])
            self._session.ask(HeartBeat(), beat.encode(), self._announced, timeout_s=ASK_S)

    def _announced(self, _: object, error: Exception | None) -> None:
        """Log a heartbeat that was refused, once for each reason, but not more than some a minute."""
        problem = str(error) if isinstance(error, RemoteError) else ""
        if problem and problem != self._refusal:
            text = "the heartbeat of gRPC client %s is refused: %s"
            self._lines.log(log, logging.WARNING, text, shown(self.client_id), problem)
        self._refusal = problem

    @property
    def near(self) -> LocalLink:
        return self

    @property
    def name(self) -> str:
        return self._home.name

    def topic_config(self, name: str) -> TopicConfig:
        config = self._home.topics.get(name)
        if config is None or is_system_topic(name):
            raise NoRoute(name, None)
        return config

    def writable_queues(self, config: TopicConfig) -> int:
        return config.write_queue_nums if config.perm & self._home.topics.permission & Perm.WRITE else 0

    def ask_soon(
        self,
        request: Request[Any],
        body: bytes,
        answered: Callable[[Response[Any] | None, Exception | None], object],
        *,
        accept: Collection[int] = (),
    ) -> None:
        if self._session.has_room_for(body):
            self._session.ask(request, body, answered, timeout_s=ASK_S, accept=accept)
        else:
            asyncio.get_running_loop().call_soon(answered, None, _busy())

    async def demand_sight(self, topic: str) -> None:
        """Ask the broker something that it answers to those who may send to the topic or consume it."""
        if self._is_guarded:
            await self.ask(self.name, GetMinOffset(topic, 0))

    async def demand_consumer(self, group: str, topics: Collection[str]) -> None:
        """Ask the broker whether it knows filters for the topics, as consumers do."""
        if not self._is_guarded:
            return
        wanted: list[Subscription | None] = [Subscription(topic) for topic in topics] or [None]
        for each in wanted:
            check = ClientConfigCheck(self._own_id, group, each)
            await self.ask(self.name, CheckClientConfig(), check.encode())

    async def route(self, topic: str) -> TopicRoute:
        config = self.topic_config(topic)
        home = self._home
        host, port = home.address
        perm = config.perm & home.topics.permission
        row = QueueRoute(home.name, config.read_queue_nums, config.write_queue_nums, perm)
        return TopicRoute([BrokerRoute(home.cluster, home.name, {MASTER: f"{host}:{port}"})], [row])

    async def topic(self, name: str) -> TopicConfig:
        return self.topic_config(name)

    async def group(self, name: str) -> GroupConfig | None:
        return self._home.groups.get(name)

    async def ask(
        self,
        broker_name: str,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = ASK_S,
        accept: Collection[int] = (),
    ) -> Response[R]:
        if broker_name != self._home.name:
            raise BrokerUnreachable(broker_name, f"this is the port of {self._home.name}")
        if not self._session.has_room_for(body):
            raise _busy()
        return await self._session.call(request, body, timeout_s=timeout_s, accept=accept)


def _busy() -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_BUSY, "too many requests of the gRPC port wait; send this again later")


class Pushes:
    """Answers the requests of the broker to a client of the port."""

    def __init__(self, all_links: LocalBrokers, client_id: str) -> None:
        self._all_links = all_links
        self._client_id = client_id

    @handles(CheckTransactionState)
    def check(self, header: CheckTransactionState, body: bytes, peer: Peer) -> None:
        """Ask the producer for the end of a transaction."""
        links = self._all_links
        links.on_check(links.home.name, header, record.decode(body), (self._client_id,))

    @handles(NotifyConsumerIdsChanged, ResetConsumerClientOffset, PushReply)
    def ignore(self, header: Request[Any], body: bytes, peer: Peer) -> None:
        """Do nothing: a consumer that pops has neither queues nor offsets."""

    @handles(GetConsumerStatus)
    def status(self, header: GetConsumerStatus, body: bytes, peer: Peer) -> Reply:
        """Report that the client keeps no offsets."""
        return Reply(body=ConsumerStatus())

    @handles(GetConsumerRunning)
    async def running(self, header: GetConsumerRunning, body: bytes, peer: Peer) -> Reply:
        """Report the state of a consumer to an operator."""
        has_stacks = bool(header.jstack_enable)
        return Reply(body=await self._commands.running(self._client_id, has_stacks=has_stacks))

    @handles(ConsumeMessageDirectly)
    async def consume(self, header: ConsumeMessageDirectly, body: bytes, peer: Peer) -> Reply:
        """Have a consumer handle one message for an operator."""
        return Reply(body=await self._commands.verify(self._client_id, record.decode(body)))

    @property
    def _commands(self) -> ClientCommands:
        assert self._all_links.commands is not None
        return self._all_links.commands
