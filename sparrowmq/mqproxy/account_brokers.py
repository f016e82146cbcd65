"""The brokers of a cluster with accounts, as the clients of the gRPC port may use them.

    call ── signature ── user ── its policies, from the client's address ── connections of this user ── broker

The signature of a call is checked as at the gRPC port of a broker. The requests for the call go to the brokers with the
user's own signature, so they decide as well: about the record at an offset, and about the owner of a transaction. But a
broker sees the address of mqproxy. So the addresses in policies are checked here, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

from sparrowmq.auth.grpc_signature import Freshness, grpc_principal
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.client.cluster.network import Network
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, BrokerUnreachable
from sparrowmq.grpc.brokers import ASK_S, ClientCommands, OnCheck
from sparrowmq.grpc.caller import account_of, client_of
from sparrowmq.http2.calls import Call
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import pause
from sparrowmq.loop.tasks import Background
from sparrowmq.metrics.condition_kinds import TRANSACTIONS_NOT_ASKED, Probe
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers, Connections, Lookups
from sparrowmq.mqproxy.limits import Capacity
from sparrowmq.mqproxy.users import BrokerUsers, Source, check_enabled
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.client_bodies import ClientConfigCheck, ConsumerBeat
from sparrowmq.protocol.requests.headers import CheckClientConfig
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)

IDLE_S: Final = 180.0  # longer than a client may be silent
POLL_S: Final = 30.0
_STEP: Final = 16  # topics that are checked in one turn of the loop


class UserConnections:
    """The connections of one user, open as long as `keep` runs.

    Attributes:
        last_used_s: the time of the last request.
    """

    def __init__(self, network: Network, cluster: ClusterBrokers, password: str, capacity: Capacity) -> None:
        self.connections = Connections(network, cluster.addresses, capacity)
        self.password = password
        self.last_used_s = 0.0
        self.closing = asyncio.Event()
        self._network = network
        self._is_open = asyncio.Event()

    async def keep(self) -> None:
        """Keep them open until `closing` is set."""
        async with self._network:
            self._is_open.set()
            await self.closing.wait()

    async def announce(self, client_id: str, producers: Sequence[str]) -> None:
        """Let the brokers know the producer groups of a client."""
        await self._is_open.wait()
        if not self.closing.is_set():
            self.connections.announce(client_id, producers)

    async def wait_until_open(self) -> Connections:
        await self._is_open.wait()
        return self.connections


class AccountCluster:
    """The brokers for the clients of all accounts. (Implements `grpc.brokers.Cluster`.)

    Args:
        own: the brokers as mqproxy's own account sees them.
        connect: makes the network of a user.
        capacity: of the connections of all users: each has one to each broker that it uses.
    """

    def __init__(
        self,
        own: ClusterBrokers,
        users: BrokerUsers,
        connect: Callable[[Credentials], Network],
        tasks: Background,
        clock: Clock,
        freshness: Freshness,
        capacity: Capacity,
    ) -> None:
        self.own = own
        self.users = users
        self.on_check: OnCheck = lambda *_: None
        self._connect = connect
        self._tasks = tasks
        self._clock = clock
        self._freshness = freshness
        self._capacity = capacity
        self._open: dict[str, UserConnections] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def commands(self) -> ClientCommands | None:
        return self.own.commands

    @commands.setter
    def commands(self, commands: ClientCommands | None) -> None:
        self.own.commands = commands

    def brokers_for(self, call: Call, client_id: str) -> AccountBrokers:
        """The brokers for the user that signed a call.

        Raises: AccessDenied, the call is not signed, or by no user; BrokerUnreachable, no broker has given its users
        yet.
        """
        if not self.users.accounts:
            raise BrokerUnreachable("any broker", "mqproxy has not read the users yet; look into its log")
        user = grpc_principal(call.metadata, self.users.accounts, self._clock.now_ms(), self._freshness)
        check_enabled(user)
        source = Source(str(call.peer), call.peer.certificate)
        return AccountBrokers(self, self.own.lookups(call.peer), user.access_key, source, client_id)

    def left(self, client_id: str) -> None:
        self.announce(account_of(client_id), client_id, ())

    def announce(self, account: str, client_id: str, producers: Sequence[str]) -> None:
        """Let the brokers know the producer groups of a user's client."""
        found = self.of(account) if producers else self._open.get(account)
        if found is not None:
            self._tasks.spawn(found.announce(client_id, producers), "heartbeat")

    def of(self, account: str) -> UserConnections:
        """The connections of a user. Raises: AccessDenied, there is no such user any more."""
        password = self.users.passwords.get(account)
        if password is None:
            raise AccessDenied(f"User:{account} is not found")
        found = self._open.get(account)
        if found is None or found.password != password:
            if found is not None:
                found.closing.set()
            network = self._connect(Credentials(account, password))
            found = self._open[account] = UserConnections(network, self.own, password, self._capacity)
            found.connections.on_check = lambda *question: self.on_check(*question)
            self._tasks.spawn(found.keep(), f"connections of {account}")
        found.last_used_s = self._clock.monotonic()
        return found

    def probes(self) -> list[Probe]:
        return [(TRANSACTIONS_NOT_ASKED, self._left_out)]

    def _left_out(self) -> str:
        texts = ((name, each.connections.left_out) for name, each in self._open.items())
        return "; ".join(f"account {shown(name)}: {text}" for name, text in texts if text)

    async def run(self) -> None:
        """Close connections that are not used any more, until cancelled."""
        while True:
            await self._clock.sleep(POLL_S)
            self.expire()

    def expire(self) -> None:
        now = self._clock.monotonic()
        for account, each in list(self._open.items()):
            if now - each.last_used_s > IDLE_S or self.users.passwords.get(account) != each.password:
                self._open.pop(account).closing.set()


