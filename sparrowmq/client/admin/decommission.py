"""Empties a broker for good: it takes no more messages, and is read until nothing in it is needed any more.

    drained ── quiet ── all groups have consumed all ── no delayed message, timer or transaction waits ── may be stopped

The name servers forget the broker and its queues once it and its slaves are stopped. Until then it stays drained, also
over restarts. A broker with the only queues of a topic is refused, because new messages would have no place. So is one
with queues of an ordered topic: keys would move to other queues before their older messages are consumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparrowmq.client.admin import single_brokers, topic_order
from sparrowmq.client.admin.fewer_queues import unread
from sparrowmq.client.admin.operations.broker_operations import broker_figures
from sparrowmq.client.admin.operations.topic_operations import topic_table
from sparrowmq.client.admin.rolling_restart import received_in
from sparrowmq.client.admin.scaling import LOOK_S, Waits, waiting_in
from sparrowmq.client.admin.servers import Servers
from sparrowmq.errors import NotEmpty
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import Perm


@dataclass(frozen=True, slots=True)
class Content:
    """The messages of a broker that somebody may need.

    Attributes:
        lags: by group, the messages that it has not consumed.
        unclaimed: by topic, the messages in queues that no group has consumed.
        waiting: the messages that are delivered later, by kind.
        refusals: why the broker cannot be emptied.
    """

    lags: dict[str, int]
    unclaimed: dict[str, int]
    waiting: dict[str, int]
    refusals: tuple[str, ...]

    @property
    def left(self) -> str:
        """Return in words what is waited for; "" if nothing is."""
        lags = [f"group {group} lacks {count:,} messages" for group, count in self.lags.items() if count]
        return "; ".join([*lags, *(f"{count:,} {what} wait" for what, count in self.waiting.items())])

    @property
    def risks(self) -> tuple[str, ...]:
        return tuple(f"no group has consumed {count:,} messages of {topic}" for topic, count in self.unclaimed.items())


class Decommission:
    """One broker that is to go.

    Args:
        tell: takes a line about each step, and about what is waited for.
    """

    def __init__(
        self, servers: Servers, clock: Clock, waits: Waits, broker: str, tell: Callable[[str], object]
    ) -> None:
        self._servers = servers
        self._clock = clock
        self._waits = waits
        self._broker = broker
        self._tell = tell

    async def look(self) -> Content:
        """Return what the broker has now. Raises: ConfigError, there is none of this name."""
        address = await single_brokers.address_of(self._servers, self._broker)
        topics = list(await single_brokers.user_topics(self._servers, address))
        unclaimed = {}
        for topic in topics:
            counts, failures = await unread(self._servers, topic, {self._broker: address}, 0)
            for error in failures.values():
                raise error
            if count := counts.get("", 0):
                unclaimed[topic] = count
        figures = await broker_figures(self._servers, address)
        lags = await single_brokers.behind(self._servers, address)
        return Content(lags, unclaimed, waiting_in(figures), tuple(await self._refusals(topics)))

    async def run(self) -> None:
        """Drain the broker, and wait until nothing in it is needed. Raises: NotEmpty, the time is over."""
        self._tell(f"[1/2] {self._broker}: drain")
        began = self._clock.monotonic()
        await single_brokers.drain(self._servers, self._broker)
        self._tell(f"[2/2] {self._broker}: wait until all of it is consumed")
        ends, since = -1, began
        while True:
            now = self._clock.monotonic()
            address = await single_brokers.address_of(self._servers, self._broker)
            end = received_in(await broker_figures(self._servers, address))
            if end != ends:
                ends, since = end, now
            left = (await self.look()).left
            if not left and now - since >= self._waits.settle_s:
                return
            if now - began >= self._waits.limit_s:
                raise NotEmpty(
                    f"broker {self._broker} cannot be stopped yet: {left or 'messages still come'}. It stays drained; "
                    f"run this again later, or `sparrowmq broker undrain {self._broker}` to keep it"
                )
            self._tell(left or f"waiting until producers use other brokers ({now - since:.0f} s)")
            await self._clock.sleep(LOOK_S)

    async def _refusals(self, topics: list[str]) -> list[str]:
        """Return why the broker cannot go."""
        elsewhere: set[str] = set()
        for place in await self._servers.brokers():
            if place.name != self._broker and place.master is not None:
                table = await topic_table(self._servers, place.master)
                elsewhere |= {name for name, each in table.items() if each.perm & Perm.WRITE}
        found = [
            f"no other broker takes messages of {topic}; move it: `sparrowmq topic move {topic} --from "
            f"{self._broker} --to OTHER`"
            for topic in topics
            if topic not in elsewhere
        ]
        for topic in topics:
            order = await topic_order.order_of(self._servers, topic)
            if order is not None and self._broker in topic_order.counts_in(topic, order):
                found.append(f"topic {topic} is ordered on {order}: send to another topic, and delete this one")
        return found
