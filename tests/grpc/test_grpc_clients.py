"""The clients of a port."""

import asyncio

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc import clients as grpc_clients
from sparrowmq.grpc.clients import MAX_SILENCE_S, MAX_TOPICS, SETTINGS_WAIT_S, Client, Clients
from sparrowmq.grpc.wire_types import ClientType, message_class
from sparrowmq.loop.slices import at_once
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import ScriptedBrokers, ignored


def settings(kind=ClientType.PRODUCER, *topics, group=""):
    made = message_class("Settings")(client_type=kind)
    for topic in topics:
        made.publishing.topics.add(name=topic)
    if group:
        made.subscription.group.name = group
    return made


async def test_client_without_settings_is_not_known():
    clients = Clients(ManualClock(), print)
    clients.note_seen("c")
    with pytest.raises(RemoteError) as caught:
        clients.with_settings("c")
    assert caught.value.code == 40015
    clients.configure(clients.note_seen("c"), settings(ClientType.SIMPLE_CONSUMER, group="g"), ScriptedBrokers())
    assert clients.with_settings("c").group == "g"


async def test_call_waits_for_settings_that_are_on_their_way():
    clients = Clients(ManualClock(), print)
    waiting = asyncio.create_task(clients.wait_for_settings("c"))
    await asyncio.sleep(0)
    clients.configure(clients.note_seen("c"), settings(), ScriptedBrokers())
    assert (await waiting).settings_arrived.is_set()


async def test_call_waits_three_seconds_for_settings():
    clock = ManualClock()
    waiting = asyncio.create_task(Clients(clock, print).wait_for_settings("c"))
    await clock.advance(SETTINGS_WAIT_S - 0.1)
    assert not waiting.done()
    await clock.advance(0.1)
    assert not (await waiting).settings_arrived.is_set()


async def test_groups_of_a_client_are_announced():
    left: list[str] = []
    brokers = ScriptedBrokers()
    clients = Clients(ManualClock(), left.append)
    clients.stream_began(clients.note_seen("a"), ignored)
    clients.configure(clients.note_seen("a"), settings(ClientType.PRODUCER, "orders"), brokers)
    clients.note_half_topic("a", "bills", brokers)
    clients.note_half_topic("a", "bills", brokers)
    clients.configure(clients.note_seen("b"), settings(ClientType.SIMPLE_CONSUMER, group="g"), brokers)
    assert [sorted(producers) for producers, _ in brokers.announced] == [["orders"], ["bills", "orders"], []]
    assert brokers.announced[1][0] == ["bills", "orders"]
    assert brokers.announced[2][1].group_name == "g"
    clients.remove("b")
    clients.remove("b")
    assert left == ["b"]


async def test_client_without_a_stream_is_announced_as_no_producer():
    """Its broker would count questions that cannot reach it, and discard transactions after 15 of them."""
    brokers = ScriptedBrokers()
    clients = Clients(ManualClock(), print)
    clients.note_half_topic("a", "bills", brokers)
    clients.stream_began(
        clients.note_seen("a"), ignored
    )  # Python's client sends no settings on a stream that it opens again
    clients.stream_ended(clients.note_seen("a"), ignored)
    assert [producers for producers, _ in brokers.announced] == [[], ["bills"], []]
    assert clients.producers_of("bills", ["a"]) == []
    clients.stream_began(client := clients.note_seen("a"), ignored)
    clients.remove("a")
    clients.stream_ended(client, ignored)
    assert [producers for producers, _ in brokers.announced[3:]] == [["bills"]]


async def test_new_settings_replace_the_former_ones_and_half_messages_count():
    brokers = ScriptedBrokers()
    clients = Clients(ManualClock(), print)
    clients.stream_began(clients.note_seen("a"), ignored)
    clients.note_half_topic("a", "bills", brokers)
    for topic in ("orders", "letters"):
        clients.configure(clients.note_seen("a"), settings(ClientType.PRODUCER, topic), brokers)
    assert brokers.announced[-1][0] == ["bills", "letters"]


async def test_a_client_announces_no_more_groups_than_a_broker_takes():
    brokers = ScriptedBrokers()
    clients = Clients(ManualClock(), print)
    names = [f"t{number}" for number in range(MAX_TOPICS)]
    clients.stream_began(clients.note_seen("a"), ignored)
    clients.configure(clients.note_seen("a"), settings(ClientType.PRODUCER, *names), brokers)
    for number in range(MAX_TOPICS + 1):
        clients.note_half_topic("a", f"half-{number}", brokers)
    announced, _ = brokers.announced[-1]
    assert announced == [f"half-{number}" for number in range(1, MAX_TOPICS + 1)]
    clients.configure(clients.note_seen("a"), settings(ClientType.PUSH_CONSUMER, group="g"), brokers)
    assert len(brokers.announced[-1][0]) == MAX_TOPICS - 1


def test_of_settings_only_what_is_used_is_kept():
    clients = Clients(ManualClock(), print)
    sent = settings(ClientType.PUSH_CONSUMER, group="g")
    sent.user_agent.version = sent.user_agent.hostname = "v" * 60_000
    clients.configure(clients.note_seen("a"), sent, ScriptedBrokers())
    kept = clients.with_settings("a")
    assert sum(len(str(getattr(kept, name))) for name in Client.__slots__) < 2000


async def test_silent_client_without_a_stream_is_forgotten():
    async def send(raw):
        pass

    async def other(raw):
        pass

    clock = ManualClock()
    clients = Clients(clock, print)
    clients.note_seen("silent")
    streaming = clients.note_seen("streaming")
    streaming.send = send
    await clock.advance(MAX_SILENCE_S + 1)
    at_once(clients.expire())
    assert len(clients) == 1
    clients.stream_ended(streaming, other)
    assert streaming.send is send
    clients.stream_ended(streaming, send)
    at_once(clients.expire())
    assert len(clients) == 0


async def test_an_address_that_invents_ids_is_refused(monkeypatch):
    monkeypatch.setattr(grpc_clients, "MAX_CLIENTS", 2)
    clients = Clients(ManualClock(), print)
    for client_id in ("a", "b", "a"):
        clients.note_seen(client_id, "10.0.0.1:5")
    brokers = ScriptedBrokers()
    for call in (clients.note_seen, lambda *new: clients.note_half_topic(new[0], "orders", brokers, new[1])):
        with pytest.raises(RemoteError, match=r"10\.0\.0\.1 has 2 clients here") as refused:
            call("c", "10.0.0.1:6")
        assert refused.value.code == 42900
    with pytest.raises(RemoteError, match="has 2 clients here"):
        await clients.wait_for_settings("c", "10.0.0.1:6")
    clients.note_seen("c", "10.0.0.2:5")
    clients.note_seen("c\nalice", "10.0.0.1:5")
    clients.remove("a")
    clients.remove("a")
    clients.note_seen("d", "10.0.0.1:5")
    assert len(clients) == 4


async def test_thousands_of_silent_clients_are_forgotten_step_by_step():
    clock = ManualClock()
    left: list[str] = []
    clients = Clients(clock, left.append)
    for number in range(3):
        clients.note_seen(f"c{number}", "10.0.0.1:5")
    await clock.advance(MAX_SILENCE_S + 1)
    steps = clients.expire()
    next(steps)
    assert left == ["c0"]
    clients.note_seen("c1", "10.0.0.1:5")  # it comes back meanwhile
    clients.remove("c2")
    at_once(steps)
    assert left == ["c0", "c2"] and len(clients) == 1
