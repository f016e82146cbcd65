"""An index that was lost, cut, damaged or cannot be written: messages come in, and a start makes it anew."""

import errno
import os
import struct
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.store.care.check import verify
from sparrowmq.store.checkpoint import UNKNOWN_INDEX, load
from sparrowmq.store.index_keys import key_hash
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.vfs import Disk as RealDisk
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import Stores, bodies, put

FIVE = [b"message %d" % number for number in range(5)]
FOREVER = (64, 0, 1 << 60)  # the last arguments of a query


def fill(store: MessageStore, texts: list[bytes] = FIVE) -> None:
    """Messages that can be found by what is in them."""
    for text in texts:
        put(store, text, key=text.decode().replace(" ", "-"))
    store.publish()


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


@pytest.mark.parametrize("killed", [False, True])
def test_an_index_that_was_off_for_a_while_is_made_anew(stores: Stores, killed: bool):
    store = stores.open()
    fill(store, FIVE[:2])
    store.close()
    store = stores.open(index=False)
    fill(store, FIVE[2:4])
    stores.crash(store) if killed else store.close()
    store = stores.open()
    fill(store, FIVE[4:])
    for number in range(5):
        assert len(store.query("Orders", f"message-{number}", *FOREVER)) == 1
    store.close()
    found = load(RealDisk(), store.settings.layout.checkpoint).positions
    assert found is not None and found.index_file > 0  # the next start believes it


@pytest.mark.parametrize("field_at", [12, 16])
def test_an_entry_that_leads_on_or_is_older_than_its_file_is_damage(stores: Stores, field_at: int):
    """A flipped bit in its seconds, or in the number of the entry before it, would hide those behind it."""
    store = stores.open()
    for number in range(6):
        put(store, b"%d" % number, key="key")
    store.publish()
    assert len(store.query("Orders", "key", *FOREVER)) == 6
    (path,) = Path(store.settings.layout.index).iterdir()
    at = 40 + store.settings.index_slots * 4 + 4 * 20 + field_at
    overwrite(path, at, bytes([path.read_bytes()[at] | (0x80 if field_at == 12 else 0x40)]))
    with pytest.raises(BadStore, match="entry 4 cannot be what it was; start the broker again"):
        store.query("Orders", "key", *FOREVER)
    stores.leave_damaged()


@pytest.mark.parametrize("killed", [False, True])
def test_an_index_with_scrambled_slots_says_so_and_is_made_anew(stores: Stores, killed: bool):
    store = stores.open()
    fill(store)
    store.close()
    (path,) = Path(store.settings.layout.index).iterdir()
    overwrite(path, 40, b"\0\0\0\1" * store.settings.index_slots)  # each slot leads to the first entry
    assert any("is damaged: slot" in violation for violation in verify(store.settings))
    store = stores.open()
    assert len(store.query("Orders", "message-0", *FOREVER)) == 1
    for number in range(1, 5):
        with pytest.raises(BadStore, match=r"is damaged: slot .* builds the index again"):
            store.query("Orders", f"message-{number}", *FOREVER)
    fill(store, [b"one more"])
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    store = stores.open()
    for number in range(5):
        assert len(store.query("Orders", f"message-{number}", *FOREVER)) == 1
    assert len(store.query("Orders", "one-more", *FOREVER)) == 1


