"""What tools ask about the broker itself: its settings (26), which they may change (25), and its figures (28).

Source: AdminBrokerProcessor, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.broker.config import BrokerSettings
from sparrowmq.broker.status import Status
from sparrowmq.changing import Changing
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    GetBrokerConfig,
    GetBrokerConfigReply,
    GetBrokerRuntime,
    UpdateBrokerConfig,
)
from sparrowmq.protocol.requests.bodies import DataVersion, KVTable
from sparrowmq.remoting.dispatch import Answer, handles
from sparrowmq.remoting.peer import Peer


class InspectHandler:
    """Tells tools about the broker, and changes its settings."""

    def __init__(self, settings: Changing[BrokerSettings], status: Status) -> None:
        self._settings = settings
        self._status = status

    @handles(GetBrokerConfig)
    def config(self, header: GetBrokerConfig, body: bytes, peer: Peer) -> Answer:
        """The settings as a properties file."""
        body = settings_text.render(self._settings.now.as_properties())
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
        return Answer(body=KVTable(self._status.table()).encode())
