"""Changes that cost no send and hide no message: another number of queues, another broker for a topic, a broker less.

    more queues      at once
    fewer queues     write queues ── quiet ── consumed ── read queues
    move A -> B      made at B, groups begin at its first message ── A takes no more ── quiet ── consumed ── gone from A
    a broker less    drained ── quiet ── consumed ── no delayed message, timer or transaction waits ── may be stopped

Quiet means that no message came for as long as producers keep an old route (30 s). They may send by it to queues that
are to go, which the broker takes as long as the queues are readable. Consumed means by every group that has consumed
there. All of this is visible at the brokers, so the same command continues what was interrupted.

A drained broker stays drained over restarts. A broker with the only queues of a topic is refused, because new messages
would have no place. So is one with queues of an ordered topic: keys would move before their older messages are
consumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from sparrowmq.admin import brokers, catalogue, topics
from sparrowmq.admin.rolling_restart import received_in
from sparrowmq.admin.servers import Servers
from sparrowmq.admin.topics import unread
from sparrowmq.client.cluster.routes import REFRESH_S
from sparrowmq.errors import ConfigError, NetworkError, NoRoute, NotEmpty, StillUnread
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.requests.bodies import TopicConfig

SETTLE_S = REFRESH_S + 1
POLL_PERIOD_S = 0.5
_RUN_AGAIN_ADVICE: Final = "run this again to go on waiting"
_DELETE_ADVICE: Final = f"{_RUN_AGAIN_ADVICE}; --yes deletes those without a group"
Report = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The times of a change, in seconds: without a message in queues that are to go, and for all of it."""

    settle_s: float = SETTLE_S
    limit_s: float = 3600.0


