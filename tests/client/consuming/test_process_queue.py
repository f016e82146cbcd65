import asyncio

import pytest

from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.client.consuming.process_queue import ProcessQueue, State
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.protocol.messages.message import MessageQueue
from tests.client.consuming.test_received import message_at

QUEUE = MessageQueue("t", "a", 1)


def filled(count: int, limits: FlowLimits | None = None) -> tuple[ProcessQueue, list[ReceivedMessage]]:
    owned = ProcessQueue(QUEUE, 0, limits or FlowLimits())
    messages = [message_at(offset, 100) for offset in range(count)]
    owned.add(messages)
    owned.next_offset = count
    return owned, messages


def test_what_is_committed_is_everything_before_the_first_unsettled():
    owned, messages = filled(4)
    assert owned.commit_offset == 0
    owned.settle(messages[1])
    assert owned.commit_offset == 0
    owned.settle(messages[0])
    assert owned.commit_offset == 2
    owned.settle(messages[3])
    owned.settle(messages[2])
    assert owned.commit_offset == 4 and owned.unsettled_count == owned.unsettled_bytes == 0


def test_settling_twice_changes_nothing():
    owned, messages = filled(2)
    owned.settle(messages[0])
    owned.settle(messages[0])
    assert (owned.unsettled_count, owned.unsettled_bytes) == (1, 100)


def test_filtered_messages_move_what_is_committed():
    owned, _ = filled(0)
    owned.next_offset = 40
    assert owned.commit_offset == 40


@pytest.mark.parametrize("limits", [FlowLimits(messages=3), FlowLimits(size_bytes=300), FlowLimits(span=2)], ids=str)
async def test_a_full_queue_waits_until_something_is_settled(limits):
    owned, messages = filled(3, limits)
    assert not owned.has_room
    waiting = asyncio.ensure_future(owned.wait_for_change())
    await asyncio.sleep(0)
    assert not waiting.done()
    owned.settle(messages[0])
    await asyncio.wait_for(waiting, 1)


async def test_an_orderly_queue_tells_when_nothing_is_handled():
    owned, messages = filled(2)
    await owned.wait_until_idle()
    owned.hand_out(messages)
    waiting = asyncio.ensure_future(owned.wait_until_idle())
    for each in messages:
        await asyncio.sleep(0)
        assert not waiting.done()
        owned.take_back(each)
    await asyncio.wait_for(waiting, 1)


def test_a_dropped_queue_is_not_owned():
    owned, _ = filled(0)
    owned.drop()
    assert not owned.is_owned and owned.state is State.DROPPED


def test_an_operator_sees_its_state():
    owned, messages = filled(3)
    owned.settle(messages[0])
    owned.locked_until = 5.0
    report = owned.report(now=4.0)
    assert (report.commit_offset, report.cached_msg_min_offset, report.cached_msg_max_offset) == (1, 1, 2)
    assert (report.cached_msg_count, report.locked, report.dropped) == (2, True, False)


async def test_a_queue_that_is_given_up_tells_when_what_was_taken_is_settled():
    owned, messages = filled(3, FlowLimits(span=1))
    owned.leave()
    owned.pending.append(messages[2])
    waiting = asyncio.ensure_future(owned.wait_for_change())
    await asyncio.sleep(0)
    owned.settle(messages[1])
    await asyncio.wait_for(waiting, 1)
    assert not owned.is_settled
    owned.settle(messages[0])
    assert owned.is_settled
    assert owned.commit_offset == 2
