"""A slave and the bytes of its master: compared, kept, reported; or refused. The master speaks as Java's does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.replication.ha_slave import COMPARED_BYTES, MasterLink
from sparrowmq.errors import CorruptRecord, DiskFull, LogsDiffer, RemoteProtocolError
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import replication
from sparrowmq.store.message_store import MessageStore
from sparrowmq.testing.clock import ManualClock
from tests.broker.conftest import until
from tests.broker.replication.masters import Followed, ScriptedMaster, scripted_master
from tests.store.conftest import stores as stores
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import Stores, bodies, put

FILE_SIZE = 256 << 10


@pytest.fixture
def master_store(stores: Stores, tmp_path: Path) -> MessageStore:
    return stores.open(path=tmp_path / "master", commit_log_file_size=FILE_SIZE)


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    store = stores.open(commit_log_file_size=FILE_SIZE)
    with ThreadPoolExecutor(1) as executor:
        store.tend(executor)  # as in a broker that runs
    return store


@pytest.fixture
async def master() -> AsyncIterator[ScriptedMaster]:
    async with scripted_master() as master:
        yield master


@asynccontextmanager
async def following(
    store: MessageStore, master: ScriptedMaster, **rules: Any
) -> AsyncIterator[tuple[MasterLink, Followed]]:
    host, _, port = master.address.rpartition(":")
    clock = ManualClock()
    _, link = await asyncio.get_running_loop().create_connection(
        lambda: MasterLink(store, clock, **rules), host, int(port)
    )
    try:
        yield link, await master.slave()
    finally:
        link.close()


def fill(store: MessageStore, count: int, body: bytes = b"body") -> int:
    for _ in range(count):
        put(store, body)
    store.publish()
    return store.end


def log(store: MessageStore, begin: int = 0, end: int | None = None) -> bytes:
    content = b""
    while begin + len(content) < store.end:
        content += bytes(store.log_bytes(begin + len(content), 1 << 30) or b"")
    return content if end is None else content[: end - begin]


def copy(source: MessageStore, target: MessageStore) -> None:
    target.follow(target.end, log(source, target.end))
    target.publish()


async def test_a_slave_with_nothing_takes_all_and_reports_whole_records_only(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    size = fill(master_store, 1)
    fill(master_store, 4)
    content = log(master_store)
    async with following(store, master) as (link, slave):
        assert await slave.report() == 0
        slave.ship(0, content[: size + 9])
        await slave.reported(size)
        slave.ship(size + 9, content[size + 9 :])
        await slave.reported(5 * size)
        assert link.is_following and link.master_end == 5 * size
    assert log(store) == content and bodies(store) == [b"body"] * 5


async def test_a_slave_begins_where_the_masters_log_begins(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster, stores: Stores
) -> None:
    while master_store.end < FILE_SIZE + 5000:
        fill(master_store, 1, bytes(5000))
    content = log(master_store, FILE_SIZE)
    async with following(store, master) as (_, slave):
        assert await slave.report() == 0
        slave.ship(FILE_SIZE, content)
        await slave.reported(master_store.end)
    assert (store.begin, store.end) == (FILE_SIZE, master_store.end) and log(store, FILE_SIZE) == content
    stores.crash(store)
    again = stores.open(commit_log_file_size=FILE_SIZE)
    assert (again.begin, again.end) == (FILE_SIZE, master_store.end) and bodies(again) != []


async def test_a_log_that_cannot_begin_there_is_refused(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    fill(master_store, 1)
    async with following(store, master) as (link, slave):
        slave.ship(FILE_SIZE + 512, log(master_store))
        assert await slave.has_left()
        assert "the log cannot begin at" in str(link.error)
    assert store.end == 0


async def test_a_slave_that_was_away_for_too_long_says_so(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    end = fill(master_store, 5)
    copy(master_store, store)
    async with following(store, master) as (link, slave):
        await slave.report()
        slave.ship(FILE_SIZE, b"")
        assert await slave.has_left()
        assert isinstance(link.error, LogsDiffer)
        assert f"log begins at offset {FILE_SIZE}, and ours ends at {end}: this slave was away" in str(link.error)
    assert store.end == end


async def test_the_end_of_the_log_is_asked_for_again_and_compared(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    end = fill(master_store, 1000, bytes(100))
    copy(master_store, store)
    fill(master_store, 3)
    content = log(master_store)
    async with following(store, master) as (link, slave):
        begin = await slave.report()
        assert begin == end - COMPARED_BYTES > 0
        slave.ship(begin, content[begin : begin + 1000])
        await asyncio.sleep(0.02)
        assert not link.is_following
        slave.ship(begin + 1000, content[begin + 1000 :])
        await slave.reported(len(content))
        assert link.is_following
    assert log(store) == content


async def test_before_all_is_compared_nothing_is_acknowledged(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    fill(master_store, 100)
    copy(master_store, store)
    content = log(master_store)
    async with following(store, master) as (link, slave):
        assert await slave.report() == 0
        slave.ship(0, content[:500])
        await until(lambda: link.has_heard)
        link.report()
        assert await slave.report() <= 500 < store.end
        slave.ship(500, content[500:])
        await slave.reported(store.end)


async def test_a_master_with_other_bytes_is_not_followed_and_nothing_is_changed(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    fill(master_store, 50)
    fill(store, 50, b"ydob")
    ours = log(store)
    fill(master_store, 10)
    async with following(store, master) as (link, slave):
        slave.ship(0, log(master_store))
        assert await slave.has_left()
        assert isinstance(link.error, LogsDiffer) and "log differs from ours between 0 and" in str(link.error)
    assert log(store) == ours and not link.is_following


async def test_one_of_our_masters_that_has_less_says_so_and_is_not_followed(
    store: MessageStore, master: ScriptedMaster
) -> None:
    size = fill(store, 1)
    fill(store, 3000)
    async with following(store, master) as (link, slave):
        begin = await slave.report()
        assert begin > size
        slave.ship(size)  # a sign of life, from where its log ends
        assert await slave.has_left()
        assert isinstance(link.error, LogsDiffer) and "it lost its last messages" in str(link.error)


async def test_a_master_of_javas_that_has_less_sends_signs_of_life_and_nothing_else(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    fill(master_store, 5)
    copy(master_store, store)
    fill(store, 1)
    async with following(store, master) as (link, slave):
        begin = await slave.report()
        slave.ship(begin)  # It was on its way, before anything was asked for.
        slave.ship(begin, log(master_store))
        slave.ship(master_store.end)
        await until(lambda: link.master_end == master_store.end)
        await asyncio.sleep(0.02)
        assert link.error is None
        slave.ship(master_store.end)
        assert await slave.has_left()
        assert isinstance(link.error, LogsDiffer)


async def test_two_that_have_nothing_follow_each_other(store: MessageStore, master: ScriptedMaster) -> None:
    async with following(store, master) as (link, slave):
        slave.ship(0)
        await until(lambda: link.is_following)


async def test_bytes_that_do_not_follow_end_the_connection(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    size = fill(master_store, 1)
    fill(master_store, 2)
    content = log(master_store)
    async with following(store, master) as (link, slave):
        slave.ship(0, content[:size])
        await slave.reported(size)
        slave.ship(2 * size, content[2 * size :])
        assert await slave.has_left()
        assert isinstance(link.error, RemoteProtocolError)
    assert store.end == size


async def test_a_damaged_record_is_not_kept_and_ends_the_connection(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    size = fill(master_store, 1)
    fill(master_store, 2)
    content = bytearray(log(master_store))
    content[2 * size - 20] ^= 1
    async with following(store, master) as (link, slave):
        slave.ship(0, bytes(content))
        assert await slave.has_left()
        assert isinstance(link.error, CorruptRecord)
    store.publish()
    assert store.end == size and bodies(store) == [b"body"]


async def test_a_full_disk_ends_the_connection_and_the_next_goes_on(
    stores: Stores, master_store: MessageStore, master: ScriptedMaster
) -> None:
    disk, clock = FaultyDisk(), ManualClock()
    store = stores.open(vfs=disk, clock=clock, commit_log_file_size=FILE_SIZE)
    while master_store.end < FILE_SIZE + 5000:
        fill(master_store, 1, bytes(5000))
    content = log(master_store)
    disk.full_for = ("commitlog/0000000000000026",)
    async with following(store, master) as (link, slave):
        slave.ship(0, content)
        assert await slave.has_left()
        assert isinstance(link.error, DiskFull)
    assert store.end == FILE_SIZE
    disk.full_for = ()
    await clock.advance(2)
    async with following(store, master) as (link, slave):
        begin = await slave.report()
        slave.ship(begin, content[begin:])
        await slave.reported(len(content))
    assert log(store) == content


@pytest.mark.parametrize("size", [100, 2000], ids=["less than is compared", "more"])
async def test_with_flushed_no_report_of_a_new_connection_names_more_than_is_on_disk(
    stores: Stores, master_store: MessageStore, master: ScriptedMaster, size: int
) -> None:
    disk = FaultyDisk()
    store = stores.open(vfs=disk, commit_log_file_size=FILE_SIZE)
    on_disk = fill(master_store, 50, bytes(size))
    copy(master_store, store)
    store.flush()
    running = asyncio.ensure_future(store.run(Turn()))
    await asyncio.sleep(0)
    disk.may_sync.clear()
    fill(master_store, 60, bytes(size))
    copy(master_store, store)
    content = log(master_store)
    try:
        async with following(store, master, is_flushed_first=True) as (link, slave):
            begin = await slave.report()
            assert begin <= on_disk < store.end == len(content)
            slave.ship(begin, content[begin : on_disk + 100])
            await until(lambda: link.master_end == on_disk + 100)
            link.report()
            assert await slave.report() <= on_disk
            slave.ship(on_disk + 100, content[on_disk + 100 :])
            await until(lambda: link.is_following)
            link.report()
            assert await slave.report() == on_disk
            disk.may_sync.set()
            await slave.reported(len(content))
    finally:
        disk.may_sync.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_with_flushed_only_what_is_on_disk_is_reported(
    stores: Stores, master_store: MessageStore, master: ScriptedMaster
) -> None:
    disk = FaultyDisk()
    store = stores.open(vfs=disk, commit_log_file_size=FILE_SIZE)
    size = fill(master_store, 1)
    running = asyncio.ensure_future(store.run(Turn()))
    await asyncio.sleep(0)
    async with following(store, master, is_flushed_first=True) as (link, slave):
        assert await slave.report() == 0
        slave.ship(0, log(master_store))
        await slave.reported(size)
        disk.may_sync.clear()
        fill(master_store, 1)
        slave.ship(size, log(master_store, size))
        await until(lambda: store.end == 2 * size)
        link.report()
        assert await slave.report() == size
        disk.may_sync.set()
        await slave.reported(2 * size)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_that_what_is_written_is_reported(
    stores: Stores, master_store: MessageStore, master: ScriptedMaster
) -> None:
    disk = FaultyDisk()
    store = stores.open(vfs=disk, commit_log_file_size=FILE_SIZE)
    size = fill(master_store, 1)
    async with following(store, master) as (_, slave):
        slave.ship(0, log(master_store))
        await slave.reported(size)
        assert store.flushed.value < size


# With a secret ------------------------------------------------------------------------------------------------------


async def test_a_slave_says_nothing_before_its_master_has_shown_the_secret(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    size = fill(master_store, 1)
    async with following(store, master, secret="Xq3") as (link, slave):
        link.report()
        assert await slave.introduce("Xq3")
        assert await slave.report() == 0
        slave.ship(0, log(master_store))
        await slave.reported(size)


async def test_a_master_with_another_secret_or_none_is_left(
    store: MessageStore, master_store: MessageStore, master: ScriptedMaster
) -> None:
    async with following(store, master, secret="Xq3") as (link, slave):
        assert not await slave.introduce("another")
        assert await slave.has_left() and "another haSecret than this slave" in str(link.error)
    async with following(store, master, secret="Xq3") as (link, slave):
        slave.ship(0)
        assert await slave.has_left() and "the master shows no secret" in str(link.error)
    async with following(store, master, secret="Xq3") as (link, slave):
        heard = replication.proof("Xq3", "master", replication.hello(), replication.hello())
        assert not await slave.introduce("Xq3", heard)
    assert store.end == 0


# Where the master is elected ----------------------------------------------------------------------------------------


async def test_a_member_says_who_it_is_ahead_of_its_first_report(store: MessageStore, master: ScriptedMaster) -> None:
    who = replication.introduction(3, 9)
    async with following(store, master, introduction=who) as (_, slave):
        assert await asyncio.wait_for(slave.reader.readexactly(len(who)), 10) == who
        assert await slave.report() == 0
