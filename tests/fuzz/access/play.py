"""Plays cases against a broker with access control, round by round, and has the victim judge after each.

life     one broker, one victim, at most ROUNDS rounds; the clock is moved by hand, so broker time is free
round    the victim prepares ── cases ── time for the broker's own questions ── the victim judges
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.wire.command import Command
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import BORN_MS
from tests.fuzz.access.attacks import BODY_AT, Attack, Case, Known, attack
from tests.fuzz.access.grpc_attacks import Call
from tests.fuzz.access.grpc_play import GrpcLife, grpc_address
from tests.fuzz.access.identities import IDENTITIES, Identity
from tests.fuzz.access.judge import Judge
from tests.fuzz.access.popped import Popped
from tests.fuzz.access.victim import LATE, MARKER, SETTINGS, USERS, Victim, accounts_at
from tests.fuzz.access.wire import Wire

ROUNDS: Final = 25
CASES_OF_A_ROUND: Final = 80
# The judge lets a minute pass after each of these, and the timed messages of a life are due after ten.
GRPC_ROUNDS: Final = 4
GRPC_CASES_OF_A_ROUND: Final = 250
REMOTING: Final = "remoting"
PORTS: Final = (REMOTING, "grpc", "mqproxy")
# Attackers learn from the answers of a wave, such as where their own messages are.
WAVE: Final = 20
# The first question about a transaction comes after six seconds, and what was sent to be answered is answered by then.
QUESTIONS_S: Final = 7.0
ANSWERS_S: Final = 1.0
ATTACKERS: Final = tuple(each.name for each in IDENTITIES.values() if not (each.may or each.replays))
_SENDS: Final = frozenset({10, 310, 320})


class Stage(NamedTuple):
    """The servers of a life.

    Attributes:
        users: whether the broker has users and policies instead of accounts in a file.
        port: what is attacked: the ports of the remoting protocol, the gRPC port of the broker, or that of mqproxy.
    """

    users: bool = False
    port: str = REMOTING

    @property
    def cases_of_a_round(self) -> int:
        return CASES_OF_A_ROUND if self.port == REMOTING else GRPC_CASES_OF_A_ROUND

    @property
    def round_s(self) -> int:
        """More than a round takes by the clock."""
        return 9 if self.port == REMOTING else 150

    @property
    def cases_of_a_life(self) -> int:
        return self.cases_of_a_round * (ROUNDS if self.port == REMOTING else GRPC_ROUNDS)

    @property
    def options(self) -> str:
        """As `./run fuzz` has them."""
        return (" --users" if self.users else "") + (f" --port {self.port}" if self.port != REMOTING else "")


TURNS: Final = 4
ACCOUNTS: Final = Stage()


@dataclass
class Played:
    """What came of it.

    Attributes:
        sent, answers: by identity and code, or method; answers also by the code of the answer.
        faults: what attackers could do, after the cases of one round.
        guilty: the cases up to and with that round.
    """

    sent: Counter[tuple[str, Any]] = field(default_factory=Counter)
    answers: Counter[tuple[str, Any, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    guilty: list[Case] = field(default_factory=list)
    attacks: list[tuple[Case, Any]] = field(default_factory=list)
    cases: int = 0

    def note(self, case: Case, call: Call, codes: Iterable[int]) -> None:
        """Count a call of the gRPC port."""
        self.attacks.append((case, call))
        self.sent[case.identity, call.method.name] += 1
        self.cases += 1
        for code in codes:
            self.answers[case.identity, call.method.name, code] += 1


class Life:
    """One broker with its victim and attackers."""

    def __init__(self, cluster: Cluster, victim: Victim, played: Played) -> None:
        self._addresses = cluster.brokers[0].address, cluster.namesrv
        self._victim = victim
        self._played = played
        self._popped = Popped(victim)
        self._wires: dict[tuple[str, bool], Wire] = {}
        self._known = Known(victim.targets, victim.main.captured, log_end=lambda: cluster.brokers[0].store.end)

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

    async def leaks(self) -> list[str]:
        """What an attacker heard that has the victim's marker."""
        found = []
        for (name, is_of_namesrv), wire in self._wires.items():
            identity = IDENTITIES[name]
            # An error repeats what was wrong, and a replayed frame has the marker.
            heard = wire.heard[1::2] if identity.replays else wire.heard
            if not identity.may and not is_of_namesrv:  # any account may ask for routes and names
                if identity.may_hear:
                    heard = [self._victim.without_shown(part) for part in heard]
                found += [f"{name} heard {part[:400]!r}" for part in heard if MARKER in part]
            wire.heard.clear()
        return found

    async def judge(self) -> list[str]:
        """What attackers did to the popped message."""
        return [f"its popped message: {fault}" for fault in await self._popped.judge()]

    async def settle_in(self) -> None:
        """Do nothing: the victim has all that these attackers want."""

    async def prepare(self) -> None:
        """Renew the popped message."""
        await self._popped.prepare()

    async def close(self) -> None:
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


