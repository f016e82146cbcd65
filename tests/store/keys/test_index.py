"""The hash index: its files byte for byte, and what is found by a key."""

import errno
import os
import struct
from datetime import datetime
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.kernel.index_layout import SLOT_BYTES
from sparrowmq.kernel.log_tail import KeyHashes
from sparrowmq.store.index import (
    ENTRY,
    HEADER,
    NAME_DIGITS,
    Index,
)
from sparrowmq.store.index_keys import add_keys, key_hash
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, Unsynced, Vfs
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import Stores, put

NOON_MS = round(datetime(2026, 3, 4, 12, 0, 0, 5000).timestamp() * 1000)
SLOTS, ENTRIES = 16, 8
MANY = 48
EVER = (0, 1 << 60)


def index_in(folder: Path, slots: int = SLOTS, entries: int = ENTRIES, vfs: Vfs | None = None) -> Index:
    return Index(vfs or Disk(), str(folder), slots, entries, Unsynced())


# Topic, offset of the record, its store timestamp in ms, its keys, its unique key.
Row = tuple[str, int, int, tuple[str, ...], str | None]


def add(index: Index, rows: list[Row]) -> None:
    index.put(keys_of(rows))


def keys_of(rows: list[Row]) -> KeyHashes:
    keys = KeyHashes()
    for row in rows:
        add_keys(keys, *row)
    return keys


def keyed(number: int, key: str, topic: str = "T", step_ms: int = 1000) -> Row:
    """The n-th record lies at 100 n, was stored n seconds after noon, and has one key."""
    return topic, 100 * number, NOON_MS + step_ms * number, (key,), None


def write_out(index: Index) -> None:
    """As a checkpoint does."""
    for unwritten in index.take_unwritten():
        unwritten.write(Disk())


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def found(index: Index, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> list[int]:
    """The offsets of a search, each once."""
    offsets = dict.fromkeys(offset for offset in index.find(topic, key, begin_ms, end_ms) if offset >= 0)
    return list(offsets)[:limit]


# Files


@pytest.mark.covers("S-STORE-04")
def test_a_file_of_java_size_has_420000040_bytes(tmp_path: Path):
    settings = StoreSettings(tmp_path)
    assert HEADER.size == 40 and SLOT_BYTES == 4 and ENTRY.size == 20
    assert HEADER.size + settings.index_slots * SLOT_BYTES + settings.index_entries * ENTRY.size == 420_000_040


@pytest.mark.covers("S-STORE-04")
def test_header_slots_and_entries_lie_where_java_puts_them(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(1, "a"), keyed(3, "b")])
    add(index, [keyed(66, "a")])
    write_out(index)
    (content,) = contents(tmp_path)
    assert len(content) == 40 + SLOTS * 4 + ENTRIES * 20
    header = struct.unpack(">qqqqii", content[:40])
    assert header == (NOON_MS + 1000, NOON_MS + 66_000, 100, 6600, 2, 4)
    a, b = ord("T") * 961 + ord("#") * 31 + ord("a"), ord("T") * 961 + ord("#") * 31 + ord("b")
    slots = struct.unpack(f">{SLOTS}i", content[40 : 40 + SLOTS * 4])
    assert {slot: number for slot, number in enumerate(slots) if number} == {a % SLOTS: 3, b % SLOTS: 2}
    entries = [struct.unpack_from(">iqii", content, 40 + SLOTS * 4 + 20 * number) for number in range(4)]
    # Hash, offset, seconds after the first record, the slot's entry before. Entry 0 is not used.
    assert entries == [(0, 0, 0, 0), (a, 100, 0, 0), (b, 300, 2, 0), (a, 6600, 65, 1)]


@pytest.mark.covers("S-STORE-04")
def test_a_file_is_named_after_the_time_of_its_first_record(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(0, "a")])
    assert [path.name for path in tmp_path.iterdir()] == ["20260304120000005"]


def test_a_full_file_is_followed_by_another_with_a_higher_name(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, f"k{number}", step_ms=0) for number in range(20)])  # all in one millisecond
    assert [path.name[-3:] for path in sorted(tmp_path.iterdir())] == ["005", "006", "007"]
    assert [len(found(index, "T", f"k{number}", 64, *EVER)) for number in range(20)] == [1] * 20


