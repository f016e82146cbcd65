"""What tools ask about the broker itself: its settings (26), its figures (28), and what one of its consumers is
doing (307).

Source: AdminBrokerProcessor, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.config import BrokerSettings
from sparrowmq.broker.status import Status
from sparrowmq.errors import NetworkError, RemoteError, RequestTimeout
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig, GetBrokerConfigReply, GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import DataVersion, KVTable
from sparrowmq.protocol.requests.headers import GetConsumerRunning
from sparrowmq.remoting.dispatch import Answer, handles
from sparrowmq.remoting.peer import Peer

# How long a client may take to answer (Java: Broker2Client.callClient).
CLIENT_TIMEOUT_S: Final = 10.0


class InspectHandler:
    """Tells tools about the broker."""

    def __init__(self, settings: BrokerSettings, status: Status, clients: Clients) -> None:
        self._settings = settings
        self._status = status
        self._clients = clients

    @handles(GetBrokerConfig)
    def config(self, header: GetBrokerConfig, body: bytes, peer: Peer) -> Answer:
        """The settings as a properties file."""
        body = settings_text.render(self._settings.as_properties())
        version = DataVersion(timestamp=self._status.started_ms).encode().decode()
        return Answer(header=GetBrokerConfigReply(version), body=body)

    @handles(GetBrokerRuntime)
    def runtime(self, header: GetBrokerRuntime, body: bytes, peer: Peer) -> Answer:
        """About fifty figures."""
        return Answer(body=KVTable(self._status.table()).encode())

    @handles(GetConsumerRunning)
    async def running(self, header: GetConsumerRunning, body: bytes, peer: Peer) -> Answer:
        """Ask the consumer itself and hand on what it says."""
        member = self._clients.member(header.consumer_group, header.client_id)
        who = f"<{header.consumer_group}> <{header.client_id}>"
        if member is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"The Consumer {who} not online")
        try:
            response = await member.peer.call(header, body, timeout_s=CLIENT_TIMEOUT_S)
        except RequestTimeout as error:
            raise RemoteError(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {who} Timeout: {error}") from error
        except NetworkError as error:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer {who} Exception: {error}"
            ) from error
        return Answer(response.code, None, response.remark, response.body)
