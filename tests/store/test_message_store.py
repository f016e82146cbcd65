import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.errors import InvalidMessage, InvalidName, MessageTooLarge, StoreError
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.checkpoint import load
from sparrowmq.store.layout import ENTRY, offset_name
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import Status
from sparrowmq.store.vfs import Disk as RealDisk
from tests.store.crash_states import Disk, RecordVfs
from tests.store.stores import HOST, bodies, committed, message, messages, put, put_batch, safe

LATER = 1 << 62


def size_of(part, topic="Orders"):
    """How many bytes the message takes in the log."""
    part.topic = topic
    return len(record.encode(part, Placed(0, 0, 1, HOST)))


def keys_found(store, key, topic="Orders", max_count=9, begin_ms=0, end_ms=LATER):
    return [bytes(record.decode(found).body) for found in store.query(topic, key, max_count, begin_ms, end_ms)]


def test_a_message_is_stored_with_all_that_was_said_about_it(stores, clock):
    store = stores.open(clock=clock, store_host=hosts.pack("10.0.0.1:10911"))
    put(store)
    store.append(Entry("Orders", 3, b"body", Properties("A\x01b"), 1234, hosts.pack("[::1]:5"), 7, 1, 2, 99))
    store.publish()
    (found,) = messages(store.read("Orders", 3, 0, 10))
    assert (found.topic, found.queue_id, found.queue_offset, found.body) == ("Orders", 3, 0, b"body")
    assert (found.properties, found.flag, found.reconsume_times, found.prepared_offset) == (
        {"A": "b"},
        7,
        2,
        99,
    )
    assert (found.born_host, found.born_timestamp_ms) == ("[::1]:5", 1234)
    assert (found.store_host, found.store_timestamp_ms) == ("10.0.0.1:10911", clock.now_ms())
    assert found.sys_flag == SysFlag.COMPRESSED | SysFlag.BORN_V6


def test_append_tells_where_the_message_lies_and_when_it_was_stored(stores, clock):
    store = stores.open(clock=clock)
    first, second, other = put(store), put(store), put(store, queue_id=1)
    size = first[2]
    assert first == (0, 0, size, clock.now_ms())
    assert second == (size, 1, 2 * size, clock.now_ms())
    assert other == (2 * size, 0, 3 * size, clock.now_ms())
    assert (store.begin, store.end) == (0, 3 * size)


@pytest.mark.covers("S-STORE-02")
def test_all_topics_share_one_log_in_the_order_of_arrival(stores):
    store = stores.open()
    topics = ["Orders", "Flights", "Orders", "Payments"]
    for number, topic in enumerate(topics):
        put(store, b"%d" % number, topic, queue_id=number)
    whole = store.log_bytes(0, store.end)
    assert whole is not None
    assert [record.decode(each).topic for each in record.walk(whole)] == topics


@pytest.mark.covers("S-STORE-03")
def test_a_queue_entry_says_where_the_record_lies_its_size_and_the_hash_of_its_tag(stores):
    store = stores.open()
    put(store)
    offset, _, end, _ = put(store, tag="paid", queue_id=2)
    store.publish()
    path = Path(stores.settings.layout.queue("Orders", 2), offset_name(0))
    assert path.stat().st_size == 16 * 20
    assert ENTRY.unpack_from(path.read_bytes()) == (offset, end - offset, 3433164)  # "paid".hashCode()


@pytest.mark.covers("S-STORE-07")
def test_a_queue_shows_a_message_after_the_dispatch(stores):
    store = stores.open()
    put(store)
    assert store.queues.obtain("Orders", 0).end.value == 0
    assert store.read("Orders", 0, 0, 10).status is Status.NO_MESSAGE_IN_QUEUE
    store.publish()
    assert store.queues.obtain("Orders", 0).end.value == 1 and store.dispatched.value == store.end
    assert bodies(store) == [b"body"]


