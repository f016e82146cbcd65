"""A master leaves the lead to another member in sync when its disk is full, hangs or is slow; not for a moment."""

from __future__ import annotations

import asyncio
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from sparrowmq.broker import member
from sparrowmq.broker.failover import handover
from sparrowmq.broker.failover.handover import LEAVES_AGAIN_S, PAUSE_S, STAYS_S, RoomWatch, SlowWatch
from sparrowmq.errors import DiskFull, RemoteError
from sparrowmq.store import vfs
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush, StoreSettings
from sparrowmq.testing import ManualClock
from tests.broker.conftest import until
from tests.broker.members import LONG_LEASE_S, OK, Members
from tests.interop.etcd import needs_etcd
from tests.store.stores import put


async def test_a_disk_that_was_full_for_a_moment_is_no_reason_to_hand_over(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watch = RoomWatch(clock, 4)
        for full, seconds, is_short in (
            (False, 9, False),
            (True, 3, False),
            (False, 9, False),
            (True, 5, True),
        ):
            found = []
            for _ in range(2 * seconds):
                store.appender.full_error = DiskFull("no room") if full else None
                found.append(watch.is_short(store, True))
                await clock.advance(0.5)
            assert any(found) == is_short, (full, seconds)
        assert not watch.is_short(store, True)  # it has just said so
        store.appender.full_error = None


async def test_the_lead_does_not_go_around_when_the_disks_of_all_members_are_full(tmp_path: Path) -> None:
    """A member that left the lead, and came back to it, was the master of others without room in between."""
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watch, left_at = RoomWatch(clock, 4), list[float]()
        while clock.monotonic() < 2 * LEAVES_AGAIN_S:
            store.appender.full_error = DiskFull("no room")
            if watch.is_short(store, True):
                left_at.append(clock.monotonic())
                watch.note_leave()
                await clock.advance(20)  # as a slave, and without a master
            await clock.advance(0.5)
        assert left_at[0] < 5
        assert [round(after - before) for before, after in pairwise(left_at)] == [LEAVES_AGAIN_S]
        store.appender.full_error = None


async def test_a_full_master_hands_over_as_soon_as_another_member_can_lead(tmp_path: Path) -> None:
    """The disks of all members were full, and another one has room again."""
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watch = RoomWatch(clock, 4)
        for _ in range(20):
            store.appender.full_error = DiskFull("no room")
            assert not watch.is_short(store, False)
            await clock.advance(0.5)
        assert watch.is_short(store, True)
        store.appender.full_error = None


async def test_a_handover_that_was_impossible_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watch, found = RoomWatch(clock, 4), list[float]()
        for _ in range(160):
            store.appender.full_error = DiskFull("no room")
            if watch.is_short(store, True):
                found.append(clock.monotonic())
            await clock.advance(0.5)
        assert [after - before for before, after in pairwise(found)] == [PAUSE_S, PAUSE_S]
        store.appender.full_error = None


class Watched:
    """A store whose log comes to the disk when a test says so, and the watch of its disk."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        self.store = store
        self.watch = SlowWatch(clock, 4)
        self._clock = clock

    async def looks(self, seconds: float, sync_s: float = 1e9) -> list[str]:
        """The problems that are seen while messages come all the time, and a sync takes so long."""
        found, syncing_s = [], 0.0
        for _ in range(int(2 * seconds)):
            put(self.store)
            syncing_s += 0.5
            if syncing_s >= sync_s:
                self.store.flush()
                syncing_s = 0.0
            found.append(self.watch.problem(self.store))
            await self._clock.advance(0.5)
        return [each for each in found if each]


async def test_a_disk_that_hangs_is_a_reason_to_leave_even_right_after_an_election(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watched = Watched(store, clock)
        assert await watched.looks(4.5) == []  # below the patience of 4 s
        found = await watched.looks(1)
        assert found and found[0].endswith("no message came to the disk")
        store.flush()
        assert watched.watch.problem(store) == ""
        assert await watched.looks(3) == []
        assert await watched.looks(3) != []


async def test_a_member_leaves_the_lead_for_a_slow_disk_again_only_after_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watched = Watched(store, clock)
        assert await watched.looks(STAYS_S - 3, sync_s=3) == []  # right after the election
        assert await watched.looks(30, sync_s=3) != []
        watched.watch.note_leave()
        watched.watch.begin()
        assert await watched.looks(LEAVES_AGAIN_S - STAYS_S, sync_s=3) == []
        assert await watched.looks(2 * STAYS_S, sync_s=3) != []


@pytest.mark.parametrize("elected", [False, True])
async def test_a_disk_that_was_slow_and_then_hangs_is_a_reason_to_leave_at_once(tmp_path: Path, elected: bool) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watched = Watched(store, clock)
        assert await watched.looks(60, sync_s=3) != []
        watched.watch.note_leave()
        if elected:
            watched.watch.begin()
        assert [each for each in await watched.looks(6) if each.endswith("no message came to the disk")]


async def test_the_lead_does_not_go_around_when_the_disks_of_all_members_hang(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watched = Watched(store, clock)
        assert await watched.looks(6) != []
        watched.watch.note_leave()
        watched.watch.begin()
        assert await watched.looks(STAYS_S - 1) == []
        assert await watched.looks(3) != []
        watched.watch.note_leave()
        await clock.advance(LEAVES_AGAIN_S)
        watched.watch.begin()
        assert await watched.looks(6) != []


@pytest.mark.parametrize(("sync_s", "is_slow"), [(0.5, False), (1.0, False), (3.0, True)])
async def test_syncs_that_take_seconds_for_a_while_are_a_reason_to_leave(
    tmp_path: Path, sync_s: float, is_slow: bool
) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watched = Watched(store, clock)
        await clock.advance(STAYS_S)
        found = await watched.looks(90, sync_s)
        assert bool(found) == is_slow
        assert all("messages waited for the disk" in each for each in found)


async def test_an_idle_disk_is_not_slow(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(StoreSettings(tmp_path), clock=clock) as store:
        watch = SlowWatch(clock, 4)
        for _ in range(3):
            put(store)
            store.flush()
            for _ in range(200):
                assert watch.problem(store) == ""
                await clock.advance(0.5)
            put(store)
            assert watch.problem(store) == ""
            store.flush()


@pytest.mark.slow
@needs_etcd
async def test_a_master_whose_disk_hangs_lets_another_member_in_sync_lead(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "STAYS_S", 0.0)
    members.change(1, flush=Flush.SYNC)
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    works, sync_data, folder = threading.Event(), vfs._sync_data, str(members.settings(1).store_path)

    def hang(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(folder):
            works.wait(20)
        sync_data(descriptor)

    def stop() -> None:
        works.set()  # it would wait for the disk on the loop, which is that of both members here
        type(flusher).stop(flusher)

    broker = members.member(1).broker
    assert broker is not None
    flusher = broker.store.flusher
    monkeypatch.setattr(flusher, "stop", stop)
    monkeypatch.setattr(vfs, "_sync_data", hang)
    waits = asyncio.ensure_future(members.send(1, b"not on a disk"))
    try:
        await until(lambda: members.member(2).leads, 30)
    finally:
        works.set()
    assert await waits != OK
    assert await members.leader(2) == 2
    await members.in_sync(1, 2)
    assert await members.send(2, b"there") == OK
    assert b"both" in await members.all_bodies(2) and b"not on a disk" not in await members.all_bodies(2)


@needs_etcd
async def test_a_master_that_is_alone_in_sync_goes_on_with_a_disk_that_hangs(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def hangs(*_: object) -> str:
        looks.append(None)
        return "the disk hangs"

    monkeypatch.setattr(SlowWatch, "problem", hangs)
    first = await members.start(1, lease_s=LONG_LEASE_S)
    await members.leader()
    await until(lambda: len(looks) > 3, 30)
    assert first.leads and (await members.state()).epoch == 1


@needs_etcd
async def test_a_master_with_a_slow_disk_goes_on_while_the_others_in_sync_are_away(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Etcd still has them in sync. If they do not come back, only this member can lead."""
    await members.two_in_sync()
    first = members.member(1)
    assert first._in_sync is not None
    monkeypatch.setattr(first._in_sync, "end_of", lambda _: -1)
    await first._leave_slow_disk("the disk is slow")
    assert first.leads and not first._is_deposed
    monkeypatch.undo()
    monkeypatch.setattr(member, "drain", gone)
    await first._leave_slow_disk("the disk is slow")
    assert await members.leader(2) == 2


async def gone(*_: object) -> None:
    raise RemoteError(1, "not in time")
