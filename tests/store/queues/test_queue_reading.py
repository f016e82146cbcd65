"""Reading a queue: statuses, views into the log, limits, tags and times."""

import pytest

from sparrowmq.broker.sql_filters import RecordFilter
from sparrowmq.filter.grammar import parse
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages.record import walk
from sparrowmq.protocol.selector import Selector
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import LARGE, Read, Status
from sparrowmq.testing.clock import ManualClock
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import Stores, bodies, message, messages, put


@pytest.fixture
def store(stores: Stores, clock: ManualClock) -> MessageStore:
    """Log files of 4 KiB, queue files of 16 entries."""
    return stores.open(clock=clock)


def fill(store: MessageStore, count: int, tags: tuple[str, ...] = ("a",), topic: str = "Orders") -> int:
    """Messages 0, 1, 2 ... with the tags in turn; the size of one record."""
    for number in range(count):
        put(store, b"%03d" % number, topic, tag=tags[number % len(tags)])
    store.publish()
    return len(store.read(topic, 0, 0, 1).views[0])


def found(read: Read) -> list[int]:
    """The numbers of the messages."""
    return [int(each.body) for each in messages(read)]


def codes(*tags: str) -> frozenset[int]:
    return frozenset(map(string_hash, tags))


# Statuses


def test_the_statuses_are_those_of_java():
    names = "FOUND NO_MATCHED_MESSAGE MESSAGE_WAS_REMOVING OFFSET_FOUND_NULL OFFSET_OVERFLOW_BADLY OFFSET_OVERFLOW_ONE"
    more = "OFFSET_TOO_SMALL NO_MATCHED_LOGIC_QUEUE NO_MESSAGE_IN_QUEUE OFFSET_RESET"
    assert [status.name for status in Status] == [*names.split(), *more.split()]


def parts(read: Read) -> tuple:
    return (
        read.status,
        read.next_offset,
        read.min_offset,
        read.max_offset,
        read.views,
        read.count,
        read.size,
    )


def test_a_queue_that_nobody_knows(store: MessageStore):
    assert parts(store.read("Orders", 0, 7, 32)) == (Status.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)


def test_a_queue_without_a_message(store: MessageStore):
    store.queues.obtain("Orders", 0)
    assert parts(store.read("Orders", 0, 7, 32)) == (Status.NO_MESSAGE_IN_QUEUE, 0, 0, 0, [], 0, 0)


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (2, Status.OFFSET_TOO_SMALL, 3),
        (-1, Status.OFFSET_TOO_SMALL, 3),
        (3, Status.FOUND, 10),
        (9, Status.FOUND, 10),
        (10, Status.OFFSET_OVERFLOW_ONE, 10),
        (11, Status.OFFSET_OVERFLOW_BADLY, 10),
        (10**12, Status.OFFSET_OVERFLOW_BADLY, 10),
    ],
)
def test_an_offset_outside_the_queue_is_told_where_to_go_on(
    store: MessageStore, offset: int, status: Status, next_offset: int
):
    size = fill(store, 10)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    queue.min_offset = queue.find(3 * size)  # as after retention
    read = store.read("Orders", 0, offset, 32)
    assert (read.status, read.next_offset, read.min_offset, read.max_offset) == (status, next_offset, 3, 10)
    assert found(read) == (list(range(offset, 10)) if status is Status.FOUND else [])


def test_a_message_whose_file_has_just_gone(store: MessageStore):
    for number in range(4):
        put(store, b"%d" % number * 1800)
    store.checkpoint()
    store._log.row.drop_first()  # its queue has not yet heard of it
    read = store.read("Orders", 0, 0, 2)
    assert (read.status, read.next_offset, read.views) == (Status.MESSAGE_WAS_REMOVING, 2, [])
    read = store.read("Orders", 0, 0, 4)
    assert (read.status, read.count, read.next_offset) == (Status.FOUND, 2, 4)


# Views


def test_neighbours_come_as_one_view(store: MessageStore):
    size = fill(store, 10)
    read = store.read("Orders", 0, 2, 5)
    (view,) = read.views
    assert (read.status, read.count, read.size, read.next_offset) == (Status.FOUND, 5, 5 * size, 7)
    assert found(read) == [2, 3, 4, 5, 6]
    assert view.readonly


