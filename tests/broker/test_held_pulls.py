"""Long polling over a real store, with time in the test's hands."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparrowmq.broker.held_pulls import wait_for_match
from sparrowmq.broker.sql_matching import RecordFilter
from sparrowmq.filter.grammar import parse
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.selector import ALL, Selector
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import Read, Status
from sparrowmq.store.store_settings import Flush, StoreSettings
from sparrowmq.testing import ManualClock

HOST = hosts.pack("127.0.0.1:1")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    settings = StoreSettings(tmp_path, commit_log_file_size=1 << 20, flush=Flush.ASYNC, index=False)
    with MessageStore.open(settings) as opened:
        yield opened


def put(store: MessageStore, tags_code: int = 0, tag: str | None = None) -> None:
    entry = Entry("t", 0, b"body", Properties(f"TAGS\x01{tag}" if tag else ""), 1, HOST)
    entry.deliver_at_ms = tags_code
    store.append(entry)
    store.dispatch()


def wait(store: MessageStore, clock: ManualClock, selector: Selector = ALL) -> asyncio.Future[Read]:
    def read(offset: int) -> Read:
        return store.read("t", 0, offset, 32, 1 << 20, selector)

    return asyncio.ensure_future(wait_for_match(store, "t", 0, 0, read, clock, 15, lambda found: found))


async def test_what_is_there_is_answered_at_once(store: MessageStore) -> None:
    put(store)
    assert (await wait(store, ManualClock())).status is Status.FOUND


@pytest.mark.guards("held_pulls.wait_for_match: max(offset, result.next_offset) -> end.value")
async def test_what_comes_is_answered_when_it_comes(store: MessageStore) -> None:
    clock = ManualClock()
    waiting = wait(store, clock)
    await clock.advance(14)
    assert not waiting.done()
    put(store)
    assert (await waiting).count == 1


async def test_nothing_in_time_is_answered_with_nothing(store: MessageStore) -> None:
    clock = ManualClock()
    waiting = wait(store, clock)
    await clock.advance(15)
    assert (await waiting).count == 0
    assert store.queues.obtain("t", 0).end.waiting == 0


async def test_messages_with_other_tags_are_passed_while_waiting(store: MessageStore) -> None:
    clock = ManualClock()
    waiting = wait(store, clock, Selector(frozenset({7})))
    await clock.advance(1)
    for _ in range(3):
        put(store, 5)
        await clock.advance(1)
    assert not waiting.done()
    put(store, 7)
    found = await waiting
    assert (found.status, found.next_offset, found.count) == (Status.FOUND, 4, 1)


async def test_messages_whose_records_are_not_wanted_are_passed_while_waiting(store: MessageStore) -> None:
    clock = ManualClock()
    wanted = RecordFilter(parse("TAGS = 'yes'"))
    waiting = wait(store, clock, Selector(predicate=wanted))
    await clock.advance(1)
    for _ in range(2):
        put(store, tag="no")
        await clock.advance(1)
    assert not waiting.done()
    put(store, tag="yes")
    assert (await waiting).next_offset == 3


async def test_an_abandoned_poll_leaves_nothing_behind(store: MessageStore) -> None:
    waiting = wait(store, ManualClock())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert store.queues.obtain("t", 0).end.waiting == 0


@pytest.mark.guards("held_pulls.wait_for_match: false result.next_offset < end.value")
async def test_a_read_that_stopped_after_much_work_continues_without_another_message(
    store: MessageStore,
) -> None:
    clock = ManualClock()
    waiting = wait(store, clock, Selector(predicate=RecordFilter(parse("TAGS = 'b'")), weight=800))
    await clock.advance(1)
    for tag in "aaaaaaab":
        entry = Entry("t", 0, b"body", Properties(f"TAGS\x01{tag}"), 1, HOST)
        store.append(entry)
    store.dispatch()
    await clock.advance(1)
    assert (await waiting).next_offset == 8
