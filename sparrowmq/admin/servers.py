"""Requests to name servers and brokers on behalf of an operator.

The operator may have changed something a moment ago, so nothing here comes from the cached routes of producers and
consumers: each question goes to a server. Source: MQAdminImpl and CommandUtil, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from sparrowmq.admin.catalogue import cluster_table, lost_brokers, topic_route
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.cluster.routes import MASTER
from sparrowmq.errors import (
    BrokerUnreachable,
    ChangeFailed,
    ConfigError,
    NetworkError,
    NoBroker,
    NoRoute,
    RemoteError,
    SparrowError,
    WrongServer,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import LostBroker, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.session import Session

R = TypeVar("R", bound=Header)
T = TypeVar("T")
Masters = Mapping[str, str | None]  # by broker name; None while a broker has only slaves


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """One broker of a cluster, with its addresses by broker id; 0 is the master."""

    name: str
    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        """The address that takes changes and messages; None while it has only slaves."""
        return self.addresses.get(MASTER)


class Servers:
    """The servers of a network, for an operator; `timeout_s` limits each answer.

    `missing` is None where a broker that does not answer is an error. With a dict, `all` returns the other brokers'
    answers. The dict gets the brokers that are missing in the answers, and none of them is asked again.
    """

    def __init__(self, network: Network, timeout_s: float) -> None:
        self.network = network
        self.timeout_s = timeout_s
        self.missing: dict[str, SparrowError] | None = None
        self._missing_name_servers: dict[
            str, SparrowError
        ] = {}  # the name servers that do not answer, as `missing` has brokers

    async def brokers(self, cluster: str | None = None) -> list[BrokerPlace]:
        """Return all brokers, or those of one cluster, by cluster and name. Raises: NoBroker, no such cluster."""
        table = (await cluster_table(self)).broker_addr_table
        places = [
            BrokerPlace(broker_route.broker_name, broker_route.cluster, broker_route.broker_addrs)
            for broker_route in table.values()
        ]
        clusters = sorted({place.cluster for place in places})
        if cluster is not None and cluster not in clusters:
            raise NoBroker(self.namesrv, "cluster", cluster, clusters)
        places_of_cluster = [place for place in places if cluster is None or place.cluster == cluster]
        return sorted(places_of_cluster, key=lambda place: (place.cluster, place.name))

    async def masters(self, cluster: str | None) -> Masters:
        """Return the masters of a cluster, or of the only one. Raises: NoBroker; ConfigError, there are several."""
        places = await self.brokers(cluster)
        clusters = sorted({place.cluster for place in places})
        if not places:
            raise NoBroker(self.namesrv)
        if len(clusters) > 1:
            raise ConfigError(f"there are the clusters {', '.join(clusters)}; say which one is meant with `cluster`")
        return {place.name: place.master for place in places}

    async def route(self, topic: str) -> TopicRoute:
        """Return the brokers that have a topic, as a name server says now. Raises: NoRoute."""
        route = await topic_route(self, topic)
        if self.missing is not None:
            await self._note_lost_brokers(topic)
        if route is None:
            raise NoRoute(topic, self.namesrv)
        return route

    async def all_masters(self, cluster: str | None = None) -> Masters:
        """Return the masters of all clusters, or of one. Raises: NoBroker, no such cluster."""
        if self.missing is not None:
            await self._note_lost_brokers(None)
        return {place.name: place.master for place in await self.brokers(cluster)}

    async def lost(self) -> dict[str, LostBroker]:
        """Return the brokers by name that died and are not registered, as the name servers that answer remember."""
        answers, _ = await self.ask_namesrvs(lambda address: lost_brokers(self, address))
        lost_by_name = {name: lost_broker for brokers in answers.values() for name, lost_broker in brokers.items()}
        registered = {place.name for place in await self.brokers()} if lost_by_name else set()
        return {name: lost_broker for name, lost_broker in sorted(lost_by_name.items()) if name not in registered}

    async def _note_lost_brokers(self, topic: str | None) -> None:
        assert self.missing is not None, "called where brokers may be missing"
        for name, lost_broker in (await self.lost()).items():
            if topic is None or topic in lost_broker.topics:
                self.missing.setdefault(
                    name, BrokerUnreachable(lost_broker.address, f"it died {utc(lost_broker.since_ms)}")
                )

    async def masters_of(self, topic: str) -> Masters:
        """Return the masters that have a topic. Raises: NoRoute."""
        return masters_in(await self.route(topic))

    @property
    def namesrv(self) -> str:
        return str(self.network.name_servers)

    async def ask_namesrv(
        self, request: Request[R], body: bytes = b"", *, accept: Collection[int] = (), address: str | None = None
    ) -> Response[R]:
        """Return the answer of the name server at an address; without an address of the first one that answers."""
        call = self.network.name_servers.call
        return await call(request, body, timeout_s=self.timeout_s, accept=accept, address=address)

    async def ask(
        self,
        address: str,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        timeout_factor: int = 1,
    ) -> Response[R]:
        """Return the answer of one broker within `timeout_s`; `timeout_factor` does not extend it."""
        session = await self.network.brokers.session(address)
        try:
            return await session.call(request, body, timeout_s=self.timeout_s, accept=accept)
        except RemoteError as error:
            raise await self._if_name_server(error, session) from None

    async def _if_name_server(self, error: RemoteError, session: Session) -> RemoteError:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return error
        try:
            await session.call(GetBrokerCluster(), timeout_s=self.timeout_s)
        except SparrowError:
            return error
        return WrongServer(session.address, "broker", error.remark)

    async def ask_namesrvs(
        self, ask: Callable[[str], Coroutine[Any, Any, T]]
    ) -> tuple[dict[str, T], dict[str, SparrowError]]:
        """Ask every name server; returns the answers and the errors by address."""
        addresses = self.network.name_servers.addresses
        missing = self._missing_name_servers if self.missing is not None else None
        return await self._ask_masters(
            {address: address for address in addresses}, lambda _, address: ask(address), missing
        )

    async def ask_masters(
        self, masters: Masters, ask: Callable[[str, str], Coroutine[Any, Any, T]]
    ) -> tuple[dict[str, T], dict[str, SparrowError]]:
        """Ask all masters at once; returns the results of `ask(name, address)`, and the errors."""
        return await self._ask_masters(masters, ask, self.missing)

    async def _ask_masters(
        self,
        masters: Masters,
        ask: Callable[[str, str], Coroutine[Any, Any, T]],
        missing: dict[str, SparrowError] | None,
    ) -> tuple[dict[str, T], dict[str, SparrowError]]:
        """As `ask_masters`; those in `missing` are not asked, and it gets those that do not answer."""
        answers: dict[str, T] = {}
        failures: dict[str, SparrowError] = {}

        async def ask_one(name: str, address: str | None) -> None:
            try:
                if missing is not None and name in missing:
                    raise missing[name]
                if address is None:
                    raise BrokerUnreachable(name, "it has no master now")
                answers[name] = await ask(name, address)
            except SparrowError as error:
                failures[name] = error
                if missing is not None and isinstance(error, NetworkError):
                    missing[name] = error

        async with asyncio.TaskGroup() as tasks:
            for name, address in sorted(masters.items()):
                tasks.create_task(ask_one(name, address))
        return dict(sorted(answers.items())), dict(sorted(failures.items()))

    async def all(self, masters: Masters, ask: Callable[[str, str], Coroutine[Any, Any, T]]) -> dict[str, T]:
        """As `ask_masters`; raise the first error. With `missing`, silent brokers only count if none answers."""
        answers, failures = await self.ask_masters(masters, ask)
        for name, error in failures.items():
            if not answers or name not in (self.missing or {}):
                raise error
        return answers

    async def change(
        self, description: str, masters: Masters, ask: Callable[[str, str], Coroutine[Any, Any, object]]
    ) -> list[str]:
        """Change every master; returns their names. An error has the description. Raises: ChangeFailed."""
        return list(_all_done(description, *await self.ask_masters(masters, ask)))

    async def change_namesrvs(self, description: str, ask: Callable[[str], Coroutine[Any, Any, T]]) -> dict[str, T]:
        """Change every name server, as `change` does masters; returns the answers by address."""
        return _all_done(description, *await self.ask_namesrvs(ask))


def _all_done(description: str, answers: dict[str, T], failures: dict[str, SparrowError]) -> dict[str, T]:
    if failures:
        raise ChangeFailed(description, list(answers), failures)
    return answers


def utc(since_ms: int) -> str:
    """Return a moment as people read it."""
    return datetime.fromtimestamp(since_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def masters_in(route: TopicRoute) -> Masters:
    broker_names = {row.broker_name for row in route.queue_datas}
    return {
        broker.broker_name: broker.broker_addrs.get(MASTER)
        for broker in route.broker_datas
        if broker.broker_name in broker_names
    }