class Scaling:
    """One change of a topic. `report` gets a line about each step, and about what is waited for."""

    def __init__(self, servers: Servers, clock: Clock, limits: WaitLimits, report: Report) -> None:
        self._servers = servers
        self._clock = clock
        self._limits = limits
        self._report = report
        self._deadline = clock.monotonic() + limits.limit_s

    async def counts(self, topic: str, cluster: str | None) -> dict[str, tuple[int, int]]:
        """Return the read and write queues of a topic by broker. Raises: NoRoute."""
        masters = await self._masters(topic, cluster)
        configs = {name: await self._config(topic, address) for name, address in masters.items()}
        return {name: (config.read_queue_nums, config.write_queue_nums) for name, config in configs.items()}

    async def scale(self, topic: str, queues: int, cluster: str | None) -> list[str]:
        """Give a topic so many queues at each master; returns these. Raises: ConfigError, StillUnread."""
        masters = await self._masters(topic, cluster)
        order = await topics.order_of(self._servers, topic)
        if order is not None:
            topics.check_counts(topic, order, queues)
        has_fewer = False
        for name, address in masters.items():
            config = await self._config(topic, address)
            has_fewer |= config.read_queue_nums > queues
            if config.write_queue_nums != queues or config.read_queue_nums < queues:
                config.write_queue_nums = queues
                config.read_queue_nums = max(config.read_queue_nums, queues)
                self._report(f"[1] {name}: {queues} write queues")
                await catalogue.put_topic(self._servers, address, config)
        if has_fewer:
            masters = await self._until_consumed(topic, masters, queues)
            for name, address in masters.items():
                config = await self._config(topic, address)
                config.read_queue_nums = queues
                self._report(f"[2] {name}: {queues} read queues")
                await catalogue.put_topic(self._servers, address, config)
        return list(masters)

    async def move(self, topic: str, source: str, target: str, *, with_unread: bool = False) -> None:
        """Let one broker have a topic in the place of another one. `with_unread` deletes messages of queues that no
        group has consumed with the topic, and does not wait for messages that wait for their time.
        Raises: ConfigError, the topic is ordered, or a broker is not there; StillUnread, NotEmpty, the time was over;
        the same call continues.
        """
        addresses = await self.check_move(topic, source, target)
        config = (await catalogue.topic_table(self._servers, addresses[source])).get(topic)
        if config is None:
            if topic in await catalogue.topic_table(self._servers, addresses[target]):
                return  # it was moved before
            raise NoRoute(topic, addresses[source])
        await self._make_at(topic, config, addresses[source], addresses[target], target)
        if config.perm & Perm.WRITE:
            self._report(f"[2] {source}: takes no more messages of {topic}")
            await catalogue.put_topic(
                self._servers, addresses[source], msgspec.structs.replace(config, perm=config.perm & ~Perm.WRITE)
            )
        source_master = await self._until_consumed(
            topic, {source: addresses[source]}, 0, remedy=_DELETE_ADVICE, with_unread=with_unread
        )
        await self._until_nothing_waits(source, source_master, with_unread)
        self._report(f"[3] {source}: deleting topic {topic}")
        await topics.remove(self._servers, topic, source_master, None)
        for address in (await self._servers.all_masters()).values():  # the topic's route was deleted; register it again
            if address is not None and (config := (await catalogue.topic_table(self._servers, address)).get(topic)):
                await catalogue.put_topic(self._servers, address, config)

    async def check_move(self, topic: str, source: str, target: str) -> dict[str, str]:
        """Return the addresses of the two brokers. Raises: ConfigError, the topic cannot be moved."""
        order = await topics.order_of(self._servers, topic)
        if order is not None:
            raise ConfigError(
                f"topic {topic} is ordered on {order}, and a move would take its keys to other queues before their "
                "older messages are consumed; create another topic instead"
            )
        if source == target:
            raise ConfigError(f"topic {topic} is to be moved from {source} to itself; name two brokers")
        return {name: await brokers.address_of(self._servers, name) for name in (source, target)}

    async def _until_nothing_waits(self, name: str, masters: Mapping[str, str], is_forced: bool = False) -> None:
        """Wait until a broker has no message that is delivered later. Raises: NotEmpty, the time is over."""
        while not is_forced:
            masters = await self._current_masters(masters)
            waiting_counts = waiting_counts_in(await catalogue.broker_figures(self._servers, masters[name]))
            if not waiting_counts:
                return
            waiting_text = ", ".join(f"{count:,} {kind}" for kind, count in waiting_counts.items())
            if self._clock.monotonic() >= self._deadline:
                raise NotEmpty(
                    f"broker {name} still has {waiting_text}, which may come back to the topic; run this again later"
                )
            await self._pause(f"{name}: waiting for {waiting_text}")

    async def _make_at(self, topic: str, config: TopicConfig, source: str, target: str, name: str) -> None:
        """Make a topic at the target, where each group begins with the first message."""
        target_topics = await catalogue.topic_table(self._servers, target)
        if topic not in target_topics:
            self._report(f"[1] {name}: creating topic {topic}")
            unwritable = msgspec.structs.replace(config, perm=Perm.READ)
            await catalogue.put_topic(self._servers, target, unwritable, config.attributes)
        elif target_topics[topic].perm & Perm.WRITE:
            return
        groups, known_groups = (
            await catalogue.group_table(self._servers, source),
            await catalogue.group_table(self._servers, target),
        )
        ranges = await catalogue.topic_offsets(self._servers, target, topic)
        for group in await catalogue.groups_of_topic(self._servers, source, topic):
            if group in groups and group not in known_groups:
                await catalogue.put_group(self._servers, target, groups[group])
            progress = (await catalogue.group_progress(self._servers, target, group, topic)).offset_table
            for queue, queue_range in ranges.items():
                # A broker answers 0, or no row, for a queue in which the group has committed nothing.
                if queue not in progress or progress[queue].consumer_offset <= queue_range.min_offset:
                    await catalogue.commit_offset(self._servers, target, group, queue, queue_range.min_offset)
        writable = msgspec.structs.replace(target_topics.get(topic, config), perm=Perm.READ_WRITE)
        await catalogue.put_topic(self._servers, target, writable)

    async def _until_consumed(
        self,
        topic: str,
        masters: Mapping[str, str],
        first_queue: int,
        *,
        remedy: str = _RUN_AGAIN_ADVICE,
        with_unread: bool = False,
    ) -> Mapping[str, str]:
        """Wait until queues from a number on are quiet, and consumed by all groups. Returns the masters then.

        The lead of a group may move meanwhile. A broker that does not answer is waited for.
        Raises: StillUnread, the time is over; NetworkError, the time is over, and a broker does not answer.
        """
        ends: dict[MessageQueue, int] = {}
        last_change = self._clock.monotonic()
        while True:
            is_time_over = self._clock.monotonic() >= self._deadline
            try:
                ends_now, unread_counts = await self._unconsumed(topic, masters, first_queue)
            except NetworkError as error:
                if is_time_over:
                    raise
                last_change = self._clock.monotonic()
                await self._pause(f"{error}; waiting for it")
                masters = await self._current_masters(masters)
                continue
            if ends_now != ends:
                ends, last_change = ends_now, self._clock.monotonic()
            quiet_s = self._clock.monotonic() - last_change
            if with_unread:
                unread_counts.pop("", None)
            if not unread_counts and quiet_s >= self._limits.settle_s:
                return masters
            if is_time_over:
                raise StillUnread(self._servers.network.plain_name(topic), first_queue, unread_counts, remedy)
            if unread_counts:
                await self._pause(f"{sum(unread_counts.values()):,} messages are to be consumed")
            else:
                await self._pause(f"waiting until producers use other queues ({quiet_s:.0f} s)")

    async def _unconsumed(
        self, topic: str, masters: Mapping[str, str], first_queue: int
    ) -> tuple[dict[MessageQueue, int], dict[str, int]]:
        ranges = await topics.ranges(self._servers, topic, masters)
        ends = {queue: queue_range.max_offset for queue, queue_range in ranges.items() if queue.queue_id >= first_queue}
        unread_counts, failures = await unread(self._servers, topic, masters, first_queue)
        for error in failures.values():
            raise error
        return ends, unread_counts

    async def _current_masters(self, masters: Mapping[str, str]) -> Mapping[str, str]:
        current = await self._servers.all_masters()
        return {name: current.get(name) or address for name, address in masters.items()}

    async def _masters(self, topic: str, cluster: str | None) -> Mapping[str, str]:
        broker_names = {place.name for place in await self._servers.brokers(cluster)}
        masters = {
            name: address for name, address in (await self._servers.masters_of(topic)).items() if name in broker_names
        }
        without_master = sorted(name for name, address in masters.items() if address is None)
        if without_master or not masters:
            raise ConfigError(
                f"topic {topic} has no master at {', '.join(without_master) or cluster}; nothing was changed"
            )
        return {name: address for name, address in masters.items() if address is not None}

    async def _config(self, topic: str, address: str) -> TopicConfig:
        config = (await catalogue.topic_table(self._servers, address)).get(topic)
        if config is None:
            raise NoRoute(topic, address)
        return config

    async def _pause(self, text: str) -> None:
        self._report(text)
        await self._clock.sleep(POLL_PERIOD_S)


