import asyncio
import logging

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.consumer_settings import PullSettings, subscription
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.client.consuming.pull_consumer import AssignedQueue, AssignedQueues
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, PullFlag
from sparrowmq.protocol.requests.headers import OffsetReply, PullMessage
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, rec, reply

QUEUE = MessageQueue("t", "broker-a", 0)
ALL = subscription("t", None, None, 1)
PULL = RequestCode.PULL_MESSAGE
SEARCH = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP


@pytest.fixture
async def readings(peer):
    """The queues of a reader that knows where its topic is."""
    peer.has("t")
    peer.usual |= {
        PULL: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(header=OffsetReply(offset=3)),
    }
    async with connect(peer.address) as mq, Background() as background:
        network = mq._network
        await network.routes.of("t")
        offsets = BrokerOffsets("g", network.brokers)
        yield AssignedQueues(PullSettings("g"), network, offsets, background.spawn)


async def rounds(readings: AssignedQueues, holds) -> None:
    """Collect and ask until the condition holds."""

    def round_() -> object:
        readings.collect()
        readings.ask()
        return holds()

    await until(round_)


async def test_a_queue_begins_where_the_group_stands_and_is_asked_once(peer, readings):
    reading = readings.add(QUEUE, ALL)
    await rounds(readings, lambda: peer.requests(PULL))
    assert reading.position == 3
    for _ in range(5):
        readings.collect()
        readings.ask()
        await asyncio.sleep(0.001)
    (asked,) = [command.header(PullMessage) for command in peer.requests(PULL)]
    assert asked.queue_offset == 3 and asked.sys_flag == (PullFlag.SUBSCRIPTION | PullFlag.SUSPEND | PullFlag.LITE_PULL)


async def test_what_a_broker_does_not_know_is_told_to_it_and_one_line_logged(peer, readings, caplog):
    readings.add(QUEUE, ALL).move(0)
    peer.usual[PULL] = lambda _: Reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark="who are you")
    await rounds(readings, lambda: "who are you" in caplog.text)
    readings.of(QUEUE).not_before_s = 0
    await rounds(readings, lambda: len(peer.requests(PULL)) == 2)
    await asyncio.sleep(0.01)
    readings.collect()
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


async def test_a_refusal_is_raised_and_the_queue_asked_again_afterwards(peer, readings):
    readings.add(QUEUE, ALL).move(0)
    peer.script(PULL, Reply(ResponseCode.NO_PERMISSION, remark="not for you"), found(rec(0), next_offset=1))
    with pytest.raises(RemoteError, match="not for you"):
        await rounds(readings, lambda: False)
    await rounds(readings, lambda: readings.of(QUEUE).fetched)


@pytest.mark.parametrize(
    "code",
    [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL],
)
async def test_a_refusal_that_passes_is_waited_out(peer, readings, caplog, code):
    reading = readings.add(QUEUE, ALL)
    reading.move(0)
    peer.script(PULL, Reply(code, remark="try again in a moment"), found(rec(0), next_offset=1))
    await rounds(readings, lambda: "try again in a moment" in caplog.text)
    reading.not_before_s = 0
    await rounds(readings, lambda: reading.fetched)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_shared_queue_that_its_topic_has_lost_is_no_error(peer, readings, caplog, is_deleted):
    """`topic scale` and `topic move` take queues away, and the reader sees it in the route."""
    lost = MessageQueue("t", "broker-a", 7)
    readings.add(lost, ALL, is_shared=True).move(0)
    if is_deleted:
        peer.routes.clear()
    peer.script(PULL, Reply(ResponseCode.SYSTEM_ERROR, remark="queueId[7] is illegal"))
    await rounds(readings, lambda: "queueId[7] is illegal" in caplog.text)
    assert readings.of(lost).not_before_s > 0, "it is not asked again at once"


async def test_a_refusal_for_a_shared_queue_that_is_there_is_raised(peer, readings):
    reading = readings.add(QUEUE, ALL, is_shared=True)
    reading.move(0)
    refusal = Reply(ResponseCode.NO_PERMISSION, remark="not for you")
    peer.script(PULL, refusal, refusal)
    await rounds(readings, lambda: reading.is_failing)  # Name servers may not know the reason yet.
    reading.not_before_s = 0
    with pytest.raises(RemoteError, match="not for you"):
        await rounds(readings, lambda: False)


async def test_a_held_queue_is_neither_asked_nor_handed_out(peer, readings):
    reading = readings.add(QUEUE, ALL)
    reading.move(0)
    peer.script(PULL, found(rec(0), next_offset=1))
    await rounds(readings, lambda: reading.fetched)
    reading.is_held = True
    assert readings.hand_out(10) == []
    reading.is_held = False
    assert len(readings.hand_out(10)) == 1 and reading.position == 1


