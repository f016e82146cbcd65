"""The Telemetry stream: a client sends its settings, gets commands, and sends their results back.

    client ── settings ──────────────────────> port      at the start, and every few minutes
           <───── settings, as the cluster has them
           <───── recover_orphaned_transaction_command   a broker asks for the end of a transaction
           <───── print_thread_stack_trace_command       the result: thread_stack_trace
           <───── verify_message_command                 the listener of a push consumer handles a message; the
                                                         result: verify_message_result

A command has a nonce, which its result repeats. A result counts only on a stream of the client that was asked.
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
from sparrowmq.grpc.client_settings import complete_settings
from sparrowmq.grpc.clients import MAX_TOPICS, Client, Clients, Send
from sparrowmq.grpc.message_out import message_of
from sparrowmq.grpc.send_methods import TransactionId
from sparrowmq.grpc.statuses import Status, refusal, status
from sparrowmq.grpc.wire_types import ClientType, message_class
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerRunning
from sparrowmq.protocol.requests.headers import CheckTransactionState

log = logging.getLogger(__name__)

MAX_SETTINGS_BYTES: Final = 64 << 10
ANSWER_S: Final = 8.0  # less than a broker waits for a client
_RESULT_FIELDS: Final = ("thread_stack_trace", "verify_message_result")
_CLIENT_TYPES: Final = frozenset(ClientType)
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Telemetry:
    def __init__(self, cluster: Cluster, clients: Clients, commands: Commands, spawn: Spawn) -> None:
        self._clients = clients
        self._commands = commands
        self._spawn = spawn
        cluster.on_check = self.check
        cluster.commands = commands

    async def stream(self, caller: Caller, commands: AsyncIterator[Any], send: Send) -> None:
        """Serve one stream until its client ends it. Raises: SparrowError, the settings are refused."""
        client = self._clients.note_seen(caller.client_id, caller.address)
        client.language, client.address = caller.language, caller.address
        self._clients.stream_began(client, send)
        try:
            async for command in commands:
                self._clients.note_seen(caller.client_id, caller.address)
                if command.HasField("settings"):
                    await self._on_settings(caller, client, command.settings, send)
                else:
                    self._commands.on_result(client, command)
        finally:
            self._clients.stream_ended(client, send)

    async def _on_settings(self, caller: Caller, client: Client, settings: Any, send: Send) -> None:
        if settings.client_type not in _CLIENT_TYPES:
            raise refusal(Status.UNRECOGNIZED_CLIENT_TYPE, f"the client type {settings.client_type} is unknown here")
        check_size(settings)
        group_config = None
        if settings.HasField("subscription"):
            group_name = consumer_group_of(settings.subscription.group)
            topics = await run_to_end(_check_topics([entry.topic for entry in settings.subscription.subscriptions]))
            await caller.brokers.check_consumer_access(group_name, topics)
            group_config = await caller.brokers.group(group_name)
        await run_to_end(_check_topics(settings.publishing.topics))
        reply = complete_settings(settings, group_config)
        self._clients.configure(client, reply, caller.brokers)
        await send(message_class("TelemetryCommand")(status=status(), settings=reply).SerializeToString())

    def check(
        self, broker_name: str, request: CheckTransactionState, half: StoredMessage, client_ids: Collection[str]
    ) -> None:
        """Pass a broker's question for the end of a transaction to one of the clients, a producer of the topic."""
        producers = self._clients.producers_of(half.topic, client_ids)
        if not producers:
            log.debug("%s asks for the end of the transaction of %s, and no producer is there", broker_name, half)
            return
        client = random.choice(producers)
        command = message_class("TelemetryCommand")(status=status())
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


def _check_topics(resources: Iterable[Any]) -> Steps[dict[str, None]]:
    """The full names of topics, in steps: thousands of clients may send settings at once. Raises: RemoteError."""
    names: dict[str, None] = {}
    for resource in resources:
        names[topic_of(resource)] = None
        yield
    return names


