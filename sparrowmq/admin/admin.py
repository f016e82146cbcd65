"""An operator's side of a cluster: topics, groups, offsets, and searches for messages.

    async with sparrowmq.Admin("127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=16)
        print((await admin.lag("billing")).lag)

A client has one too, over its own connections: `await mq.admin.topics()`. A change of a topic or a group goes to every
master of the cluster, and returns the names of the masters; if some failed, `ChangeFailed` names them. Nothing is
cached: each call asks servers. Source: DefaultMQAdminExtImpl, Java 4.9.8.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from sparrowmq.admin import brokers as on_brokers
from sparrowmq.admin import dead_letters as on_dead_letters
from sparrowmq.admin import doctor, message_search
from sparrowmq.admin import groups as on_groups
from sparrowmq.admin import topics as on_topics
from sparrowmq.admin.catalogue import broker_figures, broker_settings, change_broker_settings
from sparrowmq.admin.findings import Finding
from sparrowmq.admin.servers import BrokerPlace, Servers
from sparrowmq.client.arguments import check_kind, check_seconds, check_texts
from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.loop_affinity import checks_loop
from sparrowmq.client.tracebacks import short_tracebacks
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock, SystemClock

P = ParamSpec("P")
T = TypeVar("T")
TIMEOUT_S: Final = 5.0


def operation(
    function: Callable[Concatenate[Servers, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], Coroutine[Any, Any, T]]:
    """The method of `Admin` for a function that asks or changes servers, with its parameters and its words."""

    @functools.wraps(function)
    async def call(self: Admin, /, *args: P.args, **options: P.kwargs) -> T:
        return await function(self._servers, *args, **options)

    return call


@short_tracebacks
@checks_loop()
class Admin:
    """Asks and changes a cluster; use it in `async with`, or take `Client.admin`.

    All calls raise NetworkError if a server does not answer in time, RemoteError if it refuses, NoBroker for an unknown
    cluster or broker, and ConfigError if an argument is wrong. Without `cluster` a change needs that there is only one
    cluster, and everything else looks at all.

    Args:
        namesrv: name servers as `connect` takes them; or a client's network, which then lives as long as the client.
        timeout_s: the time limit of each server's answer.
        credentials, tls, namespace: as `connect` takes them; a client's network has its own. With a namespace all names
            are those inside it, and RocketMQ's own.
    Raises: ConfigError, there is no such address.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | Network | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        credentials: Credentials | None = None,
        tls: Tls = False,
        namespace: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._own_network: Network | None = None
        if isinstance(namesrv, Network):
            network = namesrv
        else:
            network = self._own_network = Network(
                namesrv, credentials=credentials, tls=tls, namespace=namespace, clock=clock
            )
        check_seconds("timeout_s", timeout_s)
        self._loop_affinity = network.loop_affinity
        self._clock = clock or SystemClock()
        self._servers = Servers(network, timeout_s)
        self._full_topic, self._full_group = network.full_topic, network.full_group

    async def __aenter__(self) -> Self:
        if self._own_network is not None:
            await self._own_network.__aenter__()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own_network is not None:
            await self._own_network.__aexit__(error_type, error, trace)

    @property
    def servers(self) -> Servers:
        """The layer below, for tools that need a request without a call here."""
        return self._servers

    async def brokers(self, cluster: str | None = None) -> list[BrokerPlace]:
        """Return all brokers, or those of one cluster."""
        return await self._servers.brokers(cluster)

    async def clusters(self) -> list[str]:
        return sorted({each.cluster for each in await self._servers.brokers()})

    async def examine(
        self, topic: str | None = None, group: str | None = None, expected: Collection[str] = ()
    ) -> list[Finding]:
        """Return the problems that `sparrowmq doctor` shows. The brokers named in `expected` have to be registered."""
        if topic is not None:
            self._full_topic(topic)
        check_texts("expected", expected)
        full_group = self._full_group(group) if group is not None else None
        return await doctor.examine(self._servers, topic, full_group, self._clock.now_ms, expected)

    async def broker_figures(self, broker: str) -> dict[str, str]:
        """Return a broker's figures by Java's names; `broker` is a name, whose master is asked, or an address."""
        return await broker_figures(self._servers, await on_brokers.address_of(self._servers, broker))

    async def broker_settings(self, broker: str) -> dict[str, str]:
        """Return a broker's settings by key; `broker` as above."""
        return await broker_settings(self._servers, await on_brokers.address_of(self._servers, broker))

    async def change_broker(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker, and for its next start; `broker` as above.
        Raises: RemoteError, one of them is wrong, or cannot be changed in a running broker; none was changed.
        """
        if not changes:
            raise ConfigError("nothing is to be changed; give settings by their keys")
        check_kind("changes", changes, Mapping, "settings by their keys, as {'fileReservedTime': '48'}")
        address = await on_brokers.address_of(self._servers, broker)
        await change_broker_settings(self._servers, address, changes)

    standings = operation(on_brokers.standings)
    behind = operation(on_brokers.lag_by_group)
    drain = operation(on_brokers.drain)
    undrain = operation(on_brokers.undrain)
    forget_broker = operation(on_brokers.forget_broker)
    hand_over = operation(on_brokers.hand_over)
    elect = operation(on_brokers.elect)

    topics = operation(on_topics.names)
    topic = operation(on_topics.show)
    create_topic = operation(on_topics.create_topic)
    change_topic = operation(on_topics.change_topic)
    delete_topic = operation(on_topics.delete_topic)

    groups = operation(on_groups.names)
    group = operation(on_groups.show)
    create_group = operation(on_groups.create_group)
    change_group = operation(on_groups.change_group)
    delete_group = operation(on_groups.delete_group)
    members = operation(on_groups.members)
    lag = operation(on_groups.lag)
    reset = operation(on_groups.reset)

    dead_letters = operation(on_dead_letters.of_group)
    resend = operation(on_dead_letters.resend)
    replay = operation(on_dead_letters.replay)
    message = operation(message_search.by_id)
    find = operation(message_search.find)
    trace = operation(message_search.traces)
