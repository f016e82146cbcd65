"""The brokers of a cluster with accounts, as the clients of the gRPC port may use them.

    call ── signature ── user ── its policies, from the client's address ── connections of this user ── broker

The signature is checked as at the gRPC port of a broker. The requests go to the brokers with the user's own signature,
so they decide as well. But a broker sees the address of mqproxy, so the addresses in policies are checked here.
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
from sparrowmq.grpc.brokers import ASK_TIMEOUT_S, ClientCommands, OnCheck
from sparrowmq.grpc.caller import account_of, client_id_of
from sparrowmq.http2.calls import Call, Caller
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import pause
from sparrowmq.loop.tasks import Background
from sparrowmq.metrics.condition_kinds import TRANSACTIONS_NOT_ASKED, Probe
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers, Connections
from sparrowmq.mqproxy.limits import Capacity
from sparrowmq.mqproxy.users import BrokerUsers, CallPeer, check_enabled
from sparrowmq.protocol.requests.client_bodies import ClientConfigCheck, ConsumerBeat
from sparrowmq.protocol.requests.headers import CheckClientConfig
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)
IDLE_S: Final = 180.0  # longer than a client may be silent
POLL_S: Final = 30.0
_TOPICS_PER_TURN: Final = 16  # topics that are checked in one turn of the loop


class UserConnections:
    """The connections of one user, open as long as `keep_open` runs."""

    def __init__(
        self, network: Network, cluster: ClusterBrokers, password: str, capacity: Capacity, on_check: OnCheck
    ) -> None:
        self.connections = Connections(network, cluster.addresses, capacity, on_check=on_check)
        self.password = password
        self.last_used_s = 0.0
        self.close_event = asyncio.Event()
        self._network = network
        self._is_open = asyncio.Event()

    async def keep_open(self) -> None:
        async with self._network:
            self._is_open.set()
            await self.close_event.wait()

    async def announce(self, client_id: str, producers: Sequence[str]) -> None:
        await self._is_open.wait()
        if not self.close_event.is_set():
            self.connections.announce(client_id, producers)

    async def wait_until_open(self) -> Connections:
        await self._is_open.wait()
        return self.connections


class AccountCluster:
    """The brokers for the clients of all accounts. (Implements `grpc.brokers.Cluster`.) `own` are the brokers as
    mqproxy's own account sees them. `connect` makes the network of a user. `capacity` is that of the connections of all
    users: each has one to each broker that it uses."""

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
        self._connections_by_account: dict[str, UserConnections] = {}
        self.commands: ClientCommands | None = None

    def __len__(self) -> int:
        return len(self._connections_by_account)

    def brokers_for(self, call: Call, client_id: str) -> AccountBrokers:
        """The brokers for the user that signed a call. Raises: AccessDenied, no user signed it; BrokerUnreachable, no
        broker has given its users yet."""
        if not self.users.accounts:
            raise BrokerUnreachable("any broker", "mqproxy has not read the users yet; look into its log")
        user = grpc_principal(call.metadata, self.users.accounts, self._clock.now_ms(), self._freshness)
        check_enabled(user)
        return AccountBrokers(self, call.peer, user.access_key, client_id)

    def client_left(self, client_id: str) -> None:
        self.announce(account_of(client_id), client_id, ())

    def announce(self, account: str, client_id: str, producers: Sequence[str]) -> None:
        """Let the brokers know the producer groups of a user's client."""
        connections = self.connections_of(account) if producers else self._connections_by_account.get(account)
        if connections is not None:
            self._tasks.spawn(connections.announce(client_id, producers), "heartbeat")

    def connections_of(self, account: str) -> UserConnections:
        """The connections of a user. Raises: AccessDenied, there is no such user any more."""
        password = self.users.passwords.get(account)
        if password is None:
            raise AccessDenied(f"User:{account} is not found")
        connections = self._connections_by_account.get(account)
        if connections is None or connections.password != password:
            if connections is not None:
                connections.close_event.set()
            network = self._connect(Credentials(account, password))
            connections = UserConnections(
                network, self.own, password, self._capacity, lambda *question: self.on_check(*question)
            )
            self._connections_by_account[account] = connections
            self._tasks.spawn(connections.keep_open(), f"connections of {account}")
        connections.last_used_s = self._clock.monotonic()
        return connections

    def probes(self) -> list[Probe]:
        return [(TRANSACTIONS_NOT_ASKED, self._topics_not_asked)]

    def _topics_not_asked(self) -> str:
        users = self._connections_by_account.items()
        texts = ((name, user.connections.topics_not_asked) for name, user in users)
        return "; ".join(f"account {shown(name)}: {text}" for name, text in texts if text)

    async def run(self) -> None:
        """Close connections that are not used any more, until cancelled."""
        while True:
            await self._clock.sleep(POLL_S)
            self.expire()

    def expire(self) -> None:
        now_s = self._clock.monotonic()
        for account, connections in list(self._connections_by_account.items()):
            if now_s - connections.last_used_s > IDLE_S or self.users.passwords.get(account) != connections.password:
                self._connections_by_account.pop(account).close_event.set()


class AccountBrokers:
    """The brokers for one client of a user. (Implements `grpc.brokers.Brokers`.)"""

    is_known = True  # by a signature
    local_broker = None

    def __init__(self, cluster: AccountCluster, caller: Caller, account: str, client_id: str) -> None:
        self.account = account
        self.route, self.topic, self.group = cluster.own.lookups(caller)
        self._cluster = cluster
        self._source = CallPeer(str(caller), caller.certificate)
        self._client_id = client_id_of(account, client_id)

    def announce(self, producers: Sequence[str], consumer: ConsumerBeat | None) -> None:
        """Announce the producer groups. As behind Apache's proxy, brokers do not see the consumers."""
        self._cluster.announce(self.account, self._client_id, producers)

    async def check_topic_access(self, topic: str) -> None:
        if not self._cluster.users.may_see(self.account, topic, self._source):
            raise AccessDenied(f"User:{self.account} has no permission to access Topic:{topic}")

    async def check_consumer_access(self, group: str, topics: Collection[str]) -> None:
        subscriptions: list[Subscription | None] = [Subscription(topic) for topic in topics] or [None]
        for number, subscription in enumerate(subscriptions, 1):
            if not number % _TOPICS_PER_TURN:
                await pause()
            check = ClientConfigCheck(self._client_id, group, subscription).encode()
            self._cluster.users.authorise_anywhere(self.account, self._source, CheckClientConfig(), check)

    async def ask(
        self,
        broker_name: str,
        request: Request[R],
        body: bytes = b"",
        *,
        timeout_s: float = ASK_TIMEOUT_S,
        accepted_codes: Collection[int] = (),
    ) -> Response[R]:
        self._cluster.users.authorise(broker_name, self.account, self._source, request, body)
        connections = await self._cluster.connections_of(self.account).wait_until_open()
        return await connections.ask(broker_name, request, body, timeout_s=timeout_s, accepted_codes=accepted_codes)
