import asyncio

import pytest

from sparrowmq.broker.part import Chore, run_chores
from sparrowmq.errors import DiskFull, StoreFailed


async def test_each_chore_comes_in_its_period(clock):
    done = []

    async def slow():
        done.append("slow")
        await clock.sleep(100)

    chores = [Chore("quick", 1, lambda: done.append("quick")), Chore("slow", 2, slow)]
    task = asyncio.create_task(run_chores(chores, clock))
    await clock.advance(5.5)
    assert (done.count("quick"), done.count("slow")) == (5, 1)
    task.cancel()


@pytest.mark.parametrize("kind", [OSError, DiskFull])
async def test_a_chore_that_fails_is_logged_and_comes_again(clock, caplog, kind):
    calls = []

    def fail():
        calls.append(1)
        raise kind("no room")

    task = asyncio.create_task(run_chores([Chore("save", 1, fail)], clock))
    await clock.advance(2.5)
    assert len(calls) == 2
    assert "the chore 'save' failed" in caplog.text and "no room" in caplog.text
    assert "Traceback" not in caplog.text
    task.cancel()


async def test_a_failed_store_ends_the_chore_that_needs_it_and_no_other(clock):
    done = []

    async def fail():
        done.append("store")
        raise StoreFailed("the disk is gone")

    chores = [Chore("store", 1, fail), Chore("save", 1, lambda: done.append("save"))]
    task = asyncio.create_task(run_chores(chores, clock))
    await clock.advance(3)
    assert sorted(done) == ["save", "save", "save", "store"]
    task.cancel()