def test_a_new_file_begins_where_the_last_one_ends(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, f"k{number}") for number in range(7)])
    add(index, [keyed(9, "next")])
    first, second = index.files
    assert (first.end_offset, first.end_ms) == (600, NOON_MS + 6000)
    assert index.end_offset == 900 and index.end_ms == NOON_MS + 9000
    assert second.begin_ms <= NOON_MS + 9000 and second.begin_offset <= 900


def test_an_index_is_found_again(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, f"k{number}") for number in range(10)])
    write_out(index)
    index.close()
    index = index_in(tmp_path)
    assert [found(index, "T", f"k{number}", 64, *EVER) for number in range(10)] == [[100 * n] for n in range(10)]
    assert index.end_offset == 900


def test_an_index_without_files_knows_nothing(tmp_path: Path):
    index = index_in(tmp_path)
    assert (index.end_offset, index.end_ms, found(index, "T", "k", 64, *EVER)) == (-1, 0, [])


def test_a_file_that_a_crash_left_short_goes_if_it_never_served(tmp_path: Path):
    (tmp_path / f"{5:0{NAME_DIGITS}d}").write_bytes(bytes(100))
    assert index_in(tmp_path).files == [] and list(tmp_path.iterdir()) == []


def test_a_file_that_is_too_large_is_refused_with_what_to_do(tmp_path: Path):
    add(index_in(tmp_path), [keyed(0, "a")])
    with pytest.raises(BadStore, match="set maxHashSlotNum and maxIndexNum as they were, or delete the folder"):
        index_in(tmp_path, slots=SLOTS - 1)


@pytest.mark.parametrize("size", [20, 100, 250])
def test_a_file_that_is_too_short_is_damage_to_who_may_mend_and_refused_to_who_only_reads(tmp_path: Path, size: int):
    index = index_in(tmp_path)
    add(index, [keyed(0, "a")])
    os.truncate(index.files[0].file.path, size)
    index.close()
    with pytest.raises(BadStore, match=f"has {size} bytes, not 264"):
        Index(Disk(), str(tmp_path), SLOTS, ENTRIES, Unsynced(), writable=False)
    again = index_in(tmp_path)
    assert again.is_damaged
    again.drop_all()
    assert not again.is_damaged and list(tmp_path.iterdir()) == []
    add(again, [keyed(0, "a")])
    assert found(again, "T", "a", 9, *EVER) == [0]


def test_files_with_other_names_are_left_alone(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    assert index_in(tmp_path).files == []
    assert (tmp_path / "notes.txt").exists()


# Keys


@pytest.mark.covers("S-STORE-05", "S-STORE-06")
def test_a_message_is_found_by_each_of_its_keys(stores: Stores):
    store = stores.open()
    offset = put(store, key="order-1 user-2", unique_key="7F000001")[0]
    put(store, topic="Bills", key="order-1")
    for key in ("order-1", "user-2", "7F000001"):
        (found,) = store.query("Orders", key, 64, *EVER)
        assert found == store.record_at(offset)
    assert store.query("Orders", "order", 64, *EVER) == []
    assert store.query("Nowhere", "order-1", 64, *EVER) == []


# Chains


def test_keys_that_share_a_slot_are_told_apart(tmp_path: Path):
    index = index_in(tmp_path, slots=1)
    add(index, [keyed(number, f"k{number % 3}") for number in range(7)])
    assert found(index, "T", "k0", 64, *EVER) == [600, 300, 0]
    assert found(index, "T", "k1", 64, *EVER) == [400, 100]
    assert found(index, "T", "none", 64, *EVER) == []
    assert index.files[0].used_slots == 1


def test_keys_of_one_hash_cannot_be_told_apart(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(0, "Aa"), keyed(1, "BB")])
    assert key_hash("T", "Aa") == key_hash("T", "BB")
    assert found(index, "T", "Aa", 64, *EVER) == [100, 0]


def test_a_search_pauses_while_it_passes_entries_of_other_keys(tmp_path: Path):
    index = index_in(tmp_path, slots=1, entries=1000)
    add(index, [keyed(0, "wanted"), *[keyed(number, f"k{number}") for number in range(1, 900)]])
    assert list(index.find("T", "wanted", *EVER)) == [-1] * 14 + [0]