def check_size(settings: Any) -> None:
    """Raises: RemoteError, the settings take more memory than the port gives to one client."""
    size_bytes = settings.ByteSize()
    if size_bytes > MAX_SETTINGS_BYTES:
        raise refusal(
            Status.PAYLOAD_TOO_LARGE,
            f"the settings have {size_bytes:,} bytes, and {MAX_SETTINGS_BYTES:,} are allowed; use several clients",
        )
    topic_count = max(len(settings.publishing.topics), len(settings.subscription.subscriptions))
    if topic_count > MAX_TOPICS:
        raise refusal(
            Status.TOO_MANY_REQUESTS,
            f"the settings name {topic_count:,} topics, and {MAX_TOPICS} are allowed; use several clients",
        )


class Commands:
    """Asks the clients of one port."""

    def __init__(self, clients: Clients, clock: Clock) -> None:
        self._clients = clients
        self._clock = clock
        self._waiting_commands: dict[str, tuple[Client, asyncio.Future[Any]]] = {}

    async def running_info(self, client_id: str, *, wants_stacks: bool) -> ConsumerRunning:
        """The state of a consumer, with the stacks of its threads if an operator wants them. Raises: RemoteError."""
        client = self._clients.with_settings(client_id)
        info = ConsumerRunning(
            properties={
                "PROP_CONSUME_TYPE": _consume_type(client),
                "PROP_CONSUMER_START_TIMESTAMP": str(client.began_ms),  # Java's tools end with an error without it
                "PROP_CONSUMEORDERLY": str(client.is_fifo).lower(),
                "PROP_CLIENT_VERSION": f"{client.language} {client.version}".strip(),
            },
            subscription_set=list(client.subscriptions),
        )
        if wants_stacks:
            command = message_class("TelemetryCommand")(status=status())
            command.print_thread_stack_trace_command.nonce = nonce = secrets.token_hex(16)
            info.jstack = (await self._ask(client, nonce, command)).thread_stack_trace.thread_stack_trace
        return info

    async def verify(self, client_id: str, stored_message: StoredMessage) -> ConsumeOutcome:
        """Have a push consumer handle one message now. Raises: RemoteError, it cannot, or does not answer."""
        client = self._clients.with_settings(client_id)
        command = message_class("TelemetryCommand")(status=status())
        command.verify_message_command.nonce = nonce = secrets.token_hex(16)
        command.verify_message_command.message.MergeFromString(message_of(stored_message, stored_message.topic))
        begin_s = self._clock.monotonic()
        result = (await self._ask(client, nonce, command)).status
        is_done = result.code == Status.OK
        return ConsumeOutcome(
            "CR_SUCCESS" if is_done else "CR_LATER",
            None if is_done else f"{result.code} {result.message}".strip(),
            order=client.is_fifo,
            spent_time_mills=round((self._clock.monotonic() - begin_s) * 1000),
        )

    def on_result(self, client: Client, command: Any) -> None:
        """Take what a client sent: a result of a command is given to the one that waits for it."""
        field = command.WhichOneof("command")
        if field not in _RESULT_FIELDS:
            return
        client_asked, future = self._waiting_commands.get(getattr(command, field).nonce, (None, None))
        if client_asked is client and future is not None and not future.done():
            future.set_result(command)

    async def _ask(self, client: Client, nonce: str, command: Any) -> Any:
        """Send a command, and return what the client answers. Raises: SparrowError."""
        if client.send is None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, "the client has no open Telemetry stream now")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting_commands[nonce] = client, future
        try:
            await client.send(command.SerializeToString())
            result = await self._clock.wait_for(future, ANSWER_S)
        except TimeoutError:
            raise RemoteError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"the client did not answer within {ANSWER_S:.0f} s; try again, as one that starts answers later, "
                "and some never answer this command",
            ) from None
        finally:
            del self._waiting_commands[nonce]
        if result.status.code in (Status.NOT_IMPLEMENTED, Status.UNSUPPORTED):
            raise RemoteError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"the client cannot do this: {result.status.message}"
            )
        return result


def _consume_type(client: Client) -> str:
    """Return how a consumer consumes, as Apache's proxy says it: Java's tools of 4.x do not know CONSUME_POP."""
    return "CONSUME_ACTIVELY" if client.client_type == ClientType.SIMPLE_CONSUMER else "CONSUME_PASSIVELY"
