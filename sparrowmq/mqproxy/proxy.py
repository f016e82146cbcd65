"""The process `mqproxy`: the gRPC port, and its connections to the brokers of a cluster."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from sparrowmq.auth.grpc_signature import Freshness
from sparrowmq.client.cluster.credentials import Credentials, Tls, tls_context
from sparrowmq.client.cluster.network import Network
from sparrowmq.core import descriptors
from sparrowmq.errors import ConfigError
from sparrowmq.grpc.port import ListenAddress, open_port
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.metrics.condition_kinds import CERTIFICATE, CONNECTIONS_FULL, Probe
from sparrowmq.metrics.conditions import POLL_S, Conditions, client_certificate_probe
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.mqproxy.account_brokers import AccountCluster
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from sparrowmq.mqproxy.limits import Capacity
from sparrowmq.mqproxy.users import BrokerUsers
from sparrowmq.remoting.listener import EVERYWHERE, LOOPBACK, Listener, is_loopback
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.tls_settings import ServerTlsSettings

PORT: Final = 8081


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """The settings of the process. Raises: ConfigError, they contradict each other.

    Port 0 takes a free one; without `metrics_port` there is no such port. `advertised_host` is the host by which
    clients reach it; by default the host it listens on. `certificate` and `key` are PEM files; by default a self-signed
    certificate is made for clients that encrypt. With `insecure` other machines may reach it without accounts.
    `credentials` are those of a Super user of the brokers: then clients need users of the brokers.
    `signature_age_s` and `is_behind_proxy` are as `grpcSignatureAge` and `grpcProxyProtocol` of a broker.
    """

    host: str = LOOPBACK
    port: int = PORT
    advertised_host: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False
    credentials: Credentials | None = None
    metrics_port: int | None = None
    signature_age_s: int = Freshness().max_age_s
    is_behind_proxy: bool = False

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.insecure and self.credentials is None:
            raise ConfigError(
                f"listening on {self.host} would let everybody who reaches it read and write. Start mqproxy with "
                "--access-key and --secret-key of a Super user, so that clients need accounts, or with --insecure if "
                "the network is trusted, or listen on 127.0.0.1"
            )
        if self.advertised_host is None and self.host in (EVERYWHERE, "::"):
            raise ConfigError(f"--host {self.host} is no address for clients; give theirs with --address")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("give --certificate and --key, or neither")


class Proxy:
    """The running process; an async context manager. On entering it raises ConfigError: the port cannot be used. `tls`
    encrypts its connections to name servers and brokers. `address` is for clients; `metrics_address` is "" without such
    a port."""

    def __init__(
        self, settings: ProxySettings, namesrv: str | None, tls: Tls = False, clock: Clock | None = None
    ) -> None:
        self.address = self.metrics_address = ""
        self._settings = settings
        self._clock = clock or SystemClock()
        self._tls = tls_context(tls)
        self._connect = partial(Network, namesrv, tls=self._tls or False, clock=self._clock)
        self._network = self._connect(credentials=settings.credentials)
        self._stack = AsyncExitStack()
        self._conditions = Conditions(self._clock, Figures())

    async def __aenter__(self) -> Self:
        settings, clock = self._settings, self._clock
        async with AsyncExitStack() as stack:
            network = await stack.enter_async_context(self._network)
            tasks = await stack.enter_async_context(Background())
            # With accounts each user has connections to brokers, which take as many descriptors as the port.
            shares = 1 if settings.credentials is None else 2
            share = descriptors.divide(descriptors.limit(), with_store=False, ports=shares)
            capacity = Capacity(share.connections)
            own_brokers = ClusterBrokers(network, clock, capacity)
            users = BrokerUsers(own_brokers, clock) if settings.credentials is not None else None
            cluster: ClusterBrokers | AccountCluster = own_brokers
            probes: list[Probe] = []
            if users is not None:
                cluster, probes = await self._with_accounts(own_brokers, users, tasks, capacity), users.probes()
            probes += cluster.probes()
            server_tls = ServerTls(ServerTlsSettings(certificate=settings.certificate, key=settings.key), clock)
            tasks.spawn(server_tls.watch(), "TLS files")
            advertised_host = settings.advertised_host or settings.host
            address = ListenAddress(settings.host, settings.port, advertised_host, share, settings.is_behind_proxy)
            port = await open_port(stack, tasks, cluster, clock, server_tls, address)
            self.address = port.address
            probes.append((CONNECTIONS_FULL, lambda: "; ".join(filter(None, (capacity.problem, port.problem())))))
            probes += [(CERTIFICATE, lambda: server_tls.problem), client_certificate_probe(clock, self._tls)]
            self._conditions.watch(probes)
            if settings.metrics_port is not None:
                await self._open_metrics(stack, tasks, settings.metrics_port)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stack.__aexit__(*error)  # type: ignore[arg-type]

    async def _with_accounts(
        self, own_brokers: ClusterBrokers, users: BrokerUsers, tasks: Background, capacity: Capacity
    ) -> AccountCluster:
        await users.start()
        freshness = Freshness(self._settings.signature_age_s)
        cluster = AccountCluster(
            own_brokers, users, lambda user: self._connect(credentials=user), tasks, self._clock, freshness, capacity
        )
        tasks.spawn(users.run(), "users")
        tasks.spawn(cluster.run(), "idle connections")
        return cluster

    async def _open_metrics(self, stack: AsyncExitStack, tasks: Background, port: int) -> None:
        """Answer /readyz and /metrics. They name brokers, so other machines do not reach them."""
        from sparrowmq.metrics.metrics_port import MetricsPort  # 5 MB that only metrics need

        listener = Listener(LOOPBACK, port, "--metrics-port")
        listener.bind()
        stack.callback(listener.close)
        self.metrics_address = f"{listener.host}:{listener.port}"
        program = {"service.name": "sparrowmq-mqproxy", "service.instance.id": self.address}
        labels = {"node_type": "proxy"}
        conditions = self._conditions
        metrics_port = MetricsPort(
            listener, MetricsSettings(), conditions.figures, labels, program, self._clock, ready=conditions.ready
        )
        for name, run in metrics_port.tasks.items():
            tasks.spawn(run(), name)
        while not listener.is_open:  # if it cannot be opened, its task cancels this one
            await self._clock.sleep(0.01)

    @property
    def description(self) -> str:
        """Describe for people the clients it serves, and where; and where its metrics are."""
        metrics = f"; its metrics are at http://{at}/metrics" if (at := self.metrics_address) else ""
        return f"clients of RocketMQ 5 at {self.address}{metrics}"

    async def serve(self) -> None:
        while True:
            await self._clock.sleep(POLL_S)
            self._conditions.poll()