def test_messages_with_others_between_come_as_slices_of_one_read(store: MessageStore):
    for number in range(6):
        put(store, b"%d" % number)
        put(store, b"other", "Bills")
    store.publish()
    read = store.read("Orders", 0, 0, 32)
    assert [len(list(walk(view))) for view in read.views] == [1] * 6
    assert found(read) == list(range(6)) and read.size == sum(map(len, read.views))
    assert all(view.obj is read.views[0].obj for view in read.views)


def test_a_read_goes_on_from_one_log_file_to_the_next(store: MessageStore):
    for number in range(5):
        put(store, b"%d" % number * 1000)
    store.publish()
    read = store.read("Orders", 0, 0, 32)
    assert [len(list(walk(view))) for view in read.views] == [3, 2]
    assert bodies(store) == [b"%d" % number * 1000 for number in range(5)]


def test_a_read_ends_with_a_file_of_the_queue(store: MessageStore):
    fill(store, 20)
    read = store.read("Orders", 0, 10, 32)
    assert (found(read), read.next_offset) == (list(range(10, 16)), 16)
    assert found(store.read("Orders", 0, 16, 32)) == [16, 17, 18, 19]


def test_views_stay_good_after_their_file_has_gone_and_the_store_is_closed(store: MessageStore):
    for number in range(4):
        put(store, b"%d" % number * 1800)
    store.checkpoint()
    read = store.read("Orders", 0, 0, 2)
    store._log.row.drop_first()
    for queue in store.queues:
        queue.forget_before(store.begin, store.end)
    store.close()
    assert [each.body for each in messages(read)] == [b"0" * 1800, b"1" * 1800]


def test_what_is_not_dispatched_is_not_read(store: MessageStore):
    fill(store, 2)
    put(store, b"002")
    assert store.read("Orders", 0, 2, 32).status is Status.OFFSET_OVERFLOW_ONE
    assert found(store.read("Orders", 0, 0, 32)) == [0, 1]


# Limits


@pytest.mark.parametrize("max_count", [1, 3, 10, 32])
def test_a_read_gives_no_more_messages_than_asked_for(store: MessageStore, max_count: int):
    fill(store, 10)
    assert found(store.read("Orders", 0, 0, max_count)) == list(range(min(max_count, 10)))


def test_a_read_gives_no_more_bytes_than_asked_for(store: MessageStore):
    size = fill(store, 10)
    for room, count in ((size, 1), (3 * size - 1, 2), (3 * size, 3), (100 * size, 10)):
        read = store.read("Orders", 0, 0, 32, room)
        assert (read.count, read.next_offset, read.size) == (count, count, count * size)


def test_a_message_larger_than_the_limit_is_given_alone(store: MessageStore):
    fill(store, 1)
    put(store, b"1" * 3000)
    put(store, b"2")
    store.publish()
    assert found(store.read("Orders", 0, 0, 32, 1000)) == [0]
    read = store.read("Orders", 0, 1, 32, 1000)
    assert (read.status, read.count, read.next_offset) == (Status.FOUND, 1, 2)
    assert read.size > 3000


def test_nobody_who_asks_for_no_message_stands_still(store: MessageStore):
    fill(store, 3)
    assert found(store.read("Orders", 0, 0, 0)) == [0]
    assert found(store.read("Orders", 0, 0, 32, 0)) == [0]


# Tags


def test_a_tag_filter_passes_over_others(store: MessageStore):
    fill(store, 9, tags=("a", "b", "c"))
    read = store.read("Orders", 0, 0, 32, selector=Selector(codes("b")))
    assert (found(read), read.status, read.next_offset) == ([1, 4, 7], Status.FOUND, 9)
    assert found(store.read("Orders", 0, 2, 32, selector=Selector(codes("a", "b")))) == [3, 4, 6, 7]


def test_a_read_that_has_enough_passes_over_no_match(store: MessageStore):
    fill(store, 9, tags=("a", "b", "c"))
    read = store.read("Orders", 0, 0, 2, selector=Selector(codes("b")))
    assert (found(read), read.next_offset) == ([1, 4], 7)
    assert found(store.read("Orders", 0, read.next_offset, 2, selector=Selector(codes("b")))) == [7]