class Scene(NamedTuple):
    """One broker with the victim, its judge and its attackers."""

    life: Life | GrpcLife
    judge: Judge
    victim: Victim
    clock: ManualClock
    played: Played


async def live(rounds: Sequence[Sequence[Case]], together: bool = True, stage: Stage = ACCOUNTS) -> Played:
    """Play one life, up to the first round with a fault."""
    async with scene(stage, len(rounds)) as found:
        await _play(rounds, together, found)
        return found.played


@asynccontextmanager
async def scene(stage: Stage, rounds: int = 1) -> AsyncIterator[Scene]:
    """Open the servers and connections of one life of so many rounds."""
    async with AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="sparrowmq-access-"))
        folder, clock, played = Path(name), ManualClock(BORN_MS, settle=_turns), Played()
        accounts = accounts_at(folder)
        guarded = {"acl": True, "acl_file": accounts}
        settings = SETTINGS | (USERS if stage.users else {"acl": True}) | {"acl_file": accounts}
        if stage.port != REMOTING:
            settings |= {"grpc_port": 0}
        cluster = await stack.enter_async_context(Cluster(folder, clock=clock, namesrv_settings=guarded, **settings))
        is_short = rounds * stage.round_s < LATE[True][0]
        victim = Victim(cluster.brokers[0], cluster.namesrv, clock, is_short=is_short)
        await victim.settle_in()
        stack.callback(victim.close)
        judge = Judge(victim, clock, accounts, stage.users)
        if stage.port == REMOTING:
            life: Life | GrpcLife = Life(cluster, victim, played)
        else:
            address = await stack.enter_async_context(grpc_address(stage.port, cluster, clock))
            life = GrpcLife(address, victim, clock, played.note)
        stack.push_async_callback(life.close)
        await life.settle_in()
        yield Scene(life, judge, victim, clock, played)


async def _play(rounds: Sequence[Sequence[Case]], together: bool, found: Scene) -> None:
    life, judge, victim, clock, played = found
    judged = not any(IDENTITIES[case.identity].may for cases in rounds for case in cases)
    for cases in rounds:
        if judged or cases is rounds[0]:
            await victim.prepare()
            await life.prepare()
            await judge.look()
        await life.play(cases, together)
        await clock.advance(QUESTIONS_S)
        played.guilty += cases
        if judged:
            played.faults += await life.judge() + await judge.judge() + await life.leaks()
        if played.faults:
            return
    if judged:
        played.faults += await judge.judge_at_last() + await life.leaks()


async def _turns() -> None:
    """Give the loop fewer turns after each timer than the clock does alone: thousands of timers run in a life."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def rounds_of(
    seed: int, life: int, identities: Sequence[str], count: int, size: int = CASES_OF_A_ROUND
) -> list[list[Case]]:
    """The cases of one life of a seed, so many in each round."""
    rng = random.Random(f"{seed}/{life}")
    cases = [Case(rng.choice(identities), rng.randrange(1 << 48)) for _ in range(count)]
    return [cases[at : at + size] for at in range(0, count, size)]


async def least(guilty: Sequence[Case], stage: Stage = ACCOUNTS) -> list[Case]:
    """The fewest of the cases after which there is still a fault: halves, quarters and so on are left out by turns."""
    left, size = list(guilty), max(1, len(guilty) // 2)
    tail = left[-stage.cases_of_a_round :]
    if len(tail) < len(left) and await _is_guilty(tail, stage):
        left, size = tail, len(tail) // 2
    while True:
        for at in range(len(left) - size, -1, -size):
            rest = left[:at] + left[at + size :]
            if rest and await _is_guilty(rest, stage):
                left = rest
        if size == 1:
            return left
        size = max(1, size // 2)


async def _is_guilty(cases: Sequence[Case], stage: Stage) -> bool:
    return bool((await live([cases], together=False, stage=stage)).faults)
