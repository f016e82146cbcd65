"""Reading a queue of which something rotted, or cannot be read: it is told or passed over, and never served."""

import errno
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.sql_filters import RecordFilter
from sparrowmq.errors import CorruptRecord
from sparrowmq.filter.grammar import parse
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.selector import Selector
from sparrowmq.store.log import log_reader
from sparrowmq.store.log.log_file import PAGE
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues import queue_reading as reading
from sparrowmq.store.queues.queue_reading import LARGE, Read, Status
from sparrowmq.store.store_settings import CorruptPolicy
from tests.store.faulty_disk import FaultyDisk
from tests.store.mutated import verifying_little
from tests.store.queues.test_queue_reading import by, codes, fill, found
from tests.store.stores import Stores, bodies, messages, put


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    """Log files of 4 KiB, queue files of 16 entries."""
    return stores.open()


def rotten(stores: Stores, *numbers: int, **changes: Any) -> MessageStore:
    """A store with eight messages, open again, of which some rotted where no start looks."""
    with verifying_little(1):
        store = stores.open(**changes)
        size = fill(store, 8, ("a", "b"))
        for _ in range(2):
            store.checkpoint()
            put(store, b"elsewhere", "Bills", key="key")
        store.close()
        path = Path(store.settings.layout.commit_log) / f"{0:020d}"
        content = bytearray(path.read_bytes())
        for number in numbers:
            content[number * size + 60] ^= 4  # in its born host
        path.write_bytes(content)
        store = stores.open(**changes)
    stores.leave_damaged()
    assert 8 * size < store._log.verified_from
    return store


def test_a_damaged_record_is_told_and_not_served_and_those_around_it_are(stores: Stores):
    store = rotten(stores, 3)
    assert found(store.read("Orders", 0, 0, 32)) == [0, 1, 2]
    with pytest.raises(CorruptRecord, match=r"damaged at offset \d+: there .* corruptPolicy=quarantine") as told:
        store.read("Orders", 0, 3, 32)
    queue = store.queues.get("Orders", 0)
    assert queue is not None and told.value.offset == queue.read(3, 1).begin
    assert found(store.read("Orders", 0, 4, 32)) == [4, 5, 6, 7]
    assert store.record_at(told.value.offset) is None and store.copy_at(told.value.offset, 100) is None


def test_a_quarantine_goes_on_behind_a_damaged_record(stores: Stores, caplog: pytest.LogCaptureFixture):
    store = rotten(stores, 0, 3, corrupt_policy=CorruptPolicy.QUARANTINE)
    read = store.read("Orders", 0, 0, 32)
    assert (read.status, read.next_offset) == (Status.MESSAGE_WAS_REMOVING, 1)
    assert bodies(store) == [b"%03d" % number for number in (1, 2, 4, 5, 6, 7)]
    assert "skipped a message" in caplog.text


@pytest.mark.parametrize("needs_record", [False, True])
def test_a_filter_does_not_look_into_a_damaged_record(stores: Stores, needs_record: bool):
    wanted = RecordFilter(parse("TAGS = 'b'")) if needs_record else None
    selector = Selector(codes("b")) if wanted is None else Selector(None, wanted)
    store = rotten(stores, 3)
    assert found(store.read("Orders", 0, 0, 32, selector=selector)) == [1]
    with pytest.raises(CorruptRecord):
        store.read("Orders", 0, 3, 32, selector=selector)
    assert found(store.read("Orders", 0, 4, 32, selector=selector)) == [5, 7]


@pytest.mark.parametrize("needs_record", [False, True])
def test_a_filter_does_not_look_into_a_large_damaged_record(stores: Stores, needs_record: bool):
    selector = by("TAGS = 'b' OR TAGS = 'c'") if needs_record else Selector(codes("b"))
    store = stores.open(commit_log_file_size=1 << 20)
    for number in range(4):
        put(store, b"%d" % number + b" " * LARGE, tag="ab"[number % 2])
    store.publish()
    store._log.verified_from = store.end
    path = Path(store.settings.layout.commit_log) / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[3 * store.end // 4 + 60] ^= 4  # in the born host of the last
    path.write_bytes(content)
    stores.leave_damaged()
    read = store.read("Orders", 0, 0, 32, selector=selector)
    assert (found(read), read.next_offset) == ([1], 3)
    with pytest.raises(CorruptRecord):
        store.read("Orders", 0, 3, 32, selector=selector)


def test_pulls_by_tag_check_what_they_take_and_read_it_twice_at_most(stores: Stores):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, commit_log_file_size=1 << 22, consume_queue_file_entries=2000)
    fill(store, 1600, ("a", "b"))
    store._log.verified_from = store.end
    disk.bytes_read = offset = seen = 0
    while offset < 1600:
        read = store.read("Orders", 0, offset, 32, selector=Selector(codes("b")))
        offset, seen = read.next_offset, seen + read.count
    assert seen == 800
    assert disk.bytes_read < 4 * store.end  # once to check, with what lies behind it, and once to be sent


