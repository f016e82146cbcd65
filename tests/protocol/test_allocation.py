"""Allocation: the answers of Java 4.9.8, and the rules that every strategy must keep."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import ConfigError
from sparrowmq.protocol import allocation
from sparrowmq.protocol.allocation import Strategy
from sparrowmq.protocol.messages.message import MessageQueue

MEMBERS = ["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"]
QUEUES = [MessageQueue("Orders", f"broker-{name}", number) for name in "ab" for number in range(8)]
ROOMS = [MessageQueue("Orders", name, number) for name in ("room1@a", "room1@b", "room2@c") for number in range(4)]

# What AllocateMessageQueueAveragely, ...ByCircle, ...ConsistentHash and ...ByMachineRoom of Java 4.9.8 answered.
JAVA = [
    (allocation.averagely, QUEUES, ["a0 a1 a2 a3 a4 a5", "a6 a7 b0 b1 b2", "b3 b4 b5 b6 b7"]),
    (allocation.by_circle, QUEUES, ["a0 a3 a6 b1 b4 b7", "a1 a4 a7 b2 b5", "a2 a5 b0 b3 b6"]),
    (allocation.consistent_hash(), QUEUES, ["a0 a1 a6 a7 b4 b5", "a4 a5", "a2 a3 b0 b1 b2 b3 b6 b7"]),
    (allocation.by_machine_room({"room1"}), ROOMS, ["a0 a1 b2", "a2 a3 b3", "b0 b1"]),
]
STRATEGIES = [
    allocation.averagely,
    allocation.by_circle,
    allocation.consistent_hash(),
    allocation.consistent_hash(3),
]


@pytest.mark.parametrize(("strategy", "queues", "portions"), JAVA)
@pytest.mark.covers("S-CONS-06")
def test_each_member_gets_what_java_gives_it(
    strategy: Strategy, queues: list[MessageQueue], portions: list[str]
) -> None:
    for member, portion in zip(MEMBERS, portions, strict=True):
        given_to_it = strategy(reversed_list(queues), reversed_list(MEMBERS), member)
        assert " ".join(f"{queue.broker_name[-1]}{queue.queue_id}" for queue in given_to_it) == portion


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(queue_count=st.integers(0, 40), member_count=st.integers(1, 12))
@pytest.mark.covers("S-CONS-08")
def test_every_queue_has_exactly_one_member(strategy: Strategy, queue_count: int, member_count: int) -> None:
    queues = [MessageQueue("T", f"b{number % 3}", number) for number in range(queue_count)]
    members = [f"10.0.0.{number}@x" for number in range(member_count)]
    portions = [strategy(queues, members, member) for member in members]
    assert sorted(queue for portion in portions for queue in portion) == sorted(queues)
    if strategy in (allocation.averagely, allocation.by_circle):
        assert max(map(len, portions)) - min(map(len, portions)) <= 1


@pytest.mark.parametrize("strategy", [allocation.averagely, allocation.by_circle])
@pytest.mark.covers("S-CONS-07")
def test_members_beyond_the_queues_stay_idle(strategy: Strategy) -> None:
    assert [len(strategy(QUEUES[:2], MEMBERS, member)) for member in MEMBERS] == [1, 1, 0]


@pytest.mark.parametrize("strategy", [*STRATEGIES, allocation.by_machine_room({"room1"})])
def test_a_member_that_is_not_listed_gets_nothing(strategy: Strategy) -> None:
    assert strategy(QUEUES, MEMBERS, "10.0.0.9@9") == []


def test_a_ring_without_nodes_gives_nothing() -> None:
    assert allocation.consistent_hash(0)(QUEUES, MEMBERS, MEMBERS[0]) == []


def test_configured_queues_are_taken_as_they_are() -> None:
    assert allocation.by_config(QUEUES[3:5])(QUEUES, MEMBERS, "anybody") == QUEUES[3:5]


def test_all_members_share_the_retry_topic_of_configured_queues() -> None:
    retried = [MessageQueue("%RETRY%billing", "broker-a", number) for number in range(3)]
    got = [allocation.by_config(QUEUES[:1])(retried, MEMBERS, member) for member in MEMBERS]
    assert got == [[queue] for queue in retried]


def test_strategies_are_checked_when_they_are_made() -> None:
    made: list[Callable[[], object]] = [
        lambda: allocation.consistent_hash(-1),
        lambda: allocation.consistent_hash(1 << 70),
        lambda: allocation.consistent_hash("x"),  # type: ignore[arg-type]
        lambda: allocation.by_config("Orders"),  # type: ignore[arg-type]
        lambda: allocation.by_config(None),  # type: ignore[arg-type]
        lambda: allocation.by_machine_room("room1"),
        lambda: allocation.by_machine_room([5]),  # type: ignore[list-item]
        lambda: allocation.near_machine_room(None, room_of),  # type: ignore[arg-type]
    ]
    for make in made:
        with pytest.raises(ConfigError, match=r"give a|needs two functions"):
            make()


def test_strategies_have_names() -> None:
    assert allocation.strategy_of("by_circle") is allocation.by_circle
    assert allocation.strategy_of(allocation.averagely) is allocation.averagely
    wrongs: tuple[object, ...] = ("by_chance", "", None, 5, [])
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="'averagely', 'by_circle', 'consistent_hash'"):
            allocation.strategy_of(wrong)  # type: ignore[arg-type]


def room_of(name: str) -> str:
    return name.partition("@")[0]


def test_queues_go_to_members_of_their_room_and_those_of_an_empty_room_to_all() -> None:
    near = allocation.near_machine_room(lambda queue: room_of(queue.broker_name), room_of)
    members = ["room1@1", "room1@2", "room3@3"]
    got = {member: near(reversed_list(ROOMS), members, member) for member in members}
    assert [[(queue.broker_name, queue.queue_id) for queue in got[member]] for member in members] == [
        [*[("room1@a", number) for number in range(4)], ("room2@c", 0), ("room2@c", 1)],
        [*[("room1@b", number) for number in range(4)], ("room2@c", 2)],
        [("room2@c", 3)],
    ]
    assert near(ROOMS, members, "room1@9") == []
    with pytest.raises(ConfigError, match="no room"):
        near(ROOMS, [*members, "@4"], members[0])


def test_a_broker_whose_name_ends_in_an_at_is_in_no_room_as_in_java() -> None:
    queues = [MessageQueue("t", "room1@", 0), MessageQueue("t", "room1@a@", 0)]
    assert allocation.by_machine_room({"room1"})(queues, ["me"], "me") == queues[1:]


def popped(shared: int, member_count: int, me: str, queues: list[MessageQueue] | None = None) -> list[tuple[str, int]]:
    """What one of the members m0, m1, ... pops of four queues."""
    chosen = QUEUES_OF_POP if queues is None else queues
    members = [f"m{number}" for number in range(member_count)]
    share = allocation.for_pop(allocation.averagely, shared)
    return [(queue.broker_name, queue.queue_id) for queue in share(chosen, members, me)]


QUEUES_OF_POP = [MessageQueue("t", name, number) for name in ("a", "b") for number in range(2)]


def test_each_member_pops_all_brokers_where_all_queues_are_shared() -> None:
    for shared, count in ((0, 5), (-1, 5), (1, 2), (3, 4), (9, 4)):
        assert popped(shared, count, "m1") == [("a", -1), ("b", -1)], (shared, count)
    assert popped(0, 2, "nobody") == [("a", -1), ("b", -1)]
    assert popped(0, 2, "m0", []) == []


def test_a_member_pops_the_queues_of_those_after_it() -> None:
    assert popped(1, 4, "m0") == [("a", 0), ("a", 1)]
    assert popped(1, 4, "m3") == [("b", 1), ("a", 0)]
    assert popped(2, 4, "m2") == [("b", 0), ("b", 1), ("a", 0)]
    assert popped(1, 4, "nobody") == []
    assert popped(1, 4, "m0", []) == []


def test_each_of_more_members_than_queues_pops_one() -> None:
    assert [popped(1, 6, f"m{number}") for number in range(6)] == [
        [("a", 0)],
        [("a", 1)],
        [("b", 0)],
        [("b", 1)],
        [("a", 0)],
        [("a", 1)],
    ]
    assert popped(1, 6, "nobody") == []


def reversed_list(items: list) -> list:
    return items[::-1]
