"""The Telemetry stream."""

import asyncio

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.clients import Clients
from sparrowmq.grpc.send_methods import TransactionId
from sparrowmq.grpc.telemetry import Commands, Telemetry
from sparrowmq.grpc.wire_types import ClientType, message_class
from sparrowmq.loop import slices
from sparrowmq.protocol.requests.headers import CheckTransactionState
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import ScriptedBrokers, caller
from tests.grpc.test_message_out import stored


class Streams:
    """The streams of a port, and one client's."""

    def __init__(self):
        self.brokers = ScriptedBrokers(retry_max_times=4)
        self.clients = Clients(ManualClock(), self.brokers.client_left)
        self.telemetry = Telemetry(
            self.brokers, self.clients, Commands(self.clients, ManualClock()), asyncio.ensure_future
        )
        self.sent: asyncio.Queue = asyncio.Queue()
        self.received: asyncio.Queue = asyncio.Queue()

    async def commands(self):
        while (command := await self.sent.get()) is not None:
            yield command

    async def send(self, raw):
        await self.received.put(message_class("TelemetryCommand").FromString(raw))

    def open(self, *commands):
        for command in commands:
            self.sent.put_nowait(command)
        return asyncio.create_task(self.telemetry.stream(caller(self.brokers, "c"), self.commands(), self.send))


def large(topics=0, subscriptions=0, version=""):
    command = settings(topic="t" * bool(topics), group="g" * bool(subscriptions))
    command.settings.user_agent.version = version
    for number in range(1, topics):
        command.settings.publishing.topics.add(name=f"t{number}")
    for number in range(subscriptions):
        command.settings.subscription.subscriptions.add().topic.name = f"t{number}"
    return command


def settings(kind=ClientType.PRODUCER, topic="", group=""):
    command = message_class("TelemetryCommand")()
    command.settings.client_type = kind
    if topic:
        command.settings.publishing.topics.add(name=topic)
    if group:
        command.settings.subscription.group.name = group
    return command


async def test_settings_come_back_with_those_of_the_group():
    streams = Streams()
    stream = streams.open(message_class("TelemetryCommand")(), settings(ClientType.PUSH_CONSUMER, group="g"))
    got = await streams.received.get()
    assert got.status.code == 20000
    assert got.settings.backoff_policy.max_attempts == 5
    assert streams.clients.with_settings("c").group == "g"
    streams.sent.put_nowait(None)
    await stream
    assert streams.clients.with_settings("c").send is None


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (settings(0), 40015),
        (settings(ClientType.PUSH_CONSUMER, group="a b"), 40003),
        (settings(1, "a b"), 40002),
        (large(topics=501), 42900),
        (large(subscriptions=501), 42900),
        (large(version="v" * 65_536), 41300),
    ],
)
async def test_wrong_settings_end_the_stream(command, code):
    with pytest.raises(RemoteError) as caught:
        await Streams().open(command)
    assert caught.value.code == code


async def test_settings_of_many_topics_are_taken(monkeypatch):
    """They are checked in slices, as a thousand clients may send theirs at once."""
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    streams = Streams()
    stream = streams.open(large(topics=500), large(subscriptions=500))
    turns = 0
    while streams.received.qsize() < 2 and turns < 100_000:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 500
    for _ in range(2):
        assert streams.received.get_nowait().status.code == 20000
    streams.sent.put_nowait(None)
    await stream


async def test_question_for_a_transaction_reaches_its_producer():
    streams = Streams()
    stream = streams.open(settings(topic="orders"))
    await streams.received.get()
    half = stored(UNIQ_KEY="01AB", TRAN_MSG="true")
    streams.brokers.on_check("broker-a", CheckTransactionState(3, 1337, transaction_id="01AB"), half, ["c"])
    command = (await streams.received.get()).recover_orphaned_transaction_command
    assert TransactionId.parse(command.transaction_id) == TransactionId("broker-a", 3, 1337, "01AB")
    assert (command.message.body, command.message.topic.name) == (b"hello", "orders")
    streams.sent.put_nowait(None)
    await stream


async def test_question_reaches_a_producer_that_opens_its_stream_again_without_settings():
    """Python's client, after an election; it sends its settings again only five minutes later."""
    streams = Streams()
    streams.clients.note_half_topic("c", "orders", streams.brokers)
    stream = streams.open()
    await asyncio.sleep(0)
    streams.brokers.on_check("broker-a", CheckTransactionState(3, 1337), stored(), ["c"])
    assert (await streams.received.get()).HasField("recover_orphaned_transaction_command")
    streams.sent.put_nowait(None)
    await stream


async def test_question_without_a_producer_is_dropped():
    streams = Streams()
    streams.brokers.on_check("broker-a", CheckTransactionState(3, 1337), stored(), ["other"])
    assert streams.received.empty()