def test_matches_side_by_side_come_as_one_view(store: MessageStore):
    fill(store, 6, tags=("a", "a", "b"))
    read = store.read("Orders", 0, 0, 32, selector=Selector(codes("a")))
    assert [len(list(walk(view))) for view in read.views] == [2, 2]


def test_a_read_without_a_match_moves_past_all_it_saw(store: MessageStore):
    fill(store, 9)
    read = store.read("Orders", 0, 2, 32, selector=Selector(codes("none")))
    assert (read.status, read.next_offset, read.views) == (Status.NO_MATCHED_MESSAGE, 9, [])


def test_a_read_without_a_match_looks_at_800_entries_at_most(stores: Stores):
    store = stores.open(consume_queue_file_entries=1000, commit_log_file_size=1 << 20)
    store.append(*[message(b"0", tag="a")] * 900)
    store.publish()
    read = store.read("Orders", 0, 50, 32, selector=Selector(codes("none")))
    assert (read.status, read.next_offset) == (Status.NO_MATCHED_MESSAGE, 850)


def by(expression: str, weight: int = 1) -> Selector:
    """A selector that looks into records."""
    return Selector(predicate=RecordFilter(parse(expression)), weight=weight)


def test_a_filter_looks_at_the_properties_of_each_record(stores: Stores):
    """Through log files of 4 KiB, with another queue's messages and large ones between."""
    store = stores.open(consume_queue_file_entries=1000)
    for number in range(100):
        put(store, b"%03d" % number, tag="ab"[number % 2], key=str(number))
        put(store, b"x" * (number * 17 % 1500), queue_id=1, tag="b")
    store.publish()
    expected = [number for number in range(100) if number % 2 and number > 40]
    assert found(store.read("Orders", 0, 0, 100, selector=by("TAGS = 'b' AND KEYS > 40"))) == expected
    assert found(store.read("Orders", 0, 0, 3, selector=by("KEYS BETWEEN 30 AND 90"))) == [30, 31, 32]
    assert store.read("Orders", 0, 0, 32, selector=by("absent IS NOT NULL")).next_offset == 100


def test_a_filter_looks_at_large_records_too(stores: Stores):
    store = stores.open(commit_log_file_size=1 << 20)
    for size in (1, LARGE - 200, LARGE, 3 * LARGE, 1, 70_000, 10):
        put(store, b"%d" % size + bytes(size), tag=str(size))
    store.publish()
    for size in (LARGE, 3 * LARGE, 70_000):
        read = store.read("Orders", 0, 0, 32, 1 << 20, selector=by(f"TAGS = '{size}'"))
        assert [len(each.body) - len(str(size)) for each in messages(read)] == [size]
    assert store.read("Orders", 0, 0, 32, 1 << 20, selector=by("TAGS > 0")).count == 7


def test_a_long_filter_looks_at_fewer_records_in_one_read(stores: Stores):
    store = stores.open(consume_queue_file_entries=1000, commit_log_file_size=1 << 20)
    store.append(*[message(b"0", tag="a")] * 900)
    store.publish()
    assert store.read("Orders", 0, 0, 32, selector=by("TAGS = 'b'", weight=10)).next_offset == 240
    assert store.read("Orders", 0, 0, 32, selector=by("TAGS = 'b'", weight=5000)).next_offset == 3


@pytest.mark.parametrize("body_bytes", [0, LARGE])
def test_a_read_stops_after_much_work_and_continues_where_it_stopped(stores: Stores, body_bytes: int):
    store = stores.open(consume_queue_file_entries=1000, commit_log_file_size=1 << 20)
    for number in range(100):
        put(store, bytes(body_bytes), tag="ab"[number % 50 == 49], key="x" * 3000)
    store.publish()
    selector, offset, reads, wanted = by("TAGS = 'b'", weight=16), 0, 0, 0
    while offset < 100:
        read = store.read("Orders", 0, offset, 32, 1 << 20, selector=selector)
        assert offset < read.next_offset <= offset + 25  # each record is work of about 48 KB
        offset, reads, wanted = read.next_offset, reads + 1, wanted + read.count
    assert reads >= 5 and wanted == 2


