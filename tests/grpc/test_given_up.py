"""Pops whose clients go away while a broker holds them."""

import asyncio

import pytest

from sparrowmq import connect
from sparrowmq.errors import RemoteError
from sparrowmq.grpc import receive_methods
from sparrowmq.grpc.ack_methods import AckMethods
from sparrowmq.grpc.receive_methods import GIVE_BACK_MS, AbandonedPops, Receive
from sparrowmq.grpc.renewals import Renewals
from sparrowmq.grpc.wire_types import ClientType
from sparrowmq.loop.clock import SystemClock
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.protocol.requests.pop_headers import (
    ChangeInvisibleTime,
    ChangeInvisibleTimeReply,
    Polling,
    PopMessage,
)
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.testing import Cluster, ManualClock
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.grpc.popped_records import a_record, reply
from tests.grpc.scripted import ScriptedBrokers, failing, outgoing
from tests.mqproxy.until import until

POP = PopMessage("g", "orders", -1, 32, 15_000, 20_000, 0, 0)
ASKED = Receive(POP, "broker-a", Subscription.build("orders", "*"))


class Held:
    """A pop that a broker holds until `answer` is called."""

    def __init__(self):
        clock = ManualClock()
        self.brokers = ScriptedBrokers()
        self.brokers.lets_go = self.lets_go = asyncio.Event()
        header = reply(clock.now_ms(), start_offset_info="0 2 5", msg_offset_info="0 2 5,6")
        bodies = a_record(5) + a_record(6)
        self.brokers.answers[PopMessage] = lambda ask: Response(0, header, None, bodies, 0)
        changed = ChangeInvisibleTimeReply(clock.now_ms(), GIVE_BACK_MS, 3)
        self.brokers.answers[ChangeInvisibleTime] = lambda ask: changed
        self.pops = AbandonedPops(AckMethods(Renewals(clock), clock))

    async def given_up(self):
        """The broker answers a pop after its client has gone."""
        pop = asyncio.create_task(self.pops.pop(self.brokers, ASKED))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pop
        self.lets_go.set()
        for _ in range(20):
            await asyncio.sleep(0)

    def given_back(self):
        asked = [ask for _, ask, _ in self.brokers.asked if isinstance(ask, ChangeInvisibleTime)]
        return [(ask.offset, ask.invisible_time) for ask in asked]


async def test_each_message_of_a_pop_that_was_given_up_is_given_back():
    held = Held()
    await held.given_up()
    assert held.given_back() == [(5, GIVE_BACK_MS), (6, GIVE_BACK_MS)]


async def test_a_pop_that_was_given_up_and_found_nothing_gives_nothing_back(caplog):
    held = Held()
    held.brokers.answers[PopMessage] = failing(210)
    await held.given_up()
    assert (held.given_back(), caplog.text) == ([], "")


async def test_a_broker_that_refuses_to_take_a_message_back_is_no_error(caplog):
    held = Held()
    held.brokers.answers[ChangeInvisibleTime] = failing(1)
    with caplog.at_level("INFO"):
        await held.given_up()
    assert "come back after their invisible time" in caplog.text


async def test_the_waiter_of_a_pop_gets_its_answer_or_its_error():
    held = Held()
    held.brokers.lets_go = None
    assert (await held.pops.pop(held.brokers, ASKED)).code == 0
    held.brokers.answers[PopMessage] = failing(1)
    with pytest.raises(RemoteError):
        await held.pops.pop(held.brokers, ASKED)
    assert held.given_back() == []


async def test_clients_cannot_leave_pops_behind_without_a_limit(monkeypatch):
    monkeypatch.setattr(receive_methods, "MAX_ABANDONED_POPS", 0)
    held = Held()
    await held.given_up()
    assert held.given_back() == []


async def is_held(cluster):
    """Whether the broker holds a pop of the group."""
    pool = Pool(SystemClock())
    try:
        session = await pool.session(cluster.brokers[0].address)
        return (await session.call(Polling("g", "orders", 0))).header.polling_num
    finally:
        pool.close()


async def test_messages_that_come_after_a_consumer_of_mqproxy_stopped_are_not_delayed(tmp_path):
    async with (
        Cluster(tmp_path) as cluster,
        Proxy(ProxySettings(port=0), cluster.namesrv) as proxy,
        connect(cluster.namesrv) as mq,
        channel_to(proxy.address) as channel,
    ):
        await mq.admin.create_topic("orders", queues=1)
        producer, stops, goes_on = (GrpcClient(channel, name) for name in ("p", "c1", "c2"))
        for consumer in (stops, goes_on):
            await (await consumer.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
        await goes_on.receive(wait_ms=0)
        receive = asyncio.create_task(stops.receive(wait_ms=20_000, invisible_ms=3_600_000))
        await until(lambda: is_held(cluster))
        receive.cancel()
        await producer.call("SendMessage", messages=[outgoing()])
        code, got = await goes_on.receive(wait_ms=20_000)
        assert (code, [each.body for each in got]) == (20000, [b"hello"])
