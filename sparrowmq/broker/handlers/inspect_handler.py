"""The broker itself, for tools: its settings (26) and changes to them (25), its runtime figures (28), and its message
traffic (315), its replication (907). And its restart (32006), which is ours.

Source: AdminBrokerProcessor, Java 4.9.8 and 5.4.0.
"""

from __future__ import annotations

from collections.abc import Callable

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.metrics.status import Status
from sparrowmq.broker.metrics.traffic import Traffic
from sparrowmq.core import process
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    GetBrokerConfig,
    GetBrokerConfigReply,
    GetBrokerRuntime,
    GetDiagnosis,
    GetHaStatus,
    RestartBroker,
    UpdateBrokerConfig,
    ViewBrokerStats,
)
from sparrowmq.protocol.requests.bodies import OWN_VERSION, BrokerStats, DataVersion, HaStatus, KVTable
from sparrowmq.remoting.diagnosis import diagnosis
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.settings.live_settings import Changing
from sparrowmq.version import VERSION


class InspectHandler:
    def __init__(
        self,
        settings: Changing[BrokerSettings],
        status: Status,
        traffic: Traffic,
        replication: Callable[[], HaStatus],
    ) -> None:
        self._settings = settings
        self._status = status
        self._traffic = traffic
        self._replication = replication

    @handles(GetBrokerConfig)
    def config(self, header: GetBrokerConfig, body: bytes, peer: Peer) -> Reply:
        """Return the settings as a properties file."""
        body = settings_text.render({OWN_VERSION: VERSION} | self._settings.now.as_shown())
        version = DataVersion(timestamp=self._status.started_ms, counter=self._settings.count).encode().decode()
        return Reply(header=GetBrokerConfigReply(version), body=body)

    @handles(UpdateBrokerConfig)
    async def change(self, header: UpdateBrokerConfig, body: bytes, peer: Peer) -> None:
        """Change some settings. If one is invalid, the answer gives the reason and no setting changes."""
        await self._settings.change(settings_text.of_request(body), peer.address)

    @handles(GetBrokerRuntime)
    def runtime(self, header: GetBrokerRuntime, body: bytes, peer: Peer) -> Reply:
        """Return about fifty figures."""
        return Reply(body=KVTable(self._status.table()))

    @handles(GetHaStatus)
    def replication(self, header: GetHaStatus, body: bytes, peer: Peer) -> Reply:
        """Return the state of the slaves, or of this slave."""
        return Reply(body=self._replication())

    @handles(GetDiagnosis)
    async def diagnosis(self, header: GetDiagnosis, body: bytes, peer: Peer) -> Reply:
        """Return what the process says of itself, without secrets."""
        return Reply(body=KVTable(await diagnosis(self._settings.now)))

    @handles(RestartBroker)
    def restart(self, header: RestartBroker, body: bytes, peer: Peer) -> None:
        """End in order and begin again, if this is still the broker that the sender has seen."""
        if header.boot_timestamp != self._status.started_ms:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"not restarted: this broker has begun at {self._status.started_ms}, not at {header.boot_timestamp}",
            )
        process.OF_PROCESS.ask()

    @handles(ViewBrokerStats)
    def traffic(self, header: ViewBrokerStats, body: bytes, peer: Peer) -> Reply:
        """Return one figure for the last minute, hour and day. Tools expect an error if the figure does not exist."""
        found = self._traffic.of(header.stats_name, header.stats_key)
        if found is None:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        return Reply(body=BrokerStats(*found))
