"""Dispatch: what queues and index learn of the log, when, and what is made of records that nobody remembers."""

import asyncio
import shutil
from pathlib import Path
from struct import iter_unpack
from typing import Any

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.kernel.records import Buffer
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.store.index import BATCH, Index
from sparrowmq.store.index_keys import add_keys, key_hash
from sparrowmq.store.layout import Layout
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queue_builder import Hole, QueueBuilder, tags_code
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, File, Unsynced
from sparrowmq.testing.clock import ManualClock
from tests.records import encoded
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import HOST, Stores, bodies, message, put, where

EVER = (64, 0, 1 << 60)
LEVELS_MS = (1000, 5000, 10_000)
STORED_MS = 1_700_000_000_000


class Floor:
    """Queues and an index without a log: records are made here."""

    def __init__(self, folder: Path) -> None:
        self.disk = FaultyDisk()
        layout, unsynced = Layout.of(folder), Unsynced()
        self.queues = QueueTable(OpenFiles(self.disk, 8, unsynced), layout, 4)
        self.index = Index(self.disk, layout.index, 16, 64, unsynced)
        self.dispatch = QueueBuilder(self.queues, self.index, LEVELS_MS)
        self.last_offsets: dict[ConsumeQueue, int] = {}

    def replay(
        self, queue_offset: int, offset: int, *, known: int = 0, fills_gaps: bool = False, **changes: Any
    ) -> None:
        """Dispatch the record that lies at `offset` and says that it is number `queue_offset` of its queue."""
        record = record_of(queue_offset, offset, **changes)
        self.dispatch.replay(record, self.last_offsets, known, known - 1, fills_gaps)

    def drain(self) -> list[int | None]:
        """Where the messages of queue T/0 lie; None for a gap."""
        self.dispatch.drain(10**6)
        queue = self.queues.obtain("T", 0)
        entries = [queue.entry(each) for each in range(queue.min_offset, queue.max_offset)]
        return [entry[0] if entry else None for entry in entries]