class AccountBrokers:
    """The brokers for one client of a user. (Implements `grpc.brokers.Brokers`.)"""

    is_known = True  # by a signature
    local_broker = None

    def __init__(self, cluster: AccountCluster, lookups: Lookups, account: str, source: Source, client_id: str) -> None:
        self.account = account
        self._lookups = lookups
        self._cluster = cluster
        self._source = source
        self._client_id = client_of(account, client_id)

    def announce(self, producers: Sequence[str], consumer: ConsumerBeat | None) -> None:
        """Announce the producer groups. As behind Apache's proxy, brokers do not see the consumers."""
        self._cluster.announce(self.account, self._client_id, producers)

    async def check_topic_access(self, topic: str) -> None:
        if not self._cluster.users.may_see(self.account, topic, self._source):
            raise AccessDenied(f"User:{self.account} has no permission to access Topic:{topic}")

    async def check_consumer_access(self, group: str, topics: Collection[str]) -> None:
        wanted: list[Subscription | None] = [Subscription(topic) for topic in topics] or [None]
        for number, each in enumerate(wanted, 1):
            if not number % _STEP:
                await pause()
            check = ClientConfigCheck(self._client_id, group, each).encode()
            self._cluster.users.authorise_anywhere(self.account, self._source, CheckClientConfig(), check)

    async def route(self, topic: str) -> TopicRoute:
        return await self._lookups.route(topic)

    async def topic(self, name: str) -> TopicConfig:
        return await self._lookups.topic(name)

    async def group(self, name: str) -> GroupConfig | None:
        return await self._lookups.group(name)

    async def ask(
        self,
        broker_name: str,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = ASK_S,
        accept: Collection[int] = (),
    ) -> Response[R]:
        self._cluster.users.authorise(broker_name, self.account, self._source, request, body)
        connections = await self._cluster.of(self.account).wait_until_open()
        return await connections.ask(broker_name, request, body, timeout_s=timeout_s, accept=accept)
