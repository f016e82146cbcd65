"""A backup folder: points that share files, each whole by itself, and old ones that go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.store.care import manifest
from sparrowmq.store.care.backup import RestorePoints
from sparrowmq.store.care.manifest import copy_problems
from sparrowmq.store.care.restore import restore
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.vfs import Disk
from tests.store.care.syncs import SyncedDisk
from tests.store.care.test_backup import Busy, age, assert_holds, filled
from tests.store.stores import Stores, put

DISK = Disk()
NOON_MS = 1_795_348_800_000
SECOND = 1000


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    found = filled(stores)
    found.checkpoint()
    age(stores.settings.path)
    return found


@pytest.fixture
def points(tmp_path: Path) -> RestorePoints:
    return RestorePoints(DISK, tmp_path / "backup")


def assert_whole(stores: Stores, path: str | Path) -> None:
    assert list(copy_problems(replace(stores.settings, path=path), DISK)) == []


def test_each_point_has_all_that_was_stored_when_it_began(
    stores: Stores, store: MessageStore, points: RestorePoints, tmp_path: Path
) -> None:
    first = points.add(stores.settings, NOON_MS)
    assert Path(first.path).name == "20261122T120000Z" and first.linked_count == 0 and first.copied_count > 5
    for number in range(60, 130):
        put(store, b"%d" % number, queue_id=number % 2, key=f"k{number}")
    store.publish()
    second = points.add(stores.settings, NOON_MS + SECOND)
    assert second.linked_count >= 3 and second.end > first.end
    assert points.names() == ["20261122T120000Z", "20261122T120001Z"]
    for point, count in ((first, 60), (second, 130)):
        assert_whole(stores, point.path)
        restore(point.path, replace(stores.settings, path=tmp_path / f"of-{count}"), DISK)
        assert_holds(stores, tmp_path / f"of-{count}", count)
        assert_whole(stores, point.path)
    assert points.path() == second.path and points.path("20261122T120000Z") == first.path


def test_only_the_newest_points_stay_and_are_whole(stores: Stores, store: MessageStore, points: RestorePoints) -> None:
    added = [points.add(stores.settings, NOON_MS + number * SECOND, keep=2) for number in range(4)]
    assert added[-1].dropped_names == ["20261122T120001Z"]
    assert points.names() == ["20261122T120002Z", "20261122T120003Z"]
    for name in points.names():
        assert_whole(stores, points.path(name))
    assert points.add(stores.settings, NOON_MS + 9 * SECOND, keep=20).dropped_names == []


def test_a_clock_that_was_set_back_makes_no_older_point(
    stores: Stores, store: MessageStore, points: RestorePoints
) -> None:
    points.add(stores.settings, NOON_MS)
    again = points.add(stores.settings, NOON_MS - 5 * SECOND)
    assert points.path() == again.path and Path(again.path).name == "20261122T120001Z"


def test_an_interrupted_backup_leaves_the_point_before_whole(
    stores: Stores, store: MessageStore, points: RestorePoints, tmp_path: Path
) -> None:
    first = points.add(stores.settings, NOON_MS)

    def fails() -> Iterator[None]:
        yield
        raise DiskFull("no room on the disk")

    with pytest.raises(DiskFull):
        RestorePoints(Busy(fails()), tmp_path / "backup").add(stores.settings, NOON_MS + SECOND, keep=1)
    assert [path.name for path in (tmp_path / "backup").iterdir()] == ["20261122T120000Z"]
    assert_whole(stores, first.path)


def test_what_a_killed_backup_left_is_never_a_point_and_goes_with_the_next_one(
    stores: Stores, store: MessageStore, points: RestorePoints, tmp_path: Path
) -> None:
    first = Path(points.add(stores.settings, NOON_MS).path)
    left = tmp_path / "backup" / "20261122T120001Z.unfinished"
    (left / "commitlog").mkdir(parents=True)
    (left / manifest.NAME).write_bytes((first / manifest.NAME).read_bytes())
    assert points.names() == [first.name]
    points.add(stores.settings, NOON_MS + 2 * SECOND)
    assert points.names() == [first.name, "20261122T120002Z"] and not left.exists()


def test_a_damaged_file_of_the_point_before_is_found_and_copied_again(
    stores: Stores, store: MessageStore, points: RestorePoints
) -> None:
    first = Path(points.add(stores.settings, NOON_MS).path)
    rotten = min((first / "commitlog").iterdir())
    content = bytearray(rotten.read_bytes())
    content[1000] ^= 1
    rotten.write_bytes(content)
    second = points.add(stores.settings, NOON_MS + SECOND, is_checked=True)
    assert_whole(stores, second.path)
    third = points.add(stores.settings, NOON_MS + 2 * SECOND)
    assert_whole(stores, third.path)
    assert third.linked_count == second.linked_count + 1


def test_without_a_sound_manifest_everything_is_copied(
    stores: Stores, store: MessageStore, points: RestorePoints, caplog: pytest.LogCaptureFixture
) -> None:
    first = Path(points.add(stores.settings, NOON_MS).path)
    (first / manifest.NAME).write_text("{}")
    assert points.add(stores.settings, NOON_MS + SECOND).linked_count == 0
    assert "all files are copied again" in caplog.text


def test_a_folder_of_something_else_is_left_alone(
    stores: Stores, store: MessageStore, points: RestorePoints, tmp_path: Path
) -> None:
    with pytest.raises(BadStore, match="has no restore point; it has none"):
        points.path()
    (tmp_path / "backup" / "lost+found").mkdir(parents=True)
    points.add(stores.settings, NOON_MS)
    with pytest.raises(BadStore, match="has no restore point nine; it has 20261122T120000Z"):
        points.path("nine")
    (tmp_path / "backup" / "commitlog").mkdir()
    with pytest.raises(BadStore, match="contains commitlog, which is not a restore point"):
        points.add(stores.settings, NOON_MS)
    with pytest.raises(BadStore, match="is a file; choose a folder"):
        RestorePoints(DISK, stores.settings.layout.checkpoint).add(stores.settings, NOON_MS)


def test_two_backups_at_once_do_not_meet(
    stores: Stores, store: MessageStore, points: RestorePoints, tmp_path: Path
) -> None:
    def meets() -> Iterator[None]:
        with pytest.raises(BadStore, match=r"another backup into .* is under way"):
            points.add(stores.settings, NOON_MS)
        yield

    RestorePoints(Busy(meets()), tmp_path / "backup").add(stores.settings, NOON_MS)
    assert points.names() == ["20261122T120000Z"]


def test_two_backups_in_a_second_are_two_points(stores: Stores, store: MessageStore, points: RestorePoints) -> None:
    for _ in range(2):
        points.add(stores.settings, NOON_MS)
    assert points.names() == ["20261122T120000Z", "20261122T120001Z"]


def test_a_copy_gets_its_name_once_a_power_cut_can_lose_nothing_of_it(
    stores: Stores, store: MessageStore, tmp_path: Path
) -> None:
    disk = SyncedDisk()
    points = RestorePoints(disk, tmp_path / "backup")
    snapshot.save(tmp_path / "store" / "config" / "topics.json", {})
    (tmp_path / "store" / "timers").mkdir()
    (tmp_path / "store" / "timers" / "1").touch()
    made = [points.add(stores.settings, NOON_MS + number * SECOND).path for number in range(2)]
    restore(made[1], replace(stores.settings, path=tmp_path / "again"), disk)
    assert disk.renamed == [*made, str(tmp_path / "again")]
    assert [each for each in disk.unsynced if ".unfinished" not in each] == []
