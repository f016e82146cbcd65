"""The console's own figures, and the port where Prometheus reads them. The port needs no log-in and shows no names.

GET /metrics    what came to the console, what it asked the cluster, how its loop and its process are
GET /healthz    200 while the loop runs
GET /readyz     200 while a name server answers, with the console's own conditions; else 503 with the reason
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import cluster_table
from sparrowmq.admin.servers import Servers
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import NetworkError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.conditions import Conditions
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_port import MetricsPort
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.listener import Listener
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)
T = TypeVar("T")


class CountedServers(Servers):
    """Counts the requests to name servers and brokers.

    `silent` has the addresses that did not answer the console's last poll, with the error. They are not asked before
    they answer a poll, so that no page waits for a broker that hangs.
    """

    def __init__(self, network: Network, timeout_s: float) -> None:
        super().__init__(network, timeout_s)
        self.calls = 0
        self.failures = 0
        self.silent: dict[str, NetworkError] = {}
        self.counter = self  # where requests are counted

    async def ask_namesrv(
        self, request: Request[R], body: bytes = b"", *, accept: Collection[int] = (), address: str | None = None
    ) -> Response[R]:
        return await self._counted(super().ask_namesrv(request, body, accept=accept, address=address))

    async def ask(
        self,
        address: str,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        timeout_factor: int = 1,
    ) -> Response[R]:
        """As `Servers` does. Raises also: the error of an address in `silent`, at once."""
        if address in self.silent:
            raise self.silent[address]
        return await self._counted(super().ask(address, request, body, accept=accept, timeout_factor=timeout_factor))

    async def _counted(self, call: Coroutine[Any, Any, T]) -> T:
        self.counter.calls += 1
        try:
            return await call
        except SparrowError:
            self.counter.failures += 1
            raise


class CountedAdmin(Admin):
    """An `Admin` whose requests are counted. `counted` has the numbers."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self._servers = self.counted = CountedServers(network, self._servers.timeout_s)


class CountedRequests:
    """An ASGI application before another one. It counts the HTTP answers by status: 2xx, 3xx, 4xx, 5xx."""

    def __init__(self, app: ASGIApp) -> None:
        self.statuses: Counter[str] = Counter()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses[f"{message['status'] // 100}xx"] += 1
            await send(message)

        await self._app(scope, receive, counted)


def metrics_port(
    listener: Listener,
    servers: CountedServers,
    requests: CountedRequests,
    sessions: Callable[[], int],
    pages: Callable[[], int],
    conditions: Conditions,
    clock: Clock,
) -> MetricsPort:
    """Answers Prometheus. `sessions` and `pages` count the visitors that are logged in, and their open pages."""
    figures = Figures()
    figures.counters(
        "sparrowmq_console_requests_total",
        "HTTP answers: 2xx, 3xx, 4xx, 5xx",
        ("status",),
        lambda: sorted(((status,), float(count)) for status, count in requests.statuses.items()),
    )
    figures.gauge("sparrowmq_console_sessions", "valid log-ins", sessions)
    figures.gauge("sparrowmq_console_pages", "pages open in browsers", pages)
    figures.read_counter("sparrowmq_console_calls_total", "requests to name servers and brokers", lambda: servers.calls)
    figures.read_counter(
        "sparrowmq_console_calls_failed_total", "requests that were refused or not answered", lambda: servers.failures
    )
    figures.gauges(
        "sparrowmq_condition",
        "1 for each condition in which the console does less than expected",
        ("condition", "severity"),
        conditions.rows,
    )

    async def ready() -> str:
        await cluster_table(servers)  # the error that it raises is the reason
        return await conditions.ready()

    return MetricsPort(listener, MetricsSettings(), figures, {"node_type": "console"}, {}, clock, ready=ready)
