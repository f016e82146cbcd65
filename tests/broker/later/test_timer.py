"""Messages for a time over a real store; time is turned by hand."""

import asyncio
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress

import pytest

from sparrowmq.broker.delayed.delay import delay_levels
from sparrowmq.broker.delayed.timer import TimedDelivery, timer_redirect
from sparrowmq.broker.message_writer import Writer
from sparrowmq.errors import DiskFull, RemoteError, StoreFailed
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.store.care.check import verify
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, Flush, StoreSettings
from sparrowmq.store.vfs import Disk
from tests.broker.conftest import until
from tests.broker.rotting import rot
from tests.store.faulty_disk import FaultyDisk

BORN = hosts.pack("127.0.0.1:5000")
TIMERS = "rmq_sys_wheel_timer"
DAY_S = 86_400
LEVELS = DelayLevels.parse()


class Timing:
    """A store, a writer and the delivery of messages for a time, as a broker has them."""

    def __init__(self, path, clock, disk=None, **changes):
        options = {"commit_log_file_size": 1 << 20, "index": False, "flush": Flush.ASYNC, **changes}
        self.settings = StoreSettings(path, **options)
        self.clock = clock
        self.store = MessageStore.open(self.settings, vfs=disk, clock=clock)
        self.figures = Figures()
        redirect = timer_redirect(clock, 40 * DAY_S)
        self.writer = Writer(self.store, "DefaultCluster", (redirect, delay_levels(LEVELS, clock)))
        self.timed = TimedDelivery(self.store, self.writer, redirect, clock, self.figures)

    def send(self, body, delay_ms=None, topic="Orders", queue_id=0, sys_flag=0, **properties):
        named = {"UNIQ_KEY": body.decode(), **properties}
        if delay_ms is not None:
            named["TIMER_DELAY_MS"] = str(delay_ms)
        entry = Entry(topic, queue_id, body, Properties(render(named)), self.clock.now_ms(), BORN, 7, sys_flag, 2)
        self.writer.put(entry)
        self.store.publish()
        return entry

    def send_longest(self, body, delay_ms):
        """With properties that are as long as they may be."""
        for size in range(32_767, 0, -1):
            with suppress(RemoteError):
                return self.send(body, delay_ms, long="x" * size)
        raise AssertionError("none is taken")

    def recall(self, body, due_ms, topic="Orders"):
        key = f"{topic}+{body.decode()}"
        self.send(b"0", TIMER_DEL_UNIQKEY=key, TIMER_DELIVER_MS=str(due_ms), topic=topic)

    def delivered(self, topic="Orders", queue_id=0):
        self.store.publish()
        queue = self.store.queues.get(topic, queue_id)
        offset, found = (queue.min_offset if queue else 0), []
        while queue is not None and offset < queue.max_offset:
            read = self.store.read(topic, queue_id, offset, 1000)
            found += [record.decode(each) for view in read.views for each in record.walk(view)]
            offset = read.next_offset
        return found

    def bodies(self, **where):
        return [message.body for message in self.delivered(**where)]

    def figure(self, name):
        return self.figures.values(name)[()]

    async def save(self):
        self.store.flush()
        await self.timed.save()

    def kill(self):
        """End as a process that is killed: nothing more is written, nothing is saved."""
        self.store._log.write_out()
        self.store._log.close()
        self.store.queues.files.close()
        assert self.store._lock is not None
        self.store._lock.close()
        self.timed._timers.close()


@asynccontextmanager
async def running(path, clock, kill=False, **options):
    """A delivery that runs, closed in order at the end, or killed."""
    it = Timing(path, clock, **options)
    delivering = asyncio.create_task(it.timed.delivery.run())
    await clock.advance(0)
    try:
        yield it
    finally:
        if kill:
            delivering.cancel()
            with suppress(asyncio.CancelledError):
                await delivering
            it.kill()
        else:
            await it.timed.close()
            await delivering
            it.store.close()
            assert list(verify(it.settings)) == []


