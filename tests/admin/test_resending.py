"""Stored messages at a cluster of two brokers: found there, or sent to the same queue."""

from __future__ import annotations

import asyncio

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.resend import Resending, ResendState
from sparrowmq.client.client import Client
from sparrowmq.errors import NoRoute, RemoteError
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.testing.cluster import Cluster
from tests.admin.test_resent_message import sent, stored


@pytest.fixture
async def resending(admin: Admin) -> Resending:
    await admin.create_topic("orders", queues=2)
    await admin.create_group("billing")
    made = Resending(admin.servers)
    topics = ["orders", "%RETRY%billing", "%DLQ%billing", "nothing"]
    assert await made.prepare(topics) == ["nothing"]
    assert made.without_index() == []
    return made


async def test_it_goes_to_its_queue_or_always_to_the_same_other_one(resending: Resending, two: Cluster) -> None:
    for broker in two.brokers:
        here = sent(stored(queue_id=1, store_host=hosts.pack(broker.address)))
        assert resending.queue_of(here) == MessageQueue("orders", broker.settings.name, 1)
    others = {resending.queue_of(sent(stored(queue_id=number))) for number in range(8)}
    assert len(others) == 4, "all queues take their share of a broker that is gone"


async def test_it_is_missing_until_it_was_sent_whichever_broker_has_it(resending: Resending, two: Cluster) -> None:
    for number, broker in enumerate(two.brokers):
        message = sent(stored(properties={"UNIQ_KEY": f"U{number}"}, store_host=hosts.pack(broker.address)))
        assert await resending.state_of(message) is ResendState.MISSING
        await resending.send(message)
        assert await resending.state_of(message) is ResendState.THERE
    async with Client(two.namesrv) as mq:
        found = [await mq.admin.message(f"U{number}", "orders") for number in (0, 1)]
    assert [each.stored.born_timestamp_ms for each in found] == [1, 1], "it keeps its time of birth"


async def test_two_programs_that_send_at_once_store_it_once(resending: Resending, admin: Admin) -> None:
    for _ in range(2):
        await resending.send(sent(stored()))
    assert (await admin.topic("orders")).count == 1


async def test_a_retry_comes_to_its_group_with_its_tries(resending: Resending, two: Cluster) -> None:
    parked = {"REAL_TOPIC": "%RETRY%billing", "REAL_QID": "0", "RETRY_TOPIC": "orders", "DELAY": "4"}
    message = sent(stored(SCHEDULE_TOPIC, parked, queue_id=3, reconsume_times=20))
    await resending.send(message)
    assert await resending.state_of(message) is ResendState.THERE
    later = sent(stored(SCHEDULE_TOPIC, parked, queue_id=4, reconsume_times=21))
    assert await resending.state_of(later) is ResendState.MISSING, "a later try says more"
    async with (
        Client(two.namesrv) as mq,
        mq.subscribe("orders", group="billing", start="earliest") as messages,
    ):
        again = await anext(aiter(messages))
        assert (again.topic, again.reconsume_times, again.body) == ("orders", 20, b"body")
        again.ack()


async def test_a_dead_letter_is_one_again_where_the_group_has_none(resending: Resending, admin: Admin) -> None:
    message = sent(stored("%DLQ%billing", {"RETRY_TOPIC": "orders"}, reconsume_times=16))
    assert await resending.state_of(message) is ResendState.MISSING
    await resending.send(message)
    assert await resending.state_of(message) is ResendState.THERE
    async with asyncio.timeout(10):
        while not (letters := await admin.dead_letters("billing")):  # the name server learns of the topic
            await asyncio.sleep(0.01)
    (letter,) = letters
    assert (letter.msg_id, letter.reconsume_times, letter.body) == ("U1", 16, b"body")


async def test_what_a_broker_cannot_do_is_an_error(resending: Resending, two: Cluster, admin: Admin) -> None:
    await admin.create_topic("closed", perm="r")
    with pytest.raises(NoRoute, match="none of its queues takes messages"):
        await resending.prepare(["closed"])
    index = two.brokers[0].store._index
    assert index is not None
    index.lacks_from_ms = 1  # as on a full disk
    with pytest.raises(RemoteError, match="lacks"):
        await resending.state_of(sent(stored()))
    with pytest.raises(RemoteError, match="maxMessageSize"):
        await resending.send(sent(stored(body=b"x" * (5 << 20))))