def test_a_filter_that_wants_nothing_looks_at_800_entries_and_1600_more(stores: Stores):
    store = stores.open(consume_queue_file_entries=3000, commit_log_file_size=1 << 20)
    others = [message(b"0", tag="a")] * 1300
    store.append(*others, message(b"1", tag="b"), *others)
    store.publish()
    read = store.read("Orders", 0, 0, 32, selector=by("TAGS = 'b'"))
    assert (found(read), read.next_offset) == ([1], 2400)
    read = store.read("Orders", 0, 50, 32, selector=by("TAGS = 'c'"))
    assert (read.status, read.next_offset) == (Status.NO_MATCHED_MESSAGE, 2450)
    read = store.read("Orders", 0, 1900, 32, selector=by("TAGS = 'c'"))
    assert (read.status, read.next_offset) == (Status.NO_MATCHED_MESSAGE, 2601)


def test_a_filter_looks_no_more_where_records_are_large_or_far_from_each_other(stores: Stores):
    store = stores.open(consume_queue_file_entries=3000, commit_log_file_size=1 << 24)
    for _ in range(900):
        put(store, b"0", tag="a")
        put(store, bytes(2000), queue_id=1)
    store.append(*[message(bytes(LARGE), queue_id=2, tag="a")] * 900)
    store.publish()
    assert store.read("Orders", 0, 0, 32, selector=by("TAGS = 'b'")).next_offset == 800
    assert store.read("Orders", 2, 0, 32, selector=by("TAGS = 'b'")).next_offset == 800


def test_of_a_large_record_a_filter_reads_no_body(stores: Stores):
    disk = FaultyDisk()
    store = stores.open(vfs=disk, commit_log_file_size=1 << 22, consume_queue_file_entries=32)
    for _ in range(20):
        put(store, bytes(100_000), tag="a")
    store.publish()
    disk.bytes_read = 0
    assert store.read("Orders", 0, 0, 32, selector=by("TAGS = 'b'")).next_offset == 20
    assert 0 < disk.bytes_read < 20_000


def test_messages_without_a_tag_have_the_code_0(store: MessageStore):
    put(store, b"0")
    put(store, b"1", tag="a")
    store.publish()
    assert found(store.read("Orders", 0, 0, 32, selector=Selector(frozenset({0})))) == [0]


def test_gaps_are_passed_over(store: MessageStore):
    fill(store, 2)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    queue.write_gap(5)
    put(store, b"5")
    store.publish()
    read = store.read("Orders", 0, 0, 32)
    assert (found(read), read.next_offset) == ([0, 1, 5], 6)
    read = store.read("Orders", 0, 2, 2)
    assert (read.status, read.next_offset) == (Status.NO_MATCHED_MESSAGE, 4)
    assert found(store.read("Orders", 0, 3, 1 << 20, 1 << 40)) == [5]


# Times


async def send_each_second(store: MessageStore, clock: ManualClock, count: int) -> int:
    """Three messages each second; when the first ones were stored."""
    begin_ms = clock.now_ms()
    for _ in range(count):
        fill(store, 3)
        await clock.advance(1)
    return begin_ms


@pytest.mark.covers("S-STORE-06")
@pytest.mark.parametrize(
    ("after_ms", "first", "last"),
    [
        (-1, 0, 0),
        (0, 0, 2),
        (1, 3, 2),
        (999, 3, 2),
        (1000, 3, 5),
        (4000, 12, 14),
        (4001, 15, 14),
        (10**9, 15, 14),
    ],
)
async def test_a_queue_offset_is_found_by_time(
    store: MessageStore, clock: ManualClock, after_ms: int, first: int, last: int
):
    begin_ms = await send_each_second(store, clock, 5)
    assert store.offset_by_time("Orders", 0, begin_ms + after_ms) == first
    assert store.offset_by_time("Orders", 0, begin_ms + after_ms, upper=True) == last


async def test_a_queue_offset_is_found_by_time_across_a_gap(store: MessageStore, clock: ManualClock):
    begin_ms = await send_each_second(store, clock, 1)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    queue.write_gap(9)
    await send_each_second(store, clock, 1)
    assert store.offset_by_time("Orders", 0, begin_ms) == 0
    assert store.offset_by_time("Orders", 0, begin_ms + 1000) == 9
    assert store.offset_by_time("Orders", 0, begin_ms + 999, upper=True) == 8  # nobody knows when that was


