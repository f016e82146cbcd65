"""The loop that delivers what is due: when it delivers, when it sleeps, and what ends it."""

import asyncio

import pytest

from sparrowmq.broker.due_work import DueWork
from sparrowmq.errors import BadStore, DiskFull, StoreFailed


class Script:
    """Answers each call with the next of its words: seconds to wait, or an error; then with an hour."""

    def __init__(self, *words):
        self.words = list(words)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        word = self.words.pop(0) if self.words else 3600
        if isinstance(word, Exception):
            raise word
        return word


async def started(script, clock):
    delivery = DueWork("messages", script, clock)
    task = asyncio.create_task(delivery.run())
    await clock.advance(0)
    return delivery, task


async def test_it_delivers_until_nothing_is_due_and_sleeps_as_long_as_it_was_told(clock):
    script = Script(0, 0, 5)
    delivery, task = await started(script, clock)
    assert script.calls == 3
    await clock.advance(4.9)
    assert script.calls == 3
    await clock.advance(0.2)
    assert script.calls == 4
    delivery.close()
    await task


async def test_what_is_new_wakes_it(clock):
    script = Script()
    delivery, task = await started(script, clock)
    delivery.wake()
    await clock.advance(0)
    assert script.calls == 2
    delivery.close()
    await task
    assert script.calls == 2


async def test_a_long_wait_is_cut_into_minutes(clock):
    script = Script()
    delivery, task = await started(script, clock)
    await clock.advance(61)
    assert script.calls == 2
    delivery.close()
    await task


async def test_a_full_disk_is_told_once_and_tried_again_each_second(clock, caplog):
    script = Script(DiskFull("no room"), DiskFull("no room"), 5, DiskFull("again"))
    delivery, task = await started(script, clock)
    await clock.advance(1.1)
    await clock.advance(1.1)
    assert script.calls == 3
    await clock.advance(5.1)
    assert [record.getMessage() for record in caplog.records] == [
        "messages wait: no room",
        "messages wait: again",
    ]
    delivery.close()
    await task


async def test_messages_that_are_due_for_long_are_late_until_they_are_delivered(clock):
    script = Script(*(DiskFull("/store", 1) for _ in range(14)), 0, 3600)
    delivery, task = await started(script, clock)
    await clock.advance(9)
    assert delivery.late_condition() == ""
    await clock.advance(3)
    assert (
        delivery.late_condition().startswith("messages have waited for 12 s: ")
        and "/store" in delivery.late_condition()
    )
    await clock.advance(5)
    assert delivery.late_condition() == ""
    delivery.close()
    await task


async def test_a_queue_that_cannot_be_read_is_told_once_and_tried_again(clock, caplog):
    script = Script(BadStore("it ends too early"), BadStore("it ends too early"))
    delivery, task = await started(script, clock)
    await clock.advance(1.1)
    await clock.advance(1.1)
    assert script.calls == 3
    assert [record.getMessage() for record in caplog.records] == ["messages wait: it ends too early"]
    delivery.close()
    await task


async def test_a_failure_ends_it_whoever_wakes_it_then(clock):
    delivery, task = await started(Script(), clock)
    delivery.wake(StoreFailed("the disk is gone"))
    delivery.wake()
    with pytest.raises(StoreFailed):
        await task