class WatchedDisk(Disk):
    """The machine's disk; `written` has the path of each write, but for what goes through a map."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, file: File, offset: int, content: Buffer) -> None:
        self.written.append(file.path)
        super().write(file, offset, content)


def record_of(
    queue_offset: int,
    offset: int,
    topic: str = "T",
    sys_flag: int = 0,
    properties: bytes = b"",
    body: bytes = b"body",
) -> bytes:
    return encoded(
        topic,
        0,
        body,
        properties,
        queue_offset=queue_offset,
        physical_offset=offset,
        sys_flag=sys_flag,
        store_timestamp_ms=STORED_MS,
    )


@pytest.fixture
def floor(tmp_path: Path) -> Floor:
    return Floor(tmp_path)


# Bursts


@pytest.mark.covers("S-STORE-07")
def test_a_queue_knows_nothing_before_the_dispatch_and_all_after_it(stores: Stores):
    store = stores.open()
    for _ in range(5):
        put(store)
    queue = store.queues.get("Orders", 0)
    assert queue is not None and (queue.max_offset, store.dispatched.value) == (0, 0)
    store.publish()
    assert (queue.max_offset, store.dispatched.value) == (5, store.end)


@pytest.mark.covers("S-STORE-07")
def test_a_burst_raises_the_end_of_each_queue_once(stores: Stores):
    store = stores.open()
    ends = [store.queues.obtain("Orders", queue_id).end for queue_id in range(3)]
    seen: list[int] = []
    for target in (1, 4, 10):
        ends[1].when(target, lambda _: seen.append(ends[1].value))
    for _ in range(10):
        for queue_id in range(3):
            put(store, queue_id=queue_id)
    assert seen == []
    store.publish()
    assert seen == [10, 10, 10] and [end.value for end in ends] == [10, 10, 10]


def test_the_records_and_the_entries_of_a_burst_are_written_at_once(stores: Stores):
    disk = WatchedDisk()
    store = stores.open(vfs=disk)
    disk.written.clear()
    for number in range(10):
        put(store, queue_id=number % 2)
    store.publish()
    folders = [Path(path).relative_to(stores.settings.path).parts[0] for path in disk.written]
    assert folders == ["commitlog", "consumequeue", "consumequeue"]


@pytest.mark.covers("S-STORE-07")
async def test_a_running_store_dispatches_once_for_all_requests_of_a_turn(stores: Stores, clock: ManualClock):
    store = stores.open(clock=clock)
    task = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    seen: list[int] = []
    end = store.queues.obtain("Orders", 0).end
    end.when(1, lambda _: seen.append(end.value))
    for _ in range(20):
        put(store)
    assert seen == []
    await end.reached(20)
    assert seen == [20]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_full_disk_keeps_what_could_not_be_written_for_the_next_time(floor: Floor):
    for number in range(3):
        floor.replay(number, 200 * number)
        floor.replay(number, 200 * number + 100, topic="U")
    floor.disk.full_for = ("/T/",)
    with pytest.raises(DiskFull):
        floor.dispatch.drain(600)
    assert floor.dispatch.position.value == 0
    floor.disk.full_for = ()
    assert floor.drain() == [0, 200, 400]
    assert floor.queues.obtain("U", 0).max_offset == 3 and floor.dispatch.queues_to_write == []


@pytest.mark.covers("S-STORE-07")
def test_the_index_learns_of_keys_when_somebody_asks(stores: Stores):
    store = stores.open()
    put(store, key="order-1")
    store.publish()
    assert store.indexed == (0, -1)
    assert len(store.query("Orders", "order-1", *EVER)) == 1
    assert store.indexed[1] == 0


def test_a_whole_batch_of_keys_is_indexed_at_once(floor: Floor):
    for number in range(BATCH):
        assert not floor.dispatch.has_batch_to_index
        add_keys(floor.dispatch.keys, "T", number, STORED_MS, ("k",), None)
    assert floor.dispatch.has_batch_to_index
    floor.dispatch.index_keys()
    assert floor.index.end_offset == BATCH - 1 and not floor.dispatch.keys


# Transactions and delays


@pytest.mark.parametrize(
    ("sys_flag", "queued", "indexed"),
    [
        (SysFlag.NOT_TRANSACTION, True, True),
        (SysFlag.PREPARED, False, True),
        (SysFlag.COMMIT, True, True),
        (SysFlag.ROLLBACK, False, False),
    ],
)
def test_half_messages_and_rollbacks_have_no_place_in_a_queue(floor: Floor, sys_flag: int, queued: bool, indexed: bool):
    floor.replay(0, 0, sys_flag=sys_flag, properties=b"KEYS\x01k\x02")
    floor.dispatch.index_keys()
    assert floor.drain() == ([0] if queued else [])
    assert list(floor.index.find("T", "k", *EVER[1:])) == ([0] if indexed else [])


def test_a_half_message_takes_no_number_from_its_queue(stores: Stores):
    store = stores.open()
    put(store, b"first")
    half = where(store.append(message(b"half", sys_flag=SysFlag.PREPARED))[0])
    assert put(store, b"second")[1] == half[1] == 1
    store.publish()
    assert bodies(store) == [b"first", b"second"]
    record = store.record_at(half[0])
    assert record is not None and records.decode(record).body == b"half"


@pytest.mark.covers("S-DELAY-03")
@pytest.mark.parametrize(
    ("level", "delay_ms"),
    [(b"1", 1000), (b"3", 10_000), (b"9", 10_000), (b"0", None), (b"x", None), (b"", None)],
)
def test_a_delayed_message_has_its_due_time_in_place_of_its_tag(level: bytes, delay_ms: int | None):
    properties = b"TAGS\x01a\x02DELAY\x01" + level + b"\x02"
    found = records.outline(record_of(0, 0, SCHEDULE_TOPIC, properties=properties))
    expected = string_hash("a") if delay_ms is None else STORED_MS + delay_ms
    assert tags_code(found, LEVELS_MS) == expected


def test_a_delay_counts_only_in_the_schedule_topic():
    found = records.outline(record_of(0, 0, "Orders", properties=b"DELAY\x011\x02TAGS\x01a"))
    assert tags_code(found, LEVELS_MS) == string_hash("a")
    assert tags_code(records.outline(record_of(0, 0, "Orders")), LEVELS_MS) == 0


@pytest.mark.covers("S-DELAY-03")
def test_queues_of_the_schedule_topic_that_are_made_anew_know_when_messages_are_due(stores: Stores):
    store = stores.open()
    later = Entry(SCHEDULE_TOPIC, 2, b"later", Properties("DELAY\x013\x02TAGS\x01a\x02"), 1, HOST)
    later.deliver_at_ms = 7
    now_ms = store.append(later)[0].store_timestamp_ms
    store.close()
    shutil.rmtree(store.settings.layout.consume_queue)
    store = stores.open()
    queue = store.queues.get(SCHEDULE_TOPIC, 2)
    assert StoreSettings("").delay_levels_ms[:4] == (1000, 5000, 10_000, 30_000)
    assert queue is not None and queue.read(0, 1).tags_code(0) == now_ms + 10_000


# Replay


def test_records_that_a_queue_knows_are_passed_over(floor: Floor):
    for number in range(3):
        floor.replay(number, 100 * number)
    floor.drain()
    for number in range(4):
        floor.replay(number, 100 * number)
    assert floor.drain() == [0, 100, 200, 300]


def test_a_record_that_is_replayed_alone_takes_nothing_from_its_queue(floor: Floor):
    for number in range(3):
        floor.replay(number, 100 * number)
    floor.drain()
    floor.replay(1, 100)
    assert floor.drain() == [0, 100, 200]


def test_a_queue_begins_again_with_the_lower_offset_of_a_new_topic(floor: Floor):
    for number in range(3):
        floor.replay(number, 100 * number)
    floor.replay(0, 300)
    floor.replay(1, 400)
    assert floor.drain() == [300, 400]


def test_a_queue_whose_older_messages_left_the_log_begins_where_it_can(floor: Floor):
    floor.replay(6, 900)
    floor.replay(7, 1000)
    queue = floor.queues.obtain("T", 0)
    assert floor.drain() == [900, 1000]
    assert (queue.min_offset, queue.max_offset) == (6, 8)


def test_missing_entries_are_told(floor: Floor):
    floor.replay(0, 0)
    with pytest.raises(Hole, match="queue T/0 ends at 1, entries up to 3 are missing"):
        floor.replay(3, 300)


def test_entries_that_the_log_has_lost_too_become_gaps(floor: Floor):
    floor.replay(0, 0)
    floor.replay(3, 300, fills_gaps=True)
    floor.replay(4, 400, fills_gaps=True)
    assert floor.drain() == [0, None, None, 300, 400]


@pytest.mark.parametrize(
    ("topic", "queue_offset", "why"),
    [
        ("../../x", 1, "cannot be a topic"),
        ("T", -1, "cannot follow 1"),
        ("T", 5000, "cannot follow 1"),
        ("T", 1 << 31, "cannot follow 1"),
        ("New", 1 << 62, "cannot follow 0"),
    ],
)
def test_a_sound_record_that_no_queue_can_have_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str, queue_offset: int, why: str
):
    """A false master can send them. Each cost a slave its store, as every start failed, too."""
    content = record_of(0, 0)
    for number in (1, 2):
        content += record_of(queue_offset, len(content), topic=topic)
        content += record_of(number, len(content))
    live, started = Floor(tmp_path / "live"), Floor(tmp_path / "started")
    live.dispatch.follow(content, 0)
    started.dispatch.replay(content, {}, 0, 0)
    places = live.drain()
    assert places == started.drain() and len(places) == 3 and None not in places
    assert len(caplog.messages) == 4
    assert why in caplog.messages[0] and "offset 116 of the log is in no queue" in caplog.messages[0]


def test_a_queue_that_misses_what_it_should_know_was_deleted_and_stays_so(floor: Floor):
    floor.replay(0, 100, known=200)
    assert floor.drain() == [] and floor.queues.obtain("T", 0).is_empty
    floor.replay(0, 200, known=200)
    assert floor.drain() == [200]


def test_keys_that_the_index_knows_are_not_added_again(floor: Floor):
    properties = b"KEYS\x01a b\x02UNIQ_KEY\x017F\x02"
    floor.replay(0, 0, known=100, properties=properties)
    assert not floor.dispatch.keys
    floor.replay(0, 100, known=100, properties=properties)
    rows = list(iter_unpack(">qqq", floor.dispatch.keys.columns.content()))
    assert [row[:2] for row in rows] == [(key_hash("T", key), 100) for key in ("7F", "a", "b")]


def test_a_store_that_copies_a_log_has_the_same_queues_whatever_the_pieces(stores: Stores, tmp_path: Path):
    master = stores.open()
    for number in range(40):
        put(master, b"%d" % number * 40, queue_id=number % 3, key=f"k{number}")
    master.publish()
    slave = stores.open(path=tmp_path / "slave")
    while slave.end < master.end:
        piece = master.log_bytes(slave.end, 333)
        assert piece is not None
        slave.follow(slave.end, piece)
        slave.publish()
    for queue_id in range(3):
        assert bodies(slave, queue_id=queue_id) == bodies(master, queue_id=queue_id) != []
    assert len(slave.query("Orders", "k7", *EVER)) == 1


def test_dispatch_without_an_index_forgets_keys(tmp_path: Path):
    floor = Floor(tmp_path)
    dispatch = QueueBuilder(floor.queues, None, LEVELS_MS)
    add_keys(dispatch.keys, "T", 0, STORED_MS, ("k",), None)
    dispatch.index_keys()
    assert not dispatch.keys


def test_a_store_that_runs_without_index_keeps_queues(stores: Stores):
    store: MessageStore = stores.open(index=False)
    put(store, key="k")
    store.publish()
    assert bodies(store) == [b"body"] and store.query("Orders", "k", *EVER) == []


# What is not shown yet ----------------------------------------------------------------------------------------------


def test_queues_show_only_what_lies_before_the_limit_and_the_rest_in_its_order_once_it_has_risen(
    stores: Stores,
):
    store = stores.open()
    places = [put(store, b"%02d" % number, queue_id=number % 2) for number in range(5)]
    store.publish()
    limit = [places[4].end]
    risen = store.limit_visibility(lambda: limit[0])
    places += [put(store, b"%02d" % number, queue_id=number % 2) for number in range(5, 12)]
    store.publish()
    assert (bodies(store), bodies(store, queue_id=1)) == ([b"00", b"02", b"04"], [b"01", b"03"])
    assert store.dispatched.value == places[5].offset
    limit[0] = places[7].end - 1
    risen()
    assert (bodies(store)[3:], bodies(store, queue_id=1)[2:]) == ([b"06"], [b"05"])
    assert store.dispatched.value == places[7].offset
    places.append(put(store, b"12"))
    limit[0] = places[10].end
    risen()
    assert (bodies(store)[4:], bodies(store, queue_id=1)[3:]) == ([b"08", b"10"], [b"07", b"09"])
    store.limit_visibility(None)()
    assert (bodies(store)[6:], bodies(store, queue_id=1)[5:]) == ([b"12"], [b"11"])
    assert store.dispatched.value == store.end


def test_what_is_not_shown_yet_is_there_after_a_stop_and_after_a_kill(stores: Stores):
    store = stores.open()
    store.limit_visibility(lambda: 0)
    put(store, b"one")
    store.publish()
    store.checkpoint()
    put(store, b"two")
    store.publish()
    assert bodies(store) == []
    stores.crash(store)
    store = stores.open()
    assert bodies(store) == [b"one", b"two"]
    store.limit_visibility(lambda: 0)
    put(store, b"three")
    store.publish()
    store.close()
    assert bodies(stores.open()) == [b"one", b"two", b"three"]


def test_a_topic_that_is_deleted_takes_what_is_not_shown_yet_with_it(stores: Stores):
    store = stores.open()
    risen = store.limit_visibility(lambda: 0)
    put(store, b"old")
    store.publish()
    store.delete_topic("Orders")
    put(store, b"new")
    store.limit_visibility(None)
    risen()
    assert bodies(store) == [b"new"]


def test_a_full_disk_leaves_the_order_of_what_is_held_back(tmp_path: Path):
    floor, places = Floor(tmp_path), range(0, 800, 100)
    queue = floor.queues.obtain("T", 0)
    for place in places[:6]:
        floor.dispatch.add(queue, place, 100, 0)
    floor.dispatch.limit = lambda: 300
    floor.disk.full_for = ("consumequeue",)
    with pytest.raises(DiskFull):
        floor.dispatch.drain(600)
    floor.disk.full_for = ()
    for place in places[6:]:
        floor.dispatch.add(queue, place, 100, 0)
    assert floor.drain() == [*places[:3]]
    floor.dispatch.limit = None
    assert floor.drain() == [*places]
