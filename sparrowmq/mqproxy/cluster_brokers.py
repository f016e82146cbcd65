"""The brokers of a cluster, ours or Apache's, as the gRPC port needs them.

Routes, topics and groups are asked for once in some seconds. All clients share the connections to name servers and
brokers, and may invent any number of names. So all clients together have few questions at a time at the name servers,
and at each broker. The others wait in mqproxy, in fair turns.

A known answer stays in use while the server gives no other one, and while one client waits for the next one. So a
server that hangs delays one question in some seconds, by a second. Clients that want the same unknown name at once wait
for one question. They join it only once it has its turn: a question that waits behind a thousand others of its
connection delays no other connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import partial
from itertools import zip_longest
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sparrowmq.client.cluster.name_servers import NameServers
from sparrowmq.client.cluster.network import Network
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import BrokerUnreachable, NetworkError, NoRoute, RemoteError
from sparrowmq.grpc.brokers import ASK_TIMEOUT_S, ClientCommands, OnCheck
from sparrowmq.grpc.clients import MAX_TOPICS
from sparrowmq.http2.calls import Call, Caller
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.metrics.condition_kinds import TRANSACTIONS_NOT_ASKED, Probe
from sparrowmq.mqproxy.limits import Capacity, FairTurns
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.admin_headers import GetGroupConfig, GetTopicConfig
from sparrowmq.protocol.requests.bodies import MASTER, BrokerRoute, ClusterTable, GroupConfig, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat
from sparrowmq.protocol.requests.headers import CheckTransactionState, UnregisterClient
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster, GetRoute
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.session import MUTE_S, Session

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Header)
V = TypeVar("V")
_NO_MASTER: Final = "no name server knows a master of this name"
MAX_TABLE_AGE_S: Final = 1.0  # clients may ask for brokers of any name, and all share the connections to name servers
SHORT_TABLE_AGE_S: Final = 0.2  # likewise, for a broker whose master is away, or after the start of a name server
ELECTION_S: Final = 2.0  # for another master, from the first request that reached none; clients wait for 3 s
ONE_OF_SEVERAL_S: Final = 0.5  # for a broker's answer, if another one can answer, too
SILENT_S: Final = 5.0  # a broker that did not answer is asked last for so long
REQUEST_BYTES: Final = 512  # of a request besides its body
_UNREGISTRATIONS_AT_ONCE: Final = 32  # groups, of up to 500
MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024  # bytes that a broker has not read, before it gets no more bodies
ANSWER_LIFE_S: Final = 5.0
REFRESH_TIMEOUT_S: Final = 1.0  # for a newer answer, if one is known; also how long a brief answer is kept
MAX_CACHED_ANSWERS: Final = 10_000
# A broker of 4.x does not know the request.
_NO_GROUP_CODES: Final = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
Turn = Callable[[], AbstractAsyncContextManager[None]]
Lookup = Callable[[str], Coroutine[Any, Any, V]]


class MasterAddresses:
    """The addresses of the masters, by the names of their brokers. They stay in use while no name server answers."""

    def __init__(self, name_servers: NameServers, clock: Clock) -> None:
        self._name_servers = name_servers
        self.clock = clock
        self._lock = asyncio.Lock()
        self._table: ClusterTable | NetworkError | RemoteError | None = None
        self._asked_s = 0.0
        self._masters: dict[str, str] = {}
        self._names: dict[str, str] = {}  # of the brokers at all addresses, also at those of slaves
        self._doubted: set[str] = set()  # brokers that may have another address now, or have no master
        self.brokers_with_slaves: set[str] = set()  # brokers that had slaves, one of which may become the master

    async def master_address(self, broker_name: str) -> str:
        """The address of a master. Raises: BrokerUnreachable, NetworkError."""
        if broker_name not in self._masters or broker_name in self._doubted:
            try:
                await self.masters(SHORT_TABLE_AGE_S if broker_name in self._doubted else MAX_TABLE_AGE_S)
            except NetworkError:
                if broker_name not in self._masters:
                    raise
        address = self._masters.get(broker_name)
        if address is None:
            raise BrokerUnreachable(broker_name, _NO_MASTER)
        return address

    async def masters(self, max_age_s: float = MAX_TABLE_AGE_S) -> list[str]:
        """The names of all brokers with a master. Raises: NetworkError, RemoteError."""
        table = (await self.cluster_table(max_age_s)).broker_addr_table
        self._masters = {name: address for name, address in self._masters.items() if name not in self._doubted}
        self.learn(table.values())
        return sorted(name for name, row in table.items() if MASTER in row.broker_addrs)

    async def cluster_table(self, max_age_s: float = MAX_TABLE_AGE_S) -> ClusterTable:
        """All brokers, as a name server said within the last second. Raises: NetworkError, RemoteError."""
        async with self._lock:
            if self._table is None or self.clock.monotonic() - self._asked_s >= max_age_s:
                try:
                    self._table = ClusterTable.decode((await self._name_servers.call(GetBrokerCluster())).body)
                except (NetworkError, RemoteError) as error:
                    self._table = error
                self._asked_s = self.clock.monotonic()
            if isinstance(self._table, ClusterTable):
                return self._table
            raise self._table.with_traceback(None)

    def learn(self, rows: Collection[BrokerRoute]) -> None:
        self._names.update((address, row.broker_name) for row in rows for address in row.broker_addrs.values())
        self.brokers_with_slaves.update(row.broker_name for row in rows if row.broker_addrs.keys() - {MASTER})
        for row in rows:
            if MASTER in row.broker_addrs:
                self._masters[row.broker_name] = row.broker_addrs[MASTER]
                self._doubted.discard(row.broker_name)

    def doubt(self, broker_name: str) -> None:
        """Ask for this address again: another broker may be the master soon."""
        self._doubted.add(broker_name)

    def name_at(self, address: str) -> str | None:
        """The name of a master, or of a slave: it may have become the master since a route was asked for."""
        return self._names.get(address)


class Connections:
    """The connections of one account to the brokers, or those without one.

    `capacity` is that of the connections of all accounts together; None for those of mqproxy itself. `request_capacity`
    is that of all requests that wait for answers; by default `capacity`. `on_check` is called with what a broker asks
    about the transactions of this account. `topics_not_asked` says which topics are too many for brokers to ask about.
    """

    def __init__(
        self,
        network: Network,
        addresses: MasterAddresses,
        capacity: Capacity | None = None,
        request_capacity: Capacity | None = None,
        on_check: OnCheck = lambda *_: None,
    ) -> None:
        self._network = network
        self._capacity = capacity
        self._request_capacity = request_capacity or capacity or Capacity(0)
        self._held_bytes = 0
        self._opening_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by address
        self._addresses = addresses
        self._masters: dict[str, str] = {}  # the addresses that were asked last, by the names of the brokers
        self._producers: dict[str, Sequence[str]] = {}
        self._has_changed = self._is_beating = False
        self._masterless_since_s: dict[str, float] = {}  # by broker: when the first request reached no master
        self.topics_not_asked = ""
        self._on_check = on_check
        network.membership.on_check = self._check

    async def ask(
        self,
        broker_name: str,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = ASK_TIMEOUT_S,
        accepted_codes: Collection[int] = (),
    ) -> Response[R]:
        """Send a request to a broker's master. Raises: RemoteError, NetworkError."""
        with self._count_bytes(len(body) + REQUEST_BYTES):
            while True:
                try:
                    answer = await self._ask_once(broker_name, request, body, timeout_s, accepted_codes)
                except (BrokerUnreachable, RemoteError) as error:
                    if not self._may_get_master_soon(broker_name, error):
                        raise
                    await self._addresses.clock.sleep(SHORT_TABLE_AGE_S)
                else:
                    self._masterless_since_s.pop(broker_name, None)
                    return answer

    @contextmanager
    def _count_bytes(self, size: int) -> Iterator[None]:
        """Count the bytes of a request until it is answered. Raises: RemoteError, there is no room for them."""
        self._request_capacity.check_bytes(size, self._held_bytes)
        self._held_bytes += size
        self._request_capacity.held_bytes += size
        try:
            yield
        finally:
            self._held_bytes -= size
            self._request_capacity.held_bytes -= size

    def _may_get_master_soon(self, broker_name: str, error: BrokerUnreachable | RemoteError) -> bool:
        if isinstance(error, RemoteError) and not error.is_slaves:
            self._masterless_since_s.pop(broker_name, None)
            return False
        now_s = self._addresses.clock.monotonic()
        first_s = self._masterless_since_s.setdefault(broker_name, now_s)
        return broker_name in self._addresses.brokers_with_slaves and now_s - first_s < ELECTION_S

    async def _ask_once(
        self, broker_name: str, request: Request[R], body: bytes, timeout_s: float, accepted_codes: Collection[int]
    ) -> Response[R]:
        address = await self._addresses.master_address(broker_name)
        self._leave_former(broker_name, address)
        try:
            session = await self._session(address)
            if body and session.unread_bytes > MAX_UNREAD_BYTES:  # also of calls that their clients have given up
                text = f"{broker_name} does not read what mqproxy sends; send this again later"
                raise RemoteError(ResponseCode.SYSTEM_BUSY, text)
            return await session.call(request, body, timeout_s=timeout_s, accept=accepted_codes)
        except (NetworkError, RemoteError) as error:
            if isinstance(error, NetworkError) or error.is_slaves:
                self._addresses.doubt(broker_name)
            raise

    async def _session(self, address: str) -> Session:
        """The connection to a broker. Raises: NetworkError; RemoteError, there is no room for one more."""
        brokers, capacity = self._network.brokers, self._capacity
        if capacity is None:
            return await brokers.session(address)
        if session := brokers.open_session(address):
            return session
        async with self._opening_locks[address]:  # so that each connection counts once
            if session := brokers.open_session(address):
                return session
            capacity.add_link()
            try:
                session = await brokers.session(address)
            except BaseException:
                capacity.remove_link()
                raise
            if session.closed:
                capacity.remove_link()
            else:
                session.on_end(capacity.remove_link)
            return session

    def _leave_former(self, broker_name: str, address: str) -> None:
        """End the connection to a master that hangs, once there is another one: long polls would stay there."""
        former = self._masters.get(broker_name, address)
        self._masters[broker_name] = address
        session = self._network.brokers.open_session(former) if former != address else None
        if session is not None and self._network.clock.age(session.last_read) >= MUTE_S:
            log.warning("%s does not answer, and is not the master of %s any more", former, broker_name)
            session.abort()

    def announce(self, client_id: str, producers: Sequence[str]) -> None:
        """Let the brokers know the producer groups of all clients, of which one may have others now."""
        if producers == self._producers.get(client_id, ()):
            return
        if producers:
            self._producers[client_id] = producers
        else:
            self._producers.pop(client_id, None)
        self._has_changed = True
        if not self._is_beating:
            self._is_beating = True
            self._network.background.spawn(self._beat(), "heartbeat")

    async def _beat(self) -> None:
        """Send heartbeats, one at a time, as often as the groups have changed: it names up to 500 groups, and a
        thousand clients may come at once."""
        try:
            while self._has_changed:
                self._has_changed = False
                await self._announce(await run_to_end(self._producer_groups()))
        finally:
            self._is_beating = False

    async def _announce(self, groups: dict[str, str]) -> None:
        """Leave the groups that no client has now (a broker counts them until then), and join the others. Heartbeats on
        a new connection, and those of every 30 s, may be sent meanwhile. They name the new groups only once the former
        ones have been left: a broker refuses more than 500 together."""
        membership, brokers = self._network.membership, self._network.brokers
        former = membership.producers
        if groups.keys() == former.keys():
            return
        membership.producers = {group: group for group in groups if group in former}
        unregistrations = [UnregisterClient(self._network.client_id, group) for group in former if group not in groups]
        for first in range(0, len(unregistrations), _UNREGISTRATIONS_AT_ONCE):
            await asyncio.gather(*map(brokers.tell_all, unregistrations[first : first + _UNREGISTRATIONS_AT_ONCE]))
        membership.producers = groups
        await brokers.announce()

    def _producer_groups(self) -> Steps[dict[str, str]]:
        """The producer groups for heartbeats: the first of each client, then the second of each, and so on. A broker
        refuses a heartbeat with too many groups as a whole, and then no client would be asked."""
        client_count = len(self._producers)
        names: dict[str | None, None] = {}
        for row in zip_longest(*self._producers.values()):
            names.update(dict.fromkeys(row))
            names.pop(None, None)
            yield
            if len(names) > MAX_TOPICS:
                break
        groups = [group for group in names if group is not None]
        self.topics_not_asked = ""
        if len(groups) > MAX_TOPICS:
            self.topics_not_asked = (
                f"{client_count} clients produce for more than {MAX_TOPICS} topics, and brokers do not ask for the "
                f"ends of the transactions of {shown(groups[MAX_TOPICS])} and others"
            )
        return {group: group for group in groups[:MAX_TOPICS]}

    def _check(self, header: CheckTransactionState, half_message: StoredMessage, peer: Peer) -> None:
        name = self._addresses.name_at(peer.address)
        if name is None:
            text = "%s asks about the transaction of %s, and no route names it"
            self._network.brokers.log_limit.log(log, logging.WARNING, text, peer.address, half_message)
            return
        producers = [client_id for client_id, groups in self._producers.items() if half_message.topic in groups]
        self._on_check(name, header, half_message, producers)


