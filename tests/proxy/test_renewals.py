"""Renewals of messages."""

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from sparrowmq.proxy.grpc_clients import Client
from sparrowmq.proxy.renewals import INVISIBLE_MS, MOST_MS, Renewals
from sparrowmq.testing import ManualClock
from tests.proxy.scripted import ScriptedBrokers


async def _send(raw):
    pass


class Renewed:
    """The messages that are renewed, at a clock that stands still by itself."""

    def __init__(self):
        self.clock = ManualClock()
        self.renewals = Renewals(self.clock)
        self.client = Client("c", send=_send, brokers=ScriptedBrokers())
        self.first = ReceiptHandle(1, self.clock.now_ms(), INVISIBLE_MS, 0, Kind.NORMAL, "broker-a", 0, 1, 5)
        self.renewals.add(self.client, "orders", "g", self.first)
        self.asked = []

    async def renew(self, brokers, topic, group, text, invisible_ms):
        self.asked.append((topic, group, text, invisible_ms))
        handle = ReceiptHandle.parse(text)
        return str(handle._replace(pop_time_ms=self.clock.now_ms(), invisible_ms=invisible_ms))

    async def pass_time(self, seconds):
        for _ in range(0, seconds, 5):
            await self.clock.advance(5)
            await self.renewals.look(self.renew)


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
    latest = renewed.renewals.take("g", str(renewed.first))
    assert ReceiptHandle.parse(latest).pop_time_ms == renewed.clock.now_ms()
    await renewed.pass_time(100)
    assert len(renewed.asked) == 1
    assert renewed.renewals.take("g", str(renewed.first)) == str(renewed.first)


async def test_message_of_a_client_that_is_gone_is_not_renewed():
    renewed = Renewed()
    renewed.client.send = None
    await renewed.pass_time(60)
    assert (renewed.asked, len(renewed.renewals)) == ([], 0)


async def test_message_is_renewed_for_three_hours():
    renewed = Renewed()
    await renewed.pass_time(MOST_MS // 1000 + 120)
    assert len(renewed.renewals) == 0


async def test_message_whose_broker_refuses_is_renewed_no_more():
    renewed = Renewed()

    async def refuse(brokers, topic, group, text, invisible_ms):
        raise RemoteError(1, "expired")

    await renewed.clock.advance(50)
    await renewed.renewals.look(refuse)
    assert len(renewed.renewals) == 0
