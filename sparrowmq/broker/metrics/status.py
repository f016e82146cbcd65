"""brokerStatus: about fifty figures with the names and forms that Apache's tools read, all of them texts.

`clusterList` reads rates, version and the time of the oldest message. The dashboard reads the counts of today and
yesterday. Apache's exporter reads nearly all, and fails as a whole if one is missing. So parts that do not exist here
(thread pools, buffers outside the page cache, a lock around the log) are shown as empty. As in Java, puts are all
messages that enter the log: a delayed message counts where it waits and again where it is delivered. The times of puts
are those of the last full minute.
Source: AdminBrokerProcessor.prepareRuntimeInfo and StoreStatsService.getRuntimeInfo, Java 4.9.8.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.clients import Clients
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.part import Chore, Part
from sparrowmq.broker.registration import Registration
from sparrowmq.broker.topics import Topics
from sparrowmq.core.stats import Counter, Rate
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import DRAINED
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.requests.bodies import CONDITION, OWN_VERSION, PROTOCOL_RELEASE
from sparrowmq.protocol.wire.command import PROTOCOL_VERSION
from sparrowmq.store.appender import PutTimes
from sparrowmq.store.message_store import MessageStore
from sparrowmq.version import VERSION

VERSION_NAME: Final = "V4_9_8"
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))
# Thread pools do not exist here: they are shown as empty.
_POOLS: Final = ("send", "pull", "query")
_POOL_CAPACITY: Final = 10_000
# How many puts took how long, by StoreStatsService: the exporter splits it at blanks and colons.
_PUT_TIME_SPANS: Final = "<=0ms 0~10ms 10~50ms 50~100ms 100~200ms 200~500ms 500ms~1s 1~2s 2~3s 3~4s 4~5s 5~10s 10s~"
_STORED_COUNTER: Final = "sparrowmq_messages_stored_total"


class Status:
    """The texts, made of the broker's figures, of the times of the store's puts, and of `more_lines`."""

    def __init__(
        self,
        settings: BrokerSettings,
        figures: Figures,
        clock: Clock,
        put_times: PutTimes,
        more_lines: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self._put_rate = Rate(Counter())
        self._put_times = put_times
        self._settings = settings
        self._figures = figures
        self._clock = clock
        self.started_ms = clock.now_ms()
        self._more_lines = more_lines
        self._today = self._date()
        # Messages received and sent at the last two midnights.
        self._yesterday_morning = (0, 0)
        self._this_morning = (0, 0)
        self.sample()

    def part(self) -> Part:
        return Part(chores=(Chore("sample rates", 1, self.sample),))

    def sample(self) -> None:
        now_s = self._clock.monotonic()
        self._figures.sample(now_s)
        self._put_rate.counter.value = self._int_figure(_STORED_COUNTER)
        self._put_rate.sample(now_s)
        self._put_times.sample(now_s)
        if self._date() != self._today:
            self._today = self._date()
            self._yesterday_morning = self._this_morning
            self._this_morning = (self._int_figure(_STORED_COUNTER), self._int_figure("sparrowmq_messages_sent_total"))

    def table(self) -> dict[str, str]:
        more_lines = self._more_lines()
        return {
            **self._about_broker(),
            **self._about_messages(),
            **self._about_store(),
            **self._about_put_times(),
            **self._about_disk(),
            **_about_pools(),
            **self._about_copies(),
            **self._about_waiting(),
            **self._while_drained(more_lines),
            **more_lines,
        }

    def _about_broker(self) -> dict[str, str]:
        up_ms = self._clock.now_ms() - self.started_ms
        return {
            PROTOCOL_RELEASE: VERSION_NAME,
            "brokerVersion": str(PROTOCOL_VERSION),
            OWN_VERSION: VERSION,
            "bootTimestamp": str(self.started_ms),
            "runtime": _duration_text(up_ms),
            "startAcceptSendRequestTimeStamp": "0",
        }

    def _about_messages(self) -> dict[str, str]:
        now_s = self._clock.monotonic()
        self._put_rate.counter.value = stored_count = self._int_figure(_STORED_COUNTER)
        get_tps = _rates_text(self._figures.rates("sparrowmq_messages_sent_total", now_s))
        found_rates = self._figures.rates("sparrowmq_pulls_found_total", now_s)
        missed_rates = self._figures.rates("sparrowmq_pulls_missed_total", now_s)
        sent_count = self._int_figure("sparrowmq_messages_sent_total")
        return {
            "putTps": _rates_text(self._put_rate.per_second(now_s)),
            "getTransferedTps": get_tps,  # 4.9's spelling, which its clusterList reads
            "getTransferredTps": get_tps,
            # Those above are messages; these are pulls.
            "getFoundTps": _rates_text(found_rates),
            "getMissTps": _rates_text(missed_rates),
            "getTotalTps": _rates_text(tuple(map(sum, zip(found_rates, missed_rates, strict=True)))),
            "putMessageTimesTotal": str(stored_count),
            "msgPutTotalYesterdayMorning": str(self._yesterday_morning[0]),
            "msgPutTotalTodayMorning": str(self._this_morning[0]),
            "msgPutTotalTodayNow": str(stored_count),
            "msgGetTotalYesterdayMorning": str(self._yesterday_morning[1]),
            "msgGetTotalTodayMorning": str(self._this_morning[1]),
            "msgGetTotalTodayNow": str(sent_count),
        }

    def _about_store(self) -> dict[str, str]:
        begin, end = self._int_figure("sparrowmq_log_begin_offset"), self._int_figure("sparrowmq_log_end_offset")
        stored_bytes = self._int_figure("sparrowmq_stored_bytes")
        parked_by_level = self._figures.values("sparrowmq_delay_parked")
        levels = {
            f"scheduleMessageOffset_{level[0]}": f"{int(offset)},{int(parked_by_level[level])}"
            for level, offset in self._figures.values("sparrowmq_delay_delivered").items()
        }
        return {
            "commitLogMinOffset": str(begin),
            "commitLogMaxOffset": str(end),
            "putMessageSizeTotal": str(stored_bytes),
            "putMessageAverageSize": str(stored_bytes / (self._int_figure(_STORED_COUNTER) or 1)),
            "earliestMessageTimeStamp": self._ms_figure("sparrowmq_oldest_message_timestamp_seconds", "-1"),
            "dispatchBehindBytes": str(self._int_figure("sparrowmq_dispatch_behind_bytes")),
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": _bytes_text(self._int_figure("sparrowmq_flush_behind_bytes")),
            "remainTransientStoreBufferNumbs": "0",
            "pageCacheLockTimeMills": "0",
            "getMessageEntireTimeMax": str(int(1000 * self._figures.value("sparrowmq_longest_read_seconds"))),
            **levels,
        }

    def _about_put_times(self) -> dict[str, str]:
        times = self._put_times
        counts = zip(_PUT_TIME_SPANS.split(), times.spans, strict=True)
        return {
            "putMessageEntireTimeMax": str(times.greatest_ms),
            "putMessageFailedTimes": str(times.failed),
            "putMessageDistributeTime": " ".join([f"[{span}]:{count}" for span, count in counts]),
            "putLatency99": f"{times.quantile_ms(0.99):.2f}",
            "putLatency999": f"{times.quantile_ms(0.999):.2f}",
        }

    def _about_copies(self) -> dict[str, str]:
        has_slaves = "sparrowmq_slaves" in self._figures and self._int_figure("sparrowmq_slaves")
        if not has_slaves and not self._settings.is_slave:
            return {}
        return {"newestMessageTimeStamp": self._ms_figure("sparrowmq_newest_message_timestamp_seconds", "0")}

    def _about_waiting(self) -> dict[str, str]:
        """Unlike Java: the messages that come back to their topics later, if there are any."""
        names = {"timersWaiting": "sparrowmq_timers_pending", "transactionsOpen": "sparrowmq_transactions_open"}
        counts = {key: self._int_figure(name) for key, name in names.items() if name in self._figures}
        return {key: str(count) for key, count in counts.items() if count}

    def _while_drained(self, more_lines: dict[str, str]) -> dict[str, str]:
        if CONDITION + DRAINED.name not in more_lines:
            return {}
        return {"receivedFromProducers": str(self._int_figure("sparrowmq_messages_received_total"))}

    def _about_disk(self) -> dict[str, str]:
        disk = os.statvfs(self._settings.store_path)
        total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
        used = total - disk.f_bfree * disk.f_frsize
        # As Java rounds: up to a whole percent.
        used_ratio = str(math.ceil(100 * used / (used + free)) / 100)
        return {
            "commitLogDirCapacity": f"Total : {_bytes_text(total)}, Free : {_bytes_text(free)}.",
            "commitLogDiskRatio": used_ratio,
            "consumeQueueDiskRatio": used_ratio,
        } | self._about_set_aside()

    def _about_set_aside(self) -> dict[str, str]:
        """Unlike Java: the size of what recovery and failover put aside, if there is anything."""
        size = self._int_figure("sparrowmq_set_aside_bytes")
        if not size:
            return {}
        return {"setAsideBytes": str(size), "setAsideForked": str(self._int_figure("sparrowmq_set_aside_forked"))}

    def _int_figure(self, name: str) -> int:
        return int(self._figures.value(name))

    def _ms_figure(self, name: str, absent: str) -> str:
        for seconds in self._figures.values(name).values():
            return str(round(seconds * 1000))
        return absent

    def _date(self) -> date:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).date()


def _about_pools() -> dict[str, str]:
    figures = {}
    for pool in _POOLS:
        figures[f"{pool}ThreadPoolQueueSize"] = "0"
        figures[f"{pool}ThreadPoolQueueCapacity"] = str(_POOL_CAPACITY)
        figures[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return figures


def _rates_text(per_second: tuple[float, ...]) -> str:
    return " ".join(str(rate) for rate in per_second)


def _bytes_text(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    exponent = min((count.bit_length() - 1) // 10, 6)
    return f"{count / (1 << 10 * exponent):.1f} {' KMGTPE'[exponent]}iB"


def _duration_text(elapsed_ms: int) -> str:
    parts = []
    for unit_ms, name in _UNITS:
        count, elapsed_ms = divmod(elapsed_ms, unit_ms)
        parts.append(f"{count} {name}")
    return f"[ {', '.join(parts)} ]"


@dataclass(frozen=True)
class Measured:
    figures: Figures
    store: MessageStore
    status: Status
    topics: Topics
    groups: Groups
    clients: Clients
    consumption: Consumption
    offsets: Offsets
    registration: Registration
