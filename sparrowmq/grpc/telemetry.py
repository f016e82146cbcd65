"""The Telemetry stream: a client sends its settings, gets commands, and sends their results back.

    client ── settings ──────────────────────> port      at the start, and every few minutes
           <───── settings, as the cluster has them
           <───── recover_orphaned_transaction_command   a broker asks for the end of a transaction
           <───── print_thread_stack_trace_command       the result: thread_stack_trace
           <───── verify_message_command                 the listener of a push consumer handles a message; the
                                                         result: verify_message_result

Each command with a result has a nonce, which its result repeats. A result counts only on a stream of the client that
was asked. A command without a body is ignored, as are results of commands for which no caller waits.
Source: ClientActivity and GrpcClientChannel, Java 5.4.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from typing import Any, Final

from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.grpc.brokers import Cluster
from sparrowmq.grpc.caller import Caller, consumer_group_of, topic_of
from sparrowmq.grpc.client_settings import answer
from sparrowmq.grpc.clients import MAX_TOPICS, Client, Clients, Send
from sparrowmq.grpc.message_out import message_of
from sparrowmq.grpc.send_methods import TransactionId
from sparrowmq.grpc.statuses import Status, refused, status
from sparrowmq.grpc.wire_types import ClientType, message
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol.codes import LanguageCode, ResponseCode
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.client_bodies import Connection, ConsumeOutcome, ConsumerConnections, ConsumerRunning
from sparrowmq.protocol.requests.headers import CheckTransactionState
from sparrowmq.protocol.wire.command import PROTOCOL_VERSION

log = logging.getLogger(__name__)

MAX_SETTINGS_BYTES: Final = 64 << 10

ANSWER_S: Final = 8.0  # less than a broker waits for a client

_RESULTS: Final = ("thread_stack_trace", "verify_message_result")

_LANGUAGES: Final = {"GOLANG": "GO", "DOT_NET": "DOTNET"}  # those that the remoting protocol spells otherwise

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
                    self._commands.on_result(client, command)
        finally:
            self._clients.stream_ended(client, send)

    async def _settings(self, caller: Caller, client: Client, settings: Any, send: Send) -> None:
        if settings.client_type not in _KINDS:
            raise refused(Status.UNRECOGNIZED_CLIENT_TYPE, f"the client type {settings.client_type} is unknown here")
        check_size(settings)
        group = None
        if settings.HasField("subscription"):
            name = consumer_group_of(settings.subscription.group)
            topics = await run_to_end(_checked_topics([each.topic for each in settings.subscription.subscriptions]))
            await caller.brokers.check_consumer_access(name, topics)
            group = await caller.brokers.group(name)
        await run_to_end(_checked_topics(settings.publishing.topics))
        reply = answer(settings, group)
        self._clients.configure(client, reply, caller.brokers)
        await send(message("TelemetryCommand")(status=status(), settings=reply).SerializeToString())

    def check(
        self, broker_name: str, request: CheckTransactionState, half: StoredMessage, client_ids: Collection[str]
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
        self._spawn(self._send_command(client, command.SerializeToString()))

    async def _send_command(self, client: Client, command: bytes) -> None:
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
    if size > MAX_SETTINGS_BYTES:
        raise refused(
            Status.PAYLOAD_TOO_LARGE,
            f"the settings have {size:,} bytes, and {MAX_SETTINGS_BYTES:,} are allowed; use several clients",
        )
    names = max(len(settings.publishing.topics), len(settings.subscription.subscriptions))
    if names > MAX_TOPICS:
        raise refused(
            Status.TOO_MANY_REQUESTS,
            f"the settings name {names:,} topics, and {MAX_TOPICS} are allowed; use several clients",
        )


class Commands:
    """Asks the clients of one port."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._waiting: dict[str, tuple[Client, asyncio.Future[Any]]] = {}

    def consumers(self, group: str) -> ConsumerConnections:
        """The members of a consumer group that are clients of this port."""
        found = self._clients.consumers_of(group)
        return ConsumerConnections(
            [Connection(_own_id(client), client.address, _language(client), PROTOCOL_VERSION) for client in found],
            {each.topic: each for client in found for each in client.subscriptions},
            _consume_type(found[0]) if found else None,
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
        )

    async def running(self, client_id: str, *, has_stacks: bool) -> ConsumerRunning:
        """The state of a consumer, with the stacks of its threads if an operator wants them. Raises: RemoteError."""
        client = self._clients.with_settings(client_id)
        found = ConsumerRunning(
            properties={
                "PROP_CONSUME_TYPE": _consume_type(client),
                "PROP_CONSUMER_START_TIMESTAMP": str(client.began_ms),  # Java's tools end with an error without it
                "PROP_CONSUMEORDERLY": str(client.is_fifo).lower(),
                "PROP_CLIENT_VERSION": f"{client.language} {client.version}".strip(),
            },
            subscription_set=list(client.subscriptions),
        )
        if has_stacks:
            command = message("TelemetryCommand")(status=status())
            command.print_thread_stack_trace_command.nonce = nonce = secrets.token_hex(16)
            found.jstack = (await self._ask(client, nonce, command)).thread_stack_trace.thread_stack_trace
        return found

    async def verify(self, client_id: str, stored: StoredMessage) -> ConsumeOutcome:
        """Have a push consumer handle one message now. Raises: RemoteError, it cannot, or does not answer."""
        client = self._clients.with_settings(client_id)
        command = message("TelemetryCommand")(status=status())
        command.verify_message_command.nonce = nonce = secrets.token_hex(16)
        command.verify_message_command.message.MergeFromString(message_of(stored, stored.topic))
        begun = self._clock.monotonic()
        result = (await self._ask(client, nonce, command)).status
        is_done = result.code == Status.OK
        return ConsumeOutcome(
            "CR_SUCCESS" if is_done else "CR_LATER",
            None if is_done else f"{result.code} {result.message}".strip(),
            order=client.is_fifo,
            spent_time_mills=round((self._clock.monotonic() - begun) * 1000),
        )

    def on_result(self, client: Client, command: Any) -> None:
        """Take what a client sent: a result of a command is given to the one that waits for it."""
        kind = command.WhichOneof("command")
        if kind not in _RESULTS:
            return
        client_asked, waiting = self._waiting.get(getattr(command, kind).nonce, (None, None))
        if client_asked is client and waiting is not None and not waiting.done():
            waiting.set_result(command)

    async def _ask(self, client: Client, nonce: str, command: Any) -> Any:
        """Send a command, and return what the client answers. Raises: SparrowError."""
        if client.send is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, "the client has no open Telemetry stream now")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = client, answer
        try:
            await client.send(command.SerializeToString())
            found = await self._clock.wait_for(answer, ANSWER_S)
        except TimeoutError:
            raise RemoteError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"the client did not answer within {ANSWER_S:.0f} s; try again, as one that starts answers later, "
                "and some never answer this command",
            ) from None
        finally:
            del self._waiting[nonce]
        if found.status.code in (Status.NOT_IMPLEMENTED, Status.UNSUPPORTED):
            raise RemoteError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"the client cannot do this: {found.status.message}"
            )
        return found


def _consume_type(client: Client) -> str:
    """Return how a consumer consumes, as Apache's proxy says it: Java's tools of 4.x do not know CONSUME_POP."""
    return "CONSUME_ACTIVELY" if client.kind == ClientType.SIMPLE_CONSUMER else "CONSUME_PASSIVELY"


def _own_id(client: Client) -> str:
    return client.client_id.partition("\n")[0]


def _language(client: Client) -> str:
    """The language as tools know it: Java's tools cannot read the name of another one."""
    name = _LANGUAGES.get(client.language, client.language)
    return name if name in LanguageCode.__members__ else LanguageCode.OTHER.name