async def jump(clock, seconds):
    """Let the time of day go on by so much, all at once but for the last minute, in which it is noticed."""
    clock._start_ms += round((seconds - 61) * 1000)
    await clock.advance(61)


@pytest.mark.parametrize("delay_ms", [1, 20, 999, 5000, 3_600_000, 40 * DAY_S * 1000])
async def test_a_message_comes_at_its_time_and_not_before(tmp_path, clock, delay_ms):
    async with running(tmp_path, clock) as it:
        it.send(b"one", delay_ms)
        if delay_ms > 1_000_000:
            await jump(clock, delay_ms // 1000 - 100)
            await clock.advance(99.9994)
        else:
            await clock.advance((delay_ms - 0.6) / 1000)
        assert it.bodies() == []
        await clock.advance(0.020)
        assert it.bodies() == [b"one"]


@pytest.mark.parametrize(
    "asked",
    [{"TIMER_DELAY_SEC": "5"}, {"TIMER_DELAY_MS": "5000"}, {"TIMER_DELIVER_MS": "1767225605000"}],
    ids=lambda asked: next(iter(asked)),
)
async def test_a_time_is_asked_for_in_three_ways(tmp_path, clock, asked):
    async with running(tmp_path, clock) as it:
        it.send(b"one", **asked)
        await clock.advance(4.99)
        assert it.bodies() == []
        await clock.advance(0.03)
        (message,) = it.delivered()
        assert message.properties["TIMER_OUT_MS"] == "1767225605000"


async def test_a_delivered_message_is_what_was_sent_at_its_real_place(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        born_ms = clock.now_ms()
        it.send(b"one", 1000, queue_id=3, TAGS="paid")
        await clock.advance(2)
        (message,) = it.delivered(queue_id=3)
        assert (message.topic, message.queue_id, message.flag, message.reconsume_times) == ("Orders", 3, 7, 2)
        assert (message.born_timestamp_ms, message.born_host) == (born_ms, "127.0.0.1:5000")
        out = message.properties.pop("TIMER_DEQUEUE_MS")
        assert born_ms + 1000 <= int(out) <= born_ms + 1020
        assert message.properties == {
            "UNIQ_KEY": "one",
            "TAGS": "paid",
            "TIMER_DELAY_MS": "1000",
            "TIMER_OUT_MS": str(born_ms + 1000),
            "TIMER_ENQUEUE_MS": str(born_ms),
            "REAL_TOPIC": "Orders",
            "REAL_QID": "3",
            "CLUSTER": "DefaultCluster",
        }


async def test_what_is_taken_is_delivered_however_long_its_properties_are(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send_longest(b"one", 1000)
        with pytest.raises(
            RemoteError, match=r"at most 32\d\d\d can be stored of a message that waits, as \d+ come to them"
        ):
            it.send(b"two", 1000, long="x" * 32_600)
        await clock.advance(2)
        assert it.bodies() == [b"one"]


@pytest.mark.parametrize("delay_ms", [0, -5, -(10**15)])
async def test_a_time_that_has_passed_is_now(tmp_path, clock, delay_ms):
    async with running(tmp_path, clock) as it:
        it.send(b"one", delay_ms)
        assert it.bodies() == [b"one"]


@pytest.mark.parametrize("text", ["soon", "1.5", "1_000", "٣", "-", "9" * 20])
async def test_what_is_no_time_is_refused_by_name(tmp_path, clock, text):
    async with running(tmp_path, clock) as it:
        with pytest.raises(RemoteError, match="TIMER_DELAY_SEC is") as refused:
            it.send(b"one", TIMER_DELAY_SEC=text)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_time_beyond_the_bound_is_refused_with_the_bound(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        with pytest.raises(RemoteError, match="timerMaxDelaySec allows 3456000 s") as refused:
            it.send(b"one", 40 * DAY_S * 1000 + 1)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert it.figure("sparrowmq_timers_pending") == 0


@pytest.mark.parametrize("text", ["9" * 19, str(2**63 - 1)])
async def test_the_longest_number_is_a_time_far_away(tmp_path, clock, text):
    async with running(tmp_path, clock) as it:
        for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
            with pytest.raises(RemoteError, match=r"the delivery is \d+ s away"):
                it.send(b"one", **{name: text})
        it.send(b"past", TIMER_DELIVER_MS=f"-{text}")
        assert it.bodies() == [b"past"]


async def test_a_broker_whose_timers_are_off_says_so(clock):
    divert = timer_redirect(clock, DAY_S, enabled=False).divert
    entry = Entry("Orders", 0, b"", Properties("TIMER_DELAY_SEC\x015\x02"), 0, BORN)
    with pytest.raises(RemoteError, match="timerWheelEnable is false"):
        divert(entry)


async def test_a_delay_level_goes_before_a_time_as_in_java(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        entry = it.send(b"retry", 1, DELAY="3", TIMER_DELIVER_MS="1", TIMER_DELAY_SEC="1", TIMER_OUT_MS="77")
        assert entry.topic == "SCHEDULE_TOPIC_XXXX" and "TIMER_DEL" not in entry.properties.render()
        assert entry.properties.get("TIMER_OUT_MS") == "77"


@pytest.mark.parametrize("sys_flag", [SysFlag.PREPARED, SysFlag.ROLLBACK])
async def test_a_half_message_does_not_wait_for_its_time(clock, sys_flag):
    entry = Entry("Half", 0, b"", Properties("TIMER_DELAY_SEC\x015\x02"), 0, BORN, sys_flag=sys_flag)
    assert not timer_redirect(clock, DAY_S).divert(entry) and entry.topic == "Half"


async def test_messages_come_in_the_order_of_their_times(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        for number in range(200):
            it.send(b"%d" % number, 20_000 - 100 * number)
        await clock.advance(21)
        assert it.bodies() == [b"%d" % number for number in range(199, -1, -1)]
        assert it.figure("sparrowmq_timers_delivered_total") == 200 and it.figure("sparrowmq_timers_pending") == 0


async def test_without_timers_nothing_is_looked_at(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        rounds = 0
        deliver_some = it.timed._deliver_some

        def counting():
            nonlocal rounds
            rounds += 1
            return deliver_some()

        it.timed._deliver_some = counting
        await clock.advance(minutes=5)
        assert rounds <= 7


# Recalls


async def test_a_recalled_message_does_not_come_and_its_neighbours_do(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        for body in (b"a", b"b", b"c"):
            it.send(body, 60_000)
        it.send(b"b", 60_000, topic="Other")
        await clock.advance(59)
        it.recall(b"b", clock.now_ms() + 1000)
        await clock.advance(2)
        assert it.bodies() == [b"a", b"c"] and it.bodies(topic="Other") == [b"b"]
        assert it.figure("sparrowmq_timers_recalled_total") == 1 and it.figure("sparrowmq_timers_pending") == 0


@pytest.mark.parametrize("topic", ["Mine", "Order"])
async def test_a_recall_in_one_topic_of_a_message_of_another_is_ignored(tmp_path, clock, topic):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 5000)
        key = {"TIMER_DEL_UNIQKEY": "Orders+one", "TIMER_DELIVER_MS": str(clock.now_ms() + 5000)}
        it.send(b"0", topic=topic, REAL_TOPIC="Orders", **key)
        await clock.advance(6)
        assert it.bodies() == [b"one"] and it.bodies(topic=topic) == []
        assert it.figure("sparrowmq_timers_recalled_total") == 0 and it.figure("sparrowmq_timers_pending") == 0


async def test_a_recall_that_was_taken_in_the_last_millisecond_is_obeyed(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        due_ms = clock.now_ms() + 5000
        it.send(b"one", 5000)
        await clock.advance(4.999)
        assert not it.timed.is_over(due_ms)
        it.recall(b"one", due_ms)
        await clock.advance(1)
        assert it.bodies() == [] and it.timed.is_over(due_ms)


async def test_a_recall_that_was_appended_in_this_turn_is_obeyed(tmp_path, clock):
    it = Timing(tmp_path, clock)
    due_ms = clock.now_ms() + 1000
    it.send(b"one", 1000)
    recall = Properties(render({"TIMER_DEL_UNIQKEY": "Orders+one", "TIMER_DELIVER_MS": str(due_ms)}))
    it.writer.put(Entry("Orders", 0, b"0", recall, 1, BORN))  # no queue shows it yet
    await clock.advance(1.1)
    await it.timed.delivery.run_due()
    assert it.bodies() == []
    it.timed._timers.close()
    it.store.close()


async def test_a_recall_survives_a_kill(tmp_path, clock):
    async with running(tmp_path, clock, kill=True) as it:
        it.send(b"one", 5000)
        it.recall(b"one", clock.now_ms() + 5000)
        it.send(b"two", 5000)
    async with running(tmp_path, clock) as it:
        await clock.advance(6)
        assert it.bodies() == [b"two"]


async def test_what_is_recalled_too_late_is_refused(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        with pytest.raises(RemoteError, match="due already"):
            it.recall(b"one", clock.now_ms())


# Restarts


async def test_after_a_clean_restart_nothing_comes_twice_and_nothing_is_lost(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 1000)
        it.send(b"two", 5000)
        it.send(b"three", 30 * DAY_S * 1000)
        await clock.advance(2)
        assert it.bodies() == [b"one"]
    async with running(tmp_path, clock) as it:
        assert it.figure("sparrowmq_timers_pending") == 2
        await clock.advance(4)
        assert it.bodies() == [b"one", b"two"]
    async with running(tmp_path, clock) as it:
        await jump(clock, 30 * DAY_S)
        assert it.bodies() == [b"one", b"two", b"three"]


async def test_what_came_due_while_the_broker_was_down_comes_at_the_start(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        for number in range(300):
            it.send(b"%d" % number, 1000 * number + 1000)
    await clock.advance(hours=1)
    async with running(tmp_path, clock) as it:
        await until(lambda: len(it.bodies()) == 300)
        assert it.bodies() == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("when_saved", ["never", "before", "after", "both"])
async def test_a_kill_loses_none_and_doubles_none(tmp_path, clock, when_saved):
    async with running(tmp_path, clock, kill=True) as it:
        for number in range(1000):
            it.send(b"%d" % number, 1000 + number)
        if when_saved in ("before", "both"):
            await it.save()
        await clock.advance(1.5)
        if when_saved in ("after", "both"):
            await it.save()
        await clock.advance(0.2)
        assert 600 < len(it.bodies()) < 800
    for _ in range(2):
        async with running(tmp_path, clock, kill=True) as it:
            await clock.advance(0.1)
    async with running(tmp_path, clock) as it:
        await clock.advance(2)
        assert it.bodies() == [b"%d" % number for number in range(1000)]


async def test_what_was_delivered_is_not_saved_as_such_before_it_is_on_disk(tmp_path, clock):
    disk = Disk()
    one_by_one = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(one_by_one)
    async with running(tmp_path, clock) as it:
        it.send(b"one", 1000)
        await clock.advance(2)
        saving = asyncio.create_task(it.timed.save())
        await clock.advance(0)
        await asyncio.to_thread(int)
        assert not saving.done() and not disk.exists(it.settings.layout.timers)
        it.store.flush()
        await saving
        assert disk.exists(it.settings.layout.timers)


async def test_a_lost_file_of_timers_is_made_again_from_the_log(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 1000)
        it.send(b"two", 5000)
        await clock.advance(2)
    shutil.rmtree(tmp_path / "timers")
    async with running(tmp_path, clock) as it:
        await clock.advance(5)
        assert it.bodies() == [b"one", b"two"]


async def test_a_retried_message_settles_no_timer(tmp_path, clock):
    """It carries the properties of the delivered one, and could be taken for it when the log is read."""
    async with running(tmp_path, clock, kill=True) as it:
        it.send(b"first in the log", 1000)
        it.send(b"pending", 9000)
        await clock.advance(2)
        (message,) = it.delivered()
        again = Entry("Orders", 1, b"again", Properties(render(message.properties)), 1, BORN)
        it.writer.put(again)
    async with running(tmp_path, clock) as it:
        await clock.advance(9)
        assert it.bodies() == [b"first in the log", b"pending"] and it.bodies(queue_id=1) == [b"again"]


async def test_a_clock_that_was_set_back_makes_timers_wait_and_loses_none(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 10_000)
        clock._start_ms -= 3_600_000
        await clock.advance(11)
        assert it.bodies() == []
        it.send(b"two", 1000)
        await clock.advance(2)
        assert it.bodies() == [b"two"]
        await jump(clock, 3600)
        assert it.bodies() == [b"two", b"one"]


async def test_a_clock_that_was_set_forward_is_noticed_soon(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        it.send(b"one", 3_600_000)
        await clock.advance(1)
        clock._start_ms += 3_600_000
        await clock.advance(61)
        assert it.bodies() == [b"one"]


# The disk


async def test_on_a_full_disk_messages_wait_and_come_when_there_is_room(tmp_path, clock, caplog):
    disk = FaultyDisk()
    async with running(tmp_path, clock, disk=disk) as it:
        it.send(b"one", 1000)
        it.store.appender.stall(DiskFull("the disk is full"), 5)
        await clock.advance(3)
        assert it.bodies() == [] and "messages for a time wait" in caplog.text
        await clock.advance(5)
        assert it.bodies() == [b"one"]


async def test_retention_leaves_the_file_of_a_timer_until_it_was_stored_again(tmp_path, clock):
    small = {"commit_log_file_size": 1 << 16, "delete_when": ";".join(map(str, range(24)))}
    async with running(tmp_path, clock, **small) as it:
        it.send_longest(b"far", 30 * DAY_S * 1000)
        it.send(b"recalled", 30 * DAY_S * 1000)
        due_ms = clock.now_ms() + 30 * DAY_S * 1000
        it.recall(b"recalled", due_ms)
        for _day in range(12):
            for _ in range(8):
                it.send(bytes(b"x" * 30_000))
            await jump(clock, DAY_S)
            it.store.checkpoint()
            retention = it.store.retention
            for _ in range(3):
                for _ in retention.run(clock.now_ms()):
                    pass
                await clock.advance(61)
                it.store.checkpoint()
        assert it.store.begin > 1 << 20, "old files go"
        assert it.figure("sparrowmq_timers_rolled_total") >= 3 * 3
        assert it.figure("sparrowmq_timers_pending") == 3
        await jump(clock, 19 * DAY_S)
        (far,) = [each for each in it.delivered() if each.body != b"x" * 30_000]
        assert far.body == b"far" and int(far.properties["TIMER_ROLL_TIMES"]) >= 3


async def test_a_kill_after_a_roll_doubles_nothing(tmp_path, clock):
    async with running(tmp_path, clock, kill=True) as it:
        it.send(b"far", 5000)
        await it.save()
        it.timed._timers._hold.delete_before = it.store.end
        it.send(b"wakes", 1)
        await clock.advance(1)
        assert it.figure("sparrowmq_timers_rolled_total") == 1 and it.figure("sparrowmq_timers_pending") == 1
    async with running(tmp_path, clock) as it:
        await clock.advance(6)
        assert it.bodies() == [b"wakes", b"far"]


@pytest.mark.parametrize(("claimed", "stored"), [("3", "4"), ("9" * 5000, "1"), ("²", "1"), ("9" * 9, "1000000000")])
async def test_a_producer_cannot_stop_the_delivery_by_a_number_of_rolls(tmp_path, clock, claimed, stored):
    async with running(tmp_path, clock) as it:
        it.send(b"far", 5000, TIMER_ROLL_TIMES=claimed)
        await it.save()
        it.timed._timers._hold.delete_before = it.store.end
        it.send(b"wakes", 1)
        await clock.advance(6)
        assert it.bodies() == [b"wakes", b"far"]
        assert it.delivered()[1].properties["TIMER_ROLL_TIMES"] == stored


async def test_a_message_that_cannot_be_read_is_passed_over(tmp_path, clock, caplog):
    async with running(tmp_path, clock) as it:
        lost = Entry(TIMERS, 0, b"lost", Properties(), clock.now_ms(), BORN)
        lost.deliver_at_ms = clock.now_ms()
        it.store.append(lost)
        it.send(b"one", 1000)
        await clock.advance(2)
        assert it.bodies() == [b"one"] and "cannot be delivered" in caplog.text


async def test_a_damaged_message_waits_until_it_is_mended_and_the_others_do_not(tmp_path, clock, caplog):
    async with running(tmp_path, clock) as it:
        for number in range(3):
            it.send(b"number %d" % number, 1000)
        mend = rot(tmp_path, b"number 1")
        await clock.advance(130)
        assert it.bodies() == [b"number 0", b"number 2"] and it.figure("sparrowmq_timers_pending") == 1
        assert caplog.text.count("waits; retrying each minute") == 1
        mend()
        await clock.advance(61)
        assert it.bodies() == [b"number 0", b"number 2", b"number 1"] and it.figure("sparrowmq_timers_pending") == 0


async def test_what_a_damaged_recall_names_does_not_come_before_it_is_mended(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        due_ms = clock.now_ms() + 1000
        for body in (b"recalled", b"other"):
            it.send(body, TIMER_DELIVER_MS=str(due_ms))
        it.recall(b"recalled", due_ms)
        mend = rot(tmp_path, b"Orders+recalled")
        await clock.advance(2)
        assert it.bodies() == []
        mend()
        await clock.advance(61)
        assert it.bodies() == [b"other"] and it.figure("sparrowmq_timers_pending") == 0


async def test_a_quarantine_passes_over_a_damaged_message(tmp_path, clock):
    async with running(tmp_path, clock, corrupt_policy=CorruptPolicy.QUARANTINE) as it:
        for number in range(3):
            it.send(b"number %d" % number, 1000)
        mend = rot(tmp_path, b"number 1")
        await clock.advance(2)
        assert it.bodies() == [b"number 0", b"number 2"] and it.figure("sparrowmq_timers_pending") == 0
        mend()


async def test_timers_of_a_store_of_javas_say_in_their_record_when_they_are_due(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        text = render(
            {"TIMER_OUT_MS": str(clock.now_ms() + 5000), "REAL_TOPIC": "Orders", "REAL_QID": "0", "TAGS": "a"}
        )
        it.store.append(Entry(TIMERS, 0, b"java", Properties(text), 1, BORN))  # its entry has the hash of the tag
        it.store.publish()
        await clock.advance(4)
        assert it.bodies() == []
        await clock.advance(1.1)
        assert it.bodies() == [b"java"]


async def test_a_failed_store_ends_the_delivery(tmp_path, clock):
    it = Timing(tmp_path, clock)
    task = asyncio.create_task(it.timed.delivery.run())
    await clock.advance(0)
    it.store.queues.obtain(TIMERS, 0).end.fail(StoreFailed("the disk is gone"))
    with pytest.raises(StoreFailed):
        await task
    it.timed._timers.close()
    it.store.close()