class _CachedAnswer(NamedTuple, Generic[V]):
    asked_s: float
    answer: V


class AnswerCache(Generic[V]):
    """Answers that are asked for again after some seconds, and kept while no answer comes. `is_brief` says whether an
    answer will soon be another one: it is asked for again after a second."""

    def __init__(
        self, clock: Clock, fetch: Callable[[str], Awaitable[V]], is_brief: Callable[[V], bool] = lambda _: False
    ) -> None:
        self._clock = clock
        self._fetch = fetch
        self._is_brief = is_brief
        self._answers: dict[str, _CachedAnswer[V]] = {}
        self._pending: dict[str, asyncio.Future[V]] = {}

    async def get(self, name: str, turn: Turn) -> V:
        """The answer for a name; `turn` waits until it may be asked for. Raises: as `fetch`, if no answer was kept."""
        known = self._answers.get(name)
        now = self._clock.monotonic()
        if known is None:
            return await self._ask_once(name, turn)
        if now - known.asked_s < (REFRESH_TIMEOUT_S if self._is_brief(known.answer) else ANSWER_LIFE_S):
            return known.answer
        self._answers[name] = _CachedAnswer(now, known.answer)  # others use it meanwhile
        try:
            return await self._clock.wait_for(self._ask_once(name, turn, now), REFRESH_TIMEOUT_S)
        except (NetworkError, TimeoutError):
            return known.answer
        except (NoRoute, RemoteError):
            self._answers.pop(name, None)
            raise

    async def _ask_once(self, name: str, turn: Turn, later_than_s: float = -1.0) -> V:
        """The answer of a question: one that another client asks now, or one of our own."""
        while True:
            future = self._pending.get(name)
            if future is None:
                async with turn():
                    known, future = self._answers.get(name), self._pending.get(name)
                    if known is not None and known.asked_s > later_than_s:
                        return known.answer
                    if future is None:
                        return await self._ask_now(name)
            await asyncio.wait((future,))
            if not future.cancelled():  # its client has not left
                return future.result()

    async def _ask_now(self, name: str) -> V:
        future = self._pending[name] = asyncio.get_running_loop().create_future()
        try:
            answer = await self._fetch(name)
        except BaseException as error:
            del self._pending[name]
            if isinstance(error, NetworkError | NoRoute | RemoteError):
                future.set_exception(error)
                future.exception()  # counts as read, also if no other client waits
            else:
                future.cancel()
            raise
        del self._pending[name]
        future.set_result(answer)
        if len(self._answers) >= MAX_CACHED_ANSWERS:
            self._answers.clear()
        self._answers[name] = _CachedAnswer(self._clock.monotonic(), answer)
        return answer