async def test_moving_forgets_what_is_here_and_what_was_asked_for(peer, readings):
    reading = readings.add(QUEUE, ALL)
    reading.move(0)
    await rounds(readings, lambda: peer.requests(PULL))
    answer = reading.answer
    reading.handled = 5
    reading.move(9)
    assert answer is not None and answer.cancelled()
    assert (reading.position, reading.next_offset, reading.handled) == (9, 9, None)
    readings.drop(QUEUE)
    assert readings.queues == [] and reading.position is None
    with pytest.raises(ConfigError, match="not assigned"):
        readings.of(QUEUE)


async def test_the_same_filter_again_changes_nothing(readings):
    reading = readings.add(QUEUE, ALL)
    reading.move(7)
    reading.handled = 6
    readings.add(QUEUE, subscription("t", None, None, 2))
    assert (reading.position, reading.handled) == (7, 6)
    reading.fetched.extend([None] * 2)
    readings.add(QUEUE, subscription("t", "a", None, 3))
    assert (reading.position, reading.handled, len(reading.fetched)) == (7, 6, 0)


async def test_all_filtered_out_moves_on(peer, readings):
    reading = readings.add(QUEUE, ALL)
    reading.move(0)
    peer.script(PULL, Reply(ResponseCode.PULL_RETRY_IMMEDIATELY, reply(50)))
    await rounds(readings, lambda: reading.position == 50)


def test_an_operator_sees_where_a_queue_stands():
    reading = AssignedQueue(QUEUE, ALL, position=4, next_offset=9)
    report = reading.report()
    assert (report.commit_offset, report.cached_msg_max_offset, report.cached_msg_count) == (4, 9, 0)


@pytest.mark.parametrize(("is_sought", "following"), [(False, 2), (True, 4)])
async def test_a_shorter_queue_is_read_from_the_first_newer_message_on(peer, readings, is_sought, following):
    peer.usual[SEARCH] = lambda _: Reply(header=OffsetReply(offset=2))
    peer.script(PULL, found(rec(5), next_offset=6))
    reading = readings.add(QUEUE, ALL)
    await rounds(readings, lambda: reading.fetched)
    assert [each.offset for each in readings.hand_out(9)] == [5]
    if is_sought:
        reading.move(6)
    reading.handled = 6
    peer.script(PULL, Reply(ResponseCode.PULL_OFFSET_MOVED, reply(4, end=4)))
    await rounds(readings, lambda: reading.position == following)
    assert reading.handled is None, "a lower offset is not committed before the program has seen its messages"
    await rounds(readings, lambda: len(peer.requests(PULL)) == 3)
    assert peer.requests(PULL)[2].header(PullMessage).queue_offset == following


@pytest.mark.parametrize(("stored_ms", "following"), [(2, 6), (9, 4)])
async def test_after_a_break_a_queue_is_read_from_the_first_newer_message_on(peer, readings, stored_ms, following):
    peer.usual[SEARCH] = lambda _: Reply(header=OffsetReply(offset=4))
    peer.script(PULL, found(rec(5), next_offset=6))
    reading = readings.add(QUEUE, ALL)
    await rounds(readings, lambda: reading.fetched)
    readings.hand_out(9)
    await rounds(readings, lambda: len(peer.requests(PULL)) == 2)
    peer.script(PULL, found(rec(5, stored_ms=stored_ms), next_offset=6))
    for session in list(peer.sessions):
        session.close()
    await rounds(readings, lambda: reading.is_cut_off)
    reading.not_before_s = 0.0
    await rounds(readings, lambda: len(peer.requests(PULL)) == 4)
    look, after = (command.header(PullMessage) for command in peer.requests(PULL)[2:])
    assert (look.queue_offset, after.queue_offset, reading.position) == (5, following, following)


async def test_messages_that_lead_nowhere_are_said_and_not_handed_out(peer, readings, caplog):
    readings.add(QUEUE, ALL).move(0)
    peer.script(PULL, found(rec(0), next_offset=1), found(rec(1), next_offset=1))
    given: list[ReceivedMessage] = []

    def is_said() -> bool:
        given.extend(readings.hand_out(9))
        return "names 1 as the next offset" in caplog.text

    await rounds(readings, is_said)
    assert [each.offset for each in given] == [0]


async def test_a_queue_whose_messages_are_filtered_is_read_without_a_pause(peer, readings):
    reading = readings.add(QUEUE, ALL)
    reading.move(0)
    peer.script(PULL, *(Reply(0, reply(at)) for at in range(1, 20)))
    await rounds(readings, lambda: len(peer.requests(PULL)) == 20)
    assert (reading.next_offset, reading.not_before_s) == (19, 0)


@pytest.mark.parametrize("code", [0, ResponseCode.PULL_NOT_FOUND])
async def test_a_broker_that_finds_nothing_at_once_is_not_asked_without_a_pause(peer, readings, code):
    reading = readings.add(QUEUE, ALL)
    reading.move(3)
    peer.usual[PULL] = lambda _: Reply(code, reply(3))
    await rounds(readings, lambda: reading.not_before_s > 0)
    assert len(peer.requests(PULL)) == 6
