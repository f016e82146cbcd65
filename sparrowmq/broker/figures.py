"""How the broker is doing, in the words that Apache's tools read: about fifty figures, all of them texts.

`clusterList` reads putTps, getTransferredTps, brokerVersionDesc and the times of the oldest message; the dashboard
reads the counts of today and yesterday; exporters most of the rest. What has no meaning here (thread pools, buffers
outside the page cache) is told as an empty one is.
Source: AdminBrokerProcessor.prepareRuntimeInfo and StoreStatsService.getRuntimeInfo, Java 4.9.8.
"""

from __future__ import annotations

import math
import shutil
from datetime import date, datetime
from typing import Final

from sparrowmq.broker.config import BrokerSettings
from sparrowmq.broker.delay import DelayedDelivery
from sparrowmq.clock import Clock
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.protocol.wire.command import PROTOCOL_VERSION
from sparrowmq.stats import Counter, Rate
from sparrowmq.store.message_store import MessageStore

VERSION_NAME: Final = "V4_9_8"
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))
# A pool that does not exist is told as one that is always empty.
_POOLS: Final = ("send", "pull", "query")
_POOL_CAPACITY: Final = 10_000


class Figures:
    """Figures of one running broker.

    Args:
        received: messages stored for producers.
        sent: messages handed to consumers.
    Attributes:
        started_ms: when the broker started.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        delayed: DelayedDelivery,
        received: Counter,
        sent: Counter,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._delayed = delayed
        self._clock = clock
        self._received = received
        self._sent = sent
        self._put_rate = Rate(received)
        self._get_rate = Rate(sent)
        self.started_ms = clock.now_ms()
        self._today = self._date()
        # Both counters at the last two midnights.
        self._yesterday_morning = (0, 0)
        self._this_morning = (0, 0)
        self.sample()

    def sample(self) -> None:
        """Remember where the counters are; about every second."""
        now_s = self._clock.monotonic()
        self._put_rate.sample(now_s)
        self._get_rate.sample(now_s)
        if self._date() != self._today:
            self._today = self._date()
            self._yesterday_morning = self._this_morning
            self._this_morning = (self._received.value, self._sent.value)

    def table(self) -> dict[str, str]:
        """All figures by their names."""
        return {
            **self._about_broker(),
            **self._about_messages(),
            **self._about_store(),
            **self._about_disk(),
            **_about_pools(),
        }

    def _about_broker(self) -> dict[str, str]:
        up_ms = self._clock.now_ms() - self.started_ms
        return {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(PROTOCOL_VERSION),
            "bootTimestamp": str(self.started_ms),
            "runtime": _duration(up_ms),
            "startAcceptSendRequestTimeStamp": "0",
        }

    def _about_messages(self) -> dict[str, str]:
        now_s = self._clock.monotonic()
        put_tps = _rates(self._put_rate.per_second(now_s))
        get_tps = _rates(self._get_rate.per_second(now_s))
        received, sent = self._received.value, self._sent.value
        return {
            "putTps": put_tps,
            "getTransferedTps": get_tps,  # 4.9's spelling, which its clusterList reads
            "getTransferredTps": get_tps,
            "getFoundTps": get_tps,
            "getTotalTps": get_tps,
            "getMissTps": _rates((0.0, 0.0, 0.0)),
            "putMessageTimesTotal": str(received),
            "putMessageFailedTimes": "0",
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "msgPutTotalYesterdayMorning": str(self._yesterday_morning[0]),
            "msgPutTotalTodayMorning": str(self._this_morning[0]),
            "msgPutTotalTodayNow": str(received),
            "msgGetTotalYesterdayMorning": str(self._yesterday_morning[1]),
            "msgGetTotalTodayMorning": str(self._this_morning[1]),
            "msgGetTotalTodayNow": str(sent),
        }

    def _about_store(self) -> dict[str, str]:
        store = self._store
        begin, end = store.begin, store.end
        oldest = store.record_at(begin)
        levels = {
            f"scheduleMessageOffset_{level}": f"{offset},{parked}"
            for level, offset, parked in self._delayed.progress()
        }
        return {
            "commitLogMinOffset": str(begin),
            "commitLogMaxOffset": str(end),
            "putMessageSizeTotal": str(end - begin),
            "putMessageAverageSize": str((end - begin) / (self._received.value or 1)),
            "earliestMessageTimeStamp": str(store_timestamp_ms(oldest) if oldest else -1),
            "dispatchBehindBytes": "0",
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": _bytes(end - store.flushed.value),
            "remainTransientStoreBufferNumbs": "0",
            "pageCacheLockTimeMills": "0",
            "putMessageEntireTimeMax": "0",
            "getMessageEntireTimeMax": "0",
            "putMessageDistributeTime": "",
            **levels,
        }

    def _about_disk(self) -> dict[str, str]:
        usage = shutil.disk_usage(self._settings.store_path)
        # As Java rounds: up to a whole percent.
        share = str(math.ceil(100 * usage.used / (usage.used + usage.free)) / 100)
        return {
            "commitLogDirCapacity": f"Total : {_bytes(usage.total)}, Free : {_bytes(usage.free)}.",
            "commitLogDiskRatio": share,
            "consumeQueueDiskRatio": share,
        }

    def _date(self) -> date:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000).date()


def _about_pools() -> dict[str, str]:
    figures = {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": str(_POOL_CAPACITY)}
    for pool in _POOLS:
        figures[f"{pool}ThreadPoolQueueSize"] = "0"
        figures[f"{pool}ThreadPoolQueueCapacity"] = str(_POOL_CAPACITY)
        figures[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    return figures


def _rates(per_second: tuple[float, ...]) -> str:
    return " ".join(str(rate) for rate in per_second)


def _bytes(count: int) -> str:
    """As Java's humanReadableByteCount tells it."""
    if count < 1024:
        return f"{count} B"
    exponent = min((count.bit_length() - 1) // 10, 6)
    return f"{count / (1 << 10 * exponent):.1f} {' KMGTPE'[exponent]}iB"


def _duration(elapsed_ms: int) -> str:
    parts = []
    for unit_ms, name in _UNITS:
        count, elapsed_ms = divmod(elapsed_ms, unit_ms)
        parts.append(f"{count} {name}")
    return f"[ {', '.join(parts)} ]"
