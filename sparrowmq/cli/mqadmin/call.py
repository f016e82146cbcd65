"""One call of a command: its options, the cluster, the brokers that it goes to, and its output.

A `Call` sends the requests of the catalogue (admin/catalogue), as the `Servers` of the client's `Admin` do. It
raises the `Failure` for Java's exception, so commands can distinguish errors as Java's commands do.

A command waits once for a server that does not answer. Commands that only read print the answers of the other servers
(`all_answers` and `first_answer`), unlike Java's. At the end the command names the servers that did not answer, and
fails.
Source for the brokers of a command: CommandUtil, DefaultMQAdminExtImpl and BrokerData, Java 4.9.8.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, TextIO, TypeVar

from sparrowmq.admin import catalogue
from sparrowmq.admin.servers import Servers
from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.java import Failure, failure_from, no_route_failure, null_failure, number_failure
from sparrowmq.cli.mqadmin.java_options import usage
from sparrowmq.cli.mqadmin.subcommand_table import Command
from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.errors import NetworkError, SparrowError
from sparrowmq.protocol.requests.bodies import MASTER, BrokerRoute, ClusterTable, TopicRoute
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.settings.setting_kinds import whole_number

R = TypeVar("R", bound=Header)
K = TypeVar("K")
T = TypeVar("T")

_CELL: Final = re.compile(r"%(-?[0-9]*)(?:\.[0-9]+)?[dfs]")
INT: Final = (1 << 31) - 1
LONG: Final = (1 << 63) - 1
NO_CLUSTER: Final = "Make sure the specified clusterName exists or the name server connected to is correct."


class Call:
    """The options, the cluster and the output of one command; `failed` if something went wrong meanwhile."""

    def __init__(
        self,
        command: Command,
        options: dict[str, str],
        servers: Servers,
        out: TextIO,
        err: TextIO,
        credentials: Credentials | None = None,
        tls: Tls = False,
    ) -> None:
        self.command = command
        self.servers = servers
        # For commands that open more connections.
        self.credentials = credentials
        self.tls = tls
        self.failed = False
        self._options = options
        self._out = out
        self._err = err
        self._silent: dict[str, Failure] = {}  # by the address of the server that did not answer
        self._printed: list[Failure] = []

    def has(self, letter: str) -> bool:
        return letter in self._options

    def text(self, letter: str, default: str = "") -> str:
        """Return an option's value without spaces around it."""
        return self._options.get(letter, default).strip()

    def number(self, letter: str, default: int = 0, limit: int = LONG) -> int:
        """Return an option's value as a number. Raises: Failure, Java has no such number."""
        text = self.text(letter, str(default))
        try:
            number = whole_number(text)
        except ValueError:
            raise number_failure(text) from None
        if abs(number) > limit:
            raise number_failure(text)
        return number

    def is_true(self, letter: str, default: bool = False) -> bool:
        """Return whether the value is "true"; case does not matter."""
        return self.text(letter).lower() == "true" if self.has(letter) else default

    def write(self, text: str) -> None:
        self._out.write(text)

    def line(self, form: str = "", *values: object) -> None:
        """Write a line; `form` is one of printf."""
        self._out.write((form % values if values else form) + "\n")

    def heads(self, form: str, names: str) -> None:
        """Write the heads of a table's columns; `form` is the one of its rows, `names` has a | between two heads."""
        self.line(_CELL.sub(r"%\1s", form), *names.split("|"))

    def complain(self, failure: Failure) -> None:
        """Print a failure after which the command continues, as Java's `printStackTrace` does."""
        self.failed = True
        self._printed.append(failure)
        self._err.write(f"{failure}\n")

    def name_silent(self, ending: Failure | None = None) -> None:
        """Print the failures of the servers that did not answer, except those printed before and the `ending` one."""
        for failure in self._silent.values():
            if failure is not ending and failure not in self._printed:
                self.complain(failure)

    def show_usage(self) -> None:
        self.write(usage(f"mqadmin {self.command.name}", self.command.options))

    @property
    def namesrvs(self) -> list[str]:
        return self.servers.network.name_servers.addresses

    async def pause(self, seconds: float) -> None:
        self.name_silent()
        self._silent.clear()
        self._printed.clear()
        self._out.flush()  # a command that pauses may never end, and a file or a pipe is read meanwhile
        await self.servers.network.clock.sleep(seconds)

    async def ask(
        self,
        address: str,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        timeout_factor: int = 1,
    ) -> Response[R]:
        """Return the answer of one broker. Raises: Failure, at once if it did not answer before."""
        if address in self._silent:
            raise self._silent[address]
        try:
            session = await self.servers.network.brokers.session(address)
            timeout_s = self.servers.timeout_s * timeout_factor
            return await session.call(request, body, timeout_s=timeout_s, accept=accept)
        except SparrowError as error:
            failure = failure_from(error, request, address)
            if isinstance(error, NetworkError):
                self._silent[address] = failure
            raise failure from None

    async def answers(self, places: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> AsyncIterator[T]:
        """Yield the answers of the places that answer. Raises: Failure, a broker refuses or no place answers."""
        first_failure: Failure | None = None
        has_answers = False
        for place in places:
            try:
                answer = await ask(place)
            except Failure as failure:
                if failure not in self._silent.values():
                    raise
                first_failure = first_failure or failure
                continue
            has_answers = True
            yield answer
        if first_failure is not None and not has_answers:
            raise first_failure

    async def all_answers(self, places: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> list[T]:
        return [answer async for answer in self.answers(places, ask)]

    async def first_answer(self, places: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> T:
        async for answer in self.answers(places, ask):
            return answer
        raise null_failure("no broker is in the route")

    def check_all_answered(self) -> None:
        """Check that each server has answered; for changes that follow from the answers."""
        for failure in self._silent.values():
            raise failure

    async def ask_namesrv(
        self, request: Request[R], body: bytes = b"", *, accept: Collection[int] = (), address: str | None = None
    ) -> Response[R]:
        """Return the answer of the name server at an address, or of the first one that answers."""
        try:
            return await self.servers.ask_namesrv(request, body, accept=accept, address=address)
        except SparrowError as error:
            raise failure_from(error, request, address or "") from None

    async def topics(self) -> list[str]:
        """Return the names of all topics, in Java's order."""
        return java.in_set_order(await catalogue.topic_names(self))

    async def route(self, topic: str) -> TopicRoute:
        """Return the brokers that have a topic. Raises: Failure, with code 17 if none has."""
        route = await catalogue.topic_route(self, topic)
        if route is None:
            raise no_route_failure(topic)
        return route


# The brokers that a command goes to ----------------------------------------------------------------------------------


def address_to_ask(addresses: Mapping[int, str]) -> str | None:
    """Return the master's address; without a master any slave's."""
    if MASTER in addresses:
        return addresses[MASTER]
    return random.choice(list(addresses.values())) if addresses else None


def brokers_to_ask(route: TopicRoute) -> Iterator[tuple[BrokerRoute, str]]:
    """Yield the brokers of a route, each with the address to ask."""
    for broker in route.broker_datas:
        address = address_to_ask(broker.broker_addrs)
        if address is not None:
            yield broker, address


def addresses_to_ask(route: TopicRoute) -> list[str]:
    return [address for _, address in brokers_to_ask(route)]


async def masters_of(call: Call, cluster: str) -> list[str]:
    """Return the addresses of a cluster's masters; an unknown cluster is reported and has none."""
    rows = await _brokers(call, cluster)
    return java.in_set_order({row.broker_addrs[MASTER] for row in rows if MASTER in row.broker_addrs})


async def addresses_of(call: Call, cluster: str) -> list[str]:
    """Return the addresses of a cluster's masters and slaves; an unknown cluster is reported and has none."""
    rows = await _brokers(call, cluster)
    return java.in_set_order({address for row in rows for address in row.broker_addrs.values()})


async def target_addresses(
    call: Call, of_cluster: Callable[[Call, str], Awaitable[list[str]]] = masters_of
) -> list[str]:
    """Return the broker of -b; without it those of -c, by default its masters."""
    return [call.text("b")] if call.has("b") else await of_cluster(call, call.text("c"))


async def masters_with_slaves(call: Call, cluster: str) -> list[tuple[str, list[str]]]:
    """Return each master of a cluster with its slaves; an unknown cluster is reported and has none."""
    slaves_by_master = {
        row.broker_addrs[MASTER]: [row.broker_addrs[key] for key in sorted(row.broker_addrs) if key != MASTER]
        for row in await _brokers(call, cluster)
        if MASTER in row.broker_addrs
    }
    return java.in_map_order(slaves_by_master)


async def change_each(
    call: Call, change: Callable[[str], Awaitable[None]], sentence: str, pause_s: float = 0.0
) -> bool:
    """Change the broker of -b, or each master of -c, and print the sentence for each; without both, print the usage.

    A master that fails is reported, and the next one follows after a pause. Returns whether there was a place.
    """
    if call.has("b"):
        await change(call.text("b"))
        call.line(sentence, call.text("b"))
    elif call.has("c"):
        for address in await masters_of(call, call.text("c")):
            try:
                await change(address)
                call.line(sentence, address)
            except Failure as failure:
                call.complain(failure)
                await call.pause(pause_s)
    else:
        call.show_usage()
        return False
    return True


async def remove_topic(call: Call, topic: str, cluster: str) -> None:
    for address in await masters_of(call, cluster):
        await catalogue.delete_topic(call, address, topic)
    call.line("delete topic [%s] from cluster [%s] success.", topic, cluster)
    for address in call.namesrvs:
        await catalogue.delete_route(call, address, topic, cluster)
    call.line("delete topic [%s] from NameServer success.", topic)


async def broker_name_at(call: Call, address: str) -> str:
    for name, row in java.in_map_order((await catalogue.cluster_table(call)).broker_addr_table):
        if address in row.broker_addrs.values():
            return name
    raise Failure("java.lang.Exception", NO_CLUSTER)


def cluster_of(table: ClusterTable, broker: str) -> str | None:
    clusters = java.in_map_order(table.cluster_addr_table)
    return next((name for name, brokers in clusters if broker in brokers), None)


async def _brokers(call: Call, cluster: str) -> list[BrokerRoute]:
    table = await catalogue.cluster_table(call)
    brokers = table.cluster_addr_table.get(cluster)
    if brokers is None:
        call.failed = True  # Unlike Java, for which this is a success.
        call.write(f"[error] {NO_CLUSTER}")
        return []
    return [table.broker_addr_table[name] for name in java.in_set_order(brokers) if name in table.broker_addr_table]
