"""Senders that wait for the window of a producer."""

import asyncio

import pytest

from sparrowmq.client.sending.send_queue import WindowWaiters
from sparrowmq.kernel.gathering import Window

SIZE = 4


@pytest.fixture
def window() -> Window:
    full = Window(SIZE, 1 << 20, 1 << 20)
    full.add_in_flight(SIZE, 0)
    return full


async def sleepers(count, wait):
    found = [asyncio.ensure_future(wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return found


async def settled(tasks):
    for _ in range(5):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_as_many_wake_as_there_is_room_for_and_in_their_order(window):
    waiters = WindowWaiters(window)

    async def send():
        await waiters.wait_for_room()
        window.add_in_flight(1, 0)

    tasks = await sleepers(3, send)
    window.add_in_flight(-2, 0)
    waiters.wake_ready()
    assert await settled(tasks) == [True, True, False]


async def test_a_cancelled_sleeper_takes_no_room(window):
    waiters = WindowWaiters(window)
    tasks = await sleepers(2, waiters.wait_for_room)
    tasks[0].cancel()
    await asyncio.sleep(0)
    window.add_in_flight(-1, 0)
    waiters.wake_ready()
    assert await settled(tasks) == [True, True] and tasks[0].cancelled()


async def test_the_end_comes_with_the_last_answer(window):
    waiters = WindowWaiters(window)
    await WindowWaiters(Window(SIZE, 1, 1)).wait_for_end()  # an empty window is no wait
    tasks = await sleepers(2, waiters.wait_for_end)
    window.add_in_flight(-3, 0)
    waiters.wake_ready()
    assert await settled(tasks) == [False, False]
    window.add_in_flight(-1, 0)
    waiters.wake_ready()
    assert await settled(tasks) == [True, True]


async def test_a_closed_client_wakes_those_that_wait_for_room(window):
    waiters = WindowWaiters(window)
    tasks = await sleepers(3, waiters.wait_for_room)
    waiters.wake_all()
    assert await settled(tasks) == [True, True, True]
