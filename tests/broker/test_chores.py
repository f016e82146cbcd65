import asyncio

import pytest

from sparrowmq.broker.chores import Chore, chores_of, run_chores
from sparrowmq.errors import StoreFailed
from tests.broker.handlers.conftest import Desk


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


async def test_a_chore_that_fails_is_logged_and_comes_again(clock, caplog):
    calls = []

    def fail():
        calls.append(1)
        raise OSError("no room")

    task = asyncio.create_task(run_chores([Chore("save", 1, fail)], clock))
    await clock.advance(2.5)
    assert len(calls) == 2
    assert "the chore 'save' failed" in caplog.text and "no room" in caplog.text
    task.cancel()


async def test_a_failed_store_ends_the_chores(clock):
    async def fail():
        raise StoreFailed("the disk is gone")

    task = asyncio.create_task(run_chores([Chore("save", 1, fail)], clock))
    await clock.advance(1)
    with pytest.raises(ExceptionGroup, match="unhandled") as failed:
        await task
    assert failed.group_contains(StoreFailed)


@pytest.mark.covers("S-DELAY-05")
async def test_the_table_saves_what_changed(tmp_path, clock):
    desk = Desk(tmp_path, clock)
    table = chores_of(
        desk.settings,
        desk.topics,
        desk.groups,
        desk.offsets,
        desk.delayed,
        desk.clients,
        desk.locks,
        desk.figures,
    )
    assert {chore.name: chore.period_s for chore in table} == {
        "save topics": 1,
        "save groups": 1,
        "save offsets": 5,
        "save delay offsets": 10,
        "part with silent clients": 10,
        "forget expired locks": 60,
        "sample rates": 1,
    }
    desk.create("Orders")
    desk.groups.ensure("g")
    desk.offsets.commit("g", "Orders", 0, 1)
    for chore in table:
        done = chore.do()
        if done is not None:
            await done
    saved = {file.name for file in (tmp_path / "config").iterdir()}
    assert saved == {"topics.json", "subscriptionGroup.json", "consumerOffset.json"}
    desk.store.close()