def test_the_newest_come_first_and_at_most_as_many_as_asked_for(tmp_path: Path):
    index = index_in(tmp_path, entries=32)
    for begin in range(0, 100, 10):
        add(index, [keyed(number, "same") for number in range(begin, begin + 10)])
    assert len(index.files) == 4
    newest = [100 * number for number in range(99, -1, -1)]
    assert found(index, "T", "same", 64, *EVER) == newest[:64]
    assert found(index, "T", "same", 1000, *EVER) == newest
    assert found(index, "T", "same", 1, *EVER) == newest[:1]


def test_a_record_with_a_key_twice_is_found_once(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [("T", 100, NOON_MS, ("k", "k"), "k")])
    assert found(index, "T", "k", 64, *EVER) == [100]


@pytest.mark.covers("S-STORE-06")
def test_a_search_is_limited_to_a_time(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, "same", step_ms=10_000) for number in range(20)])  # three files

    def numbers(begin_s: int, end_s: int) -> list[int]:
        offsets = found(index, "T", "same", 64, NOON_MS + 1000 * begin_s, NOON_MS + 1000 * end_s)
        return [offset // 100 for offset in offsets]

    assert numbers(0, 500) == list(range(19, -1, -1))
    assert numbers(50, 90) == [9, 8, 7, 6, 5]
    assert numbers(65, 75) == [7]
    assert numbers(61, 68) == []
    assert numbers(-100, -1) == [] and numbers(200, 300) == []


# Many keys at once


def many(count: int) -> list[Row]:
    """Records with keys of every kind, in one slot, in neighbours, and of one hash."""
    found: list[Row] = []
    for number in range(count):
        keys = (
            f"k{number % 37}",
            "键" * (number % 4 + 1),
            "Aa" if number % 2 else "BB",
            "x" * (number % 200),
        )
        topic = "主题" if number % 5 == 0 else f"Topic{number % 3}"
        found.append((topic, 100 * number, NOON_MS + 700 * number, keys, f"7F000001{number:024X}"))
    return found


@pytest.mark.parametrize("slots", [1, 7, 512])
def test_many_keys_at_once_make_the_files_that_single_ones_make(tmp_path: Path, slots: int):
    batch = [*many(200), ("T", 30_000, NOON_MS + 200_000, ("DWIECHC", "", "end"), None)]
    one_by_one = index_in(tmp_path / "one", slots, entries=400)
    for keys in batch:
        add(one_by_one, [keys])
    at_once = index_in(tmp_path / "many", slots, entries=400)
    add(at_once, batch[:3])
    add(at_once, batch[3:150])
    add(at_once, batch[150:])
    assert found(at_once, "Topic1", "k1", 64, *EVER) == found(one_by_one, "Topic1", "k1", 64, *EVER)
    assert [file.slot_table.take() is None for file in at_once.files[:2]] == [True, True]
    assert [file.slot_table.take() is None for file in at_once.files[:2]] == [True, True]
    write_out(at_once)
    write_out(one_by_one)
    assert sum(len(keys) + 1 for *_, keys, _ in batch) > 2 * MANY and len(at_once.files) == 3
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_keys_beyond_utf16_units_are_hashed_as_java_does(tmp_path: Path):
    batch = [keyed(number, f"😀{number}") for number in range(2 * MANY)]
    index = index_in(tmp_path, entries=200)
    add(index, batch)
    assert found(index, "T", "😀7", 64, *EVER) == [700]


# Forgetting


@pytest.mark.parametrize(
    ("next_entry", "end_offset", "kept"), [(100, 400, 4), (3, 10**9, 2), (1, 10**9, 0), (100, 0, 0)]
)
def test_an_index_goes_back_to_what_a_checkpoint_saw(tmp_path: Path, next_entry: int, end_offset: int, kept: int):
    index = index_in(tmp_path / "cut", slots=3)
    add(index, [keyed(number, f"k{number}") for number in range(20)])
    index.cut(index.files[0].name, next_entry, end_offset)
    assert len(index.files) == 1
    assert [len(found(index, "T", f"k{number}", 64, *EVER)) for number in range(20)] == [1] * kept + [0] * (20 - kept)
    add(index, [keyed(number, f"k{number}") for number in range(kept, 20)])
    assert [found(index, "T", f"k{number}", 64, *EVER) for number in range(20)] == [[100 * n] for n in range(20)]


def test_a_checkpoint_that_saw_no_file_leaves_none(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, f"k{number}") for number in range(10)])
    index.cut("", 0, 0)
    assert index.files == [] and list(tmp_path.iterdir()) == []


