"""Commands of a port to one of its clients, on the client's Telemetry stream, and the results that come back there.

    print_thread_stack_trace_command   ──> thread_stack_trace
    verify_message_command             ──> verify_message_result     the listener of a push consumer handles a message

Each command has a nonce, which its result repeats. A result counts only on a stream of the client that was asked.
Source: GrpcClientChannel, Java 5.4.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.grpc_clients import Client, Clients
from sparrowmq.grpc.message_out import message_of
from sparrowmq.grpc.statuses import Status, status
from sparrowmq.grpc.wire_types import ClientType, message
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import LanguageCode, ResponseCode
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.client_bodies import (
    Connection,
    ConsumeOutcome,
    ConsumerConnections,
    ConsumerRunning,
)
from sparrowmq.protocol.wire.command import PROTOCOL_VERSION

ANSWER_S: Final = 8.0  # less than a broker waits for a client
_RESULTS: Final = ("thread_stack_trace", "verify_message_result")
_LANGUAGES: Final = {"GOLANG": "GO", "DOT_NET": "DOTNET"}  # those that the remoting protocol spells otherwise


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

    def answered(self, client: Client, command: Any) -> None:
        """Take what a client sent: a result of a command is given to the one that waits for it."""
        kind = command.WhichOneof("command")
        if kind not in _RESULTS:
            return
        asked, waiting = self._waiting.get(getattr(command, kind).nonce, (None, None))
        if asked is client and waiting is not None and not waiting.done():
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
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"the client cannot do this: {found.status.message}",
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