@pytest.mark.covers("S-STORE-07")
async def test_a_running_store_dispatches_by_itself_and_wakes_who_waits_for_the_first_message(stores, clock):
    store = stores.open(clock=clock)
    running = asyncio.create_task(store.run())
    waiting = asyncio.create_task(store.queues.obtain("Orders", 0).end.reached(1))
    await asyncio.sleep(0)
    put(store)
    put(store)
    assert not waiting.done()
    assert await asyncio.wait_for(waiting, 10) == 2  # one burst, one wake-up
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_running_store_makes_checkpoints(stores, clock):
    store = stores.open(clock=clock, checkpoint_interval_ms=1000)
    running = asyncio.create_task(store.run())
    await asyncio.sleep(0)
    _, _, end, _ = put(store)
    await asyncio.wait_for(safe(store, end), 10)
    await clock.advance(1)
    async with asyncio.timeout(10):
        while store._checkpointer.written_offset < end:
            await asyncio.sleep(0.001)
    found = load(RealDisk(), stores.settings.layout.checkpoint).positions
    assert found is not None and found.dispatched == end
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("sys_flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_prepared_and_rolled_back_messages_are_in_the_log_and_in_no_queue(stores, sys_flag):
    store = stores.open()
    [half] = store.append(message(b"half", sys_flag=sys_flag))
    offset, queue_offset = half.offset, half.queue_offset
    assert put(store, b"next")[1] == queue_offset == 0
    store.publish()
    found = store.record_at(offset)
    assert found is not None and record.decode(found).body == b"half"
    assert bodies(store) == [b"next"]


@pytest.mark.parametrize("property_crc", [True, False])
def test_the_checksum_over_a_whole_record_can_be_left_out(stores, property_crc):
    store = stores.open(property_crc=property_crc)
    put(store)
    found = store.record_at(0)
    assert found is not None and (b"__CRC32#" in bytes(found)) == property_crc


def test_a_message_that_no_file_can_hold_is_refused_and_the_store_goes_on(stores):
    store = stores.open()
    room = 4096 - 8 - size_of(message(b""))
    with pytest.raises(MessageTooLarge, match="raise mappedFileSizeCommitLog"):
        put(store, bytes(room + 1))
    assert store.end == 0
    assert put(store, bytes(room))[:2] == (0, 0)
    assert put(store)[:2] == (4096, 1)


def test_a_message_that_cannot_be_written_down_is_refused_and_nothing_has_changed(stores):
    store = stores.open()
    with pytest.raises(InvalidMessage):
        store.append(message(b"", tag="x" * 40_000))
    with pytest.raises(InvalidName):
        store.append(message(topic="../etc"))
    assert store.end == 0 and put(store)[:2] == (0, 0)


# Batches


def test_a_batch_lies_side_by_side_in_one_queue(stores):
    store = stores.open()
    put(store)
    start = store.end
    appended = put_batch(store, message(b"a"), message(b"bb", tag="t"), message(b"c", key="k"))
    put(store, b"last")
    store.publish()
    assert [queue_offset for _, queue_offset, _, _ in appended] == [1, 2, 3]
    assert [offset for offset, _, _, _ in appended] == [start, *(end for _, _, end, _ in appended[:2])]
    assert bodies(store) == [b"body", b"a", b"bb", b"c", b"last"]
    assert keys_found(store, "k") == [b"c"]


def test_a_batch_goes_to_one_file_or_the_next_whole(stores):
    store = stores.open()
    part = message(bytes(100))
    size = size_of(part)
    while store.end + 2 * size <= 4096 - 8:
        store.append(part)
    assert store.end + size <= 4096 - 8  # one of them would fit
    first, second = put_batch(store, part, part)
    assert first[0] == 4096 and second[0] == 4096 + size
    store.publish()
    assert len(bodies(store)) == second[1] + 1


def test_a_batch_that_just_fits_stays_in_its_file(stores):
    store = stores.open()
    empty = size_of(message(b""))
    left = 4096 - 8 - 2 * empty
    appended = put_batch(store, message(bytes(left)), message(b""))
    assert appended[-1][2] == 4096 - 8
    with pytest.raises(MessageTooLarge):
        put_batch(store, message(bytes(left)), message(b"1"))


def test_a_batch_of_which_one_part_is_impossible_is_refused_as_a_whole(stores):
    store = stores.open()
    put(store)
    end = store.end
    with pytest.raises(InvalidMessage):
        put_batch(store, message(b"good"), message(b"", tag="x" * 40_000))
    with pytest.raises(MessageTooLarge):
        put_batch(store, *[message(bytes(1000))] * 4)
    assert store.end == end and put(store, b"next")[1] == 1
    store.publish()
    assert bodies(store) == [b"body", b"next"]


def test_an_empty_batch_changes_nothing(stores):
    store = stores.open()
    assert put_batch(store) == []
    assert store.end == 0


@pytest.mark.parametrize("sys_flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
def test_a_batch_cannot_hold_messages_of_a_transaction(stores, sys_flag):
    store = stores.open()
    with pytest.raises(InvalidMessage, match="a batch cannot hold messages of a transaction"):
        put_batch(store, message(), message(sys_flag=sys_flag))
    assert store.end == 0


def test_a_commit_lies_beside_the_record_that_it_ended(stores):
    store = stores.open()
    put(store, queue_id=1)
    placed, op = committed(store, tag="a", key="k", unique_key="u")
    store.publish()
    assert bodies(store, queue_id=1) == [b"body", b"half"] and bodies(store, "Ops") == [b"op"]
    commit = store.queues.get("Orders", 1).entry(1)
    assert (commit.offset + commit.size, commit.tags_code) == (op.offset, ord("a"))
    found = {key: [record.decode(each) for each in store.query("Orders", key, 9, 0, 1 << 50)] for key in "uk"}
    assert [each.physical_offset for each in (*found["u"], *found["k"])] == [commit.offset] * 2
    assert found["u"][0].prepared_offset == placed.offset


def test_a_commit_that_does_not_fit_the_file_lies_in_the_next_one_with_its_op_record(stores):
    store = stores.open(commit_log_file_size=4096)
    put(store, body=b"x" * 3620)
    _, op = committed(store)
    store.publish()
    commit = store.queues.get("Orders", 1).entry(0)
    assert (commit.offset, commit.offset + commit.size) == (4096, op.offset)
    assert bodies(store, queue_id=1) == [b"half"] and bodies(store, "Ops") == [b"op"]


def test_a_batch_lies_side_by_side_whatever_its_queues(stores):
    store = stores.open(commit_log_file_size=4096)
    put(store, body=b"x" * 3700)
    others = (message(), message(queue_id=1), message(topic="Payments"), message())
    places = put_batch(store, *others)
    assert [place[1] for place in places] == [1, 0, 0, 2]
    assert places[0][0] == 4096, "all of it in the next file"
    store.publish()
    assert store.queues.obtain("Orders", 0).end.value == 3 and store.queues.obtain("Payments", 0).end.value == 1


# Looking things up


def test_any_number_may_be_asked_for_a_record(stores):
    store = stores.open()
    offsets = [put(store, bytes(300))[0] for _ in range(15)]
    found = {offset for offset in range(-10, store.end + 10) if store.record_at(offset) is not None}
    assert found == set(offsets) and max(offsets) > 4096


def test_a_record_is_given_out_only_if_its_size_is_the_expected_one(stores):
    store = stores.open()
    offset, _, end, _ = put(store)
    assert store.record_at(offset, end - offset) is not None
    assert store.record_at(offset, end - offset - 1) is None


def test_a_body_that_looks_like_a_record_is_not_given_out_as_one(stores):
    store = stores.open()
    put(store, b"first")
    forged = bytes(store.record_at(0) or b"")
    offset, _, _, _ = put(store, forged)
    assert all(store.record_at(inside) is None for inside in range(offset + 1, store.end))


def test_messages_are_found_by_key_and_by_unique_key_newest_first(stores):
    store = stores.open()
    put(store, b"1", key="red round", unique_key="id1")
    put(store, b"2", key="red", unique_key="id2")
    put(store, b"3", topic="Flights", key="red")
    assert keys_found(store, "red") == [b"2", b"1"]  # even before the dispatch
    assert keys_found(store, "round") == keys_found(store, "id1") == [b"1"]
    assert keys_found(store, "red", max_count=1) == [b"2"]
    assert keys_found(store, "red", topic="Flights") == [b"3"]
    assert keys_found(store, "blue") == []


async def test_messages_are_found_by_key_within_a_time(stores, clock):
    store = stores.open(clock=clock)
    times = []
    for number in range(3):
        times.append(put(store, b"%d" % number, key="red")[3])
        store.publish()
        await clock.advance(10)
    assert keys_found(store, "red", begin_ms=times[1]) == [b"2", b"1"]
    assert keys_found(store, "red", end_ms=times[1]) == [b"1", b"0"]


def test_the_index_knows_how_far_it_got(stores, clock):
    store = stores.open(clock=clock)
    assert store.indexed == (0, -1)
    offset, _, _, stored_ms = put(store, key="red")
    store.checkpoint()
    assert store.indexed == (stored_ms, offset)


def test_a_store_without_index_finds_nothing_by_key(stores):
    store = stores.open(index=False)
    put(store, key="red")
    assert keys_found(store, "red") == [] and store.indexed == (0, -1)


async def test_a_queue_is_searched_by_time(stores, clock):
    store = stores.open(clock=clock)
    times = []
    for _ in range(4):
        times.append(put(store)[3])
        store.publish()
        await clock.advance(10)
    assert [store.offset_by_time("Orders", 0, stored_ms) for stored_ms in times] == [0, 1, 2, 3]
    assert store.offset_by_time("Orders", 0, times[1] + 1) == 2
    assert store.offset_by_time("Orders", 0, times[1] + 1, upper=True) == 1
    assert [store.store_time("Orders", 0, offset) for offset in range(5)] == [*times, None]
    assert store.offset_by_time("Nothing", 0, 1) == 0 and store.store_time("Nothing", 0, 0) is None


def test_a_queue_that_never_had_a_message_is_none(stores):
    store = stores.open()
    put(store)
    assert store.queues.get("Orders", 1) is None
    assert store.read("Orders", 1, 0, 10).status is Status.NO_MATCHED_LOGIC_QUEUE
    assert [(queue.topic, queue.queue_id) for queue in store.queues] == [("Orders", 0)]


def test_bytes_of_the_log_come_from_one_file_and_not_past_its_end(stores):
    store = stores.open()
    while store.end <= 4096:
        put(store, bytes(300))
    whole = [store.log_bytes(0, 1 << 20), store.log_bytes(4096, 1 << 20)]
    assert [len(view) for view in whole if view is not None] == [4096, store.end - 4096]
    piece = store.log_bytes(100, 50)
    assert piece is not None and whole[0] is not None and piece == whole[0][100:150]
    assert store.log_bytes(-1, 1) is None and store.log_bytes(store.end, 1) is None


def test_views_stay_good_after_the_store_was_closed(stores):
    store = stores.open()
    put(store)
    store.publish()
    read = store.read("Orders", 0, 0, 1)
    store.close()
    assert [found.body for found in messages(read)] == [b"body"]


# Deleting a topic


def test_a_deleted_topic_begins_at_zero_again_and_others_stay(stores):
    store = stores.open()
    for queue_id in (0, 1, 0):
        put(store, b"old", queue_id=queue_id)
    put(store, b"other", topic="Flights")
    store.delete_topic("Orders")
    assert store.queues.get("Orders", 0) is None and store.queues.get("Orders", 1) is None
    assert not Path(stores.settings.layout.topic("Orders")).exists()
    assert put(store, b"new")[1] == 0
    store.publish()
    assert bodies(store) == [b"new"] and bodies(store, "Flights") == [b"other"]


@pytest.mark.parametrize("made_anew", [True, False])
@pytest.mark.parametrize("leave", ["close", "checkpoint and crash"])
def test_a_deleted_topic_stays_deleted(stores, leave, made_anew):
    store = stores.open()
    put(store, b"other", topic="Flights")
    for _ in range(3):
        put(store, b"old")
    store.delete_topic("Orders")
    if made_anew:
        put(store, b"new")
    if leave == "close":
        store.close()
    else:
        store.checkpoint()
        stores.crash(store)
    store = stores.open()
    assert bodies(store) == ([b"new"] if made_anew else []) and bodies(store, "Flights") == [b"other"]


def test_a_topic_that_is_not_there_can_be_deleted(stores):
    store = stores.open()
    store.queues.obtain("Waited", 0)
    store.delete_topic("Waited")
    store.delete_topic("Nothing")
    assert list(store.queues) == []


# A slave


def test_the_log_of_a_master_can_be_followed_byte_by_byte(stores, tmp_path):
    master = stores.open()
    for number in range(30):
        put(master, b"%d" % number, queue_id=number % 2, key=f"k{number}", tag="t")
    slave = stores.open(path=tmp_path / "slave")
    while slave.end < master.end:
        slave.follow(slave.end, master.log_bytes(slave.end, 333) or b"")
        slave.publish()
    master.publish()
    for queue_id in (0, 1):
        assert bodies(slave, queue_id=queue_id) == bodies(master, queue_id=queue_id) != []
    assert keys_found(slave, "k29") == [b"29"]
    with pytest.raises(StoreError, match=r"bytes of the log from 7 on do not follow its end"):
        slave.follow(7, b"")


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("has_more", [False, True])
def test_a_log_may_begin_where_a_file_of_the_masters_does(stores, tmp_path, is_killed, has_more):
    master = stores.open()
    while master.end < 9000:
        put(master, bytes(100), key="k")
    slave = stores.open(path=tmp_path / "slave")
    with ThreadPoolExecutor(1) as executor:
        slave.tend(executor)  # which makes a file for offset 0
    slave.begin_at(8192)
    assert (slave.end, slave.dispatched.value, slave.flushed.value) == (8192, 8192, 8192)
    if has_more:
        slave.follow(8192, master.log_bytes(8192, 4096) or b"")
        slave.publish()
        assert (slave.begin, slave.end) == (8192, master.end) and len(keys_found(slave, "k", max_count=99)) > 1
    if is_killed:
        stores.crash(slave)
    else:
        slave.close()
    again = stores.open(path=tmp_path / "slave")
    assert (again.begin, again.end) == (8192, master.end if has_more else 8192)
    assert bool(bodies(again)) == has_more


def test_what_a_killed_slave_had_prepared_does_not_keep_its_log_from_beginning_elsewhere(stores):
    store = stores.open()
    with ThreadPoolExecutor(1) as executor:
        store.tend(executor)
    stores.crash(store)
    again = stores.open()
    again.begin_at(8192)
    assert (again.begin, again.end) == (8192, 8192)


def test_a_log_that_holds_something_or_has_other_files_cannot_begin_anew(stores):
    store = stores.open()
    with pytest.raises(StoreError, match=r"the log cannot begin at 100: it ends at 0, in files of 4096"):
        store.begin_at(100)
    put(store)
    with pytest.raises(StoreError, match="the log cannot begin at 4096"):
        store.begin_at(4096)


def test_half_a_record_is_not_dispatched(stores, tmp_path):
    master = stores.open()
    _, _, first, _ = put(master)
    put(master)
    content = bytes(master.log_bytes(0, master.end) or b"")
    slave = stores.open(path=tmp_path / "slave")
    slave.follow(0, content[: first + 50])
    slave.publish()
    assert slave.dispatched.value == first and len(bodies(slave)) == 1
    slave.follow(first + 50, content[first + 50 :])
    slave.publish()
    assert slave.dispatched.value == master.end and len(bodies(slave)) == 2


def test_what_a_masters_queue_lacks_is_a_gap_at_the_slave(stores, tmp_path, caplog):
    slave = stores.open(path=tmp_path / "slave")
    for queue_offset in (0, 1, 4):
        part = message(b"%d" % queue_offset)
        whole = record.encode(part, Placed(slave.end, queue_offset, 1, HOST))
        slave.follow(slave.end, whole)
    slave.publish()
    assert bodies(slave) == [b"0", b"1", b"4"] and slave.queues.get("Orders", 0).max_offset == 5
    assert "entries up to 4 are missing" in caplog.text


def test_a_master_may_leave_out_the_checksum_over_records(stores, tmp_path):
    master = stores.open(property_crc=False)
    put(master)
    slave = stores.open(path=tmp_path / "slave")
    slave.follow(0, master.log_bytes(0, master.end) or b"")
    slave.publish()
    stores.crash(slave)
    assert bodies(stores.open(path=tmp_path / "slave")) == [b"body"]


def test_settings_are_those_that_were_given(stores):
    settings = replace(stores.settings, retention_hours=5)
    assert stores.open(retention_hours=5).settings == settings


def test_the_folders_above_a_new_store_are_on_disk_before_it_takes_a_message(stores):
    vfs = RecordVfs()
    MessageStore.open(replace(stores.settings, path="/data/mq/store", commit_log_path="/logs/mq/log"), vfs=vfs)
    disk = Disk(vfs.start)
    for effect in vfs.effects:
        disk.apply(effect)
    assert {"/data/mq/store", "/logs/mq/log"} <= disk.folders