def test_files_that_only_know_what_left_the_log_go_but_for_the_last(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, f"k{number}") for number in range(20)])
    index.forget_before(700)
    assert [file.end_offset for file in index.files] == [1300, 1900]
    index.forget_before(10**9)
    assert [file.end_offset for file in index.files] == [1900] and len(list(tmp_path.iterdir())) == 1


def test_no_room_for_a_file_leaves_the_others_as_they_are(tmp_path: Path):
    disk = FaultyDisk()
    index = index_in(tmp_path, vfs=disk)
    add(index, [keyed(number, f"k{number}") for number in range(7)])
    disk.full_for = (str(tmp_path),)
    add(index, [keyed(7, "k7")])
    assert index.end_offset == 600 and len(index.files) == 1
    assert not index.is_complete and not index.is_damaged and index.lacks_from == 700
    with pytest.raises(BadStore, match="no room for its next file"):
        found(index, "T", "k7", 64, *EVER)
    disk.full_for = ()
    add(index, [keyed(8, "k8")])  # it waits for the earlier one
    assert index.end_offset == 600
    assert index.fill(keys_of([keyed(7, "k7")]), 800, is_last=False)
    with pytest.raises(BadStore, match="no room for its next file"):
        found(index, "T", "k7", 64, *EVER)
    assert index.fill(keys_of([keyed(8, "k8")]), 900, is_last=True) and index.is_complete
    assert found(index, "T", "k7", 64, *EVER) == [700] and found(index, "T", "k8", 64, *EVER) == [800]


def test_an_index_that_was_cut_takes_no_keys_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    index = index_in(tmp_path, 512, 512)
    add(index, many(MANY))
    path = Path(index.files[0].file.path)
    os.truncate(path, 100)
    for count in (MANY, 1):  # to write behind its end would make it look whole
        add(index, many(count))
    assert index.is_damaged and path.stat().st_size == 100
    assert [caplog.text.count(part) for part in ("another program truncated it", "cannot be found by key")] == [1, 1]
    with pytest.raises(BadStore, match="start the broker again, which builds the index again"):
        found(index, "T", "k1", 9, *EVER)
    index.close()


def test_searches_say_since_when_keys_are_missing(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, f"k{number}") for number in range(6)])
    os.truncate(index.files[0].file.path, 263)  # of its last entry, which is not used
    add(index, [keyed(6, "k6")])
    index_ms = NOON_MS + 6000
    assert found(index, "T", "k3", 9, 0, index_ms - 1) == [300]
    since = datetime.fromtimestamp(index_ms / 1000).isoformat(" ", "seconds")
    with pytest.raises(BadStore, match=f"lacks the keys of messages stored since {since}; start the broker again"):
        found(index, "T", "k3", 9, 0, index_ms)


@pytest.mark.parametrize("count", [3, MANY])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_page_of_slots_that_cannot_be_read_or_written_stops_no_message(tmp_path: Path, count: int, is_read: bool):
    disk = FaultyDisk()
    index = index_in(tmp_path, 512, 512, vfs=disk)
    add(index, many(3))
    path = index.files[0].file.path
    index.close()
    index = index_in(tmp_path, 512, 512, vfs=disk)
    if is_read:
        disk.bad[path, 0] = errno.EIO
    else:
        disk.write_errors[path] = errno.EIO
    add(index, many(count))
    assert index.is_damaged
    with pytest.raises(BadStore, match="start the broker again"):
        found(index, "Topic1", "k1", 9, *EVER)
    index.close()


def test_a_file_whose_header_cannot_be_read_is_damaged(tmp_path: Path):
    disk = FaultyDisk()
    index = index_in(tmp_path, vfs=disk)
    add(index, [keyed(0, "a")])
    index.close()
    disk.bad[index.files[0].file.path, 0] = errno.EIO
    assert index_in(tmp_path, vfs=disk).has_unreadable()


def test_an_index_goes_back_over_several_files(tmp_path: Path):
    index = index_in(tmp_path)
    add(index, [keyed(number, f"k{number}") for number in range(1, 20)])
    assert len(index.files) == 3
    index.cut(index.files[-1].name, 100, 500)
    assert len(index.files) == 1 and index.end_offset == 400
    assert [found(index, "T", f"k{number}", 9, *EVER) for number in (4, 5, 19)] == [[400], [], []]
    index.close()
