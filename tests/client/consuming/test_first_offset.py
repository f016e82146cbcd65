from datetime import datetime

import pytest

from sparrowmq.client.consuming.first_offset import first_offset, newest, offset_at, oldest
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import ConsumerOffsets
from sparrowmq.protocol.requests.headers import OffsetReply, SearchOffset, UpdateConsumerOffset
from sparrowmq.remoting.request_dispatch import Answer
from tests.client.consuming.test_held_locks import brokers as brokers

QUEUE = MessageQueue("t", "broker-a", 0)
RETRIED = MessageQueue("%RETRY%g", "broker-a", 0)
THEN = datetime(2026, 1, 1, 12)


@pytest.fixture
def answers(peer):
    peer.usual |= {
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Answer(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.GET_MAX_OFFSET: lambda _: Answer(header=OffsetReply(offset=100)),
        RequestCode.GET_MIN_OFFSET: lambda _: Answer(header=OffsetReply(offset=10)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda _: Answer(header=OffsetReply(offset=50)),
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
    answers.script(RequestCode.QUERY_CONSUMER_OFFSET, Answer(header=OffsetReply(offset=committed)))
    assert await first_offset(QUEUE, start, BrokerOffsets("g", brokers), brokers) == committed


async def test_a_queue_is_measured(answers, brokers):
    assert (await oldest(QUEUE, brokers), await newest(QUEUE, brokers)) == (10, 100)
    assert await offset_at(QUEUE, THEN, brokers) == 50
    (search,) = answers.requests(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    assert search.header(SearchOffset).timestamp == round(THEN.timestamp() * 1000)


def offsets_of(table: dict[str, dict[int, int]]) -> Answer:
    return Answer(body=ConsumerOffsets(table).encode())


@pytest.mark.parametrize(
    ("kept", "offset"), [({}, 100), ({"t@g": {1: 0}}, 100), ({"t@other": {0: 0}}, 100), ({"t@g": {0: 0}}, 0)]
)
async def test_new_is_behind_what_a_young_queue_holds(answers, brokers, kept, offset):
    answers.script(RequestCode.QUERY_CONSUMER_OFFSET, Answer(header=OffsetReply(offset=0)))
    answers.usual[RequestCode.GET_ALL_CONSUMER_OFFSET] = lambda _: offsets_of(kept)
    answers.usual[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Answer()
    assert await first_offset(QUEUE, "new", BrokerOffsets("g", brokers), brokers) == offset
    commits = answers.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [each.header(UpdateConsumerOffset).commit_offset for each in commits] == ([100] if offset else [])


async def test_new_is_kept_for_members_who_come_later(answers, brokers):
    answers.usual[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Answer()
    assert await first_offset(QUEUE, "new", BrokerOffsets("g", brokers), brokers) == 100
    assert len(answers.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) == 1
    answers.script(RequestCode.QUERY_CONSUMER_OFFSET, Answer(header=OffsetReply(offset=7)))
    assert await first_offset(QUEUE, "new", BrokerOffsets("g", brokers), brokers) == 7
    assert await first_offset(RETRIED, "new", BrokerOffsets("g", brokers), brokers) == 0
