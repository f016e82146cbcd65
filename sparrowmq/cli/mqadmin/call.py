"""One call of a command: what was given, the cluster, and where its words go.

Every request goes through the `Servers` on which the client's `Admin` stands, too. An error is turned into the Java
exception that stands for it where it is asked, so that commands can tell them apart as Java's do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final, TextIO, TypeVar

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.failures import Failure, no_route, number_failure, of
from sparrowmq.cli.mqadmin.java_options import usage
from sparrowmq.cli.mqadmin.subcommand_table import Command
from sparrowmq.client.admin import brokers
from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.errors import NoRoute, SparrowError
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig, GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import ClusterTable, TopicList, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import GetAllTopicListFromNameserver, GetBrokerCluster
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.session import Response

R = TypeVar("R", bound=Header)
T = TypeVar("T")

INT: Final = (1 << 31) - 1
LONG: Final = (1 << 63) - 1
PATIENT: int = 3  # so many times as long as usual, for what takes a broker long


class Call:
    """What a command works with.

    Attributes:
        credentials, tls: of this call's connections, for commands that need further ones.
        failed: something went wrong, though the command may have gone on.
    """

    def __init__(
        self,
        command: Command,
        given: dict[str, str],
        servers: Servers,
        out: TextIO,
        err: TextIO,
        credentials: Credentials | None = None,
        tls: Tls = False,
    ) -> None:
        self.command = command
        self.servers = servers
        self.credentials = credentials
        self.tls = tls
        self.failed = False
        self._given = given
        self._out = out
        self._err = err

    # What was given -------------------------------------------------------------------------------------------------

    def has(self, letter: str) -> bool:
        return letter in self._given

    def text(self, letter: str, otherwise: str = "") -> str:
        """The value of an option, without blanks around it."""
        return self._given.get(letter, otherwise).strip()

    def number(self, letter: str, otherwise: int = 0, most: int = LONG) -> int:
        """The value of an option that is a number. Raises: Failure, it is none, or none of Java's."""
        text = self.text(letter, str(otherwise))
        try:
            found = int(text)
        except ValueError:
            raise number_failure(text) from None
        if abs(found) > most:
            raise number_failure(text)
        return found

    def is_true(self, letter: str, otherwise: bool = False) -> bool:
        """Whether the value is "true", in whatever case."""
        return self.text(letter).lower() == "true" if self.has(letter) else otherwise

    # What is told ---------------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        self._out.write(text)

    def line(self, form: str = "", *values: object) -> None:
        """A line; `form` as printf's."""
        self._out.write((form % values if values else form) + "\n")

    def complain(self, failure: Failure) -> None:
        """Print a failure after which the command goes on, as Java's `printStackTrace` does."""
        self.failed = True
        self._err.write(f"{failure}\n")

    def show_usage(self) -> None:
        self.write(usage(f"mqadmin {self.command.name}", self.command.options))

    # Servers --------------------------------------------------------------------------------------------------------

    @property
    def namesrvs(self) -> list[str]:
        """The addresses of the name servers."""
        return self.servers.network.name_servers.addresses

    async def pause(self, seconds: float) -> None:
        self._out.flush()  # a command that pauses may never end, and a file or a pipe is read meanwhile
        await self.servers.network.clock.sleep(seconds)

    async def ask(
        self, address: str, request: Request[R], body: bytes = b"", patience: int = 1
    ) -> Response[R]:
        """One question to one broker. Raises: Failure."""
        try:
            session = await self.servers.network.brokers.session(address)
            return await session.call(request, body, timeout_s=self.servers.timeout_s * patience)
        except SparrowError as error:
            raise of(error, request, address) from None

    async def figures(self, address: str) -> dict[str, str]:
        """What a broker counts, by Java's names. Raises: Failure."""
        return await self._of_broker(brokers.figures, address, GetBrokerRuntime())

    async def settings(self, address: str) -> dict[str, str]:
        """A broker's settings, by key. Raises: Failure."""
        return await self._of_broker(brokers.settings, address, GetBrokerConfig())

    async def _of_broker(
        self, look: Callable[[Servers, str], Awaitable[T]], address: str, request: Request[Any]
    ) -> T:
        """What `Admin` finds out by one request."""
        try:
            return await look(self.servers, address)
        except SparrowError as error:
            raise of(error, request, address) from None

    async def ask_namesrv(self, request: Request[R], accept: Collection[int] = ()) -> Response[R]:
        """One question to one name server. Raises: Failure."""
        try:
            return await self.servers.ask_namesrv(request, accept)
        except SparrowError as error:
            raise of(error, request) from None

    async def cluster(self) -> ClusterTable:
        """All brokers. Raises: Failure."""
        return ClusterTable.decode((await self.ask_namesrv(GetBrokerCluster())).body)

    async def topics(self) -> list[str]:
        """The names of all topics, as Java shows them. Raises: Failure."""
        answer = await self.ask_namesrv(GetAllTopicListFromNameserver())
        return java.names(TopicList.decode(answer.body).topic_list)

    async def route(self, topic: str) -> TopicRoute:
        """Which brokers have a topic. Raises: Failure, with code 17 if none has."""
        try:
            return await self.servers.route(topic)
        except NoRoute:
            raise no_route(topic) from None
        except SparrowError as error:
            raise of(error) from None
