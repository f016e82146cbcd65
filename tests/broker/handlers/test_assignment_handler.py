"""Queues that the broker shares, in a real cluster of two brokers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.client_bodies import (
    POP,
    PULL,
    AssignmentQuery,
    Assignments,
    ConsumerBeat,
    Heartbeat,
    RequestMode,
    RequestModeTable,
)
from sparrowmq.protocol.requests.headers import HeartBeat
from sparrowmq.protocol.requests.pop_headers import GetAllRequestModes, QueryAssignment, SetRequestMode
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.testing.cluster import Cluster


@dataclass
class Asker:
    """A connection to one of the brokers."""

    session: Session
    address: str
    pools: list[Pool]

    async def beat(self, client_id: str) -> None:
        """Join group g, over a connection of its own."""
        pool = Pool(SystemClock())
        self.pools.append(pool)
        beat = ConsumerBeat("g", subscription_data_set=[Subscription.build("orders", version=1)])
        session = await pool.session(self.address)
        await session.call(HeartBeat(), Heartbeat(client_id, consumer_data_set=[beat]).encode())

    async def asked(
        self, client_id: str, strategy: str = "AVG", topic: str = "orders", model: str = "CLUSTERING"
    ) -> list[tuple[str, int, str]] | None:
        body = AssignmentQuery(topic, "g", client_id, strategy, model).encode()
        found = Assignments.decode((await self.session.call(QueryAssignment(), body)).body)
        if found.message_queue_assignments is None:
            return None
        rows = [(each.message_queue, each.mode) for each in found.message_queue_assignments]
        return [(queue.broker_name, queue.queue_id, mode) for queue, mode in rows]

    async def put(self, mode: RequestMode) -> None:
        await self.session.call(SetRequestMode(), mode.encode())


@pytest.fixture
async def asker(tmp_path) -> AsyncIterator[Asker]:
    pool = Pool(SystemClock())
    async with Cluster(tmp_path, brokers=2) as cluster:
        async with Admin(cluster.namesrv) as admin:
            await admin.create_topic("orders", queues=2)
            await admin.create_group("g")
        address = cluster.brokers[0].address
        asker = Asker(await pool.session(address), address, [pool])
        yield asker
        for each in asker.pools:
            each.close()
            await each.wait_until_ended()


async def test_members_share_the_queues_of_all_brokers(asker):
    assert await asker.asked("one") is None, "no member is online"
    for client_id in ("one", "two"):
        await asker.beat(client_id)
    assert await asker.asked("one") == [("broker-0", 0, PULL), ("broker-0", 1, PULL)]
    assert await asker.asked("two") == [("broker-1", 0, PULL), ("broker-1", 1, PULL)]
    assert await asker.asked("two", "AVG_BY_CIRCLE") == [("broker-0", 1, PULL), ("broker-1", 1, PULL)]
    assert await asker.asked("stranger") == []
    assert len(await asker.asked("one", model="BROADCASTING")) == 4
    assert await asker.asked("one", "BY_CHANCE") is None
    assert await asker.asked("one", topic="missing") is None


async def test_members_pop_when_an_operator_says_so(asker):
    for client_id in ("one", "three", "two"):
        await asker.beat(client_id)
    await asker.put(RequestMode("orders", "g", POP))
    for client_id in ("one", "two"):
        assert await asker.asked(client_id) == [("broker-0", -1, POP), ("broker-1", -1, POP)]
    await asker.put(RequestMode("orders", "g", POP, 1))
    assert await asker.asked("two") == [("broker-1", 1, POP), ("broker-0", 0, POP), ("broker-0", 1, POP)]
    table = RequestModeTable.decode((await asker.session.call(GetAllRequestModes())).body)
    assert table.message_request_mode_map == {"orders": {"g": RequestMode("orders", "g", POP, 1)}}
    await asker.put(RequestMode("orders", "g", PULL))
    assert await asker.asked("two") == [("broker-1", 1, PULL)]


@pytest.mark.parametrize(
    ("mode", "code", "words"),
    [
        (RequestMode("%RETRY%g", "g", POP), ResponseCode.NO_PERMISSION, "retry topic is not allowed"),
        (RequestMode("missing", "g", POP), ResponseCode.TOPIC_NOT_EXIST, "topic[missing] not exist"),
        (RequestMode("orders", "h", POP), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "h does not exist"),
        (RequestMode("orders", "g", "PUSH"), ResponseCode.SYSTEM_ERROR, "it is PULL or POP"),
    ],
)
async def test_a_mode_that_cannot_be_is_refused(asker, mode, code, words):
    with pytest.raises(RemoteError) as caught:
        await asker.put(mode)
    assert caught.value.code == code
    assert words in caught.value.remark
    table = RequestModeTable.decode((await asker.session.call(GetAllRequestModes())).body)
    assert table.message_request_mode_map == {}
