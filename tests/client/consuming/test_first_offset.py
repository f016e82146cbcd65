from datetime import UTC, datetime

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.offset_store import BrokerOffsets, first_offset, newest, offset_at, oldest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import (
    OffsetReply,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.consuming.test_held_locks import brokers as brokers

QUEUE = MessageQueue("t", "broker-a", 0)
RETRIED = MessageQueue("%RETRY%g", "broker-a", 0)
THEN = datetime(2026, 1, 1, 12)


@pytest.fixture
def answers(peer):
    peer.usual |= {
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.GET_MAX_OFFSET: lambda _: Reply(header=OffsetReply(offset=100)),
        RequestCode.GET_MIN_OFFSET: lambda _: Reply(header=OffsetReply(offset=10)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda _: Reply(header=OffsetReply(offset=50)),
    }
    return peer


@pytest.mark.covers("S-CONS-02")
@pytest.mark.parametrize(
    ("queue", "start", "offset"),
    [
        (QUEUE, "latest", 100),
        (QUEUE, "earliest", 0),
        (QUEUE, THEN, 50),
        (RETRIED, "latest", 0),
        (RETRIED, THEN, 0),
    ],
)
async def test_a_group_that_never_consumed_begins_where_it_wants(answers, brokers, queue, start, offset):
    assert await first_offset(queue, start, BrokerOffsets("g", brokers), brokers) == offset


@pytest.mark.covers("S-CONS-02")
@pytest.mark.parametrize("start", ["latest", "earliest", THEN])
@pytest.mark.parametrize("committed", [0, 7])
async def test_a_committed_offset_counts_before_all(answers, brokers, start, committed):
    answers.usual[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda _: offset_store_of({"t@g": {0: committed}})
    answers.usual[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: Reply(header=OffsetReply(offset=committed))
    assert await first_offset(QUEUE, start, BrokerOffsets("g", brokers), brokers) == committed


async def test_a_queue_is_measured(answers, brokers):
    assert (await oldest(QUEUE, brokers), await newest(QUEUE, brokers)) == (10, 100)
    assert await offset_at(QUEUE, THEN, brokers) == 50
    (search,) = answers.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    options = search.header(SearchOffset)
    assert (options.timestamp, options.boundary_type) == (round(THEN.timestamp() * 1000), "LOWER")


def offset_store_of(table: dict[str, dict[int, int]]) -> Reply:
    return Reply(body=ConsumerOffsets(table).encode())


def says_0_for_a_young_queue(peer, group_has_committed: bool | None = None) -> None:
    """Answer as a broker with a young queue; without `group_has_committed` as Apache's brokers up to 4.9."""

    def answer(command: Command) -> Reply:
        if group_has_committed is False and command.header(QueryConsumerOffset).set_zero_if_not_found is False:
            return Reply(ResponseCode.QUERY_NOT_FOUND)
        return Reply(header=OffsetReply(offset=0))

    peer.usual[RequestCode.QUERY_CONSUMER_OFFSET] = answer


@pytest.mark.parametrize(
    ("kept", "offset"), [({}, 100), ({"t@g": {1: 0}}, 100), ({"t@other": {0: 0}}, 100), ({"t@g": {0: 0}}, 0)]
)
async def test_new_is_behind_what_a_young_queue_holds(answers, brokers, kept, offset):
    says_0_for_a_young_queue(answers)
    answers.usual[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda _: offset_store_of(kept)
    answers.usual[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Reply()
    assert await first_offset(QUEUE, "new", BrokerOffsets("g", brokers), brokers) == offset
    commits = answers.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [each.header(UpdateConsumerOffset).commit_offset for each in commits] == ([100] if offset else [])


@pytest.mark.parametrize(("start", "offset"), [("new", 100), (THEN, 50)])
async def test_a_list_of_all_offsets_is_not_needed_where_the_broker_knows_the_question(answers, brokers, start, offset):
    says_0_for_a_young_queue(answers, group_has_committed=False)
    answers.usual[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Reply()
    assert await first_offset(QUEUE, start, BrokerOffsets("g", brokers), brokers) == offset
    assert not answers.requests(RequestCode.GET_ALL_CONSUMER_OFFSET)


async def test_a_committed_0_counts_where_the_account_may_not_list_all_offsets(answers, brokers):
    says_0_for_a_young_queue(answers, group_has_committed=True)
    answers.usual[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda _: Reply(ResponseCode.NO_PERMISSION)
    assert await first_offset(QUEUE, THEN, BrokerOffsets("g", brokers), brokers) == 0


@pytest.mark.covers("S-CONS-02")
@pytest.mark.parametrize("is_young", [True, False])
async def test_a_new_group_begins_at_the_first_message_stored_since_a_time(tmp_path, is_young):
    clock = ManualClock()
    percent = 40 if is_young else 0
    async with (
        Cluster(tmp_path, clock=clock, memory_percent=percent) as cluster,
        connect(cluster.namesrv) as mq,
    ):
        await mq.admin.create_topic("orders", queues=1)
        for body in (b"1", b"2", b"3", b"4"):
            await mq.send("orders", body)
            await clock.advance(10)
        since = datetime.fromtimestamp(clock.now_ms() / 1000 - 19, UTC)
        async with mq.subscribe("orders", group="g", start=since) as consumer:
            assert [message.body for message in await consumer.take(1)] == [b"4"]
        async with mq.pull_consumer(group="reader") as reader:
            reader.assign(await reader.queues("orders"))
            await reader.seek_to_time(since)
            assert [message.body for message in await reader.poll()] == [b"4"]


async def test_new_is_kept_for_members_who_come_later(answers, brokers):
    answers.usual[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Reply()
    assert await first_offset(QUEUE, "new", BrokerOffsets("g", brokers), brokers) == 100
    assert len(answers.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == 1
    answers.script(RequestCode.QUERY_CONSUMER_OFFSET, Reply(header=OffsetReply(offset=7)))
    assert await first_offset(QUEUE, "new", BrokerOffsets("g", brokers), brokers) == 7
    assert await first_offset(RETRIED, "new", BrokerOffsets("g", brokers), brokers) == 0
