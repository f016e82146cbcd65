"""Plays cases against a broker with access control, round by round, and has the victim judge after each.

life     one broker, one victim, at most ROUNDS rounds; the clock is moved by hand, so broker time is free
round    the victim prepares ── cases ── time for the broker's own questions ── the victim judges
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.wire.command import Command
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import BORN_MS
from tests.fuzz.access.attacks import BODY_AT, Attack, Case, Known, attack
from tests.fuzz.access.identities import IDENTITIES, Identity
from tests.fuzz.access.judge import Judge
from tests.fuzz.access.victim import MARKER, SETTINGS, USERS, Victim, accounts_at
from tests.fuzz.access.wire import Wire

ROUNDS: Final = 25
CASES_OF_A_ROUND: Final = 80
# Attackers learn from the answers of a wave, such as where their own messages are.
WAVE: Final = 20
# The first question about a transaction comes after six seconds, and what was sent to be answered is answered by then.
QUESTIONS_S: Final = 7.0
ANSWERS_S: Final = 1.0
ATTACKERS: Final = tuple(
    name for name, identity in IDENTITIES.items() if not identity.may and not identity.replays
)
_SENDS: Final = frozenset({10, 310, 320})


@dataclass
class Played:
    """What came of it.

    Attributes:
        sent, answers: by identity and code; answers also by the code of the answer.
        faults: what attackers could do, after the cases of one round.
        guilty: the cases up to and with that round.
    """

    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    answers: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    guilty: list[Case] = field(default_factory=list)
    attacks: list[tuple[Case, Attack]] = field(default_factory=list)
    cases: int = 0


class Life:
    """One broker with its victim and attackers."""

    def __init__(self, cluster: Cluster, victim: Victim, played: Played) -> None:
        self._addresses = cluster.brokers[0].address, cluster.namesrv
        self._victim = victim
        self._played = played
        self._wires: dict[tuple[str, bool], Wire] = {}
        self._known = Known(
            victim.targets, victim.main.captured, log_end=lambda: cluster.brokers[0].store.end
        )

    async def play(self, cases: Iterable[Case], together: bool = True) -> None:
        """Send the requests of some cases, a wave at once or one after the other, and wait for the answers."""
        waiting: list[asyncio.Future[Command]] = []
        for case in cases:
            identity = IDENTITIES[case.identity]
            made = attack(case, self._known)
            wire = await self._wire(identity, made.is_for_namesrv)
            signed = made.fields if identity.replays else wire.signed(made.fields, made.body)
            self._played.attacks.append((case, made))
            self._played.sent[case.identity, made.code] += 1
            self._played.cases += 1
            answer = wire.send(made.code, signed, made.body)
            answer.add_done_callback(lambda done, case=case, made=made: self._note(case, made, done))  # type: ignore[misc]
            waiting.append(answer)
            if not together or len(waiting) % WAVE == 0:
                await asyncio.wait(waiting[-WAVE:], timeout=ANSWERS_S)
        if waiting:
            await asyncio.wait(waiting, timeout=ANSWERS_S)

    def leaks(self) -> list[str]:
        """What an attacker heard that has the victim's marker."""
        found = []
        for (name, is_of_namesrv), wire in self._wires.items():
            identity = IDENTITIES[name]
            # An error repeats what was wrong, and a replayed frame has the marker.
            heard = wire.heard[1::2] if identity.replays else wire.heard
            if not identity.may and not is_of_namesrv:  # any account may ask for routes and names
                found += [f"{name} heard {part[:400]!r}" for part in heard if MARKER in part]
            wire.heard.clear()
        return found

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    async def _wire(self, identity: Identity, is_for_namesrv: bool) -> Wire:
        wire = self._wires.get((identity.name, is_for_namesrv))
        if wire is None or not wire.is_open:
            address = self._addresses[is_for_namesrv]
            wire = await Wire.to(address, identity.credentials, identity.source)
            self._wires[identity.name, is_for_namesrv] = wire
        return wire

    def _note(self, case: Case, made: Attack, done: asyncio.Future[Command]) -> None:
        if done.cancelled():
            return
        answer = done.result()
        self._played.answers[case.identity, made.code, answer.code] += 1
        if "internal error" in (answer.remark or ""):
            self._played.faults.append(f"{answer.remark}: {made}")
        if made.code in _SENDS and answer.code == 0:
            with suppress(RemoteProtocolError):
                place = parse_offset_id(answer.ext_fields()["msgId"].partition(",")[0]).physical_offset
                self._known.places += [place, place + BODY_AT]


async def live(rounds: Sequence[Sequence[Case]], together: bool = True, users: bool = False) -> Played:
    """Play one life, up to the first round with a fault.

    Args:
        users: whether the broker has users and policies instead of accounts in a file.
    """
    played = Played()
    with tempfile.TemporaryDirectory(prefix="sparrowmq-access-") as name:
        folder, clock = Path(name), ManualClock(BORN_MS)
        accounts = accounts_at(folder)
        guarded = {"acl": True, "acl_file": accounts}
        settings = SETTINGS | (USERS if users else {"acl": True})
        async with Cluster(
            folder, clock=clock, namesrv_settings=guarded, **settings, acl_file=accounts
        ) as cluster:
            victim = Victim(cluster.brokers[0], cluster.namesrv, clock)
            await victim.settle_in()
            judge = Judge(victim, clock, accounts, users)
            life = Life(cluster, victim, played)
            judged = not any(IDENTITIES[case.identity].may for cases in rounds for case in cases)
            try:
                for cases in rounds:
                    if judged or cases is rounds[0]:
                        await victim.prepare()
                        await judge.look()
                    await life.play(cases, together)
                    await clock.advance(QUESTIONS_S)
                    played.guilty += cases
                    if judged:
                        played.faults += await judge.judge() + life.leaks()
                    if played.faults:
                        return played
                if judged:
                    played.faults += await judge.judge_at_last() + life.leaks()
            finally:
                life.close()
                victim.close()
    return played


def rounds_of(seed: int, life: int, identities: Sequence[str], count: int) -> list[list[Case]]:
    """The cases of one life of a seed."""
    rng = random.Random(f"{seed}/{life}")
    cases = [Case(rng.choice(identities), rng.randrange(1 << 48)) for _ in range(count)]
    return [cases[at : at + CASES_OF_A_ROUND] for at in range(0, count, CASES_OF_A_ROUND)]


async def least(
    guilty: Sequence[Case], shown: Callable[[str], None] = lambda text: None, users: bool = False
) -> list[Case]:
    """The fewest of the cases after which there is still a fault: halves, quarters and so on are left out by turns."""
    left, size = list(guilty), max(1, len(guilty) // 2)
    tail = left[-CASES_OF_A_ROUND:]
    if len(tail) < len(left) and await _is_guilty(tail, users):
        left, size = tail, len(tail) // 2
    while True:
        for at in range(len(left) - size, -1, -size):
            rest = left[:at] + left[at + size :]
            if rest and await _is_guilty(rest, users):
                left = rest
                shown(f"{len(left)} cases are left")
        if size == 1:
            return left
        size = max(1, size // 2)


async def _is_guilty(cases: Sequence[Case], users: bool) -> bool:
    return bool((await live([cases], together=False, users=users)).faults)