@pytest.mark.parametrize("bit", [0x01, 0x80])
async def test_a_damaged_time_does_not_lead_a_search_astray(store: MessageStore, clock: ManualClock, bit: int):
    begin_ms = await send_each_second(store, clock, 8)
    queue = store.queues.get("Orders", 0)
    assert queue is not None
    store._log.verified_from = store.end
    for damaged in range(24):
        place = queue.read(damaged, 1).begin
        file = store._log.row.files[0]
        right = file.read(place + 56, 8)
        file.write(place + 56, bytes([right[0], right[1], right[2] ^ bit]) + right[3:])
        assert store.store_time("Orders", 0, damaged) is None
        for second in range(8):
            found = store.offset_by_time("Orders", 0, begin_ms + 1000 * second)
            assert found - 3 * second in ((0, 1) if damaged == 3 * second else (0,))
        file.write(place + 56, right)


async def test_the_time_of_a_message_is_told(store: MessageStore, clock: ManualClock):
    begin_ms = await send_each_second(store, clock, 2)
    times = [store.store_time("Orders", 0, queue_offset) for queue_offset in (0, 2, 3, 5, 6, -1)]
    assert times == [begin_ms, begin_ms, begin_ms + 1000, begin_ms + 1000, None, None]
    assert store.store_time("Nowhere", 0, 0) is None
    assert store.offset_by_time("Nowhere", 0, begin_ms) == 0


# Single records


@pytest.mark.covers("S-STORE-06")
def test_a_record_is_found_by_its_offset_and_any_number_may_be_asked_for(store: MessageStore):
    put(store, b"0")
    second, _, end, _ = put(store, b"1")
    record = store.record_at(second)
    assert record is not None and len(record) == end - second
    assert store.record_at(second, end - second) == record
    for offset in (-1, 1, second + 1, end, end + 10**9):
        assert store.record_at(offset) is None
    assert store.record_at(second, 5) is None


def test_a_selector_may_look_at_the_records(store: MessageStore):
    for number in range(6):
        put(store, b"%03d" % number, tag="ab"[number % 2], key=str(number))
    store.publish()
    interesting = RecordFilter(parse("KEYS IN ('1', '4')"))
    read = store.read("Orders", 0, 0, 32, selector=Selector(predicate=interesting))
    assert (found(read), read.next_offset) == ([1, 4], 6)
    read = store.read("Orders", 0, 0, 32, selector=Selector(codes("b"), interesting))
    assert (found(read), read.next_offset) == ([1], 6)
    read = store.read("Orders", 0, 2, 1, selector=by("FALSE"))
    assert (read.status, read.next_offset) == (Status.NO_MATCHED_MESSAGE, 6)


def test_messages_far_apart_are_read_one_by_one(stores: Stores):
    store = stores.open(commit_log_file_size=1 << 20)
    for number in range(6):
        put(store, b"%d" % number)
        put(store, bytes(12_000), "Bills")  # together more than is read for nothing
    store.publish()
    read = store.read("Orders", 0, 0, 32)
    assert found(read) == list(range(6)) and len({id(view.obj) for view in read.views}) == 6


def test_wanted_messages_near_each_other_are_read_at_once(stores: Stores):
    store = stores.open(commit_log_file_size=1 << 20, consume_queue_file_entries=64)
    for number in range(12):
        put(store, b"%d" % number, tag="wanted")
        put(store, bytes(10 if number < 6 else 12_000), tag="other")
    store.publish()
    read = store.read("Orders", 0, 0, 32, selector=Selector(codes("wanted")))
    assert found(read) == list(range(12))
    assert [len({id(view.obj) for view in part}) for part in (read.views[:7], read.views[7:])] == [1, 5]


def test_wanted_messages_in_two_files_are_all_read(stores: Stores):
    store = stores.open(consume_queue_file_entries=64)
    fill(store, 60, ("wanted", "other"))
    assert store.end > store.settings.commit_log_file_size
    assert found(store.read("Orders", 0, 0, 60, selector=Selector(codes("wanted")))) == list(range(0, 60, 2))
