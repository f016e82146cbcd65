import re
import subprocess

import pytest

from sparrowmq.broker.metrics.status import Status, _bytes_text, _duration_text
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.names import STATE_TOPIC
from tests.broker.handlers.conftest import BORN, Desk

# What mqadmin, the dashboard and the exporter read (AdminBrokerProcessor and StoreStatsService, 4.9.8).
READ_BY_TOOLS = set(
    re.findall(
        r"\w+",
        """
    brokerVersionDesc brokerVersion bootTimestamp runtime putTps getTransferedTps getTransferredTps
    getFoundTps getMissTps getTotalTps
    putMessageTimesTotal putMessageSizeTotal putMessageAverageSize putMessageEntireTimeMax putMessageDistributeTime
    getMessageEntireTimeMax msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow
    msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow dispatchBehindBytes dispatchMaxBuffer
    pageCacheLockTimeMills earliestMessageTimeStamp startAcceptSendRequestTimeStamp commitLogMinOffset
    commitLogMaxOffset commitLogDiskRatio consumeQueueDiskRatio commitLogDirCapacity remainHowManyDataToFlush
    remainTransientStoreBufferNumbs sendThreadPoolQueueSize sendThreadPoolQueueCapacity
    sendThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize pullThreadPoolQueueCapacity
    pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize queryThreadPoolQueueCapacity
    queryThreadPoolQueueHeadWaitTimeMills
    """,
    )
)


@pytest.fixture
def desk(tmp_path, clock):
    desk = Desk(tmp_path, clock)
    yield desk
    desk.store.close()


def test_every_figure_that_tools_read_is_there(desk):
    table = desk.status.table()
    assert set(table) >= READ_BY_TOOLS
    assert table["earliestMessageTimeStamp"] == "-1"
    assert 0 < float(table["commitLogDiskRatio"]) < 1


def test_only_a_master_that_has_slaves_tells_when_its_newest_message_was_stored(desk):
    """Java's tools print every line, so there is none that Apache's broker has not, unless it says something."""
    assert "newestMessageTimeStamp" not in desk.status.table()
    slaves = [0]
    desk.figures.gauge("sparrowmq_slaves", "slaves that follow this master", lambda: slaves[0])
    assert "newestMessageTimeStamp" not in desk.status.table()
    slaves[0] = 1
    assert desk.status.table()["newestMessageTimeStamp"] == "0"


def test_a_disk_is_as_full_as_df_says(desk, tmp_path):
    percent = re.findall(r"(\d+)%", subprocess.check_output(["df", "-P", tmp_path], text=True))[0]
    assert abs(100 * float(desk.status.table()["commitLogDiskRatio"]) - int(percent)) <= 1


async def test_rates_follow_the_counters(desk, clock):
    for _ in range(10):
        await clock.advance(1)
        for _ in range(20):
            desk.send(b"x")
        desk.consumption.count_received("g", "Orders", 50)
        desk.consumption.count_received("g", "Orders", 0)
        desk.consumption.count_received("g", "Orders", 0)
        desk.status.sample()
    table = desk.status.table()
    assert [float(rate) for rate in table["putTps"].split()] == [20, 20, 20]
    paces = {name: float(table[f"get{name}Tps"].split()[0]) for name in ("Transferred", "Found", "Miss", "Total")}
    assert paces == {"Transferred": 50, "Found": 1, "Miss": 2, "Total": 3}


async def test_what_is_stored_since_the_start_is_told_with_what_is_not_dispatched_yet(tmp_path, clock):
    first = Desk(tmp_path, clock)
    first.send(bytes(5000))
    first.store.close()
    desk = Desk(tmp_path, clock)
    before = desk.store.end
    table = desk.status.table()
    assert [table[name] for name in ("putMessageSizeTotal", "dispatchBehindBytes")] == ["0", "0"]
    desk.create()
    desk.writer.put(Entry("Orders", 0, b"not dispatched", Properties(""), clock.now_ms(), BORN))
    desk.received.value += 1
    table, size = desk.status.table(), str(desk.store.end - before)
    assert [table[name] for name in ("putMessageSizeTotal", "dispatchBehindBytes")] == [size, size]
    assert float(table["putMessageAverageSize"]) == float(size)
    desk.store.close()


