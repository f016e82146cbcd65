"""Messages into each topic and to each group in the last minute, hour and day: VIEW_BROKER_STATS_DATA.

    TOPIC_PUT_NUMS    Orders            messages that entered the topic's queues
    GROUP_GET_NUMS    Orders@billing    messages that the group pulled
    BROKER_PUT_NUMS   DefaultCluster    all that producers sent
    BROKER_GET_NUMS   DefaultCluster    all that consumers got

No message is counted for it: the ends of a topic's queues rise by the messages that came in. `statsAll`, the dashboard
and Apache's exporter read these. Sizes and latencies would cost each message something, so they are not known.
Source: BrokerStatsManager and AdminBrokerProcessor.ViewBrokerStatsData, Java 4.9.8. Unlike Java, which counts sends, a
delayed message counts where it waits and again where it is delivered at its time, and so does a committed one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.metrics.spans import SAMPLE_PERIOD_S, Amount, Spans
from sparrowmq.broker.part import Chore, Part
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.store.message_store import MessageStore

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"

# Queues that are looked at before others get a turn of the loop: about half a millisecond.
_QUEUES_AT_ONCE: Final = 2000

Key = tuple[str, str]  # the figure's name, and whose it is


class Traffic:
    """Messages in by topic, and out by group.

    Args:
        cluster: the name that Java uses for the figures of a whole broker.
    """

    def __init__(
        self, store: MessageStore, consumption: Consumption, cluster: str, clock: Clock, figures: Figures
    ) -> None:
        self._store = store
        self._consumption = consumption
        self._cluster = cluster
        self._clock = clock
        self._figures = figures
        self._spans = Spans[Key](clock.monotonic())

    def part(self) -> Part:
        """It looks at all queues every ten seconds."""
        return Part(chores=(Chore("sample traffic", SAMPLE_PERIOD_S, self.sample),))

    async def sample(self) -> None:
        """Note where queues and groups are."""
        totals: dict[Key, int] = {}
        for count, queue in enumerate(self._store.queues, 1):
            if queue.topic != STATE_TOPIC:
                key = (TOPIC_PUT_NUMS, queue.topic)
                totals[key] = totals.get(key, 0) + queue.max_offset
            if count % _QUEUES_AT_ONCE == 0:
                await asyncio.sleep(0)
        totals.update(self._others())
        self._spans.sample(totals.items(), self._clock.monotonic())

    def of(self, name: str, key: str) -> tuple[Amount, ...] | None:
        """A figure over the last minute, hour and day; None if nothing was counted in any of them."""
        return self._spans.of((name, key), self._clock.monotonic())

    def _others(self) -> Iterator[tuple[Key, int]]:
        for (group, topic), count in self._consumption.counts():
            yield (GROUP_GET_NUMS, f"{topic}@{group}"), count
        yield (BROKER_PUT_NUMS, self._cluster), int(self._figures.value("sparrowmq_messages_received_total"))
        yield (BROKER_GET_NUMS, self._cluster), int(self._figures.value("sparrowmq_messages_sent_total"))
