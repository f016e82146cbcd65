"""What clients saw, and the promises that it must keep.

    a message that was acknowledged with SEND_OK is at the offset that the answer named, at the end and ever after
    no offset is given to two messages; no message is stored twice by one send
    a queue keeps the order of a sender's acknowledged messages
    the message at an offset never changes after a consumer saw it, and no consumer gets it twice
    a delayed message, a timed one and that of a committed transaction are delivered once; of one rolled back, never
    the messages of a staged batch are published once, all or none, in their order
    each message is handled by a consumer group; by an ordered one not before those before it in its queue, nor beside
    another of that queue
    a message that is popped comes at least once, and never after the answer to its acknowledgement
    what an operator changed stays: topics, their queues, groups, committed offsets

An operation without an answer may have happened or not; the next answer of the same kind decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from tests.simulation.schedule import Scheduler

Place: TypeAlias = tuple[str, int, int]  # topic, queue, offset
ORDERS: Final = "orders"  # the topic of ordinary messages
QUEUES: Final = 4  # of that topic
# Consumers go on after the faults for more than an election, and a pause before a message comes again, or the 30 s for
# which a new master keeps the locks of a member that left meanwhile. With the requests that are under way then, it is
# less than the quiet time at the end.
DRAIN_S: Final = 60.0
_MOST: Final = 4  # violations of a promise that are listed


class Fate(Enum):
    """What must become of a message that is delivered later."""

    ONCE = "once"
    NEVER = "never"
    AT_MOST_ONCE = "at most once"


@dataclass
class History:
    """The operations of all clients of one run.

    Attributes:
        shows_safe_only: consumers see only what survives a power cut, as in a group. A single broker shows a message
            before it is on disk, so another one can take its offset.
        keeps_s: how long messages are kept; older ones may be deleted.
        outage_s: the longest time without a master: behind a long one, consumers may miss what was deleted meanwhile.
        made_s: when a message got its identity, moments before it was sent.
        begins: the first offset of each queue at the end.
        changes: how many changes of topics, groups and offsets were acknowledged.
    """

    scheduler: Scheduler
    shows_safe_only: bool = True
    keeps_s: float = 72 * 3600.0
    outage_s: float = 0.0
    made_s: dict[str, float] = field(default_factory=dict)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    ends: Counter[tuple[str, int]] = field(default_factory=Counter)  # of what came later
    arrived: dict[Place, str] = field(default_factory=dict)  # of what came later
    missed: int = 0  # offsets of such that were deleted before they were read
    violations: list[str] = field(default_factory=list)
    broken: Counter[str] = field(default_factory=Counter)
    acknowledged: dict[Place, str] = field(default_factory=dict)
    less_safe: int = 0
    failed: int = 0
    changes: int = 0
    shown: dict[Place, str] = field(default_factory=dict)
    shown_ends: Counter[int] = field(default_factory=Counter)  # by queue, behind the last message that was shown
    later: dict[str, Fate] = field(default_factory=dict)
    poppable: dict[str, None] = field(default_factory=dict)  # that were acknowledged as sent
    pops: dict[str, bool] = field(default_factory=dict)  # that came, and whether they are acknowledged
    handled: dict[str, None] = field(default_factory=dict)  # by the group "workers"
    sorted_ends: Counter[int] = field(default_factory=Counter)  # by queue, behind the last handled in order
    sorted_now: Counter[int] = field(default_factory=Counter)  # by queue, messages that are being handled in order
    batches: list[list[str]] = field(default_factory=list)  # that were staged, in their order
    topics: dict[str, set[int]] = field(default_factory=dict)  # the numbers of queues that it may have; 0: none
    groups: dict[str, set[bool]] = field(default_factory=dict)
    offsets: dict[tuple[str, int], set[int]] = field(default_factory=dict)

    def violated(self, promise: str, text: str) -> None:
        """Note a promise that was broken."""
        self.broken[promise] += 1
        if self.broken[promise] <= _MOST:
            self.scheduler.note(f"VIOLATION {promise}: {text}")
            self.violations.append(f"{promise}: {text}")

    def stored(self, topic: str, queue: int, offset: int, identity: str) -> None:
        """A message was acknowledged as safe."""
        place = (topic, queue, offset)
        self.scheduler.note(f"acknowledged {place} {identity}")
        before = self.acknowledged.setdefault(place, identity)
        if before != identity:
            self.violated("offset given twice", f"offset {place} was given to {before} and to {identity}")
        self._compare_with_shown(place, identity)

    def changed(self, what: str) -> None:
        """A change of a topic, a group or an offset was acknowledged."""
        self.scheduler.note(what)
        self.changes += 1

    def will_delete(self, topic: str) -> None:
        """A topic is about to be deleted, with its messages."""
        for place in [place for place in self.acknowledged if place[0] == topic]:
            del self.acknowledged[place]

    def is_old(self, identity: str) -> bool:
        """Whether a message may be deleted now."""
        made_s = self.made_s.get(identity)
        return made_s is not None and self.scheduler.now - made_s > self.keeps_s

    @property
    def may_miss(self) -> bool:
        """Whether messages may have been deleted before consumers could read them."""
        return self.outage_s > self.keeps_s / 2

    def _is_gone(self, place: Place, identity: str) -> bool:
        """Whether a message is no longer there since it was old enough."""
        return place[2] < self.begins.get(place[:2], 0) and self.is_old(identity)

    def came(self, topic: str, queue: int, offset: int, identity: str) -> None:
        """A message that was to come later came to a reader of all of them."""
        end = self.ends[topic, queue]
        if offset > end:
            self.missed += offset - end
            if not self.may_miss:
                self.violated("missed", f"offsets {end} to {offset} of queue {queue} of {topic} never came")
        self.ends[topic, queue] = max(end, offset + 1)
        self.arrived[topic, queue, offset] = identity

    def came_of(self, topic: str) -> dict[Place, str]:
        """What came of a topic."""
        return {place: identity for place, identity in self.arrived.items() if place[0] == topic}

    def will_come(self, identity: str, when: str) -> None:
        """A message for later was acknowledged as safe."""
        self.scheduler.note(f"acknowledged {identity} for {when}")
        self.later[identity] = Fate.ONCE

    def saw(self, topic: str, queue: int, offset: int, identity: str, least: int = 0) -> None:
        """A consumer got a message; it had all before the offset `least`."""
        place = (topic, queue, offset)
        if offset < least:
            self.violated("read again", f"{place} came to a consumer that was at offset {least}")
        self.shown_ends[queue] = max(self.shown_ends[queue], offset + 1)
        if not self.shows_safe_only:
            self.shown[place] = identity
        before = self.shown.setdefault(place, identity)
        if before != identity:
            self.violated("shown, then changed", f"{place} was shown as {before}, and then as {identity}")
        acknowledged = self.acknowledged.get(place)
        if acknowledged is not None and acknowledged != identity:
            self.violated("shown, then changed", f"{place} was acknowledged as {acknowledged}, and shown as {identity}")

    def _compare_with_shown(self, place: Place, identity: str) -> None:
        shown = self.shown.get(place)
        if shown is not None and shown != identity and self.shows_safe_only:
            self.violated("shown, then changed", f"{place} was shown as {shown}, and acknowledged as {identity}")

    # The end ----------------------------------------------------------------------------------------------------------

    def check_log(self, found: dict[Place, str]) -> None:
        """Compare with the messages of the ordinary topics at the end."""
        for place, identity in sorted(self.acknowledged.items()):
            there = found.get(place)
            if there != identity and not (there is None and self._is_gone(place, identity)):
                self.violated(
                    "acknowledged message lost",
                    f"acknowledged {identity} at {place} is lost: {there} is there",
                )
        for place, identity in sorted(self.shown.items()):
            there = found.get(place)
            if there != identity and not (there is None and self._is_gone(place, identity)):
                self.violated(
                    "shown message lost",
                    f"{identity} at {place} was shown, and now {there} is there",
                )
        for identity, count in sorted(Counter(found.values()).items()):
            if count > 1:
                self.violated("stored twice", f"{identity} is stored {count} times")
        self._check_order(found)

    def _check_order(self, found: dict[Place, str]) -> None:
        last: dict[tuple[str, int, str], int] = {}
        safe = set(self.acknowledged.values())
        for (topic, queue, _), identity in sorted(found.items()):
            sender, _, number = identity.partition("-")
            if identity in safe:
                before = last.get((topic, queue, sender), -1)
                if int(number) < before:
                    self.violated(
                        "order",
                        f"{identity} comes after number {before} of its sender in queue {queue} of {topic}",
                    )
                last[topic, queue, sender] = int(number)

    def check_later(self, found: Counter[str]) -> None:
        """Compare with the messages that were delivered later."""
        for identity, fate in sorted(self.later.items()):
            count = found.get(identity, 0)
            if count > 1:
                self.violated("delivered twice", f"{identity} was delivered {count} times")
            elif fate is Fate.ONCE and count == 0:
                self.missed -= 1
                if self.missed >= 0:
                    continue
                self.violated("never delivered", f"{identity} was never delivered")
            elif fate is Fate.NEVER and count:
                self.violated("rolled back and delivered", f"{identity} was rolled back, and delivered")

    def check_batches(self, found: dict[Place, str]) -> None:
        """Compare with the published messages of staged batches."""
        there = set(found.values())
        for batch in self.batches:
            published = there.intersection(batch)
            if published and len(published) < len(batch):
                self.violated("batch in part", f"of {batch} only {sorted(published)} were published")
        last: dict[int, int] = {}
        for (_, queue, _), identity in sorted(found.items()):
            number = int(identity.partition("-")[2])
            if number <= last.get(queue, -1):
                self.violated("order of batches", f"{identity} comes after number {last[queue]} in queue {queue}")
            last[queue] = number

    def popped(self, identity: str) -> None:
        """A message came to a consumer that pops."""
        if self.pops.setdefault(identity, False):
            self.violated("popped again", f"{identity} came after the answer to its acknowledgement")

    def pop_settled(self, identity: str) -> None:
        """A consumer's acknowledgement was answered."""
        self.scheduler.note(f"popped {identity}")
        self.pops[identity] = True

    def check_pops(self) -> None:
        """Compare what came with what was sent."""
        for identity in self.poppable.keys() - self.pops.keys():
            if self.may_miss and self.is_old(identity):
                continue
            self.violated("never popped", f"{identity} was acknowledged, and came to no consumer")

    def worked(self, identity: str) -> None:
        """A member of a group handled a message."""
        self.handled[identity] = None

    @contextmanager
    def sorting(self, queue: int) -> Iterator[None]:
        """A member of an ordered group handles a message."""
        if self.sorted_now[queue]:
            self.violated("side by side", f"two messages of queue {queue} are handled at the same time")
        self.sorted_now[queue] += 1
        try:
            yield
        finally:
            self.sorted_now[queue] -= 1

    def sorted(self, queue: int, offset: int) -> None:
        """A member of an ordered group handled a message."""
        end = self.sorted_ends[queue]
        if offset > end and not self.may_miss:
            self.violated("overtaken", f"offset {offset} of queue {queue} was handled, and {end} was not")
        self.sorted_ends[queue] = max(end, offset + 1)

    def check_handled(self) -> None:
        """Compare what was handled with what was acknowledged."""
        for (topic, queue, offset), identity in self.acknowledged.items():
            if self.may_miss and self.is_old(identity):
                continue
            if topic == ORDERS and identity not in self.handled:
                self.violated("never handled", f"{identity}, at offset {offset} of queue {queue}")
            if topic == ORDERS and offset >= self.sorted_ends[queue]:
                self.violated("never handled", f"{identity}, in order")

    def check_state(self, topics: dict[str, int], groups: set[str], offsets: dict[tuple[str, int], int | None]) -> None:
        """Compare with what an operator sees."""
        for name in sorted(self.topics):
            self.check_topic(name, topics.get(name, 0))
        for name, exists in sorted(self.groups.items()):
            if (name in groups) not in exists:
                self.violated(
                    "group changed",
                    f"group {name} is {'there' if name in groups else 'gone'}, against the last answer",
                )
        for key in sorted(self.offsets):
            self.check_offset(key, offsets.get(key) or 0)

    def decided_topics(self) -> list[tuple[str, set[int]]]:
        """The topics on which no operation is under way, or has failed."""
        return [(name, possible) for name, possible in self.topics.items() if len(possible) == 1]

    def check_topic(self, name: str, queues: int) -> None:
        """Compare the number of a topic's queues; 0: it does not exist."""
        if queues not in self.topics[name]:
            wanted = " or ".join(map(str, sorted(self.topics[name])))
            self.violated("topic changed", f"topic {name} has {queues} queues and not {wanted}")

    def check_offset(self, key: tuple[str, int], offset: int) -> None:
        """Compare the offset that a group has committed."""
        if offset not in self.offsets[key]:
            wanted = " or ".join(map(str, sorted(self.offsets[key])))
            self.violated("offset changed", f"the offset of {key} is {offset} and not {wanted}")
