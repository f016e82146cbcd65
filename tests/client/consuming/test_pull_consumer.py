import asyncio
from datetime import datetime, timedelta

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import Heartbeat
from sparrowmq.protocol.requests.headers import OffsetReply
from sparrowmq.remoting.dispatch import Answer
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, pulls, rec, reply

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(2)]
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture
async def reader(peer):
    peer.has("t", queues=2)
    peer.usual |= {
        PULL: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Answer(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: Answer(),
        RequestCode.GET_MAX_OFFSET: lambda _: Answer(header=OffsetReply(offset=100)),
        RequestCode.GET_MIN_OFFSET: lambda _: Answer(header=OffsetReply(offset=10)),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda _: Answer(header=OffsetReply(offset=50)),
    }
    async with connect(peer.address) as mq, mq.pull_consumer(group="g") as made:
        await made.queues("t")
        yield made


@pytest.mark.covers("S-CONS-01")
async def test_messages_come_as_they_are_and_positions_follow(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 5)
    peer.script(PULL, found(rec(5), rec(6), rec(7), next_offset=8))
    assert [each.offset for each in await reader.poll(max_count=2)] == [5, 6]
    assert await reader.position(QUEUES[0]) == 7
    assert [each.offset for each in await reader.poll()] == [7]
    assert await reader.positions() == {QUEUES[0]: 8}


async def test_nothing_there_is_an_empty_answer_after_the_time_and_the_request_stays(peer, reader):
    reader.assign(QUEUES)
    assert await reader.poll(timeout_s=0.05) == []
    assert await reader.poll(timeout_s=0.05) == []
    assert len(pulls(peer)) == 2


@pytest.mark.parametrize(("start", "offset"), [("latest", 100), ("earliest", 0), (datetime(2026, 1, 1), 50)])
async def test_a_queue_begins_where_it_was_asked_to(peer, reader, start, offset):
    reader._start = start
    reader.assign(QUEUES[:1])
    assert await reader.position(QUEUES[0]) == offset


async def test_a_queue_goes_on_where_the_group_stands(peer, reader):
    peer.usual[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: Answer(header=OffsetReply(offset=42))
    reader.assign(QUEUES[:1])
    assert await reader.position(QUEUES[0]) == 42
    assert await reader.committed(QUEUES[0]) == 42


async def test_it_seeks_to_beginning_end_and_time(reader):
    reader.assign(QUEUES)
    await reader.seek_to_beginning()
    assert set((await reader.positions()).values()) == {10}
    await reader.seek_to_end(QUEUES[0])
    assert await reader.positions() == {QUEUES[0]: 100, QUEUES[1]: 10}
    await reader.seek_to_time(datetime.now() - timedelta(hours=1))
    assert set((await reader.positions()).values()) == {50}


async def test_seeking_forgets_what_was_fetched_and_asked_for(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    peer.script(PULL, found(rec(0), rec(1), next_offset=2), found(rec(9), next_offset=10))
    await reader.poll(max_count=1)
    reader.seek(QUEUES[0], 9)
    assert [each.offset for each in await reader.poll()] == [9]
    assert pulls(peer)[1].queue_offset == 9


async def test_filtered_messages_move_the_position(peer, reader):
    reader.assign(QUEUES[:1], tag="b")
    reader.seek(QUEUES[0], 0)
    peer.script(
        PULL, found(rec(0, tag="a"), next_offset=1), Answer(ResponseCode.PULL_OFFSET_MOVED, reply(30))
    )
    assert await reader.poll(timeout_s=0.1) == []
    assert await reader.position(QUEUES[0]) == 30


async def test_positions_are_committed_or_any_offsets(peer, reader):
    reader.assign(QUEUES)
    reader.seek(QUEUES[0], 7)
    await reader.commit()
    await reader.commit({QUEUES[1]: 3})
    sent = [command.ext_fields() for command in peer.requests(RequestCode.UPDATE_CONSUMER_OFFSET)]
    assert [(each["queueId"], each["commitOffset"]) for each in sent] == [("0", "7"), ("1", "3")]


async def test_a_paused_queue_gives_nothing(peer, reader):
    reader.assign(QUEUES)
    for queue in QUEUES:
        reader.seek(queue, 0)
    reader.pause(QUEUES[0])
    peer.script(PULL, found(rec(0), next_offset=1))
    (message,) = await reader.poll()
    assert message.queue == QUEUES[1]
    reader.resume()
    peer.script(PULL, found(rec(0), next_offset=1))
    (message,) = await reader.poll()
    assert message.queue == QUEUES[0]


async def test_assigning_anew_keeps_positions(reader):
    reader.assign(QUEUES)
    reader.seek(QUEUES[0], 7)
    reader.assign(QUEUES[:1])
    assert reader.assigned == QUEUES[:1] and await reader.position(QUEUES[0]) == 7
    with pytest.raises(ConfigError, match="not assigned"):
        reader.seek(QUEUES[1], 0)


async def test_trouble_that_passes_is_waited_for(peer, reader, caplog):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    peer.script(PULL, Answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), found(rec(0), next_offset=1))
    assert len(await reader.poll(timeout_s=5)) == 1
    assert "trying again" in caplog.text


async def test_a_lost_connection_is_made_again(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    polling = asyncio.ensure_future(reader.poll(timeout_s=5))
    await until(lambda: pulls(peer))
    peer.script(PULL, found(rec(0), next_offset=1))
    for session in peer.sessions:
        session.close()
    assert len(await polling) == 1


async def test_a_refusal_is_an_error(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    peer.script(PULL, Answer(ResponseCode.NO_PERMISSION, remark="not for you"))
    with pytest.raises(RemoteError, match="not for you"):
        await reader.poll()


async def test_a_cancelled_poll_loses_nothing(peer, reader):
    reader.assign(QUEUES[:1])
    reader.seek(QUEUES[0], 0)
    polling = asyncio.ensure_future(reader.poll())
    await until(lambda: pulls(peer))
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    held = peer.requests(PULL)[0]
    answer = found(rec(0), next_offset=1)
    peer.sessions[0].reply(held, answer.code, answer.header, None, answer.body)
    assert len(await reader.poll()) == 1


async def test_mistakes_are_told(reader):
    with pytest.raises(ConfigError, match="no queue is assigned"):
        await reader.poll()
    reader.assign(QUEUES)
    with pytest.raises(ConfigError, match="negative"):
        reader.seek(QUEUES[0], -1)


async def test_brokers_know_it_as_an_active_consumer(peer, reader):
    reader.assign(QUEUES)
    await reader._network.brokers.announce()
    await reader._network.brokers.session(peer.address)
    (beat,) = Heartbeat.decode(peer.requests(RequestCode.HEART_BEAT)[-1].body).consumer_data_set
    assert (beat.group_name, beat.consume_type) == ("g", "CONSUME_ACTIVELY")
    assert {each.topic for each in beat.subscription_data_set} == {"t"}


async def test_an_operator_sees_and_moves_it(reader):
    reader.assign(QUEUES)
    await reader.reset({QUEUES[0]: 33, MessageQueue("t", "elsewhere", 0): 1})
    assert reader.running().mq_table[QUEUES[0]].commit_offset == 33
    reader.members_changed()