@pytest.mark.parametrize(("slots", "keys"), [(128, 5), (128, 60), (2048, 5), (2048, 60)])
def test_slots_that_were_lost_make_no_search_miss_a_message_in_silence(stores: Stores, slots: int, keys: int):
    store = stores.open(index_slots=slots, index_entries=500)
    texts = [f"message-{number}" for number in range(keys)]
    fill(store, [text.encode() for text in texts])
    store.checkpoint()
    assert store.query("Orders", "nothing", *FOREVER) == []
    store.close()
    (path,) = Path(store.settings.layout.index).iterdir()
    content = path.read_bytes()
    used = [at for at in range(40, 40 + 4 * slots, 4) if content[at : at + 4] != bytes(4)]
    overwrite(path, used[len(used) // 2], bytes(4))
    store = stores.open(index_slots=slots, index_entries=500)
    missed = [text for text in texts if not is_found(store, text)]
    assert len(missed) == 1 or (keys > slots // 4 and missed)  # some slots have two
    with pytest.raises(BadStore, match=r"slots that are used lead nowhere.* builds the index again"):
        store.query("Orders", "nothing", *FOREVER)
    store.close()
    store = stores.open(index_slots=slots, index_entries=500)
    assert all(is_found(store, text) for text in texts)
    assert store.query("Orders", "nothing", *FOREVER) == []
    (kept,) = Path(store.settings.layout.set_aside).iterdir()  # for people to look at
    assert kept.name == f"{path.name}.index" and kept.read_bytes()[40 : 40 + 4 * slots] == (
        content[40 : used[len(used) // 2]] + bytes(4) + content[used[len(used) // 2] + 4 : 40 + 4 * slots]
    )


def test_that_java_before_4_4_counted_each_entry_as_a_slot_is_no_damage(stores: Stores):
    store = stores.open(index_slots=64)
    texts = [f"message-{number}" for number in range(40)]
    fill(store, [text.encode() for text in texts])
    store.close()
    (path,) = Path(store.settings.layout.index).iterdir()
    used = {key_hash("Orders", text) % 64 for text in texts}
    assert len(used) < 40
    overwrite(path, 32, struct.pack(">i", 40))
    store = stores.open(index_slots=64)
    assert all(is_found(store, text) for text in texts)
    for number in range(100):  # some of them in slots that are not used
        assert store.query("Orders", f"nothing-{number}", *FOREVER) == []
    store.close()
    overwrite(path, 32, struct.pack(">i", len(used)))


def is_found(store: MessageStore, key: str) -> bool:
    """Whether a search finds the message; where it does not, it says so. Raises: AssertionError."""
    try:
        assert len(store.query("Orders", key, *FOREVER)) == 1
    except BadStore:
        return False
    return True


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("field", range(4), ids=["begin time", "end time", "begin offset", "end offset"])
def test_a_header_that_does_not_fit_is_damage_and_the_index_is_made_anew(stores: Stores, killed: bool, field: int):
    """By its times a search passes over a file, and by its offsets the check of a store over what it lacks."""
    store = stores.open()
    fill(store)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    (path,) = Path(store.settings.layout.index).iterdir()
    overwrite(path, field * 8, b"\x42" * 8)
    assert any("its header does not fit" in violation for violation in verify(store.settings))
    store = stores.open()
    for number in range(5):
        assert len(store.query("Orders", f"message-{number}", *FOREVER)) == 1


def test_an_index_that_was_only_switched_off_is_not_kept(stores: Stores):
    store = stores.open()
    fill(store)
    store.close()
    stores.open(index=False).close()
    store = stores.open()
    assert len(store.query("Orders", "message-0", *FOREVER)) == 1
    assert not Path(store.settings.layout.set_aside).exists()


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("size", [10, 300, 1700])
def test_an_index_file_that_was_cut_is_made_anew(stores: Stores, killed: bool, size: int):
    store = stores.open()
    fill(store)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    (path,) = Path(store.settings.layout.index).iterdir()
    os.truncate(path, size)
    store = stores.open()
    for number in range(5):
        assert len(store.query("Orders", f"message-{number}", *FOREVER)) == 1
    assert [kept.name for kept in Path(store.settings.layout.set_aside).iterdir()] == [f"{path.name}.index"]


@pytest.mark.parametrize(
    ("page", "killed"),
    [(0, False), (0, True), (8192, True)],
    ids=["header", "header, killed", "entries, killed"],
)
def test_an_index_file_that_cannot_be_read_is_made_anew(stores: Stores, killed: bool, page: int):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, index_slots=2048)
    fill(store)
    store.checkpoint()
    stores.crash(store) if killed else store.close()
    (path,) = Path(store.settings.layout.index).iterdir()
    disk.bad[str(path), page] = errno.EIO
    store = stores.open(vfs=disk, index_slots=2048)
    for number in range(5):
        assert len(store.query("Orders", f"message-{number}", *FOREVER)) == 1


def test_an_index_that_cannot_be_written_stops_no_message_and_is_made_anew(stores: Stores):
    disk = FaultyDisk()
    store = stores.open(vfs=disk)
    fill(store)
    store.checkpoint()
    (path,) = Path(store.settings.layout.index).iterdir()
    disk.write_errors[str(path)] = errno.EIO
    put(store, b"more", key="more")
    store.checkpoint()
    assert bodies(store) == [*FIVE, b"more"]
    with pytest.raises(BadStore, match="lacks the keys of messages stored since"):
        store.query("Orders", "more", *FOREVER)
    store.close()
    disk.write_errors.clear()
    store = stores.open(vfs=disk)
    for key in ("message-0", "more"):
        assert len(store.query("Orders", key, *FOREVER)) == 1


def test_an_index_that_cannot_be_synced_fails_no_checkpoint_and_is_made_anew(stores: Stores):
    disk = FaultyDisk()
    store = stores.open(vfs=disk)
    fill(store)
    store.checkpoint()
    (path,) = Path(store.settings.layout.index).iterdir()
    put(store, b"more", key="more")
    disk.sync_errors[str(path)] = errno.EIO
    store.checkpoint()
    found = load(disk, store.settings.layout.checkpoint).positions
    assert found is not None and (found.dispatched, found.index_file) == (store.end, UNKNOWN_INDEX)
    disk.sync_errors.clear()
    stores.crash(store)
    store = stores.open(vfs=disk)
    for key in ("message-0", "more"):
        assert len(store.query("Orders", key, *FOREVER)) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_keys_that_came_together_are_found_later_though_their_slots_were_only_in_memory(stores: Stores, killed: bool):
    store = stores.open(index_entries=500)
    wanted = [f"key-{number}" for number in range(100)]
    for key in wanted[:60]:
        put(store, b"x", key=key)
    store.publish()
    store._queue_builder.index_keys()
    store.checkpoint()
    for key in wanted[60:]:
        put(store, b"x", key=key)
    store.publish()
    store._queue_builder.index_keys()
    stores.crash(store) if killed else store.close()
    store = stores.open(index_entries=500)
    assert all(len(store.query("Orders", key, *FOREVER)) == 1 for key in wanted)


def test_all_keys_of_the_record_that_filled_an_index_file_of_java_are_found_after_a_crash(stores: Stores):
    """Java drops no file that was full. Of two keys of one record, one can be in it and one in the file that goes."""
    store = stores.open(index_entries=8)
    for number in range(5):  # 7 entries in a file: the fourth message is the one between two
        put(store, b"%d" % number, key=f"key-{number}", unique_key=f"unique-{number}")
    store.publish()
    store._queue_builder.index_keys()
    assert store._index is not None
    full, growing = store._index.files
    full_ms, checkpoint = full.end_ms, Path(store.settings.layout.checkpoint)
    assert (full.room, growing.next_entry) == (0, 4)
    growing.end_ms = full_ms + 1
    growing._finish(growing.end_offset, growing.end_ms)
    stores.crash(store)
    checkpoint.write_bytes(struct.pack(">qqq", full_ms, full_ms, full_ms).ljust(4096, b"\0"))
    store = stores.open(index_entries=8)
    for number in range(5):
        assert len(store.query("Orders", f"key-{number}", *FOREVER)) == 1
        assert len(store.query("Orders", f"unique-{number}", *FOREVER)) == 1
