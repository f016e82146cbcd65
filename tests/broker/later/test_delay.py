"""Delayed messages over a real store; time is turned by hand."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sparrowmq.errors import StoreFailed
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.requests.offset_bodies import DelayOffsets
from sparrowmq.protocol.selector import Selector
from sparrowmq.store.store_settings import CorruptPolicy
from tests.broker.conftest import until
from tests.broker.later.delaying import BORN, LEVELS, Delaying
from tests.broker.rotting import rot

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@asynccontextmanager
async def running(path, clock, **options):
    """A delivery that runs, closed in order at the end. The store does its part when a test says so."""
    it = Delaying(path, clock, **options)
    delivering = asyncio.create_task(it.delayed.delivery.run())
    await clock.advance(0)
    yield it
    await it.delayed.close()
    await delivering
    it.store.close()


@pytest.mark.covers("S-DELAY-01", "S-DELAY-02", "S-DELAY-04")
@pytest.mark.parametrize(("level", "wait_s"), [(1, 1), (2, 5), (3, 10), (5, 60), (18, 7200), (99, 7200)])
async def test_a_message_comes_when_its_level_says_and_not_before(tmp_path, clock, level, wait_s):
    async with running(tmp_path, clock) as it:
        it.send(b"one", level)
        await clock.advance(wait_s - 0.1)
        assert it.bodies() == []
        await clock.advance(0.2)
        assert it.bodies() == [b"one"]


@pytest.mark.parametrize("level", ["+3", " 3", "３", "+99"])
async def test_a_level_is_stored_as_digits(tmp_path, clock, level):
    async with running(tmp_path, clock) as it:
        it.send(b"one", level)
        await clock.advance(7201)
        (message,) = it.delivered()
        assert message.properties["DELAY"] == ("18" if level == "+99" else "3")


async def test_a_delivered_message_is_what_was_sent_at_its_real_place(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        born_ms = clock.now_ms()
        it.send(b"one", 1, queue_id=3, TAGS="paid", KEYS="k1")
        await clock.advance(2)
        (message,) = it.delivered(queue_id=3)
        assert (message.topic, message.queue_id, message.flag, message.reconsume_times) == ("Orders", 3, 7, 2)
        assert (message.born_timestamp_ms, message.born_host) == (born_ms, "127.0.0.1:5000")
        assert message.store_timestamp_ms == born_ms + 1000
        assert message.properties == {
            "UNIQ_KEY": "one",
            "TAGS": "paid",
            "KEYS": "k1",
            "DELAY": "1",
            "REAL_TOPIC": "Orders",
            "REAL_QID": "3",
            "CLUSTER": "DefaultCluster",
        }
        found = it.store.read("Orders", 3, 0, 10, selector=Selector(frozenset({3433164})))  # the hash of "paid"
        assert found.count == 1


@pytest.mark.covers("S-DELAY-03")
@pytest.mark.covers("S-DELAY-06")
async def test_a_level_keeps_the_order_and_its_queue_holds_the_due_times(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        begin_ms = clock.now_ms()
        for number in range(300):
            it.send(b"%d" % number, 2)
            if number % 100 == 0:
                await clock.advance(0.5)
        due = [entry.tags_code for entry in it.store.queues.get(SCHEDULE, 1).read(0, 300)]
        assert due == sorted(due) and due[0] == begin_ms + 5000
        await clock.advance(6)
        assert it.bodies() == [b"%d" % number for number in range(300)]


async def test_levels_do_not_wait_for_each_other(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"slow", 4)
        await clock.advance(1)
        it.send(b"quick", 1)
        await clock.advance(1.1)
        assert it.bodies() == [b"quick"]
        await clock.advance(30)
        assert it.bodies() == [b"quick", b"slow"]


async def test_without_delayed_messages_nothing_is_looked_at(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        rounds = 0
        deliver_some = it.delayed._deliver_some

        def counting(level):
            nonlocal rounds
            rounds += 1
            return deliver_some(level)

        it.delayed._deliver_some = counting
        await clock.advance(minutes=5)
        assert rounds <= 6 * LEVELS.max


@pytest.mark.covers("S-DELAY-05")
async def test_after_a_clean_restart_nothing_comes_twice_and_nothing_is_lost(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 1)
        it.send(b"two", 3)
        await clock.advance(2)
        assert it.bodies() == [b"one"]
    assert b'"offsetTable":{"1":1}' in (tmp_path / "config" / "delayOffset.json").read_bytes()
    async with running(tmp_path, clock) as it:
        await clock.advance(1)
        assert it.bodies() == [b"one"]
        await clock.advance(7.5)
        assert it.bodies() == [b"one", b"two"]
        it.send(b"three", 1)
        await clock.advance(1.5)
        assert it.bodies() == [b"one", b"two", b"three"]


async def test_what_came_due_while_the_broker_was_down_comes_at_the_start(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 3)
    await clock.advance(100)
    async with running(tmp_path, clock) as it:
        await until(lambda: it.bodies() == [b"one"])


async def test_after_a_kill_the_log_shows_what_is_delivered(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    it.send(b"one", 1)
    it.send(b"two", 3)
    await clock.advance(2)
    assert await it.delayed.delivery.run_due() > 0
    assert it.bodies() == [b"one"]
    it.kill()
    assert not it.file.exists()
    async with running(tmp_path, clock) as it:
        await clock.advance(10)
        assert it.bodies() == [b"one", b"two"]


async def test_progress_is_saved_only_when_what_was_delivered_is_on_disk(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    it.send(b"one", 1)
    await clock.advance(2)
    await it.delayed.delivery.run_due()
    saving = asyncio.create_task(it.delayed.progress.save())
    await clock.advance(0)
    assert not saving.done()
    assert it.delayed.progress.content().offset_table == {}
    it.store.flush()
    await saving
    assert it.delayed.progress.content().offset_table == {1: 1}
    it.store.close()


async def test_levels_that_the_configuration_lost_still_deliver(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 18)
    async with running(tmp_path, clock, levels=DelayLevels.parse("1s 5s")) as it:
        await clock.advance(hours=2)
        assert it.bodies() == [b"one"]


@pytest.mark.parametrize("address", ["", "REAL_TOPIC\x01../x\x02REAL_QID\x010\x02"])
async def test_a_parked_message_without_an_address_is_passed_over(tmp_path, clock, caplog, address):
    """The log of a false master may hold one. It ended a broker at each start, once this was no slave any more."""
    async with running(tmp_path, clock) as it:
        lost = Entry(SCHEDULE, 0, b"lost", Properties(address), clock.now_ms(), BORN)
        lost.deliver_at_ms = clock.now_ms()
        it.store.append(lost)
        it.send(b"one", 1)
        await clock.advance(2)
        assert it.bodies() == [b"one"]
        assert "cannot be delivered" in caplog.text


async def test_a_level_with_a_damaged_message_stands_still_until_it_is_mended(tmp_path, clock, caplog):
    async with running(tmp_path, clock) as it:
        for number in range(4):
            it.send(b"three %d" % number, 3)
        it.send(b"four", 4)
        mend = rot(tmp_path, b"three 2")
        await clock.advance(100)
        assert it.bodies() == [b"three 0", b"three 1", b"four"]
        (told,) = [each.getMessage() for each in caplog.records]
        assert "delay level 3, at message 2, waits; retrying each minute: " in told
        assert "is damaged at offset" in told
        it.store.flush()
        await it.delayed.progress.save()
        assert it.delayed.progress.content().offset_table == {3: 2, 4: 1}
        mend()
        await clock.advance(61)
        assert it.bodies() == [b"three 0", b"three 1", b"four", b"three 2", b"three 3"]


async def test_only_a_quarantine_passes_over_a_damaged_message(tmp_path, clock, caplog):
    async with running(tmp_path, clock, corrupt_policy=CorruptPolicy.QUARANTINE) as it:
        for number in range(4):
            it.send(b"three %d" % number, 3)
        rot(tmp_path, b"three 2")
        await clock.advance(11)
        assert it.bodies() == [b"three 0", b"three 1", b"three 3"]
        assert "skipped a message" in caplog.text and "fileReservedTime" not in caplog.text


async def test_a_due_time_far_beyond_the_level_counts_as_now(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        entry = Entry(SCHEDULE, 0, b"set back", Properties("REAL_TOPIC\x01Orders\x02REAL_QID\x010"), 1, BORN)
        entry.deliver_at_ms = clock.now_ms() + 3_600_000
        it.store.append(entry)
        it.store.publish()
        await until(lambda: it.bodies() == [b"set back"])


async def test_offsets_beyond_the_queue_are_brought_back(tmp_path, clock, caplog):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{1:500}}')
    async with running(tmp_path, clock) as it:
        assert "delivered up to 500" in caplog.text
        it.send(b"one", 1)
        await clock.advance(1.5)
        assert it.bodies() == [b"one"]


async def test_a_failed_store_ends_the_delivery(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    task = asyncio.create_task(it.delayed.delivery.run())
    await clock.advance(0)
    it.store.queues.obtain(SCHEDULE, 0).end.fail(StoreFailed("the disk is gone"))
    with pytest.raises(StoreFailed):
        await task
    it.store.close()


async def test_progress_is_told_by_level(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 1)
        it.send(b"two", 1)
        await clock.advance(0.5)
        assert it.figures.values("sparrowmq_delay_delivered") == {("1",): 0}
        assert it.figures.values("sparrowmq_delay_parked") == {("1",): 2}
        await clock.advance(1)
        assert it.figures.values("sparrowmq_delay_delivered") == {("1",): 2}


async def test_retention_leaves_the_file_of_a_message_until_it_was_delivered(tmp_path, clock):
    small = {"retention_hours": 1, "delete_when": ";".join(map(str, range(24)))}
    async with running(tmp_path, clock, **small) as it:
        it.send(b"one", 18)
        for number in range(3 * 40):
            it.send(b"%d" % number, 1, filler="x" * 30_000)
        await clock.advance(1.9 * 3600)
        it.store.checkpoint()
        list(it.store.retention.run(clock.now_ms()))
        assert it.store.begin == 0
        await clock.advance(0.2 * 3600)
        assert b"one" in it.bodies()
        it.store.checkpoint()
        list(it.store.retention.run(clock.now_ms()))
        assert it.store.begin > 0


async def test_a_slave_keeps_what_its_master_needs_and_all_before_it_knows(tmp_path, clock):
    slave, master = Delaying(tmp_path / "slave", clock), Delaying(tmp_path / "master", clock)
    slave.delayed.progress.part_of_slave(1)
    for each in (slave, master):
        each.send(b"one", 18)
        assert each.store.hold.begin() == 0
    told = master.delayed.progress.for_slave()
    assert (told.needed, told.log_end) == (0, master.store.end)
    end = slave.store.end
    slave.delayed.progress.follow(DelayOffsets({18: 1}, needed=70, log_end=end))
    assert slave.store.hold.begin() == 0, "our log is not on disk up to there"
    slave.store.flush()
    assert slave.store.hold.begin() == 70
    slave.delayed.progress.follow(DelayOffsets({18: 1}, needed=90, log_end=end + 1))
    slave.delayed.progress.leave_master()  # whose log may have another record there
    slave.send(b"two", 18)
    slave.store.flush()
    assert slave.store.hold.begin() == 70
    slave.delayed.progress.follow(DelayOffsets({18: 2}))  # as Java's
    assert slave.store.hold.begin() is None
    assert slave.delayed.progress.content().needed is None
    for each in (slave, master):
        each.store.close()


async def test_a_slave_is_as_far_as_its_master_and_delivers_nothing(tmp_path, clock):
    slave = Delaying(tmp_path / "slave", clock)
    part = slave.delayed.progress.part_of_slave(1)
    assert not part.tasks
    slave.send(b"one", 1)
    slave.delayed.progress.follow(DelayOffsets({1: 7, 3: 2}))
    assert slave.delayed.progress.content().offset_table == {1: 7, 3: 2}
    for save in part.saves:
        await save()
    slave.delayed.progress.follow(DelayOffsets({1: 7, 3: 2}))
    assert not slave.delayed.progress.file.dirty and slave.bodies() == []
    slave.store.close()
    again = Delaying(tmp_path / "slave", clock)
    assert again.delayed.progress.content().offset_table == {1: 7, 3: 2}
    again.store.close()
