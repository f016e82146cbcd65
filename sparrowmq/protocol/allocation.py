"""Who consumes which queue: every member of a group computes the whole answer for itself, and all must agree.

There is no coordinator. Members are Java, Go, C++ and ours side by side, so each strategy gives exactly Java's answer;
otherwise two members would take one queue, or nobody would. Order matters, so queues and members are sorted here first.
A member that the broker does not list yet gets nothing. Source: AllocateMessageQueue*, Java 4.9.8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from hashlib import md5

from sparrowmq.protocol.messages.message import MessageQueue

Strategy = Callable[[Collection[MessageQueue], Collection[str], str], list[MessageQueue]]


def averagely(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
    """Neighbouring queues, in portions as equal as can be; the first members get the odd ones. Java's first choice."""
    ordered, place = _arrange(queues, members, me)
    if place is None:
        return []
    return _portion(ordered, len(set(members)), place)


def by_circle(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
    """Every n-th queue, as cards are dealt."""
    ordered, place = _arrange(queues, members, me)
    return [] if place is None else ordered[place :: len(set(members))]


def consistent_hash(virtual_nodes: int = 10) -> Strategy:
    """A ring of hashes: few queues move when a member comes or goes, at the price of uneven portions."""

    def allocate(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
        ordered, place = _arrange(queues, members, me)
        if place is None or not virtual_nodes:
            return []
        ring = {
            _ring_hash(f"{member}-{number}"): member
            for member in sorted(set(members))
            for number in range(virtual_nodes)
        }
        points = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            return ring[points[bisect_left(points, _ring_hash(text)) % len(points)]]

        return [queue for queue in ordered if owner(queue) == me]

    return allocate


def by_config(mine: Sequence[MessageQueue]) -> Strategy:
    """The given queues, whoever else is there."""
    return lambda queues, members, me: list(mine)


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Only queues of brokers in these rooms; such brokers are named `room@name`."""

    def allocate(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
        ordered, place = _arrange(queues, members, me)
        if place is None:
            return []
        near = [queue for queue in ordered if _room_of(queue) in rooms]
        count, over = divmod(len(near), len(set(members)))
        portion = near[place * count : (place + 1) * count]
        return portion + near[count * len(set(members)) :][place : place + 1] if place < over else portion

    return allocate


def _arrange(
    queues: Collection[MessageQueue], members: Collection[str], me: str
) -> tuple[list[MessageQueue], int | None]:
    ordered = sorted(set(members))
    return sorted(queues), ordered.index(me) if me in ordered else None


def _portion(queues: list[MessageQueue], member_count: int, place: int) -> list[MessageQueue]:
    size, over = divmod(len(queues), member_count)
    start = place * size + min(place, over)
    return queues[start : start + size + (place < over)]


def _ring_hash(text: str) -> int:
    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _room_of(queue: MessageQueue) -> str | None:
    parts = queue.broker_name.split("@")
    return parts[0] if len(parts) == 2 else None
