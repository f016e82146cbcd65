import asyncio
import threading
from typing import Any

import pytest

from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.consuming.workers import deliver_once
from sparrowmq.loop.clock import SystemClock
from sparrowmq.testing.clock import ManualClock
from tests.client.consuming.test_received import QUEUE, stored


async def handled(handler, *, clock=None, **settings):
    return await deliver_once(
        handler,
        ReceivedMessage(stored(), QUEUE),
        ConsumerSettings("g", **settings),
        clock or SystemClock(),
    )


async def test_a_handler_that_returns_was_successful():
    seen: list[Any] = []
    outcome = await handled(seen.append)
    assert (outcome.consume_result, outcome.remark, outcome.order) == ("CR_SUCCESS", None, False)
    assert [message.text() for message in seen] == ['{"a":1}']


async def test_an_asynchronous_handler_is_awaited_and_its_time_told():
    clock = ManualClock()

    async def handle(message):
        await clock.sleep(1.5)

    work = asyncio.ensure_future(handled(handle, clock=clock, ordered=True))
    await clock.advance(2)
    outcome = await work
    assert (outcome.consume_result, outcome.order, outcome.spent_time_mills) == ("CR_SUCCESS", True, 1500)


async def test_what_a_handler_raises_is_told():
    def fail(message):
        raise ValueError("no such order")

    outcome = await handled(fail)
    assert (outcome.consume_result, outcome.remark) == ("CR_THROW_EXCEPTION", "ValueError, no such order")


async def test_a_message_that_is_to_come_later_is_told_so():
    outcome = await handled(lambda message: message.retry())
    assert outcome.consume_result == "CR_LATER"


async def test_a_batch_handler_gets_a_list_of_one():
    seen: list[Any] = []
    await handled(seen.append, batch=10)
    assert [len(batch) for batch in seen] == [1]


async def test_a_handler_that_may_block_runs_in_a_thread():
    seen: list[Any] = []
    await handled(lambda message: seen.append(threading.current_thread()))
    assert seen[0] is not threading.main_thread()


async def test_a_handler_that_takes_too_long_is_cut_short():
    clock = ManualClock()

    async def stay(message):
        await asyncio.Event().wait()

    work = asyncio.ensure_future(handled(stay, clock=clock, handler_timeout_s=5))
    await clock.advance(6)
    assert (await work).consume_result == "CR_THROW_EXCEPTION"


@pytest.mark.parametrize("limit_s", [None, 900.0])
async def test_it_can_be_cancelled(limit_s):
    begun = asyncio.Event()

    async def stay(message):
        begun.set()
        await asyncio.Event().wait()

    work = asyncio.ensure_future(handled(stay, handler_timeout_s=limit_s))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
