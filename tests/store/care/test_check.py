"""The check: each thing that can be wrong with a store gets its sentence, and a sound store none."""

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest

from sparrowmq.kernel.index_layout import SLOT_BYTES
from sparrowmq.kernel.record_layout import PROPERTY_CRC_SIZE
from sparrowmq.kernel.records import property_crc
from sparrowmq.store.care.check import verify
from sparrowmq.store.checkpoint import load, save
from sparrowmq.store.index import ENTRY as INDEX_ENTRY
from sparrowmq.store.index import HEADER
from sparrowmq.store.index_keys import key_hash
from sparrowmq.store.layout import ENTRY, ENTRY_SIZE, offset_name
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk
from sparrowmq.testing.clock import ManualClock
from tests.store.stores import Stores, put


class Planted:
    """A closed store of five messages in queue Orders/0, to be damaged by hand."""

    def __init__(self, stores: Stores, clock: ManualClock) -> None:
        with stores.open(clock=clock) as store:
            places = [put(store, b"body %d" % number, key=f"key-{number}", tag="a") for number in range(5)]
            self.settings = store.settings
        self.offsets = [place[0] for place in places]
        self.end = places[-1][2]
        self.size = self.offsets[1]
        layout = store.settings.layout
        self.log = Path(layout.commit_log) / offset_name(0)
        self.queue = Path(layout.queue("Orders", 0)) / offset_name(0)
        (self.index,) = Path(layout.index).iterdir()

    def write(self, path: Path, position: int, content: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(content)

    def patch_record(self, number: int, position: int, content: bytes) -> None:
        """Change a record, and its CRC with it."""
        record = bytearray(self.log.read_bytes()[self.offsets[number] :][: self.size])
        record[position : position + len(content)] = content
        covered = bytes(record[:-PROPERTY_CRC_SIZE])
        self.write(self.log, self.offsets[number], covered + property_crc(crc32(covered)))

    def patch_entry(self, number: int, offset: int, size: int, tags_code: int) -> None:
        self.write(self.queue, number * ENTRY_SIZE, ENTRY.pack(offset, size, tags_code))

    def index_entry_at(self, number: int) -> int:
        return HEADER.size + self.settings.index_slots * 4 + number * INDEX_ENTRY.size

    def patch_index_entry(self, number: int, **changes: int) -> None:
        names = ("hash", "offset", "seconds", "previous")
        found = INDEX_ENTRY.unpack_from(self.index.read_bytes(), self.index_entry_at(number))
        values = dict(zip(names, found, strict=True))
        self.write(self.index, self.index_entry_at(number), INDEX_ENTRY.pack(*{**values, **changes}.values()))

    def claim(self, **positions: int) -> None:
        """Let the checkpoint say something else."""
        path = self.settings.layout.checkpoint
        found = load(Disk(), path)
        assert found.positions is not None
        save(Disk(), path, replace(found, positions=replace(found.positions, **positions)))


@pytest.fixture
def planted(stores: Stores, clock: ManualClock) -> Planted:
    planted = Planted(stores, clock)
    stores.leave_damaged()
    return planted


def test_a_queue_whose_folder_is_gone_is_missed(planted: Planted):
    shutil.rmtree(planted.queue.parent)
    assert violations(planted) == ["queue Orders/0 is missing; it ended at 5, and the next start builds it again"]


def test_all_queues_at_once_are_missed(planted: Planted):
    shutil.rmtree(planted.settings.layout.consume_queue)
    assert violations(planted) == ["queue Orders/0 is missing; it ended at 5, and the next start builds it again"]


def test_without_queues_and_what_a_checkpoint_knew_of_them_the_log_tells_it(planted: Planted):
    shutil.rmtree(planted.settings.layout.consume_queue)
    shutil.rmtree(planted.settings.layout.ends)
    assert violations(planted) == ["the log has messages, but there is no queue; the next start builds them again"]


def test_queues_of_a_topic_that_was_deleted_are_not_missed(stores: Stores):
    store = stores.open()
    put(store)
    put(store, topic="Bills")
    store.checkpoint()
    store.delete_topic("Bills")
    store.close()


def violations(planted: Planted) -> list[str]:
    return list(verify(planted.settings))


def long(value: int) -> bytes:
    return struct.pack(">q", value)


LOST_SLOTS = (
    "the record at {offsets[2]}: {index} is damaged: slots that are used lead nowhere, so messages would be missed; "
    "start the broker again, which builds the index again from the log"
)

PLANTS: list[tuple[str, Callable[[Planted], object], str]] = [
    (
        "a flipped bit",
        lambda it: it.write(it.log, it.offsets[2] + 90, b"\xff"),
        "the log is damaged from offset {offsets[2]} to {offsets[3]}: its CRC does not fit its bytes",
    ),
    (
        "a record in another's place",
        lambda it: it.patch_record(2, 28, long(1)),
        "the log is damaged from offset {offsets[2]} to {offsets[3]}: its own offset is 1",
    ),
    (
        "junk behind the last record",
        lambda it: it.write(it.log, it.end + 8, b"junk"),
        "the log is damaged from offset {end} to {behind}: a record; found magic 0x00000000 and size 0",
    ),
    (
        "a number that is left out",
        lambda it: it.patch_record(3, 20, long(7)),
        "the record at {offsets[3]} is number 7 of queue Orders/0, 3 is missing",
    ),
    (
        "a queue that is too short",
        lambda it: it.patch_entry(4, 0, 0, 0),
        "queue Orders/0 ends at 4, the log says 5",
    ),
    (
        "a missing entry",
        lambda it: it.patch_entry(4, 0, 0, 0),
        "entry 4 of queue Orders/0 is missing, its record is at {offsets[4]}",
    ),
    (
        "an entry with the wrong size",
        lambda it: it.patch_entry(4, it.offsets[4], it.size - 1, ord("a")),
        "entry 4 of queue Orders/0 says {smaller} bytes, the record has {size}",
    ),
    (
        "an entry with the wrong tag",
        lambda it: it.patch_entry(1, it.offsets[1], it.size, 5),
        "entry 1 of queue Orders/0 has the tags code 5, the record 97",
    ),
    (
        "an entry of no record",
        lambda it: it.patch_entry(1, it.offsets[1] + 3, it.size, ord("a")),
        "queue Orders/0: entry 1 points to offset {inside}, where no record is",
    ),
    (
        "an entry of a record behind the end",
        lambda it: it.patch_entry(5, it.end, it.size, ord("a")),
        "queue Orders/0: entry 5 points to offset {end}, where no record is",
    ),
    (
        "an entry of another record",
        lambda it: it.patch_record(2, 20, long(9)),
        "queue Orders/0: entry 2 points to offset {offsets[2]}, where Orders/0 number 9 is",
    ),
    (
        "bytes behind a queue's end",
        lambda it: it.patch_entry(9, 1, 1, 1),
        "queue Orders/0 ends at 5, but there is content after that",
    ),
    (
        "an index entry of another record",
        lambda it: it.patch_index_entry(3, offset=it.offsets[0]),
        "index {index.name}: entry 3 points to offset 0, where no such key is",
    ),
    (
        "an index entry of no record",
        lambda it: it.patch_index_entry(3, offset=it.end),
        "index {index.name}: entry 3 points to offset {end}, where no such key is",
    ),
    (
        "a chain that leads forward",
        lambda it: it.patch_index_entry(2, previous=4),
        "index {index.name}: entry 2 comes after entry 4, its predecessor",
    ),
    (
        "a header that miscounts",
        lambda it: it.write(it.index, 32, struct.pack(">i", 3)),
        "index {index.name}: 5 slots are used, the header says 3",
    ),
    (
        "a slot that forgot its chain",
        lambda it: it.write(
            it.index, HEADER.size + 4 * (key_hash("Orders", "key-2") % it.settings.index_slots), bytes(4)
        ),
        LOST_SLOTS,
    ),
    (
        "a checkpoint that says too much",
        lambda it: it.claim(flushed=it.end + 1),
        "the checkpoint says flushed {beyond}, the log ends at {end}",
    ),
    (
        "a checkpoint that dispatched too much",
        lambda it: it.claim(dispatched=it.end + 1),
        "the checkpoint says dispatched {beyond}, the log ends at {end}",
    ),
]


@pytest.mark.parametrize(("plant", "sentence"), [each[1:] for each in PLANTS], ids=[each[0] for each in PLANTS])
def test_what_is_wrong_is_said(planted: Planted, clock: ManualClock, plant: Callable, sentence: str):
    assert violations(planted) == []
    plant(planted)
    numbers = {"smaller": planted.size - 1, "beyond": planted.end + 1, "behind": planted.end + 12}
    places = {"inside": planted.offsets[1] + 3, "now": clock.now_ms()}
    assert sentence.format(**vars(planted), **numbers, **places) in violations(planted)


def test_a_file_that_does_not_end_in_a_blank_is_damaged(stores: Stores):
    store = stores.open()
    ends = [put(store, b"x" * 1800)[2] for _ in range(3)]
    store.close()
    log = Path(store.settings.layout.commit_log) / offset_name(0)
    content = log.read_bytes()
    log.write_bytes(content[: ends[1]] + bytes(len(content) - ends[1]))
    (said,) = verify(store.settings)
    assert said.startswith(f"the log is damaged from offset {ends[1]} to 4096: a record; found")
    stores.leave_damaged()


def three_files(stores: Stores) -> StoreSettings:
    """A closed store of which the third log file holds only a message of the topic Last."""
    with stores.open(index=False) as store:
        for _ in range(4):
            put(store, b"x" * 1800)
        put(store, b"x" * 1800, topic="Last")
    stores.leave_damaged()
    return store.settings


def test_a_missing_log_file_is_said_if_others_follow(stores: Stores):
    settings = three_files(stores)
    (Path(settings.layout.commit_log) / offset_name(4096)).unlink()
    (said,) = verify(settings)
    assert said.endswith("is missing, but later files exist; restore it from a slave or a backup")


def test_a_queue_tells_that_the_last_log_file_is_missing(stores: Stores):
    settings = three_files(stores)
    (Path(settings.layout.commit_log) / offset_name(8192)).unlink()
    assert "queue Last/0: entry 0 points to offset 8192, where no record is" in verify(settings)


def test_a_queue_of_which_the_first_file_is_missing_is_said(stores: Stores):
    store = stores.open(consume_queue_file_entries=2)
    for _ in range(6):
        put(store)
    store.close()
    stores.leave_damaged()
    (Path(store.settings.layout.queue("Orders", 0)) / offset_name(0)).unlink()
    said = list(verify(store.settings))
    assert [each.partition(" is missing")[0] for each in said] == [f"entry {n} of queue Orders/0" for n in (0, 1)]


def test_files_of_other_sizes_are_said(planted: Planted):
    for changes, words in (
        ({"commit_log_file_size": 8192}, "give the settings it was made with"),
        ({"index_slots": 7}, "set maxHashSlotNum"),
    ):
        (said,) = verify(replace(planted.settings, **changes))  # type: ignore[arg-type]
        assert words in said


def test_several_violations_are_all_said(planted: Planted):
    planted.write(planted.log, planted.offsets[1] + 90, b"\xff")
    planted.write(planted.log, planted.offsets[3] + 90, b"\xff")
    planted.claim(flushed=planted.end + 1)
    said = violations(planted)
    assert [each.split(" to ")[0] for each in said if each.startswith("the log is damaged")] == [
        f"the log is damaged from offset {planted.offsets[1]}",
        f"the log is damaged from offset {planted.offsets[3]}",
    ]
    assert said[-1].startswith("the checkpoint says flushed")


def test_a_store_that_is_not_there_is_not_wrong(tmp_path: Path):
    assert list(verify(StoreSettings(tmp_path / "none"))) == []
    assert not (tmp_path / "none").exists()


def test_a_deleted_topic_is_not_missed(stores: Stores):
    store = stores.open()
    put(store, key="k")
    put(store, topic="Bills")
    store.delete_topic("Orders")
    put(store, b"again", key="k")
    put(store, b"and again", key="k")
    store.close()
    assert list(verify(store.settings)) == []


def test_an_index_is_not_asked_for_where_there_is_none(planted: Planted):
    planted.index.unlink()
    assert violations(planted) == []
    assert list(verify(replace(planted.settings, index=False))) == []


@pytest.mark.parametrize("number", [0, 2, 4])
def test_the_check_changes_nothing(planted: Planted, number: int):
    """Nor does it mend what a start would: a torn record, a file that is too short."""
    planted.write(planted.log, planted.offsets[number] + 60, bytes(40))
    planted.queue.write_bytes(planted.queue.read_bytes()[:50])
    root = Path(planted.settings.path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert violations(planted) != []
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_key_of_the_first_record_that_the_index_lost_is_said(planted: Planted):
    slots = planted.settings.index_slots * SLOT_BYTES
    planted.write(planted.index, HEADER.size + slots + INDEX_ENTRY.size, b"\x7f\x7f\x7f\x7f")
    assert any(line.startswith("the record at 0: ") for line in verify(planted.settings))


def test_a_queue_of_which_all_records_expired_is_not_missed(stores: Stores):
    with stores.open() as store:
        put(store, b"old", "Old")
        while len(store._log.row.files) < 3:
            put(store)
        store.checkpoint()
        store._log.row.drop_first()
    assert list(verify(stores.settings)) == []
