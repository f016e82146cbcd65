"""Allocation of queues to the members of a group. Each member computes it alone, and all must get the same result.

A group may have Java, Go, C++ and Python members, so each strategy gives exactly Java's result; otherwise two members
would consume one queue, or none would. Queues and members are sorted here first. A member that the broker does not list
yet gets no queue. Source: AllocateMessageQueue* and AllocateMachineRoomNearby, Java 4.9.8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, TypeVar

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import RETRY

MOST_NODES: Final = 10_000  # of a member on a ring, which each round makes again
Strategy = Callable[[Collection[MessageQueue], Collection[str], str], list[MessageQueue]]
T = TypeVar("T")

StrategyName = Literal["averagely", "by_circle", "consistent_hash"]


def averagely(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
    """Neighbouring queues in equal portions; the first members get the remainder. The default, as in Java."""
    ordered, place = _sort_and_place(queues, members, me)
    if place is None:
        return []
    return portion_of(ordered, len(set(members)), place)


def by_circle(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
    """Every n-th queue, for n members."""
    ordered, place = _sort_and_place(queues, members, me)
    return [] if place is None else ordered[place :: len(set(members))]


def consistent_hash(virtual_nodes: int = 10) -> Strategy:
    """Queues by a ring of hashes. Few queues move when a member joins or leaves, but portions are uneven."""
    if type(virtual_nodes) is not int or not 0 <= virtual_nodes <= MOST_NODES:
        raise ConfigError(f"virtual_nodes={virtual_nodes!r}: give a whole number, 0 to {MOST_NODES}")

    def allocate(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
        ordered, place = _sort_and_place(queues, members, me)
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
    """The given queues, independent of other members. All members share the group's retry topic. Unlike Java: its
    members read no queue that is not given, so a message that fails is never delivered again.
    """
    if not all(isinstance(queue, MessageQueue) for queue in _as_collection(mine)):
        raise ConfigError(f"by_config({mine!r}): give a list of queues, as `queues(topic)` returns it")

    def allocate(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
        is_retry = all(queue.topic.startswith(RETRY) for queue in queues)
        return averagely(queues, members, me) if is_retry else list(mine)

    return allocate


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """Only queues of brokers in these rooms; such brokers are named `room@name`."""
    if not all(isinstance(room, str) for room in _as_collection(rooms)):
        raise ConfigError(f"by_machine_room({rooms!r}): give a list of rooms, as texts")

    def allocate(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
        ordered, place = _sort_and_place(queues, members, me)
        if place is None:
            return []
        near = [queue for queue in ordered if _room_of(queue) in rooms]
        count, remainder = divmod(len(near), len(set(members)))
        portion = near[place * count : (place + 1) * count]
        return portion + near[count * len(set(members)) :][place : place + 1] if place < remainder else portion

    return allocate


def near_machine_room(
    room_of_queue: Callable[[MessageQueue], str],
    room_of_member: Callable[[str], str],
    within: Strategy | StrategyName = averagely,
) -> Strategy:
    """Each room's queues for the members of that room. All members share the queues of rooms without members. Raises:
    ConfigError, these are no functions; or, during an allocation, a room has no name.

    Args:
        room_of_queue: the room of the queue's broker.
        room_of_member: the room of the member with this client id. It must be the same function in all members.
        within: the strategy inside a room.
    """
    allocate_within = strategy_of(within)
    if not all(map(callable, (room_of_queue, room_of_member))):
        raise ConfigError("near_machine_room needs two functions: the room of a queue, and the room of a member")

    def allocate(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
        ordered, place = _sort_and_place(queues, members, me)
        if place is None:
            return []
        by_room = _grouped(ordered, room_of_queue)
        members_by_room = _grouped(sorted(set(members)), room_of_member)
        my_room = room_of_member(me)
        mine_and_shared = allocate_within(by_room.pop(my_room, []), members_by_room[my_room], me)
        for room in sorted(by_room.keys() - members_by_room.keys()):
            mine_and_shared += allocate_within(by_room[room], members, me)
        return mine_and_shared

    return allocate


_BY_NAME: Final[dict[str, Strategy]] = {
    "averagely": averagely,
    "by_circle": by_circle,
    "consistent_hash": consistent_hash(),
}


def for_pop(strategy: Strategy, shared: int) -> Strategy:
    """Queues that members pop: of each broker any queue (id -1), or those of the `shared` members after each one; 0 or
    less is all. Source: QueryAssignmentProcessor.allocate4Pop, Java 5.4.0.
    """

    def allocate(queues: Collection[MessageQueue], members: Collection[str], me: str) -> list[MessageQueue]:
        ordered, place = _sort_and_place(queues, members, me)
        clients = sorted(set(members))
        if shared <= 0 or shared >= len(clients) - 1:
            brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in ordered)
            return [MessageQueue(topic, broker, -1) for topic, broker in brokers]
        if place is None or not ordered:
            return []
        if len(clients) > len(ordered):
            return [ordered[place % len(ordered)]]
        near = (clients[(place + number) % len(clients)] for number in range(shared + 1))
        return list(dict.fromkeys(queue for client in near for queue in strategy(ordered, clients, client)))

    return allocate


def strategy_of(chosen: Strategy | StrategyName) -> Strategy:
    """The strategy with this name, or the given one. Raises: ConfigError, the name is unknown."""
    if isinstance(chosen, str) and chosen in _BY_NAME:
        return _BY_NAME[chosen]
    if callable(chosen):
        return chosen
    raise ConfigError(
        f"strategy={chosen!r} is unknown; use {', '.join(map(repr, _BY_NAME))}, or what by_config, by_machine_room or "
        "near_machine_room of sparrowmq.allocation make"
    )


def _as_collection(value: object) -> Collection[object]:
    """The given collection; one that no check accepts if it is none, or a text."""
    return value if isinstance(value, Collection) and not isinstance(value, str) else (None,)


def _grouped(items: Collection[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise ConfigError(f"{item} is in no room; near_machine_room needs the room of each queue and member")
        groups.setdefault(room, []).append(item)
    return groups


def _sort_and_place(
    queues: Collection[MessageQueue], members: Collection[str], me: str
) -> tuple[list[MessageQueue], int | None]:
    ordered = sorted(set(members))
    return sorted(queues), ordered.index(me) if me in ordered else None


def portion_of(queues: list[MessageQueue], member_count: int, place: int) -> list[MessageQueue]:
    """The neighbouring queues of one member. The first members get one more if the division has a remainder."""
    size, remainder = divmod(len(queues), member_count)
    start = place * size + min(place, remainder)
    return queues[start : start + size + (place < remainder)]


def _ring_hash(text: str) -> int:
    from hashlib import md5  # a broker loads it only for this strategy

    return int.from_bytes(md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _room_of(queue: MessageQueue) -> str | None:
    parts = queue.broker_name.rstrip("@").split("@")  # Java's split leaves out empty parts at the end.
    return parts[0] if len(parts) == 2 else None
