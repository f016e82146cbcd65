"""A store is made of a copy only if all of the copy is sound; of a damaged one, what is sound on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from sparrowmq.broker.failover.group_state import OwnEpoch
from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore
from sparrowmq.store.care import manifest
from sparrowmq.store.care.backup import backup
from sparrowmq.store.care.restore import restore
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk
from tests.store.care.test_backup import Busy, assert_holds, filled
from tests.store.stores import Stores, bodies, put

DISK = Disk()
COUNT = 120


@pytest.fixture
def copy(stores: Stores, tmp_path: Path) -> Path:
    """A copy of a store of 120 messages, with a file of its broker."""
    store = filled(stores, COUNT)
    store.checkpoint()
    config = Path(stores.settings.layout.root, "config")
    snapshot.save(config / "topics.json", {"topics": {"Orders": 2}})
    backup(stores.settings, tmp_path / "copy", DISK)
    return tmp_path / "copy"


@pytest.fixture
def there(stores: Stores, tmp_path: Path) -> StoreSettings:
    return replace(stores.settings, path=tmp_path / "again")


def test_what_is_restored_is_the_store_again(stores: Stores, tmp_path: Path):
    store = filled(stores)
    config = Path(store.settings.layout.root, "config")
    config.mkdir()
    (config / "topics.json").write_text("{}")
    backup(stores.settings, tmp_path / "copy", DISK)
    there = replace(stores.settings, path=tmp_path / "again")
    restore(tmp_path / "copy", there, DISK)
    assert_holds(stores, tmp_path / "again", 60)
    assert (tmp_path / "again" / "config" / "topics.json").read_text() == "{}"
    assert_holds(stores, tmp_path / "copy", 60)


def test_a_restore_that_was_killed_leaves_no_store_and_the_next_one_succeeds(stores: Stores, tmp_path: Path):
    filled(stores)
    backup(stores.settings, tmp_path / "copy", DISK)
    there = replace(stores.settings, path=tmp_path / "again")

    class Killed(BaseException):
        """As if the process ended there."""

    def dies() -> Iterator[None]:
        for _ in range(5):
            yield
        raise Killed

    with pytest.raises(Killed):
        restore(tmp_path / "copy", there, Busy(dies()))
    assert not (tmp_path / "again").exists()
    restore(tmp_path / "copy", there, DISK)
    assert_holds(stores, tmp_path / "again", 60)


def test_a_copy_has_not_the_mark_of_the_store_and_what_is_restored_of_an_old_one_neither(
    stores: Stores, tmp_path: Path
) -> None:
    filled(stores)
    of_store, of_copy = Path(stores.settings.layout.root, "config"), tmp_path / "copy" / "config"
    mark = OwnEpoch.load(of_store)
    mark.save(7, "line")  # there is an epoch.json.bak now
    backup(stores.settings, tmp_path / "copy", DISK)
    assert list(of_copy.iterdir()) == []
    OwnEpoch.load(of_copy).save(6, "line")
    restore(tmp_path / "copy", replace(stores.settings, path=tmp_path / "again"), DISK)
    again = OwnEpoch.load(tmp_path / "again" / "config")
    assert (again.epoch, again.store != mark.store) == (0, True)
    assert OwnEpoch.load(of_store) == mark


def test_nothing_is_overwritten_and_no_copy_is_made_of_nothing(stores: Stores, tmp_path: Path):
    store = filled(stores)
    with pytest.raises(BadStore, match="is not empty"):
        backup(stores.settings, stores.settings.path, DISK)
    with pytest.raises(BadStore, match="there is no store"):
        backup(replace(stores.settings, path=tmp_path / "none"), tmp_path / "copy", DISK)
    with pytest.raises(BadStore, match="is not a finished copy"):
        restore(stores.settings.path, replace(stores.settings, path=tmp_path / "again"), DISK)  # a broker runs there
    backup(stores.settings, tmp_path / "copy", DISK)
    with pytest.raises(BadStore, match="is not empty"):
        restore(tmp_path / "copy", stores.settings, DISK)
    assert bodies(store)[0] == b"0"


def flip(path: Path) -> None:
    """Flip a bit in a file, at a byte that is not zero."""
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if byte]
    place = places[len(places) // 2]
    content[place] ^= 4
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])


DAMAGES: dict[str, Callable[[Path], None]] = {"a bit": flip, "cut": cut, "missing": Path.unlink}
FILES = ["commitlog", "consumequeue", "index", "config", "checkpoint", "ends", "manifest.json"]


def one_of(copy: Path, name: str) -> Path:
    """The first file of a folder of the copy, or a file itself."""
    path = copy / name
    return path if path.is_file() else min(each for each in path.rglob("*") if each.is_file())


# A copy of an earlier version has no manifest.
@pytest.mark.parametrize(
    ("name", "damage"),
    [pair for pair in product(FILES, DAMAGES) if pair != ("manifest.json", "missing")],
)
def test_a_damaged_copy_makes_no_store(
    copy: Path, there: StoreSettings, tmp_path: Path, name: str, damage: str
) -> None:
    path, told = one_of(copy, name), list[str]()
    DAMAGES[damage](path)
    before = {each: each.read_bytes() for each in copy.rglob("*") if each.is_file()}
    with pytest.raises(BadStore, match=r"is damaged \(\d+ problems?\), so no store was created"):
        restore(copy, there, DISK, report=told.append)
    assert any(str(path) in problem for problem in told), told
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "store"]
    assert before == {each: each.read_bytes() for each in copy.rglob("*") if each in before}


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "config"])
def test_a_damaged_copy_without_manifest_makes_no_store(copy: Path, there: StoreSettings, name: str) -> None:
    (copy / manifest.NAME).unlink()
    flip(one_of(copy, name))
    told: list[str] = []
    with pytest.raises(BadStore, match="no store was created"):
        restore(copy, there, DISK, report=told.append)
    assert told and not Path(there.path).exists()


def test_a_copy_without_manifest_is_restored(copy: Path, there: StoreSettings, stores: Stores) -> None:
    (copy / manifest.NAME).unlink()
    restore(copy, there, DISK)
    assert_holds(stores, Path(there.path), COUNT)


def test_a_file_that_is_no_part_of_the_copy_is_left_out(copy: Path, there: StoreSettings) -> None:
    (copy / "notes.txt").write_text("of a person")
    restore(copy, there, DISK)
    assert not Path(there.path, "notes.txt").exists() and not Path(there.path, manifest.NAME).exists()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["consumequeue", "index", "checkpoint", "ends"])
def test_salvage_builds_again_what_the_log_says(
    copy: Path, there: StoreSettings, stores: Stores, name: str, damage: str
) -> None:
    DAMAGES[damage](one_of(copy, name))
    told: list[str] = []
    restore(copy, there, DISK, report=told.append, salvage=True)
    assert_holds(stores, Path(there.path), COUNT)
    assert told and not any(line.startswith("missing") for line in told)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", [0, 1, -1])
def test_salvage_says_which_messages_are_missing(
    copy: Path, there: StoreSettings, stores: Stores, number: int, damage: str
) -> None:
    """Of a log file in the middle, the first and the last: all others are there, and no offset is given twice."""
    files = sorted((copy / "commitlog").iterdir())
    whole = stores.open(path=copy)
    ends = [whole.queues.get("Orders", queue).max_offset for queue in (0, 1)]  # type: ignore[union-attr]
    whole.close()
    backup(replace(stores.settings, path=copy), copy.with_name("other"), DISK)
    copy = copy.with_name("other")
    DAMAGES[damage](copy / "commitlog" / files[number].name)
    told: list[str] = []
    restore(copy, there, DISK, report=told.append, salvage=True)
    store = stores.open(path=there.path)
    found = [bodies(store, queue_id=queue) for queue in (0, 1)]
    assert 10 < sum(map(len, found)) < COUNT
    for queue in (0, 1):
        wanted = [b"%d" % each for each in range(queue, COUNT, 2)]
        assert [body for body in wanted if body in found[queue]] == found[queue]
    if number >= 0:
        assert [put(store, b"new", queue_id=queue)[1] for queue in (0, 1)] == ends
    assert any(line.startswith("missing: the messages from offset") for line in told), told


def test_salvage_takes_the_older_content_of_a_file_of_the_broker_or_deletes_it(
    copy: Path, there: StoreSettings
) -> None:
    flip(copy / "config" / "topics.json")
    told: list[str] = []
    restore(copy, there, DISK, report=told.append, salvage=True)
    assert not Path(there.path, "config", "topics.json").exists()
    assert "missing: topics.json, with its content" in told


def test_progress_of_a_restore_is_shown(copy: Path, there: StoreSettings) -> None:
    seen: set[str] = set()
    restore(copy, there, DISK, lambda what, _done, _total: seen.add(what))
    assert seen == {"checking the log", "checking queues"}
