"""Renewals of messages."""

import asyncio

import pytest

from sparrowmq.errors import AccessDenied, BrokerUnreachable, RemoteError
from sparrowmq.grpc import renewals
from sparrowmq.grpc.clients import Client
from sparrowmq.grpc.renewals import INVISIBLE_MS, MAX_RENEWED_MS, Renewals
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import ScriptedBrokers


async def _send(raw):
    pass


class Renewed:
    """The messages that are renewed, at a clock that stands still by itself."""

    def __init__(self):
        self.clock = ManualClock()
        self.renewals = Renewals(self.clock)
        self.client = Client("c", send=_send, brokers=ScriptedBrokers())
        self.first = ReceiptHandle(1, self.clock.now_ms(), INVISIBLE_MS, 0, Kind.NORMAL, "broker-a", 0, 1, 5)
        self.renewals.add(self.client, "orders", "g", str(self.first), self.first.visible_ms)
        self.asked = []

    async def renew(self, brokers, topic, group, text, invisible_ms):
        self.asked.append((topic, group, text, invisible_ms))
        handle = ReceiptHandle.parse(text)
        return str(handle._replace(pop_time_ms=self.clock.now_ms(), invisible_ms=invisible_ms))

    async def pass_time(self, seconds):
        for _ in range(0, seconds, 5):
            await self.clock.advance(5)
            await self.renewals.renew_due(self.renew)


async def test_message_is_renewed_before_it_becomes_visible():
    renewed = Renewed()
    await renewed.pass_time(40)
    assert renewed.asked == []
    await renewed.pass_time(5)
    assert renewed.asked == [("orders", "g", str(renewed.first), INVISIBLE_MS)]
    await renewed.pass_time(60)
    assert len(renewed.asked) == 2
    assert renewed.asked[1][2] != str(renewed.first)


async def test_client_acknowledges_with_the_first_handle():
    renewed = Renewed()
    await renewed.pass_time(45)
    async with renewed.renewals.latest_handle("", "g", str(renewed.first)) as latest:
        assert ReceiptHandle.parse(latest).pop_time_ms == renewed.clock.now_ms()
    await renewed.pass_time(100)
    assert len(renewed.asked) == 1
    async with renewed.renewals.latest_handle("", "g", str(renewed.first)) as latest:
        assert latest == str(renewed.first)


async def test_request_of_the_client_waits_for_a_renewal_and_has_its_handle():
    renewed = Renewed()
    await renewed.clock.advance(50)
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(*asked):
        began.set()
        await goes_on.wait()
        return await renewed.renew(*asked)

    async def settle():
        async with renewed.renewals.latest_handle("", "g", str(renewed.first)) as latest:
            return latest

    looking = asyncio.ensure_future(renewed.renewals.renew_due(slow))
    await began.wait()
    settling = asyncio.ensure_future(settle())
    await asyncio.sleep(0)
    goes_on.set()
    assert ReceiptHandle.parse(await settling).pop_time_ms == renewed.clock.now_ms()
    await looking
    assert len(renewed.renewals) == 0


async def test_renewal_waits_for_a_request_of_the_client_and_is_then_needless():
    renewed = Renewed()
    await renewed.clock.advance(50)
    async with renewed.renewals.latest_handle("", "g", str(renewed.first)):
        looking = asyncio.ensure_future(renewed.renewals.renew_due(renewed.renew))
        await asyncio.sleep(0)
    await looking
    assert renewed.asked == []


async def test_latest_handle_is_kept_for_another_request_after_one_that_failed():
    renewed = Renewed()
    await renewed.pass_time(45)
    with pytest.raises(BrokerUnreachable):
        async with renewed.renewals.latest_handle("", "g", str(renewed.first)):
            raise BrokerUnreachable("broker-a", "it restarts")
    await renewed.pass_time(45)
    assert len(renewed.asked) == 1, "the client has settled it, so it is not renewed"
    async with renewed.renewals.latest_handle("", "g", str(renewed.first)) as latest:
        assert latest != str(renewed.first)
    assert len(renewed.renewals) == 0


async def test_request_that_is_denied_ends_no_renewal():
    renewed = Renewed()
    for _ in range(2):
        with pytest.raises(AccessDenied):
            async with renewed.renewals.latest_handle("", "g", str(renewed.first)):
                raise AccessDenied("another account")
    await renewed.pass_time(45)
    assert len(renewed.asked) == 1


