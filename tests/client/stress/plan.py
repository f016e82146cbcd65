"""What happens when: the same seed makes the same plan. Pure.

Steps are done one after the other, so at most one broker and one name server are down at a time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final
from zlib import crc32

from tests.client.stress.ledger import CANCELLED, DONE, FAILED, TIMED_OUT


class Act(Enum):
    """Something that befalls a group or the cluster."""

    JOIN = "join"
    LEAVE = "leave"
    CRASH = "crash"
    KILL_BROKER = "kill broker"
    MOVE_BROKER = "move broker"
    RESTART_BROKER = "restart broker"
    NAME_SERVER = "name server"
    ONE_OF_EACH = "broker and name server"


MEMBERS: Final = (Act.JOIN, Act.LEAVE, Act.CRASH)
CLUSTER: Final = (Act.KILL_BROKER, Act.MOVE_BROKER, Act.RESTART_BROKER, Act.NAME_SERVER, Act.ONE_OF_EACH)

BROKERS: Final = ("broker-a", "broker-b")
NAME_SERVERS: Final = 2
PLAIN: Final = "plain"
KEYED: Final = ("keyed", "ordered")  # all on both brokers
FIXED: Final = frozenset({"ordered"})  # ordered topics, in which a key must never change its queue
INBOX: Final = "inbox"  # the group whose handlers write effects that must happen once
GROUPS: Final = {"any-order": frozenset({PLAIN}), "in-order": frozenset(KEYED), INBOX: frozenset({PLAIN})}
ORDERED: Final = frozenset({"in-order"})

FEWEST, MOST = 1, 4  # members of a group
FIRST_S: Final = 1.0
PAUSE_S: Final = (0.5, 2.0)
ROUND_S: Final = 4.0
KILLS: Final = (Act.KILL_BROKER, Act.MOVE_BROKER, Act.ONE_OF_EACH)  # of a broker, by SIGKILL
DOWN_S: Final = (0.2, 2.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One act.

    Attributes:
        at_s: when, from the start; later if the step before it took longer.
        on: a group, a broker, or the number of a name server.
        down_s: for how long what was stopped stays down.
        pick: which member of the group, as a fraction of them all; or which name server goes down with the broker.
    """

    at_s: float
    act: Act
    on: str
    down_s: float
    pick: float

    def __str__(self) -> str:
        return f"{self.at_s:.1f} s {self.act.value} {self.on}"


def pause_for(kills: int, seconds: float, acts: tuple[Act, ...]) -> tuple[float, float]:
    """The pauses with which a broker is killed so often in that time; a step of an act takes none here."""
    share = sum(act in KILLS for act in acts) / len(acts)
    mean_s = seconds * share / kills
    return mean_s * 0.5, mean_s * 1.5


def plan(
    seed: int, seconds: float, acts: tuple[Act, ...], can_wait: bool, pause_s: tuple[float, float] = PAUSE_S
) -> list[Step]:
    """Steps for so many seconds, every act at least once if there is time.

    Args:
        acts: what may happen.
        can_wait: whether members of the group in order may crash: a broker frees their locks after 60 s only.
        pause_s: the shortest and the longest time from one step to the next.
    """
    chance = random.Random(seed)
    steps: list[Step] = []
    fresh: list[Act] = []
    at_s = FIRST_S
    while at_s < seconds:
        if not fresh:
            fresh = chance.sample(acts, len(acts))
        act = fresh.pop()
        on = _whom(act, chance, can_wait)
        steps.append(Step(at_s, act, on, chance.uniform(*DOWN_S), chance.random()))
        at_s += chance.uniform(*pause_s)
    return steps


def rounds(seed: int, count: int) -> list[Step]:
    """So many times a broker and a name server are killed together, and come back."""
    chance = random.Random(seed)
    return [
        Step(
            FIRST_S + number * ROUND_S,
            Act.ONE_OF_EACH,
            chance.choice(BROKERS),
            chance.uniform(*DOWN_S),
            chance.random(),
        )
        for number in range(count)
    ]


def _whom(act: Act, chance: random.Random, can_wait: bool) -> str:
    if act is Act.NAME_SERVER:
        return str(chance.randrange(NAME_SERVERS))
    if act not in MEMBERS:
        return chance.choice(BROKERS)
    groups = [group for group in GROUPS if can_wait or act is not Act.CRASH or group not in ORDERED]
    return chance.choice(groups)


def fate(seed: int, message: str, attempt: int, is_rare: bool) -> str:
    """How a handler ends that gets the message: the outcome that it will write into the ledger.

    Failures are rare where one stops more: in order a queue for a second, in the inbox all writers until its time is
    over. The third attempt always goes well.
    """
    roll = crc32(f"{seed} {message} {attempt}".encode()) / 2**32 * (8 if is_rare else 1)
    if attempt >= 2 or roll > 0.06:
        return DONE
    return FAILED if roll < 0.03 else TIMED_OUT if roll < 0.045 else CANCELLED