async def test_puts_are_all_messages_that_enter_the_log(desk, clock):
    """As Java counts them: a retry and a delayed message count where they wait, and where they are delivered."""
    desk.create("%RETRY%g")
    desk.send(b"now")
    desk.send(b"later", DELAY="1")
    desk.send(b"again", topic="%RETRY%g")
    desk.store.append(Entry(STATE_TOPIC, 0, bytes(5000), Properties(""), clock.now_ms(), BORN))
    await clock.advance(2)
    for _ in range(3):  # the first time finds what was delivered before
        desk.delayed._deliver_levels()
    desk.store.publish()
    table = desk.status.table()
    assert [table[name] for name in ("msgPutTotalTodayNow", "putMessageTimesTotal")] == ["4", "4"]
    size = int(table["putMessageSizeTotal"])
    assert size < 2000 and float(table["putMessageAverageSize"]) == size / 4


async def test_the_times_of_puts_and_of_the_longest_read_are_told(desk, clock):
    times = desk.store.appender.put_times
    times.record(0, 990)
    times.record(120, 9)
    times.record(2500, 1)
    desk.consumption.count_received("g", "Orders", 0, took_s=0.0305)
    desk.consumption.count_received("g", "Orders", 1, took_s=0.001)
    table = desk.status.table()
    assert table["putMessageDistributeTime"].startswith("[<=0ms]:990 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~")
    assert (table["putMessageEntireTimeMax"], table["getMessageEntireTimeMax"]) == ("2500", "30")
    assert (table["putLatency99"], table["putLatency999"]) == ("1.00", "120.00")
    assert table["putMessageFailedTimes"] == "0"


def test_apaches_exporter_can_read_the_times_that_puts_took(desk):
    # As BrokerRuntimeStats.loadPutMessageDistributeTime does; what it cannot read costs all other figures, too.
    parts = [part.split(":") for part in desk.status.table()["putMessageDistributeTime"].split(" ")]
    assert len(parts) == 13 and all(int(count) == 0 and span.strip("[]") for span, count in parts)


async def test_counts_of_yesterday_and_today_change_at_midnight(desk, clock):
    for count, taken in ((10, 4), (5, 6)):
        for _ in range(count):
            desk.send(b"x")
        desk.consumption.messages.value = taken
        await clock.advance(hours=24)
        desk.status.sample()
    desk.send(b"x")
    table = desk.status.table()
    assert [table[f"msgPutTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")] == [
        "10",
        "15",
        "16",
    ]
    assert [table[f"msgGetTotal{when}"] for when in ("YesterdayMorning", "TodayMorning", "TodayNow")] == [
        "4",
        "6",
        "6",
    ]


async def test_the_log_and_the_delay_levels_are_told(desk, clock):
    stored_ms = clock.now_ms()
    desk.send(b"now")
    desk.send(b"later", DELAY="1")
    await clock.advance(hours=25)
    table = desk.status.table()
    assert table["earliestMessageTimeStamp"] == str(stored_ms)
    assert table["commitLogMaxOffset"] == str(desk.store.end)
    assert table["scheduleMessageOffset_1"] == "0,1"
    assert table["runtime"] == "[ 1 days, 1 hours, 0 minutes, 0 seconds ]"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 70, "1024.0 EiB"),
    ],
)
def test_sizes_read_as_in_java(count, text):
    assert _bytes_text(count) == text


def test_durations_read_as_in_java():
    assert _duration_text(90_061_999) == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


def test_messages_that_wait_are_counted_if_there_are_any(desk):
    counts = {"sparrowmq_timers_pending": 0, "sparrowmq_transactions_open": 0}
    for name in counts:
        if name not in desk.figures:
            desk.figures.gauge(name, "as a whole broker counts them", lambda name=name: counts[name])
    lines = {"timersWaiting", "transactionsOpen"}
    assert not lines & set(desk.status.table())
    counts |= {"sparrowmq_timers_pending": 2, "sparrowmq_transactions_open": 1}
    table = desk.status.table()
    assert {name: table[name] for name in lines} == {"timersWaiting": "2", "transactionsOpen": "1"}


def test_a_drained_broker_counts_what_producers_still_send(desk, clock):
    told: dict[str, str] = {}
    status = Status(desk.settings, desk.figures, clock, desk.store.appender.put_times, lambda: told)
    desk.send(b"one")
    assert "receivedFromProducers" not in status.table()
    told["condition.drained"] = "{}"
    desk.received.value = 3
    assert status.table()["receivedFromProducers"] == "3"
