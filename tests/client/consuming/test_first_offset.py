from datetime import datetime

import pytest

from sparrowmq.client.consuming.first_offset import first_offset, newest, offset_at, oldest
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import OffsetReply, SearchOffset
from sparrowmq.remoting.dispatch import Answer
from tests.client.consuming.test_queue_locks import brokers as brokers

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