def waiting_counts_in(figures: Mapping[str, str]) -> dict[str, int]:
    """Return how many messages wait in a broker for their time, or for the end of their transaction."""
    delays = 0
    for name, text in figures.items():
        if name.startswith("scheduleMessageOffset_"):
            delivered, _, parked = text.partition(",")
            delays += max(int(parked or 0) - int(delivered or 0), 0)
    counts = {
        "delayed messages": delays,
        "timers": int(figures.get("timersWaiting", 0)),
        "open transactions": int(figures.get("transactionsOpen", 0)),
    }
    return {kind: count for kind, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class Content:
    """The messages of a broker that somebody may need, and why the broker cannot be emptied."""

    lags: dict[str, int]
    unclaimed: dict[str, int]
    waiting: dict[str, int]
    refusals: tuple[str, ...]

    @property
    def left(self) -> str:
        """The reasons to wait, in words; "" if there is none."""
        lags = [f"group {group} lacks {count:,} messages" for group, count in self.lags.items() if count]
        return "; ".join([*lags, *(f"{count:,} {kind} wait" for kind, count in self.waiting.items())])

    @property
    def risks(self) -> tuple[str, ...]:
        return tuple(f"no group has consumed {count:,} messages of {topic}" for topic, count in self.unclaimed.items())


class Decommission:
    """One broker that is to go. `report` gets a line about each step, and about what is waited for."""

    def __init__(self, servers: Servers, clock: Clock, limits: WaitLimits, broker: str, report: Report) -> None:
        self._servers = servers
        self._clock = clock
        self._limits = limits
        self._broker = broker
        self._report = report

    async def content(self) -> Content:
        """Return what the broker has now. Raises: ConfigError, there is none of this name."""
        address = await brokers.address_of(self._servers, self._broker)
        names = list(await brokers.user_topics(self._servers, address))
        unclaimed = {}
        for topic in names:
            counts, failures = await unread(self._servers, topic, {self._broker: address}, 0)
            for error in failures.values():
                raise error
            if count := counts.get("", 0):
                unclaimed[topic] = count
        figures = await catalogue.broker_figures(self._servers, address)
        lags = await brokers.lag_by_group(self._servers, address)
        return Content(lags, unclaimed, waiting_counts_in(figures), tuple(await self._refusals(names)))

    async def run(self) -> None:
        """Drain the broker, and wait until nothing in it is needed. Raises: NotEmpty, the time is over."""
        self._report(f"[1/2] {self._broker}: drain")
        began_at = self._clock.monotonic()
        await brokers.drain(self._servers, self._broker)
        self._report(f"[2/2] {self._broker}: wait until all of it is consumed")
        last_end, last_change = -1, began_at
        while True:
            now = self._clock.monotonic()
            address = await brokers.address_of(self._servers, self._broker)
            end = received_in(await catalogue.broker_figures(self._servers, address))
            if end != last_end:
                last_end, last_change = end, now
            reasons = (await self.content()).left
            if not reasons and now - last_change >= self._limits.settle_s:
                return
            if now - began_at >= self._limits.limit_s:
                raise NotEmpty(
                    f"broker {self._broker} cannot be stopped yet: {reasons or 'messages still come'}. It stays "
                    f"drained; run this again later, or `sparrowmq broker undrain {self._broker}` to keep it"
                )
            self._report(reasons or f"waiting until producers use other brokers ({now - last_change:.0f} s)")
            await self._clock.sleep(POLL_PERIOD_S)

    async def _refusals(self, names: list[str]) -> list[str]:
        elsewhere: set[str] = set()
        for place in await self._servers.brokers():
            if place.name != self._broker and place.master is not None:
                table = await catalogue.topic_table(self._servers, place.master)
                elsewhere |= {name for name, config in table.items() if config.perm & Perm.WRITE}
        refusals = [
            f"no other broker takes messages of {topic}; move it: `sparrowmq topic move {topic} --from "
            f"{self._broker} --to OTHER`"
            for topic in names
            if topic not in elsewhere
        ]
        for topic in names:
            order = await topics.order_of(self._servers, topic)
            if order is not None and self._broker in topics.counts_in(topic, order):
                refusals.append(f"topic {topic} is ordered on {order}: send to another topic, and delete this one")
        return refusals