async def test_request_that_failed_keeps_the_handle_although_the_client_has_gone():
    renewed = Renewed()
    await renewed.pass_time(45)
    renewed.client.send = None
    with pytest.raises(BrokerUnreachable):
        async with renewed.renewals.latest_handle("", "g", str(renewed.first)) as latest:
            renewed.renewals._in_flight.clear()
            raise BrokerUnreachable("broker-a", "away")
    async with renewed.renewals.latest_handle("", "g", str(renewed.first)) as again:
        assert again == latest != str(renewed.first)


async def test_latest_handle_is_forgotten_when_it_has_expired():
    renewed = Renewed()
    with pytest.raises(BrokerUnreachable):
        async with renewed.renewals.latest_handle("", "g", str(renewed.first)):
            raise BrokerUnreachable("broker-a", "it restarts")
    await renewed.pass_time(65)
    assert len(renewed.renewals) == 0


async def test_renewals_go_on_when_the_broker_answers_again_and_other_brokers_do_not_wait():
    renewed = Renewed()
    other = renewed.first._replace(broker_name="broker-b")
    for handle in (renewed.first._replace(queue_offset=2), other):
        renewed.renewals.add(renewed.client, "orders", "g", str(handle), handle.visible_ms)
    tried = []

    async def away(brokers, topic, group, text, invisible_ms):
        tried.append(text)
        if "broker-a" in text:
            raise BrokerUnreachable("broker-a", "it restarts")
        return await renewed.renew(brokers, topic, group, text, invisible_ms)

    await renewed.clock.advance(45)
    await renewed.renewals.renew_due(away)
    assert tried == [str(renewed.first), str(other)], "one try of a broker that is away"
    await renewed.pass_time(5)
    assert len(renewed.asked) == 3 and len(renewed.renewals) == 3


async def test_message_of_a_client_that_is_gone_is_not_renewed():
    renewed = Renewed()
    renewed.client.send = None
    await renewed.pass_time(60)
    assert (renewed.asked, len(renewed.renewals)) == ([], 0)


async def test_message_is_renewed_while_its_client_has_no_stream_but_sends_heartbeats():
    """Python's client, after an election: it opens its stream again only after five minutes."""
    renewed = Renewed()
    renewed.client.send = None
    for _ in range(6):
        renewed.client.last_seen_s = renewed.clock.monotonic()
        await renewed.pass_time(10)
    assert len(renewed.asked) == 1
    renewed.client.brokers = None  # it leaves
    await renewed.pass_time(60)
    assert (len(renewed.asked), len(renewed.renewals)) == (1, 0)


async def test_message_is_renewed_for_three_hours():
    renewed = Renewed()
    await renewed.pass_time(MAX_RENEWED_MS // 1000 + 120)
    assert len(renewed.renewals) == 0


async def test_message_whose_broker_refuses_is_renewed_no_more():
    renewed = Renewed()

    async def refuse(brokers, topic, group, text, invisible_ms):
        raise RemoteError(1, "expired")

    await renewed.clock.advance(50)
    await renewed.renewals.renew_due(refuse)
    assert len(renewed.renewals) == 0


async def test_another_account_that_knows_the_handle_cannot_end_the_renewals():
    renewed = Renewed()
    with pytest.raises(TimeoutError):
        async with renewed.renewals.latest_handle("thief", "g", str(renewed.first)):
            raise TimeoutError  # as the end of a call that was cancelled
    assert not renewed.renewals.contains("thief", "g", str(renewed.first))
    await renewed.pass_time(45)
    assert len(renewed.asked) == 1


async def test_an_owner_has_room_for_a_number_of_messages(monkeypatch):
    monkeypatch.setattr(renewals, "MAX_MESSAGES_OF_OWNER", 4)
    monkeypatch.setattr(renewals, "MAX_RENEWALS", 6)
    monkeypatch.setattr(renewals, "GUARANTEED_MESSAGES_OF_OWNER", 2)
    renewed = Renewed()
    greedy, other, few = (Client(name, owner=name) for name in ("greedy", "other", "few"))
    for number in range(4):
        renewed.renewals.check_room(greedy)
        renewed.renewals.add(greedy, "orders", "g", f"h{number}", 0)
    with pytest.raises(RemoteError, match="work on 4 messages here"):
        renewed.renewals.check_room(greedy)
    renewed.renewals.add(other, "orders", "g", "h9", 0)
    renewed.renewals.check_room(other)
    renewed.renewals.add(other, "orders", "g", "h8", 0)
    with pytest.raises(RemoteError, match="work on 2 messages here"):
        renewed.renewals.check_room(other)
    renewed.renewals.check_room(few)
    async with renewed.renewals.latest_handle("", "g", "h0"):
        pass
    renewed.renewals.check_room(few)
