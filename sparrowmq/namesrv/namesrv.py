"""A name server: its socket, its handlers, and the task that removes silent brokers.

It remembers brokers that died, so that tools can name them: as values of a namespace, on disk.

    LOST_BROKERS    broker-b    {"cluster": ..., "address": ..., "sinceMs": ..., "topics": [...]}

A broker that unregisters is not lost. A lost one is forgotten when its master registers again, or when an operator
deletes the value (`sparrowmq broker forget`). Each name server remembers for itself, and MAX_LOST_BROKERS at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from sparrowmq.auth.rotated_file import denials_file
from sparrowmq.core import descriptors, logs
from sparrowmq.errors import ClientClosed
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.loop.tasks import Background
from sparrowmq.metrics import condition_kinds as kinds
from sparrowmq.metrics.condition_kinds import Probe
from sparrowmq.metrics.conditions import POLL_S, Conditions, Machine
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.metrics.metrics_port import MetricsPort
from sparrowmq.metrics.metrics_settings import metrics_listener
from sparrowmq.metrics.server_figures import Port, declare_denials, declare_disks, declare_latencies, declare_port
from sparrowmq.namesrv.handlers import BrokerHandlers, RouteHandlers, ValueHandlers
from sparrowmq.namesrv.kv import KeyValues
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.namesrv.route_table import MAX_LOST_BROKERS, Routes
from sparrowmq.protocol.names import LOST_BROKERS
from sparrowmq.protocol.requests.bodies import LostBroker
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.remoting.listener import Listener, check_not_public
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.server import Server, limits_for
from sparrowmq.remoting.session import Session
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.settings.live_settings import LiveSettings
from sparrowmq.settings.user_settings import check_one_kind

if TYPE_CHECKING:  # a name server without access control loads nothing of it
    from sparrowmq.namesrv.namesrv_access import NamesrvAccess

log = logging.getLogger(__name__)

SCAN_PERIOD_S: Final = 10.0


class Namesrv:
    """A name server that runs while its context is open.

        async with Namesrv(NamesrvSettings(port=0), SystemClock()) as namesrv:
            print(namesrv.address)

    `file` is the settings file, which keeps changes to live settings. Raises: ConfigError, the address cannot be
    listened on, or would admit every machine, or a TLS file cannot be used; BadStore, the KV's file cannot be read.
    """

    def __init__(self, settings: NamesrvSettings, clock: Clock, file: Path | None = None) -> None:
        self._tasks = tasks = Background()
        self.routes = Routes(partial(_run_later, tasks))
        self._settings = settings
        self._live_settings = LiveSettings(settings, file)
        self._live_settings.subscribe(logs.apply_settings)
        self._clock = clock
        self._latencies = Latencies(settings.slow_request_ms / 1000)
        self._live_settings.subscribe(self._latencies.apply_settings)
        self._conditions = Conditions(clock, Figures(), lambda: {"DENIED": str(denials_file(settings.audit_file))})
        self._server: Server | None = None
        self._metrics: Listener | None = None
        self._open_parts = AsyncExitStack()

    @property
    def address(self) -> str:
        assert self._server is not None, "not running"
        return f"{self._server.host}:{self._server.port}"

    @property
    def metrics_address(self) -> str:
        """The address that Prometheus scrapes; "" if there is none."""
        return f"{self._metrics.host}:{self._metrics.port}" if self._metrics is not None else ""

    async def __aenter__(self) -> Self:
        settings = self._settings
        check_not_public(settings.bind_address, settings.insecure or settings.checks_access)
        values = KeyValues(settings.kv_path)
        tasks = self._tasks
        handlers = (
            RouteHandlers(self.routes, values, self._live_settings),
            BrokerHandlers(self.routes, values, self._clock),
            ValueHandlers(values, self._live_settings, self._conditions.as_properties),
        )
        access = self._make_access()
        guard, audit = (access.check, access.audit) if access is not None else (None, None)
        dispatch = Dispatcher(Role.NAMESRV, handlers, tasks.spawn, guard, audit=audit, latencies=self._latencies)
        limits = limits_for(descriptors.divide(descriptors.limit(), with_store=False))
        tls = ServerTls(settings, self._clock)
        self._server = server = Server(dispatch, self._clock, settings.bind_address, settings.port, limits, tls=tls)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(tasks)
            stack.push_async_callback(server.stop)
            await server.start()
            self._open_metrics(stack, tasks, dispatch, tls, access)
            tasks.spawn(server.drop_silent_peers(), "silent peers")
            tasks.spawn(tls.watch(), "TLS files")
            tasks.spawn(self._expire(), "silent brokers")
            self._conditions.watch(self._probes(values, server, tls, access))
            tasks.spawn(self._poll(values), "conditions")
            tasks.spawn(DeadBrokers(self.routes, values, self._clock).watch(), "lost brokers")
            if access is not None:
                tasks.spawn(access.watch(self._clock), "accounts")
            self._open_parts = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open_parts.__aexit__(*error)  # type: ignore[arg-type]

    def reload(self, settings: NamesrvSettings) -> None:
        """Apply the live settings of a file that was read again."""
        self._live_settings.reload(settings)

    async def serve(self) -> None:
        """Never return. A background task that fails cancels the caller; leaving the context raises its error."""
        await asyncio.get_running_loop().create_future()

    def unready(self) -> str:
        """Return the conditions that keep it from its work, in words; "" if there are none."""
        return "; ".join(condition.facts for condition in self._conditions.unready())

    def _probes(
        self, values: KeyValues, server: Server, tls: ServerTls, access: NamesrvAccess | None
    ) -> Iterable[Probe]:
        yield kinds.LOG_NOT_WRITTEN, logs.problem
        yield kinds.CERTIFICATE, lambda: tls.problem
        yield kinds.CERTIFICATES_NOT_REQUIRED, lambda: tls.admits_without_certificate
        yield kinds.SETTINGS_NOT_SAVED, lambda: self._live_settings.problem
        yield kinds.CONNECTIONS_FULL, lambda: server.problem
        yield kinds.VALUES_NOT_SAVED, lambda: values.problem
        yield from Machine(self._clock, lambda: 0).probes()
        if access is not None:
            yield from access.probes()

    async def _poll(self, values: KeyValues) -> None:
        while True:
            await self._clock.sleep(POLL_S)
            await values.try_again()
            await self._live_settings.save_again()
            self._conditions.poll()

    def _make_access(self) -> NamesrvAccess | None:
        check_one_kind(self._settings, self._settings.acl)
        if not self._settings.checks_access:
            return None
        # A name server without access control loads nothing of auth/.
        from sparrowmq.namesrv.namesrv_access import NamesrvAccess

        return NamesrvAccess(self._settings, self._clock)

    def _open_metrics(
        self,
        stack: AsyncExitStack,
        tasks: Background,
        dispatch: Dispatcher,
        tls: ServerTls,
        access: NamesrvAccess | None,
    ) -> None:
        settings, server = self._settings, self._server
        self._metrics = metrics_listener(settings, settings.bind_address, settings.insecure)
        if not settings.is_measured or server is None:
            return
        if self._metrics is not None:
            stack.callback(self._metrics.close)
        conditions, figures = self._conditions, self._conditions.figures

        def brokers() -> Rows:
            clusters = self.routes.clusters().cluster_addr_table
            return [((cluster,), len(names)) for cluster, names in clusters.items()]

        figures.gauges("sparrowmq_namesrv_brokers", "brokers by cluster", ("cluster",), brokers)
        figures.gauge("sparrowmq_namesrv_topics", "topics of all brokers", lambda: self.routes.topic_count)
        declare_port(figures, Port(server, dispatch, tls))
        folders = {"kv": settings.kv_path.parent}
        if settings.audit_path is not None:
            folders["audit"] = settings.audit_path.parent
        declare_disks(figures, folders)
        declare_latencies(figures, self._latencies)
        declare_denials(figures, access.audit if access is not None else None)
        instance = f"{settings.bind_address}:{settings.port}"
        program = {"service.name": "sparrowmq-namesrv", "service.instance.id": instance}
        labels = {"node_type": "namesrv"}
        port = MetricsPort(self._metrics, settings, figures, labels, program, self._clock, ready=conditions.ready)
        for name, run in port.tasks.items():
            tasks.spawn(run(), name)

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(SCAN_PERIOD_S)
            for session in self.routes.expire(self._clock.age):
                if isinstance(session, Session):
                    session.close()


def _run_later(tasks: Background, steps: Steps[None]) -> None:
    """Remove queues of a broker that is gone, in the background; not while the name server stops."""
    with suppress(ClientClosed):
        tasks.spawn(run_to_end(steps), "routes")


class DeadBrokers:
    """Writes what `Routes.vanished_brokers` says into the name server's values."""

    def __init__(self, routes: Routes, values: KeyValues, clock: Clock) -> None:
        self._routes = routes
        self._values = values
        self._clock = clock
        self._written: set[str] = set()
        self._is_failing = False

    async def watch(self) -> None:
        """Look each second, until cancelled."""
        while True:
            await self._clock.sleep(POLL_S)
            try:
                await self.write_changes()
            except OSError as error:
                if not self._is_failing:
                    log.warning("lost brokers cannot be saved to %s: %s", self._values.path, error)
                self._is_failing = True
            else:
                self._is_failing = False

    async def write_changes(self) -> None:
        """Write what changed. Raises: OSError; the next look writes it again."""
        room = MAX_LOST_BROKERS - len(self._values.namespace(LOST_BROKERS))
        for name, vanished in list(self._routes.vanished_brokers.items()):
            if name not in self._written and room > 0:
                room -= 1
                lost = LostBroker(vanished.cluster, vanished.address, self._clock.now_ms(), list(vanished.topics))
                written = b"".join(await run_to_end(lost.encoding()))  # it may have 50,000 topics
                await self._values.put(LOST_BROKERS, name, written.decode())
                self._written.add(name)
                log.warning("broker %s is lost; if it does not come back: `sparrowmq broker forget %s`", name, name)
        self._written &= self._routes.vanished_brokers.keys()
        for name in self._values.namespace(LOST_BROKERS):
            if self._routes.has_master(name):
                await self._values.delete(LOST_BROKERS, name)
