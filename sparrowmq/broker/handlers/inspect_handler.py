"""What tools ask about the broker itself: its settings (26), which they may change (25), its figures (28), and what
went in and out of it (315).

Source: AdminBrokerProcessor, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.metrics.status import Status
from sparrowmq.broker.metrics.traffic import Traffic
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    GetBrokerConfig,
    GetBrokerConfigReply,
    GetBrokerRuntime,
    UpdateBrokerConfig,
    ViewBrokerStats,
)
from sparrowmq.protocol.requests.bodies import BrokerStats, DataVersion, KVTable, StatsSpan
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.request_dispatch import Answer, handles
from sparrowmq.settings.live_settings import Changing

# What Java's tools take for granted among the settings (exportConfigs fails without them), where there is none here.
_WITHOUT_SETTING: Final = {"filterServerNums": "0", "traceOn": "true", "useTLS": "false"}


class InspectHandler:
    """Tells tools about the broker, and changes its settings."""

    def __init__(self, settings: Changing[BrokerSettings], status: Status, traffic: Traffic) -> None:
        self._settings = settings
        self._status = status
        self._traffic = traffic

    @handles(GetBrokerConfig)
    def config(self, header: GetBrokerConfig, body: bytes, peer: Peer) -> Answer:
        """The settings as a properties file."""
        body = settings_text.render(_WITHOUT_SETTING | self._settings.now.as_properties())
        version = (
            DataVersion(timestamp=self._status.started_ms, counter=self._settings.count).encode().decode()
        )
        return Answer(header=GetBrokerConfigReply(version), body=body)

    @handles(UpdateBrokerConfig)
    async def change(self, header: UpdateBrokerConfig, body: bytes, peer: Peer) -> None:
        """Change some settings. One that cannot be, with its reason, and none is changed."""
        await self._settings.change(settings_text.parse(body), peer.address)

    @handles(GetBrokerRuntime)
    def runtime(self, header: GetBrokerRuntime, body: bytes, peer: Peer) -> Answer:
        """About fifty figures."""
        return Answer(body=KVTable(self._status.table()))

    @handles(ViewBrokerStats)
    def traffic(self, header: ViewBrokerStats, body: bytes, peer: Peer) -> Answer:
        """One figure over the last minute, hour and day; an error if there is none, as tools expect."""
        found = self._traffic.of(header.stats_name, header.stats_key)
        if found is None:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        spans = (StatsSpan(amount.sum, amount.per_second, 1.0 if amount.sum else 0.0) for amount in found)
        return Answer(body=BrokerStats(*spans))
