"""The console as a server: the log-in, NiceGUI behind it, and uvicorn, in a loop that other code may use too.

NiceGUI keeps its pages in one application for the process, so a process has one console at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, cast

# NiceGUI looks for stored state in the working directory; the console stores none.
os.environ.setdefault("NICEGUI_STORAGE_PATH", os.path.join(tempfile.gettempdir(), "sparrowmq-console-keeps-nothing"))

import uvicorn
from fastapi import FastAPI
from nicegui import Client as NiceguiClient
from nicegui import core, ui
from starlette.middleware.gzip import GZipMiddleware

from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.console import sessions
from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.console_metrics import CountedRequests, metrics_port
from sparrowmq.console.console_pages import add_pages
from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.http_connections import Handshake, TrustedProxies, http_protocol
from sparrowmq.console.login import Guard
from sparrowmq.console.pages.dead_letters import exporting
from sparrowmq.console.samples import Samples
from sparrowmq.console.sessions import BoundSockets
from sparrowmq.core import descriptors
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.metrics.condition_kinds import CERTIFICATE, CONNECTIONS_FULL
from sparrowmq.remoting.listener import Listener
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.encryption import HANDSHAKE_S
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings, TlsMode

# A page is loaded again, without what was typed in it, if its browser is silent for longer than this and a pulse.
_KEPT_S: Final = 10.0

_SWEEP_S = 5.0
_LIMITED: Final = ("uvicorn.error", "engineio.server", sessions.__name__)


class Console:
    """Serves while its context is entered. `credentials` and `tls` are for its requests to the cluster.

    Raises on entering: ConfigError, the address is in use, or not allowed.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        *,
        credentials: Credentials | None = None,
        tls: Tls = False,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._cluster = ClusterView(settings.namesrv, credentials, tls, clock)
        self._samples = Samples(self._cluster, self._clock, settings.history)
        self._stack = AsyncExitStack()
        self._background = Background()
        self._socket: socket.socket | None = None
        port = settings.metrics_port
        self._metrics = Listener(settings.metrics_host, port, "--metrics-port") if port is not None else None

    @property
    def url(self) -> str:
        assert self._socket is not None, "only known once it listens"
        host, port = self._socket.getsockname()[:2]
        url_host = f"[{host}]" if ":" in host else host
        scheme = "https" if self._settings.certificate else "http"
        return f"{scheme}://{url_host}:{port}{self._settings.prefix}/"

    @property
    def metrics_address(self) -> str:
        """The address for Prometheus; "" if there is none."""
        return f"{self._metrics.host}:{self._metrics.port}" if self._metrics is not None else ""

    async def __aenter__(self) -> Self:
        if self._metrics is not None:
            self._metrics.bind()
        self._socket = _listen(self._settings.host, self._settings.port)
        guard = Guard(BoundSockets(self._app()), self._settings, self._clock)
        requests = CountedRequests(guard)
        share = descriptors.divide(descriptors.limit(), with_store=False)
        protocol = http_protocol(share.connections, self._clock)
        self._cluster.watch((CONNECTIONS_FULL, lambda: protocol.open_connections.problem))
        async with AsyncExitStack() as stack:
            stack.callback(self._socket.close)
            stack.enter_context(_log_limit(self._clock))
            tls = _encryption(self._settings, self._clock)
            if tls is not None:
                self._cluster.watch((CERTIFICATE, lambda: tls.problem))
            await stack.enter_async_context(self._cluster)
            server = _Server(
                uvicorn.Config(
                    TrustedProxies(requests, self._settings.trusted_proxy),
                    http=protocol,
                    ws_max_size=core.sio.eio.max_http_buffer_size,  # it is refused above this, but only as a whole
                    backlog=share.backlog,
                    proxy_headers=False,
                    log_level="warning",
                    log_config=None,
                    access_log=False,
                    timeout_graceful_shutdown=2,
                    server_header=False,
                ),
                tls,
            )
            serving = asyncio.create_task(server.serve([self._socket]))
            stack.push_async_callback(_stop, server, serving)
            await stack.enter_async_context(self._background)
            self._background.spawn(self._samples.run(), "samples")
            self._background.spawn(self._samples.topic_counts.run(), "topic_counts")
            self._background.spawn(self._sweep(guard), "sessions")
            if tls is not None:
                self._background.spawn(tls.watch(), "certificate")
            self._open_metrics(guard, requests)
            while not server.started and not serving.done():
                await self._clock.sleep(0.01)
            self._serving = serving
            self._stack = stack.pop_all()
        return self

    def _app(self) -> FastAPI:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        # NiceGUI has all other addresses.
        app.get(self._settings.prefix + "/dlq/export")(exporting(self._cluster))
        add_pages(self._cluster, self._samples, self._settings.prefix)
        ui.run_with(
            app,
            mount_path=self._settings.prefix or "/",
            title="SparrowMQ",
            language="en-US",
            dark=None,
            tailwind=False,  # STYLE of console_pages.py has the classes
            show_welcome_message=False,
            reconnect_timeout=_KEPT_S,
            # More compression costs a first visit more time than the saved bytes.
            gzip_middleware_factory=partial(GZipMiddleware, compresslevel=1),
        )
        return app

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stack.__aexit__(*error)

    async def serve(self) -> None:
        """Serve until cancelled. Raises: the error that made it fail."""
        await asyncio.shield(self._serving)

    def _open_metrics(self, guard: Guard, requests: CountedRequests) -> None:
        if self._metrics is None:
            return
        cluster, sessions = self._cluster, partial(len, guard.sessions)
        port = metrics_port(
            self._metrics, cluster.servers, requests, sessions, _open_pages, cluster.conditions, self._clock
        )
        for name, run in port.tasks.items():
            self._background.spawn(run(), name)

    async def _sweep(self, guard: Guard) -> None:
        while True:
            await self._clock.sleep(_SWEEP_S)
            guard.renew()


@contextmanager
def _log_limit(clock: Clock) -> Iterator[None]:
    """Limit the lines that visitors can cause: for requests that are no HTTP they need not even log in."""
    limit, loggers = LogLimit(clock), [logging.getLogger(name) for name in _LIMITED]
    for logger in loggers:
        logger.addFilter(limit)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(limit)


def _open_pages() -> int:
    return sum(client.has_socket_connection for client in NiceguiClient.instances.values())


def _encryption(settings: ConsoleSettings, clock: Clock) -> ServerTls | None:
    if settings.certificate is None or settings.key is None:
        return None
    certificate, key = Path(settings.certificate), Path(settings.key)
    return ServerTls(ServerTlsSettings(tls_mode=TlsMode.ENFORCING, certificate=certificate, key=key), clock)


class _Server(uvicorn.Server):
    """uvicorn without signal handlers: the owner of the loop has them. TLS handshakes have HANDSHAKE_S, not 60 s."""

    def __init__(self, config: uvicorn.Config, tls: ServerTls | None) -> None:
        super().__init__(config)
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        config, loop = self.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            connection: Any = config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            context = self._tls.context if self._tls is not None else None
            if context is not None:
                context.set_alpn_protocols(["http/1.1"])
                connection = Handshake(connection, context, HANDSHAKE_S)
            return cast(asyncio.Protocol, connection)

        for listening_socket in sockets or []:
            self.servers.append(await loop.create_server(protocol, sock=listening_socket, backlog=config.backlog))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _stop(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    server.should_exit = True
    await serving


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise ConfigError(
            f"the console cannot listen on {host}:{port} ({os.strerror(error.errno or 0)}); choose another with --port"
        ) from error
