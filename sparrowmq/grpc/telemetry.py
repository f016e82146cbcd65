"""The Telemetry stream: a client sends its settings, and gets commands.

    client ── settings ──────────────────────> port      at the start, and every few minutes
           <───── settings, as the cluster has them
           <───── recover_orphaned_transaction_command   a broker asks for the end of a transaction
           <───── other commands, and their results back (commands.py)

A command without a body is ignored, as are results of commands for which no caller waits.
Source: ClientActivity, Java 5.4.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from sparrowmq.errors import SparrowError
from sparrowmq.grpc.brokers import Cluster
from sparrowmq.grpc.caller import Caller, consumer_group_of, topic_of
from sparrowmq.grpc.commands import Commands
from sparrowmq.grpc.grpc_clients import MOST_TOPICS, Client, Clients, Send
from sparrowmq.grpc.message_out import message_of
from sparrowmq.grpc.settings_answer import answer
from sparrowmq.grpc.statuses import Status, refused, status
from sparrowmq.grpc.transaction_id import TransactionId
from sparrowmq.grpc.wire_types import ClientType, message
from sparrowmq.loop.slices import Steps, to_end
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.headers import CheckTransactionState

log = logging.getLogger(__name__)

MOST_SETTINGS: Final = 64 << 10
_KINDS: Final = frozenset(ClientType)
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Telemetry:
    """The streams of all clients."""

    def __init__(self, cluster: Cluster, clients: Clients, commands: Commands, spawn: Spawn) -> None:
        self._clients = clients
        self._commands = commands
        self._spawn = spawn
        cluster.on_check = self.check
        cluster.commands = commands

    async def stream(self, caller: Caller, commands: AsyncIterator[Any], send: Send) -> None:
        """Serve one stream until its client ends it. Raises: SparrowError, the settings are refused."""
        client = self._clients.seen(caller.client_id, caller.address)
        client.language, client.address = caller.language, caller.address
        self._clients.stream_began(client, send)
        try:
            async for command in commands:
                self._clients.seen(caller.client_id, caller.address)
                if command.HasField("settings"):
                    await self._settings(caller, client, command.settings, send)
                else:
                    self._commands.answered(client, command)
        finally:
            self._clients.stream_ended(client, send)

    async def _settings(self, caller: Caller, client: Client, settings: Any, send: Send) -> None:
        if settings.client_type not in _KINDS:
            raise refused(Status.UNRECOGNIZED_CLIENT_TYPE, f"the client type {settings.client_type} is unknown here")
        check_size(settings)
        group = None
        if settings.HasField("subscription"):
            name = consumer_group_of(settings.subscription.group)
            topics = await to_end(_checked_topics([each.topic for each in settings.subscription.subscriptions]))
            await caller.brokers.demand_consumer(name, topics)
            group = await caller.brokers.group(name)
        await to_end(_checked_topics(settings.publishing.topics))
        reply = answer(settings, group)
        self._clients.configure(client, reply, caller.brokers)
        await send(message("TelemetryCommand")(status=status(), settings=reply).SerializeToString())

    def check(
        self,
        broker_name: str,
        request: CheckTransactionState,
        half: StoredMessage,
        client_ids: Collection[str],
    ) -> None:
        """Pass a broker's question for the end of a transaction to one of the clients, a producer of the topic."""
        found = self._clients.producers_of(half.topic, client_ids)
        if not found:
            log.debug("%s asks for the end of the transaction of %s, and no producer is there", broker_name, half)
            return
        client = random.choice(found)
        command = message("TelemetryCommand")(status=status())
        recover = command.recover_orphaned_transaction_command
        unique_id = request.transaction_id or half.message_id
        recover.transaction_id = str(
            TransactionId(broker_name, request.tran_state_table_offset, request.commit_log_offset, unique_id)
        )
        recover.message.MergeFromString(message_of(half, half.topic))
        self._spawn(self._tell(client, command.SerializeToString()))

    async def _tell(self, client: Client, command: bytes) -> None:
        if client.send is None:
            return
        try:
            await client.send(command)
        except SparrowError as error:
            log.debug("no command to client %s: %s", client.client_id, error)


def _checked_topics(resources: Iterable[Any]) -> Steps[dict[str, None]]:
    """The full names of topics. Thousands of clients may send settings at once. Raises: RemoteError, as `topic_of`."""
    found: dict[str, None] = {}
    for each in resources:
        found[topic_of(each)] = None
        yield
    return found


def check_size(settings: Any) -> None:
    """Raises: RemoteError, the settings take more memory than the port gives to one client."""
    size = settings.ByteSize()
    if size > MOST_SETTINGS:
        raise refused(
            Status.PAYLOAD_TOO_LARGE,
            f"the settings have {size:,} bytes, and {MOST_SETTINGS:,} are allowed; use several clients",
        )
    names = max(len(settings.publishing.topics), len(settings.subscription.subscriptions))
    if names > MOST_TOPICS:
        raise refused(
            Status.TOO_MANY_REQUESTS,
            f"the settings name {names:,} topics, and {MOST_TOPICS} are allowed; use several clients",
        )
