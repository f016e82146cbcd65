"""The clients of a port."""

import asyncio

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.proxy.grpc_clients import SILENCE_S, Clients
from sparrowmq.proxy.wire_types import ClientType, message
from sparrowmq.testing import ManualClock
from tests.proxy.scripted import ScriptedBrokers


def settings(kind=ClientType.PRODUCER, *topics, group=""):
    made = message("Settings")(client_type=kind)
    for topic in topics:
        made.publishing.topics.add(name=topic)
    if group:
        made.subscription.group.name = group
    return made


async def test_client_without_settings_is_not_known():
    clients = Clients(ManualClock(), print)
    clients.seen("c")
    with pytest.raises(RemoteError) as caught:
        clients.known("c")
    assert caught.value.code == 40015
    clients.configure(clients.seen("c"), settings(ClientType.SIMPLE_CONSUMER, group="g"), ScriptedBrokers())
    assert clients.known("c").group == "g"


async def test_call_waits_for_settings_that_are_on_their_way():
    clients = Clients(ManualClock(), print)
    waiting = asyncio.create_task(clients.with_settings("c"))
    await asyncio.sleep(0)
    clients.configure(clients.seen("c"), settings(), ScriptedBrokers())
    assert (await waiting).client_id == "c"


async def test_call_without_settings_is_refused_after_three_seconds():
    clock = ManualClock()
    waiting = asyncio.create_task(Clients(clock, print).with_settings("c"))
    await clock.advance(4)
    with pytest.raises(RemoteError) as caught:
        await waiting
    assert caught.value.code == 40015


async def test_groups_of_a_client_are_announced():
    left: list[str] = []
    brokers = ScriptedBrokers()
    clients = Clients(ManualClock(), left.append)
    clients.configure(clients.seen("a"), settings(ClientType.PRODUCER, "orders"), brokers)
    clients.produces("a", "bills", brokers)
    clients.produces("a", "bills", brokers)
    clients.configure(clients.seen("b"), settings(ClientType.SIMPLE_CONSUMER, group="g"), brokers)
    assert [sorted(producers) for producers, _ in brokers.announced] == [["orders"], ["bills", "orders"], []]
    assert brokers.announced[2][1].group_name == "g"
    clients.leave("b")
    clients.leave("b")
    assert left == ["b"]


async def test_silent_client_without_a_stream_is_forgotten():
    async def send(raw):
        pass

    async def other(raw):
        pass

    clock = ManualClock()
    clients = Clients(clock, print)
    clients.seen("silent")
    streaming = clients.seen("streaming")
    streaming.send = send
    await clock.advance(SILENCE_S + 1)
    clients.expire()
    assert len(clients) == 1
    clients.stream_ended(streaming, other)
    assert streaming.send is send
    clients.stream_ended(streaming, send)
    clients.expire()
    assert len(clients) == 0