def test_the_body_of_a_record_of_java_is_checked_too(stores: Stores):
    store = rotten(stores, property_crc=False)
    store.close()
    path = Path(store.settings.layout.commit_log) / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"003", b"030"))
    with verifying_little(1):
        store = stores.open(property_crc=False)
    stores.leave_damaged()
    assert found(store.read("Orders", 0, 0, 32)) == [0, 1, 2]


def test_a_search_does_not_find_a_damaged_record(stores: Stores):
    store = stores.open()
    put(store, b"one", key="key")
    store.publish()
    store._log.verified_from = store.end
    path = Path(store.settings.layout.commit_log) / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[60] ^= 4
    path.write_bytes(content)
    stores.leave_damaged()
    assert store.query("Orders", "key", 9, 0, 1 << 60) == []


def test_what_was_written_since_the_start_is_served_as_it_is(store: MessageStore, monkeypatch):
    """The page cache has it, and a look at each record would cost a tenth of a pull."""
    monkeypatch.setattr(reading, "is_sound", None)
    monkeypatch.setattr(log_reader, "is_sound", None)
    fill(store, 5)
    assert found(store.read("Orders", 0, 0, 32)) == [0, 1, 2, 3, 4]


# What the disk cannot read


def half_readable(stores: Stores, **changes: Any) -> tuple[MessageStore, FaultyDisk]:
    """A store that runs, with messages of about 1 KB, and a disk that cannot read the second page of its log."""
    disk = FaultyDisk()
    store = stores.open(vfs=disk, commit_log_file_size=8 * PAGE, **changes)
    for number in range(12):
        put(store, b"%03d" % number * 300, tag="ab"[number % 2], key=f"k{number}")
    store.publish()
    assert store._log.verified_from == 0
    disk.bad = {(store._log.row.files[0].path, PAGE): errno.EIO}
    stores.leave_damaged()
    return store, disk


def numbers(read: Read) -> list[int]:
    return [int(each.body[:3]) for each in messages(read)]


@pytest.mark.parametrize(
    "selector",
    [Selector(), Selector(codes("a", "b")), Selector(predicate=RecordFilter(parse("KEYS <> 'k0'")))],
    ids=["all", "tags", "SQL"],
)
def test_nothing_of_an_unreadable_page_is_served_and_what_lies_around_it_is(
    stores: Stores, caplog: pytest.LogCaptureFixture, selector: Selector
):
    store, _ = half_readable(stores)
    offset, served, told = 0, [], []
    while offset < 12:
        try:
            read = store.read("Orders", 0, offset, 32, selector=selector)
        except CorruptRecord:
            told.append(offset)
            offset += 1
            continue
        served += numbers(read)
        offset = read.next_offset
    first = {0} if selector.predicate is not None else set()
    assert sorted({*served, *told, *first}) == list(range(12)) == sorted([*served, *told, *first])
    assert 4 <= len(told) <= 6 and "cannot be read at 4096: [Errno 5] Input/output error" in caplog.text


def test_a_quarantine_goes_on_behind_an_unreadable_page(stores: Stores):
    store, disk = half_readable(stores, corrupt_policy=CorruptPolicy.QUARANTINE)
    few = [int(body[:3]) for body in bodies(store)]
    assert few[:2] == [0, 1] and few[-2:] == [10, 11] and 6 <= len(few) <= 8
    disk.bad = {}  # as when a network comes back
    assert [int(body[:3]) for body in bodies(store)] == list(range(12))


def test_a_message_on_an_unreadable_page_is_found_by_nobody(stores: Stores):
    store, _ = half_readable(stores)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    begin, size = queue.read(4, 1).begin, queue.read(4, 1).size(0)
    assert store.copy_at(begin, size) is None and store.record_at(begin) is None
    assert store.store_time("Orders", 0, 5) is None
    assert store.copy_at(0, queue.read(0, 1).size(0)) is not None


def test_where_a_record_is_gone_the_others_are_still_checked(stores: Stores):
    store = rotten(stores, 4)
    while store.end < 5000:
        put(store, b"elsewhere", "Bills")
    store.publish()
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    queue.add(4000, 200, string_hash("a"))  # which no file has to its end
    queue.write_pending()
    read = store.read("Orders", 0, 0, 32, selector=Selector(codes("a", "b")))
    assert (found(read), read.next_offset) == ([0, 1, 2, 3], 4)
    with pytest.raises(CorruptRecord):
        store.read("Orders", 0, 4, 32, selector=Selector(codes("a", "b")))
    assert found(store.read("Orders", 0, 5, 32, selector=Selector(codes("a", "b")))) == [5, 6, 7]


@pytest.mark.parametrize("size", [0, -1, -(1 << 31)])
def test_an_entry_that_can_be_no_records_is_taken_from_the_log(stores: Stores, size: int, caplog):
    store = rotten(stores)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    queue.add(100, size, string_hash("a"))
    queue.write_pending()
    read = store.read("Orders", 0, 0, 32, selector=Selector(codes("a", "b")))
    assert (found(read), read.next_offset) == (list(range(8)), 9)
    assert "the log has no record of 1 of them" in caplog.text
