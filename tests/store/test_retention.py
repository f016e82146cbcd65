"""Retention: which files of the log go, when, and what forgets them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.loop.clock import Clock
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import Status
from sparrowmq.store.retention import Cleaning, Retention
from sparrowmq.store.vfs import Disk
from sparrowmq.testing.clock import ManualClock
from tests.store.stores import Stores, bodies, put

NEVER = 2.0  # no disk is that full
ALWAYS = 0.0  # and each is as full as that
BODY = bytes(1800)  # two of them fill a file
TEN = [b"%d" % number + BODY for number in range(10)]


def at(hour: int) -> ManualClock:
    """A clock that stands at some hour of a day, as people here read it."""
    return ManualClock(round(datetime(2026, 3, 4, hour, 30).timestamp() * 1000))


def open_at(stores: Stores, clock: Clock, **changes: Any) -> MessageStore:
    by_age: dict[str, Any] = {"disk_clean_ratio": NEVER, "disk_force_ratio": NEVER, "disk_full_ratio": NEVER}
    return stores.open(clock=clock, **{**by_age, **changes})


def fill(store: MessageStore) -> None:
    """Five files of two messages each, on disk with their queue."""
    for body in TEN:
        put(store, body, key=body[:1].decode())
    store.checkpoint()


def retention_of(store: MessageStore) -> Retention:
    parts = lambda: store.settings, store._vfs, store._log, store.queues, store._index, store._checkpointer
    return Retention(*parts, store.hold)


def log_files(store: MessageStore) -> list[str]:
    return sorted(path.name.lstrip("0") or "0" for path in Path(store.settings.layout.commit_log).iterdir())


@asynccontextmanager
async def running(store: MessageStore) -> AsyncIterator[None]:
    task = asyncio.create_task(store.run())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.covers("S-STORE-09")
async def test_files_older_than_three_days_go_in_the_hour_of_delete_when(stores):
    clock = at(1)
    store = open_at(stores, clock)
    assert store.settings.retention_hours == 72
    fill(store)
    await clock.advance(hours=74, minutes=29, seconds=30)
    async with running(store):
        await clock.advance(20)
        assert store.begin == 0 and bodies(store) == TEN
        await clock.advance(20)
        assert store.begin == 16384 and log_files(store)[0] == "16384"
        assert bodies(store) == TEN[8:]


async def test_young_files_stay_in_the_hour_of_delete_when(stores):
    clock = at(4)
    store = open_at(stores, clock)
    fill(store)
    await clock.advance(hours=71)
    fill(store)
    await clock.advance(hours=1, minutes=1)
    list(retention_of(store).run(clock.now_ms()))
    assert bodies(store) == TEN[8:] + TEN


@pytest.mark.parametrize("delete_when", ["04", "4", "02;04"])
async def test_the_hour_may_be_one_of_several_and_written_with_one_digit(stores, delete_when):
    clock = at(4)
    store = open_at(stores, clock, delete_when=delete_when)
    fill(store)
    await clock.advance(hours=96)
    list(retention_of(store).run(clock.now_ms()))
    assert log_files(store) == ["16384"]


async def test_a_disk_in_use_deletes_old_files_at_any_hour(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_clean_ratio=ALWAYS)
    fill(store)
    list(retention_of(store).run(clock.now_ms()))
    assert len(log_files(store)) == 5
    await clock.advance(hours=73)
    list(retention_of(store).run(clock.now_ms()))
    assert log_files(store) == ["16384"]


def test_a_disk_almost_full_deletes_files_however_young(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_force_ratio=ALWAYS)
    fill(store)
    list(retention_of(store).run(clock.now_ms()))
    assert log_files(store) == ["16384"]


def test_one_run_deletes_ten_files_at_most(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_force_ratio=ALWAYS)
    for _ in range(3):
        fill(store)
    begin = store.begin
    list(retention_of(store).run(clock.now_ms()))
    assert store.begin == begin + 10 * 4096


def test_the_file_that_is_written_stays(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_force_ratio=ALWAYS)
    put(store, b"the only one")
    store.checkpoint()
    list(retention_of(store).run(clock.now_ms() + 10**12))
    assert bodies(store) == [b"the only one"]


def test_a_file_stays_until_a_checkpoint_covers_what_follows_it(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_force_ratio=ALWAYS)
    for body in TEN:
        put(store, body)
    store.publish()
    list(retention_of(store).run(clock.now_ms()))
    assert len(log_files(store)) == 5
    store.checkpoint()
    list(retention_of(store).run(clock.now_ms()))
    assert len(log_files(store)) == 1


@pytest.mark.covers("S-STORE-09")
def test_queue_and_index_forget_what_went(stores):
    clock = at(12)
    store = open_at(
        stores, clock, disk_force_ratio=ALWAYS, consume_queue_file_entries=3, index_entries=5, index_slots=8
    )
    fill(store)
    index, queue = Path(store.settings.layout.index), Path(store.settings.layout.queue("Orders", 0))
    assert len(list(index.iterdir())) == 3
    retention = retention_of(store)
    for _ in range(3):  # a queue may delete one file between two checkpoints
        list(retention.run(clock.now_ms()))
        store.checkpoint()
    kept = store.queues.get("Orders", 0)
    assert kept is not None and (kept.min_offset, kept.max_offset) == (8, 10)
    assert sorted(path.name for path in queue.iterdir()) == [f"{6 * 20:020d}", f"{9 * 20:020d}"]
    assert len(list(index.iterdir())) == 1
    assert store.read("Orders", 0, 7, 1).status is Status.OFFSET_TOO_SMALL
    assert store.query("Orders", "3", 64, 0, 1 << 60) == []
    assert len(store.query("Orders", "8", 64, 0, 1 << 60)) == 1


def test_a_restarted_store_begins_where_its_log_begins(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_force_ratio=ALWAYS, consume_queue_file_entries=3)
    fill(store)
    list(retention_of(store).run(clock.now_ms()))
    store.close()
    store = stores.open(clock=clock, consume_queue_file_entries=3)
    assert store.begin == 16384
    assert bodies(store) == TEN[8:]
    assert put(store, b"next")[1] == 10


def test_a_file_is_as_old_as_its_messages_wherever_it_was_copied(stores):
    clock = at(4)
    store = open_at(stores, clock)
    fill(store)
    store.close()
    for path in Path(store.settings.layout.commit_log).iterdir():
        path.touch()  # Java looks at this time
    store = open_at(stores, clock)
    days_later = clock.now_ms() + timedelta(hours=96) // timedelta(milliseconds=1)
    list(retention_of(store).run(days_later))
    assert log_files(store) == ["16384"]


async def test_a_full_disk_takes_no_message_until_there_is_room(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_full_ratio=ALWAYS)
    async with running(store):
        await clock.advance(10.1)
        for _ in range(15):
            with pytest.raises(DiskFull, match="no message is taken"):
                put(store)
            await clock.advance(2)
    store.close()
    store = open_at(stores, clock)
    put(store, b"there is room")
    assert bodies(store) == []


def test_a_topic_may_be_deleted_while_queues_forget(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_force_ratio=ALWAYS)
    put(store, topic="First")
    fill(store)
    pieces = retention_of(store).run(clock.now_ms())
    while len(log_files(store)) > 1:
        next(pieces)
    next(pieces)  # the first queue has forgotten, and the loop serves others
    store.delete_topic("Orders")
    list(pieces)
    assert [queue.topic for queue in store.queues] == ["First"]


async def test_a_full_disk_still_lets_the_store_write_checkpoints_and_close_in_order(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_full_ratio=ALWAYS)
    put(store, b"taken before")
    async with running(store):
        await clock.advance(10.1)
        store.checkpoint()
    store.close()
    assert not Disk().exists(store.settings.layout.abort)


def test_a_file_that_somebody_holds_stays_and_he_is_told(stores):
    clock = at(12)
    store = open_at(stores, clock, disk_force_ratio=ALWAYS)
    fill(store)
    retention = retention_of(store)
    store.hold.needed_from.append(lambda: 4096 + 100)
    list(retention.run(clock.now_ms()))
    assert store.begin == 4096 and store.hold.delete_before == 2 * 4096
    store.hold.needed_from.clear()
    list(retention.run(clock.now_ms()))
    assert store.begin > 4096


async def test_whoever_asks_has_old_files_deleted_at_any_hour_and_all_of_them(stores):
    clock = at(1)
    store = open_at(stores, clock)
    for number in range(30):
        put(store, b"%d" % number + BODY)
    store.checkpoint()
    await clock.advance(hours=80)
    async with running(store):
        await clock.advance(1)
        store.retention.request(Cleaning.QUEUES)
        await clock.advance(1)
        assert store.begin == 0
        store.retention.request(Cleaning.FILES)
        store.retention.request(Cleaning.QUEUES)
        await clock.advance(1)
        assert store.begin == 14 * 4096
        assert store.retention.take_request() is Cleaning.NOTHING


async def test_young_files_stay_even_if_somebody_asks(stores):
    clock = at(1)
    store = open_at(stores, clock)
    fill(store)
    async with running(store):
        store.retention.request(Cleaning.FILES)
        await clock.advance(1)
        assert bodies(store) == TEN


def test_a_damaged_time_does_not_let_a_young_file_go(stores):
    clock = at(4)
    store = open_at(stores, clock)
    fill(store)
    path = sorted(Path(store.settings.layout.commit_log).iterdir())[1]
    content = bytearray(path.read_bytes())
    content[56 + 2] ^= 1  # the store time of the first record of the second file, years back
    path.write_bytes(content)
    list(retention_of(store).run(clock.now_ms()))
    assert len(log_files(store)) == 5
    clock._start_ms += 73 * 3_600_000  # and it keeps no old one
    list(retention_of(store).run(clock.now_ms(), Cleaning.FILES))
    assert len(log_files(store)) == 1
    stores.leave_damaged()


async def test_a_clock_that_goes_ahead_while_the_store_runs_deletes_nothing(stores, caplog):
    clock = at(4)
    store = open_at(stores, clock, delete_when=";".join(map(str, range(24))))
    fill(store)
    async with running(store):
        await clock.advance(11)
        clock._start_ms += 96 * 3_600_000
        await clock.advance(30)
        assert store.begin == 0
        assert caplog.text.count("the clock is 345600 s ahead") == 1


@pytest.mark.parametrize("jump_h", [24 * 365, -24 * 365])
async def test_one_jump_of_the_clock_neither_keeps_files_for_ever_nor_deletes_them_early(stores, jump_h):
    clock = at(4)
    store = open_at(stores, clock)
    right_ms = clock._start_ms
    for number, body in enumerate(TEN):
        is_wrong = number in (4, 5)
        clock._start_ms = right_ms + (jump_h * 3_600_000 if is_wrong else 0)
        store.appender.time.begin(0)  # as if that had lasted
        put(store, body)
        store.publish()
        await clock.advance(3600)
        right_ms = clock._start_ms if not is_wrong else right_ms
    clock._start_ms = right_ms
    store.checkpoint()
    retention = retention_of(store)
    list(retention.run(clock.now_ms()))
    assert len(log_files(store)) == 5
    await clock.advance(
        73 * 3600 - 6 * 3600
    )  # what was sent in the right time before is old now, and what came last is not
    hour = datetime.fromtimestamp(clock.now_ms() / 1000).hour
    store.settings = replace(store.settings, delete_when=str(hour))
    list(retention.run(clock.now_ms()))
    assert log_files(store)[0] != "0" and len(log_files(store)) >= 2
    await clock.advance(24 * 3600)
    list(retention.run(clock.now_ms()))
    assert len(log_files(store)) == 1


@pytest.mark.parametrize("used", [0.5, 0.9])
def test_old_pieces_in_set_aside_go_every_hour_or_at_once_on_a_full_disk(stores, monkeypatch, used):
    store = open_at(stores, at(4))
    folder = Path(store.settings.layout.set_aside)
    folder.mkdir()
    retention = retention_of(store)
    store.settings = replace(store.settings, disk_force_ratio=0.85)
    now_ms = int(folder.stat().st_mtime * 1000)
    monkeypatch.setattr(store._vfs, "used_ratio", lambda _: used, raising=False)
    list(retention.run(now_ms))
    (folder / "0-9.cut").touch()
    list(retention.run(now_ms + 60_000))
    assert (folder / "0-9.cut").exists() == (used < 0.85)
    (folder / "0-9.cut").touch()
    list(retention.run(now_ms + 31 * 86_400_000))
    assert list(folder.iterdir()) == []
