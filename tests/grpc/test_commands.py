"""Commands for the clients of a port."""

import asyncio

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.clients import Clients
from sparrowmq.grpc.telemetry import ANSWER_S, Commands
from sparrowmq.grpc.wire_types import ClientType, message_class
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import ScriptedBrokers
from tests.grpc.test_message_out import stored


class Port:
    """A port with two clients; the first gets commands in `sent`."""

    def __init__(self):
        self.clock = ManualClock()
        self.sent: asyncio.Queue = asyncio.Queue()
        brokers = ScriptedBrokers()
        clients = Clients(self.clock, brokers.client_left)
        self.commands = Commands(clients, self.clock)
        self.first, self.second = (clients.note_seen(name) for name in ("first", "second"))
        settings = message_class("Settings")(client_type=ClientType.PUSH_CONSUMER)
        settings.subscription.group.name = "g"
        settings.user_agent.version = "5.2.0"
        for client in (self.first, self.second):
            clients.configure(client, settings, brokers)
        self.first.language = "JAVA"
        self.first.send = self._send

    async def _send(self, raw):
        self.sent.put_nowait(message_class("TelemetryCommand").FromString(raw))

    def answer(self, client, nonce, text="at main", code=20000):
        result = message_class("TelemetryCommand")()
        result.status.code, result.status.message = code, text
        result.thread_stack_trace.nonce, result.thread_stack_trace.thread_stack_trace = nonce, text
        self.commands.on_result(client, result)


async def test_result_counts_only_from_the_client_that_was_asked():
    port = Port()
    asked = asyncio.create_task(port.commands.running_info("first", wants_stacks=True))
    nonce = (await port.sent.get()).print_thread_stack_trace_command.nonce
    port.answer(port.second, nonce, "forged")
    port.answer(port.first, "another", "late")
    port.commands.on_result(port.first, message_class("TelemetryCommand")())
    port.answer(port.first, nonce)
    port.answer(port.first, nonce, "again")
    found = await asked
    assert found.jstack == "at main"
    assert found.properties == {
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",  # a word that tools of 4.x know
        "PROP_CONSUMER_START_TIMESTAMP": str(port.clock.now_ms()),
        "PROP_CONSUMEORDERLY": "false",
        "PROP_CLIENT_VERSION": "JAVA 5.2.0",
    }
    port.answer(port.first, nonce, "too late")


async def test_nonces_are_not_to_be_guessed():
    port = Port()
    asked = [asyncio.create_task(port.commands.verify("first", stored())) for _ in range(2)]
    nonces = {(await port.sent.get()).verify_message_command.nonce for _ in asked}
    assert len(nonces) == 2 and {len(each) for each in nonces} == {32}
    for each in asked:
        each.cancel()


async def test_client_that_does_not_answer_is_given_up():
    port = Port()
    asked = asyncio.create_task(port.commands.verify("first", stored()))
    await port.sent.get()
    await port.clock.advance(ANSWER_S)
    with pytest.raises(RemoteError, match="did not answer within 8 s"):
        await asked


async def test_command_needs_a_stream_and_a_client():
    port = Port()
    for name in ("second", "third"):
        with pytest.raises(RemoteError, match="stream"):
            await port.commands.running_info(name, wants_stacks=True)
