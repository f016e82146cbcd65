"""Every member of a group computes for itself who gets which queue, so ours and Java's must come to the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import pytest

from sparrowmq.protocol import allocation
from sparrowmq.protocol.allocation import Strategy
from sparrowmq.protocol.messages.message import MessageQueue
from tests.interop.apache import java_program

SOURCE: Final = Path(__file__).parent / "java" / "Allocation.java"
SEED: Final = 20261121
CASES: Final = 600

BROKERS = ["room1@a", "room1@b", "room2@c", "room3@d@", "room1@x@y", "room2@"]
ROOMS = ["room1", "room2", "room3"]


def room_of(name: str) -> str:
    return name.split("@")[0]


STRATEGIES: dict[str, Strategy] = {
    "averagely": allocation.averagely,
    "by_circle": allocation.by_circle,
    "consistent_hash 10": allocation.consistent_hash(),
    "consistent_hash 3": allocation.consistent_hash(3),
    "by_machine_room room1": allocation.by_machine_room({"room1"}),
    "by_machine_room room2 room3": allocation.by_machine_room({"room2", "room3"}),
    "near averagely": allocation.near_machine_room(lambda queue: room_of(queue.broker_name), room_of),
    "near by_circle": allocation.near_machine_room(lambda queue: room_of(queue.broker_name), room_of, "by_circle"),
}


def text(queues: list[MessageQueue]) -> str:
    return " ".join(f"{queue.topic}:{queue.broker_name}:{queue.queue_id}" for queue in queues)


def a_case(rng: random.Random) -> tuple[str, str, list[MessageQueue], list[str]]:
    brokers = rng.sample(BROKERS, rng.randint(1, len(BROKERS)))
    queues = [MessageQueue("Orders", name, number) for name in brokers for number in range(rng.randint(1, 9))]
    members = [f"{rng.choice(ROOMS)}@10.0.0.{n}#{rng.randrange(10**6)}" for n in range(rng.randint(1, 7))]
    me = rng.choice([*members, "room1@nobody"]) if rng.random() < 0.1 else rng.choice(members)
    return rng.choice([*STRATEGIES, "by_config"]), me, sorted(queues), sorted(members)


@pytest.mark.slow
def test_java_shares_out_queues_as_we_do(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    cases = [a_case(rng) for _ in range(CASES)]
    lines = ["\t".join((name, me, text(queues), " ".join(members))) for name, me, queues, members in cases]
    (tmp_path / "cases").write_text("\n".join(lines))
    answers = java_program("4.9.8", SOURCE, str(tmp_path / "cases")).stdout.splitlines()
    assert len(answers) == CASES
    for (name, me, queues, members), answer in zip(cases, answers, strict=True):
        strategy = STRATEGIES.get(name) or allocation.by_config(queues[: len(queues) // 2])
        mixed, crowd = rng.sample(queues, len(queues)), rng.sample(members, len(members))
        if name.startswith("near") and me not in members:
            assert strategy(mixed, crowd, me) == []  # Java's fails with a NullPointerException or takes none.
            continue
        assert text(strategy(mixed, crowd, me)) == answer, (SEED, name, me, queues, members)
