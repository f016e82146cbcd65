"""sparrowmq.cli.bench: when each message of a run may leave, by a clock that is turned by hand."""

import asyncio
import os
import signal
import sys

import pytest

from sparrowmq.cli.bench import Turns, interrupting
from sparrowmq.testing.clock import ManualClock


async def taken(turns, log, clock, wanted=1):
    while count := await turns.take(wanted):
        log.append((clock.monotonic(), count))


async def test_there_are_as_many_turns_as_were_said_whoever_takes_them():
    clock = ManualClock()
    log: list[tuple[float, int]] = []
    turns = Turns(clock, count=10)
    await asyncio.gather(*(taken(turns, log, clock, 4) for _ in range(3)))
    assert sum(count for _, count in log) == 10 and await turns.take() == 0


async def test_a_rate_is_kept_by_many_takers_and_ends_in_time():
    clock = ManualClock()
    log: list[tuple[float, int]] = []
    turns = Turns(clock, seconds=2, rate=10)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(taken(turns, log, clock))
        await clock.advance(1)
        assert len(log) == 11  # that of the first moment, and ten more
        await clock.advance(5)
    assert [round(10 * at) for at, _ in log] == list(range(20)) and turns.is_over


async def test_what_was_held_up_is_caught_up():
    clock = ManualClock()
    log: list[tuple[float, int]] = []
    turns = Turns(clock, count=11, rate=10)
    assert await turns.take() == 1
    await clock.advance(1)
    await taken(turns, log, clock)
    assert [at for at, _ in log] == [1.0] * 10


async def test_stopping_wakes_who_waits_for_a_turn():
    clock = ManualClock()
    turns = Turns(clock, rate=0.01)
    assert await turns.take() == 1
    waiting = asyncio.create_task(turns.take())
    await clock.advance(50)
    assert not waiting.done()
    turns.stop()
    assert await waiting == 0 and await turns.take() == 0


@pytest.mark.skipif(sys.platform == "win32", reason="event loops there do not handle signals")
async def test_the_first_interrupt_stops_and_afterwards_all_is_as_before():
    turns = Turns(ManualClock())
    with interrupting(turns.stop):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(20):
            await asyncio.sleep(0)
        assert turns.is_over
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # the second one ends the program
