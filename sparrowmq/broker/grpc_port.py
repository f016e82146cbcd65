"""The gRPC port of a broker, for the official clients of RocketMQ 5 (`grpcServerPort`).

    client ── GrpcPort ── LocalLink ── LocalPeer ── dispatcher

A link is for one client id, account, address and certificate, and ends with its client. The broker sees the client as
any other. The signature of a call is checked here, with the time that the client signed. The requests to the broker are
signed again with the account's key.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from sparrowmq.auth.grpc_signature import AUTHORIZATION, Freshness, grpc_principal
from sparrowmq.auth.users import User
from sparrowmq.broker.access_control import AccessControl
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.topics import Topics
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, BrokerUnreachable, NoRoute, RemoteError
from sparrowmq.grpc.brokers import ASK_TIMEOUT_S, ClientCommands, OnCheck
from sparrowmq.grpc.caller import client_id_of
from sparrowmq.grpc.clients import MAX_CLIENTS, too_many_clients
from sparrowmq.grpc.port import ListenAddress, open_port
from sparrowmq.http2.calls import Call
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, at_once, run_to_end
from sparrowmq.loop.tasks import Background
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.names import is_system_topic
from sparrowmq.protocol.requests.bodies import MASTER, BrokerRoute, GroupConfig, QueueRoute, TopicConfig, TopicRoute
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
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.local_peer import LocalPeer, LocalServer
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.tls.contexts import ServerTls

EXPIRE_S: Final = 30.0
log = logging.getLogger(__name__)
R = TypeVar("R", bound=Header)
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
IDLE_S: Final = 180.0  # longer than a client may be silent
# The account that signed a call; None for a call without a signature. Raises: AccessDenied.
AccountOf = Callable[[Call], User | None]


class GrpcPort:
    """The open port; an async context manager. Raises on entering: ConfigError. `problem`: why it closes new ones."""

    def __init__(
        self,
        broker: ServedBroker,
        clock: Clock,
        tls: ServerTls,
        turn: Turn,
        listen_address: ListenAddress,
        quotas: Quotas | None,
        find_account: AccountOf | None,
    ) -> None:
        self.address = ""
        self.problem: Callable[[], str] = str
        self._broker = broker
        self._clock = clock
        self._tls = tls
        self._turn = turn
        self._listen_address = listen_address
        self._quotas = quotas
        self._find_account = find_account
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(Background())
            links = LocalBrokers(self._broker, self._clock, tasks.spawn, self._find_account)
            stack.callback(links.close)
            self.address, self.problem = await open_port(
                stack, tasks, links, self._clock, self._tls, self._listen_address, self._turn, self._quotas
            )
            tasks.spawn(self._expire(links), "idle gRPC clients")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stack.__aexit__(*error)  # type: ignore[arg-type]

    async def _expire(self, links: LocalBrokers) -> None:
        while True:
            await self._clock.sleep(EXPIRE_S)
            await run_to_end(links.expire())


def account_of(access: AccessControl, clock: Clock, freshness: Freshness, quotas: Quotas) -> AccountOf:
    """Return what finds the account that signed a call. Denied calls are noted, and count for the quota of their
    address.

    With users a call without a signature is refused here; otherwise the guard decides, by address or certificate.
    """
    audit = access.audit
    assert audit is not None, "a broker with accounts has one"

    def find_account(call: Call) -> User | None:
        host, now = hosts.pack(str(call.peer)), clock.monotonic()
        if not call.peer.is_trusted:
            quotas.admit(host, now)
        account, needs_signature = None, access.users is not None and call.peer.certificate is None
        try:
            if needs_signature or AUTHORIZATION in call.metadata:
                account = grpc_principal(call.metadata, access.accounts(), clock.now_ms(), freshness)
        except AccessDenied as error:
            call.peer.is_trusted = False
            audit.note_denied_call(shown(call.method), str(call.peer), host, error)
            quotas.count_denied(host, None, 0, now)
            raise
        call.peer.is_trusted = call.peer.is_trusted or account is not None
        return account

    return find_account


@dataclass(frozen=True)
class ServedBroker:
    cluster: str
    name: str
    server: LocalServer
    topics: Topics
    groups: Groups


class LocalBrokers:
    """The links of all clients. With access control (`find_account`) a client without account is its address."""

    def __init__(self, broker: ServedBroker, clock: Clock, spawn: Spawn, find_account: AccountOf | None = None) -> None:
        self.broker = broker
        self.is_guarded = find_account is not None
        self.on_check: OnCheck = lambda *_: None
        self.commands: ClientCommands | None = None
        self.log_limit = LogLimit(clock)  # a client may have many ids, and name any group
        self._clock = clock
        self.spawn = spawn
        self._find_account = find_account
        self._links: defaultdict[tuple[str, str], dict[str, LocalLink]] = defaultdict(dict)

    def __len__(self) -> int:
        return sum(map(len, self._links.values()))

    def brokers_for(self, call: Call, client_id: str) -> LocalLink:
        """The connection of the caller. Raises: AccessDenied; RemoteError, the account has too many clients here."""
        account = self._find_account(call) if self._find_account is not None else None
        name = self._name_of(account, call)
        client = client_id_of(name, client_id)
        links = self._links[call.peer.host, name]
        link = links.get(client)
        if link is None or link.is_closed:
            if len(links) >= MAX_CLIENTS:
                raise too_many_clients(call.peer.host)
            link = links[client] = LocalLink(self, call, client_id, account, name)
        link.signer = account  # with its secret of now
        link.last_used_s = self._clock.monotonic()
        return link

    def _name_of(self, account: User | None, call: Call) -> str:
        if account is not None:
            return account.access_key
        if call.peer.certificate is not None:
            return f"CN={call.peer.certificate}"
        return f"IP={call.peer.host}" if self.is_guarded else ""

    def client_left(self, client_id: str) -> None:
        for owner, links in list(self._links.items()):
            if client_id in links:
                self._close(owner, client_id)

    def expire(self) -> Steps[None]:
        oldest = self._clock.monotonic() - IDLE_S
        return self._close_all(lambda link: link.last_used_s < oldest)

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


class LocalLink:
    """The broker for one client, as `signer`. (Implements `grpc.brokers.Brokers` and `NearBroker`.)"""

    def __init__(self, all_links: LocalBrokers, call: Call, client_id: str, account: User | None, name: str) -> None:
        self._broker = all_links.broker
        self.account = name
        self.client_id = client_id_of(self.account, client_id)
        self._client_id = client_id
        self.signer = account
        self.last_used_s = 0.0
        self._producer_groups: frozenset[str] = frozenset()
        self._consumer_group: str | None = None
        self._last_refusal = ""
        self._is_guarded = all_links.is_guarded
        self._log_limit = all_links.log_limit
        sign = None if account is None else self._sign_request
        address = call.peer.host, call.peer.port
        pushes = Dispatcher(Role.CLIENT, [PushHandler(all_links, self.client_id)], all_links.spawn)
        self._peer = LocalPeer(all_links.broker.server, address, pushes, sign)
        self._peer.certificate = call.peer.certificate

    @property
    def is_closed(self) -> bool:
        return self._peer.closed

    @property
    def is_known(self) -> bool:
        return self.signer is not None or self._peer.is_introduced

    def close(self) -> None:
        self._peer.close()

    def _sign_request(self, fields: dict[str, str], body: bytes) -> dict[str, str]:
        assert self.signer is not None, "an account has another name than a client without one"
        return signed_fields(fields, body, self.signer.access_key, self.signer.key)

    def announce(self, producers: Sequence[str], consumer: ConsumerBeat | None) -> None:
        """Send a heartbeat, unless requests fill the memory, and leave groups of the last one that are not in it."""
        if not self._peer.has_room_for(b""):
            return
        group = consumer.group_name if consumer is not None else None
        for left_group in self._producer_groups.difference(producers):
            self._peer.tell(UnregisterClient(self._client_id, producer_group=left_group))
        if self._consumer_group is not None and self._consumer_group != group:
            self._peer.tell(UnregisterClient(self._client_id, consumer_group=self._consumer_group))
        self._producer_groups, self._consumer_group = frozenset(producers), group
        if producers or consumer is not None:
            beats = [ProducerBeat(producer_group) for producer_group in producers]
            beat = Heartbeat(self._client_id, beats, [consumer] if consumer is not None else [])
            self._peer.ask(HeartBeat(), beat.encode(), self._on_heartbeat_answer, timeout_s=ASK_TIMEOUT_S)

    def _on_heartbeat_answer(self, _: object, error: Exception | None) -> None:
        problem = str(error) if isinstance(error, RemoteError) else ""
        if problem and problem != self._last_refusal:
            text = "the heartbeat of gRPC client %s is refused: %s"
            self._log_limit.log(log, logging.WARNING, text, shown(self.client_id), problem)
        self._last_refusal = problem

    @property
    def local_broker(self) -> LocalLink:
        return self

    @property
    def name(self) -> str:
        return self._broker.name

    def topic_config(self, name: str) -> TopicConfig:
        config = self._broker.topics.get(name)
        if config is None or is_system_topic(name):
            raise NoRoute(name, None)
        return config

    def count_writable_queues(self, config: TopicConfig) -> int:
        return config.write_queue_nums if config.perm & self._broker.topics.permission & Perm.WRITE else 0

    def ask_soon(
        self,
        request: Request[Any],
        body: bytes,
        on_answer: Callable[[Response[Any] | None, Exception | None], object],
        *,
        accepted_codes: Collection[int] = (),
    ) -> None:
        if self._peer.has_room_for(body):
            self._peer.ask(request, body, on_answer, timeout_s=ASK_TIMEOUT_S, accept=accepted_codes)
        else:
            asyncio.get_running_loop().call_soon(on_answer, None, _busy())

    async def check_topic_access(self, topic: str) -> None:
        """Ask the broker something that it answers to those who may send to the topic or consume it."""
        if self._is_guarded:
            await self.ask(self.name, GetMinOffset(topic, 0))

    async def check_consumer_access(self, group: str, topics: Collection[str]) -> None:
        """Ask the broker whether it knows filters for the topics, as consumers do."""
        if not self._is_guarded:
            return
        subscriptions: list[Subscription | None] = [Subscription(topic) for topic in topics] or [None]
        for topic_subscription in subscriptions:
            check = ClientConfigCheck(self._client_id, group, topic_subscription)
            await self.ask(self.name, CheckClientConfig(), check.encode())

    async def route(self, topic: str) -> TopicRoute:
        config = self.topic_config(topic)
        broker = self._broker
        perm = config.perm & broker.topics.permission
        row = QueueRoute(broker.name, config.read_queue_nums, config.write_queue_nums, perm)
        return TopicRoute([BrokerRoute(broker.cluster, broker.name, {MASTER: broker.server.address})], [row])

    async def topic(self, name: str) -> TopicConfig:
        return self.topic_config(name)

    async def group(self, name: str) -> GroupConfig | None:
        return self._broker.groups.get(name)

    async def ask(
        self,
        broker_name: str,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = ASK_TIMEOUT_S,
        accepted_codes: Collection[int] = (),
    ) -> Response[R]:
        if broker_name != self._broker.name:
            raise BrokerUnreachable(broker_name, f"this is the port of {self._broker.name}")
        if not self._peer.has_room_for(body):
            raise _busy()
        return await self._peer.call(request, body, timeout_s=timeout_s, accept=accepted_codes)


def _busy() -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_BUSY, "too many requests of the gRPC port wait; send this again later")


class PushHandler:
    def __init__(self, all_links: LocalBrokers, client_id: str) -> None:
        self._all_links = all_links
        self._client_id = client_id

    @handles(CheckTransactionState)
    def check(self, header: CheckTransactionState, body: bytes, peer: Peer) -> None:
        links = self._all_links
        links.on_check(links.broker.name, header, record.decode(body), (self._client_id,))

    @handles(NotifyConsumerIdsChanged, ResetConsumerClientOffset, PushReply)
    def ignore(self, header: Request[Any], body: bytes, peer: Peer) -> None:
        """Do nothing: a consumer that pops has neither queues nor offsets."""

    @handles(GetConsumerStatus)
    def status(self, header: GetConsumerStatus, body: bytes, peer: Peer) -> Reply:
        return Reply(body=ConsumerStatus())

    @handles(GetConsumerRunning)
    async def running(self, header: GetConsumerRunning, body: bytes, peer: Peer) -> Reply:
        wants_stacks = bool(header.jstack_enable)
        return Reply(body=await self._commands.running_info(self._client_id, wants_stacks=wants_stacks))

    @handles(ConsumeMessageDirectly)
    async def consume(self, header: ConsumeMessageDirectly, body: bytes, peer: Peer) -> Reply:
        return Reply(body=await self._commands.verify(self._client_id, record.decode(body)))

    @property
    def _commands(self) -> ClientCommands:
        assert self._all_links.commands is not None
        return self._all_links.commands