class ClusterBrokers:
    """The brokers that a network reaches, for all clients of the port. `capacity` is that of the requests of the gRPC
    port that wait for answers."""

    def __init__(self, network: Network, clock: Clock, capacity: Capacity | None = None) -> None:
        self.commands: ClientCommands | None = None
        self._name_servers = network.name_servers
        self.addresses = MasterAddresses(network.name_servers, clock)
        self.on_check: OnCheck = lambda *_: None
        self._connections = Connections(
            network, self.addresses, request_capacity=capacity, on_check=lambda *question: self.on_check(*question)
        )
        self.ask, self.announce = self._connections.ask, self._connections.announce
        self._clock = clock
        self._route_turns, self._group_turns = FairTurns(), FairTurns()
        # By broker, so that the topics of one that hangs do not delay those of the others.
        self._topic_turns: defaultdict[str, FairTurns] = defaultdict(FairTurns)
        self._silent_since_s: dict[str, float] = {}  # brokers that did not answer a question, and when
        self._routes: AnswerCache[TopicRoute] = AnswerCache(clock, self._ask_route, _lacks_master)
        self._topics: AnswerCache[TopicConfig] = AnswerCache(clock, self._ask_topic)
        self._groups: AnswerCache[GroupConfig | None] = AnswerCache(clock, self._ask_group)

    def brokers_for(self, call: Call, client_id: str) -> ClientBrokers:
        return ClientBrokers(self, call.peer, client_id)

    def client_left(self, client_id: str) -> None:
        self.announce(client_id, ())

    def probes(self) -> list[Probe]:
        """Return the conditions that mqproxy without accounts can be in because of clients."""
        return [(TRANSACTIONS_NOT_ASKED, lambda: self._connections.topics_not_asked)]

    def lookups(self, caller: Caller) -> tuple[Lookup[TopicRoute], Lookup[TopicConfig], Lookup[GroupConfig | None]]:
        """Return `route`, `topic` and `group` for the connection of a client."""
        return (
            partial(self.route, connection=caller),
            partial(self.topic, connection=caller),
            partial(self.group, connection=caller),
        )

    async def route(self, topic: str, connection: Hashable = None) -> TopicRoute:
        """The brokers of a topic, for a connection of a client. Raises: NoRoute, NetworkError, RemoteError."""
        return await self._routes.get(topic, partial(self._route_turns.turn, connection))

    async def topic(self, name: str, connection: Hashable = None) -> TopicConfig:
        first, *_ = await self._masters_of(name, connection)
        return await self._topics.get(name, partial(self._topic_turns[first].turn, connection))

    async def group(self, name: str, connection: Hashable = None) -> GroupConfig | None:
        """The settings of a group; None if it has none. Raises: NetworkError, RemoteError."""
        return await self._groups.get(name, partial(self._group_turns.turn, connection))

    async def _ask_route(self, topic: str) -> TopicRoute:
        request = GetRoute(topic=topic, accept_standard_json_only=True)
        answer = await self._name_servers.call(request, accept=(ResponseCode.TOPIC_NOT_EXIST,))
        if answer.code:
            if not (
                await self.addresses.cluster_table(SHORT_TABLE_AGE_S)
            ).broker_addr_table:  # a name server has just started
                raise no_broker_error(self._name_servers)
            raise NoRoute(topic, str(self._name_servers))
        route = TopicRoute.decode(answer.body)
        self.addresses.learn(route.broker_datas)
        return route

    async def _ask_topic(self, name: str) -> TopicConfig:
        try:
            answer = await self._ask_one_of(await self._masters_of(name), GetTopicConfig(topic=name))
        except RemoteError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            return TopicConfig(name)  # a broker of 4.x
        return TopicConfig.decode(answer.body)

    async def _ask_group(self, name: str) -> GroupConfig | None:
        names = self._silent_last(await self.addresses.masters())
        if not names:
            raise no_broker_error(self._name_servers)
        try:
            answer = await self._ask_one_of(names, GetGroupConfig(group=name))
        except RemoteError as error:
            if error.code not in _NO_GROUP_CODES:
                raise
            return None
        return GroupConfig.decode(answer.body)

    async def _masters_of(self, topic: str, connection: Hashable = None) -> list[str]:
        rows = (await self.route(topic, connection)).broker_datas
        masters = self._silent_last(row.broker_name for row in rows if MASTER in row.broker_addrs)
        if not masters:
            raise BrokerUnreachable(", ".join(row.broker_name for row in rows), _NO_MASTER)
        return masters

    def _silent_last(self, names: Iterable[str]) -> list[str]:
        now_s = self._clock.monotonic()
        return sorted(names, key=lambda name: now_s - self._silent_since_s.get(name, -SILENT_S) < SILENT_S)

    async def _ask_one_of(self, names: Sequence[str], request: Request[R]) -> Response[R]:
        for name in names[:-1]:
            with suppress(NetworkError):
                return await self._ask_in_time(name, request, ONE_OF_SEVERAL_S)
        return await self._ask_in_time(names[-1], request, ASK_TIMEOUT_S)

    async def _ask_in_time(self, name: str, request: Request[R], timeout_s: float) -> Response[R]:
        """The answer of a broker within a time. One that does not answer is asked last from then on."""
        try:
            answer = await self._clock.wait_for(self.ask(name, request), timeout_s)
        except (NetworkError, TimeoutError) as error:
            self._silent_since_s[name] = self._clock.monotonic()
            if isinstance(error, NetworkError):
                raise
            raise BrokerUnreachable(name, f"no answer within {timeout_s:g} s") from None
        self._silent_since_s.pop(name, None)
        return answer


def no_broker_error(name_servers: NameServers) -> BrokerUnreachable:
    return BrokerUnreachable("any broker", f"none is registered at {name_servers} now")


def _lacks_master(route: TopicRoute) -> bool:
    """Whether a broker of a route has only slaves: they may elect a master at any moment."""
    return any(MASTER not in row.broker_addrs for row in route.broker_datas)


class ClientBrokers:
    account = ""
    is_known = True  # as without access control
    local_broker = None

    def __init__(self, cluster: ClusterBrokers, caller: Caller, client_id: str) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self.route, self.topic, self.group = cluster.lookups(caller)
        self.ask = cluster.ask

    async def check_topic_access(self, topic: str) -> None:
        """Do nothing: there are no accounts."""

    async def check_consumer_access(self, group: str, topics: Collection[str]) -> None:
        """Do nothing: there are no accounts."""

    def announce(self, producers: Sequence[str], consumer: ConsumerBeat | None) -> None:
        """Announce the producer groups. As behind Apache's proxy, brokers do not see the consumers."""
        self._cluster.announce(self._client_id, producers)
