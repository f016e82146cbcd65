"""The clients of a port."""

import asyncio

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.proxy.grpc_clients import SILENCE_S, Clients
from sparrowmq.proxy.wire_types import ClientType, message
from sparrowmq.testing import ManualClock


def settings(kind=ClientType.PRODUCER, *topics, group=""):
    made = message("Settings")(client_type=kind)
    for topic in topics:
        made.publishing.topics.add(name=topic)
    if group:
        made.subscription.group.name = group
    return made


class Announced:
    """Keeps what is announced."""

    def __init__(self):
        self.groups = []

    def __call__(self, groups):
        self.groups.append(sorted(groups.producers))


async def test_client_without_settings_is_not_known():
    clients = Clients(ManualClock(), Announced())
    clients.seen("c")
    with pytest.raises(RemoteError) as caught:
        clients.known("c")
    assert caught.value.code == 40015
    clients.configure(clients.seen("c"), settings(ClientType.SIMPLE_CONSUMER, group="g"))
    assert clients.known("c").group == "g"


async def test_call_waits_for_settings_that_are_on_their_way():
    clients = Clients(ManualClock(), Announced())
    waiting = asyncio.create_task(clients.with_settings("c"))
    await asyncio.sleep(0)
    clients.configure(clients.seen("c"), settings())
    assert (await waiting).client_id == "c"


async def test_call_without_settings_is_refused_after_three_seconds():
    clock = ManualClock()
    waiting = asyncio.create_task(Clients(clock, Announced()).with_settings("c"))
    await clock.advance(4)
    with pytest.raises(RemoteError) as caught:
        await waiting
    assert caught.value.code == 40015


async def test_topics_of_all_producers_are_announced_once():
    announced = Announced()
    clients = Clients(ManualClock(), announced)
    clients.configure(clients.seen("a"), settings(ClientType.PRODUCER, "orders"))
    clients.configure(clients.seen("b"), settings(ClientType.PRODUCER, "orders"))
    clients.produces("b", "bills")
    clients.produces("b", "bills")
    clients.leave("b")
    clients.leave("b")
    assert announced.groups == [["orders"], ["bills", "orders"], ["orders"]]


async def test_silent_client_without_a_stream_is_forgotten():
    async def send(raw):
        pass

    async def other(raw):
        pass

    clock = ManualClock()
    clients = Clients(clock, Announced())
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
