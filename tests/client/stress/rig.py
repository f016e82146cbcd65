"""Carries a plan out: starts the processes, does the steps, waits until all is handled, and asks the checker."""

from __future__ import annotations

import asyncio
import math
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.admin.admin import Admin
from tests.client.stress import checker
from tests.client.stress.checker import Findings, Violation
from tests.client.stress.inbox import FILE, Effects
from tests.client.stress.ledger import DONE, Incident, Ledger, Pen, Reader
from tests.client.stress.member import Call
from tests.client.stress.memory import MOST_MB_AN_HOUR, SHORTEST_S, Memory, weigh
from tests.client.stress.nodes import REPOSITORY, Node, Nodes
from tests.client.stress.plan import (
    BROKERS,
    FEWEST,
    FIXED,
    GROUPS,
    INBOX,
    KEYED,
    MOST,
    NAME_SERVERS,
    ORDERED,
    PLAIN,
    Act,
    Step,
)
from tests.client.stress.producer import WHO as PRODUCER
from tests.client.stress.settling import SETTLED_S, Settling
from tests.client.stress.transactor import WHO as TRANSACTOR

QUEUES: Final = 4
FIRST_MEMBERS: Final = 2
ENTERS_LIMIT_S: Final = 30.0
LEAVES_LIMIT_S: Final = 40.0
LOOK_S: Final = 0.1
TELL_S: Final = 5.0
SETTLE_S: Final = 30.0

_OUTAGES: Final = {
    Act.KILL_BROKER: checker.BROKER_KILLED,
    Act.MOVE_BROKER: checker.BROKER_MOVED,
    Act.RESTART_BROKER: checker.BROKER_RESTARTED,
    Act.NAME_SERVER: checker.NAME_SERVER_DOWN,
    Act.ONE_OF_EACH: checker.BROKER_KILLED,
}


class Rig:
    """One run.

    Args:
        folder: for stores, ledgers and what the processes say.
        quiet_s: how long the end is waited for while nothing more is handled.
        tell: gets lines of progress.
        rate: messages a second that the producer keeps to; as many as it can without.
        has_ordered_topics: without them all topics are plain, and the checker finds the keys that move.
        part: the number of this part, when others have their messages in the same stores.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        quiet_s: float,
        tell: Callable[[str], object] = print,
        *,
        rate: float | None = None,
        has_ordered_topics: bool = True,
        part: int | None = None,
    ) -> None:
        self.ledger = Ledger()
        self.memory = Memory()
        self._inbox = folder / FILE
        self._goes_on = self._inbox.exists()
        self.effects = Effects(self._inbox)
        self._settling = Settling(self._check, lambda topic: [group for group in GROUPS if topic in GROUPS[group]])
        self._rate = rate
        self._has_ordered_topics = has_ordered_topics
        self.sending_s = 0.0
        self._part = "" if part is None else f"part-{part}-"
        self._books = folder / f"{self._part}books"
        self._books.mkdir()
        self._seed = seed
        self._quiet_s = quiet_s
        self._tell = tell
        self._reader = Reader(self._books)
        self._pen = Pen(self._books / "rig.jsonl")
        self._samples = (self._books / "memory.csv").open("w", buffering=1)
        self._nodes = Nodes(folder, BROKERS, NAME_SERVERS)
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._members: dict[str, list[str]] = {group: [] for group in GROUPS}
        self._started = 0
        self._unended: list[Violation] = []

    async def run(self, steps: list[Step], seconds: float) -> Findings:
        """Everything from the first process to the last; returns what the ledger shows."""
        try:
            await self._start()
            watching = asyncio.create_task(self._watch())
            await self._carry_out(steps, seconds)
            await self._finish()
            watching.cancel()
        finally:
            await self._kill_all()
            self._samples.close()
        self._look()
        found = self._settling.finish(self.ledger)
        found.violations += self._unended
        found.violations += [
            Violation("effect doubled", f"{message} has several effects") for message in self.effects.doubled()
        ]
        if self.sending_s >= SHORTEST_S:
            found.violations += [
                Violation("grows", f"{name} grows by {growth:.1f} MB an hour")
                for name, growth in self.memory.growth().items()
                if growth > MOST_MB_AN_HOUR
            ]
        return found

    # Beginning and end ----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._nodes.start()
        if not self._goes_on:
            await self._create()
        await asyncio.gather(*(self._join(group) for group in GROUPS for _ in range(FIRST_MEMBERS)))
        await self._spawn(
            PRODUCER,
            PRODUCER,
            self._nodes.namesrv,
            str(self._book(PRODUCER)),
            self._part,
            str(self._rate or 0),
        )
        await self._spawn(TRANSACTOR, TRANSACTOR, self._nodes.namesrv, str(self._book(TRANSACTOR)), self._part)

    async def _create(self) -> None:
        """The topics and the groups."""
        async with Admin(self._nodes.namesrv) as admin:
            for topic in (PLAIN, *KEYED):
                ordered = topic in FIXED and self._has_ordered_topics
                await admin.create_topic(topic, queues=QUEUES, ordered=ordered)
        for broker in BROKERS:
            for group in GROUPS:
                self._nodes.create_group(broker, group)

    async def _carry_out(self, steps: list[Step], seconds: float) -> None:
        began = time.monotonic()
        for step in steps:
            if time.monotonic() - began > seconds:
                self._tell("the time is over before the plan: this machine is slow or busy")
                break
            await asyncio.sleep(max(0.0, began + step.at_s - time.monotonic()))
            self._tell(f"{time.monotonic() - began:6.1f} s  {step.act.value} {step.on}")
            await self._do(step)
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        self.sending_s = time.monotonic() - began

    async def _finish(self) -> None:
        """No more sends; all that is acknowledged is handled, unless nothing moves any more; then all leave."""
        self._processes[TRANSACTOR].send_signal(signal.SIGUSR1)
        await self._end(PRODUCER)
        handled, since = -1, time.monotonic()
        # The next part must not meet a message of this one, so the retries of messages in doubt are waited for too.
        while (self._part or self._is_missing()) and time.monotonic() - since < self._quiet_s:
            if self._handled != handled:
                handled, since = self._handled, time.monotonic()
            await asyncio.sleep(LOOK_S)
            self._look()
        await self._end(TRANSACTOR)
        for group in GROUPS:
            await asyncio.gather(*(self._leave(member, group) for member in list(self._members[group])))
        await self._nodes.stop(signal.SIGTERM)

    async def _kill_all(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
        await self._nodes.stop(signal.SIGKILL)

    # Steps ----------------------------------------------------------------------------------------------------------

    async def _do(self, step: Step) -> None:
        if step.act in _OUTAGES:
            await self._outage(step)
            return
        members = self._members[step.on]
        member = members[math.floor(step.pick * len(members))]
        if step.act is Act.JOIN:
            await self._join(step.on)
            if len(members) > MOST:
                await self._leave(member, step.on)
            return
        if len(members) == FEWEST:
            await self._join(step.on)
        await (self._leave if step.act is Act.LEAVE else self._crash)(member, step.on)

    async def _outage(self, step: Step) -> None:
        if step.act is Act.ONE_OF_EACH:
            await asyncio.gather(
                self._down(step, self._nodes.brokers[step.on]),
                self._down(
                    replace(step, act=Act.NAME_SERVER),
                    self._nodes.name_servers[int(step.pick * NAME_SERVERS)],
                ),
            )
        elif step.act is Act.NAME_SERVER:
            await self._down(step, self._nodes.name_servers[int(step.on)])
        else:
            await self._down(step, self._nodes.brokers[step.on])

    async def _down(self, step: Step, node: Node) -> None:
        since = time.monotonic()
        await node.end(signal.SIGTERM if step.act is Act.RESTART_BROKER else signal.SIGKILL)
        await asyncio.sleep(step.down_s)
        if step.act is Act.MOVE_BROKER:
            node.move()
        await node.start()
        self._note(_OUTAGES[step.act], node.name, since)

    # Members --------------------------------------------------------------------------------------------------------

    async def _join(self, group: str) -> None:
        self._started += 1
        name, since = f"{group}-{self._started}", time.monotonic()
        file = str(self._book(name))
        call = Call(name, self._started, group, self._nodes.namesrv, self._seed, file, str(self._inbox))
        await self._spawn("member", name, msgspec.json.encode(call).decode())
        self._members[group].append(name)
        self._note(checker.MEMBER_JOINED, name, since)

    async def _leave(self, member: str, group: str) -> None:
        self._members[group].remove(member)
        since = time.monotonic()
        await self._end(member)
        self._note(checker.MEMBER_LEFT, member, since)

    async def _crash(self, member: str, group: str) -> None:
        self._members[group].remove(member)
        since, process = time.monotonic(), self._processes[member]
        if process.returncode is None:
            process.kill()
        status = await process.wait()
        if status != -signal.SIGKILL:
            self._unended.append(Violation("failed", f"{member} ended by itself:\n{self._last_words(member)}"))
        self._note(checker.MEMBER_CRASHED, member, since)

    # Processes ------------------------------------------------------------------------------------------------------

    async def _spawn(self, module: str, who: str, *arguments: str) -> None:
        """Start one and return when it has written that it began. Raises: RuntimeError, with what it said."""
        command = [sys.executable, "-m", f"tests.client.stress.{module}", *arguments]
        with self._said(who).open("wb") as said:
            process = await asyncio.create_subprocess_exec(*command, stdout=said, stderr=said, cwd=REPOSITORY)
        self._processes[who] = process
        deadline = time.monotonic() + ENTERS_LIMIT_S
        while who not in self.ledger.entered:
            if process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{who} did not begin:\n{self._said(who).read_text()[-2000:]}")
            await asyncio.sleep(LOOK_S)
            self._look()

    async def _end(self, who: str) -> None:
        """Ask it to leave; that it does not, or fails, is a violation."""
        process = self._processes[who]
        if process.returncode is None:
            process.terminate()
        try:
            status = await asyncio.wait_for(process.wait(), LEAVES_LIMIT_S)
        except TimeoutError:
            self._unended.append(Violation("hung", f"{who} did not leave within {LEAVES_LIMIT_S:g} s"))
            with suppress(ProcessLookupError):  # It has left at last.
                process.kill()
            return
        if status:
            self._unended.append(Violation("failed", f"{who} ended with status {status}:\n{self._last_words(who)}"))

    # The ledger -----------------------------------------------------------------------------------------------------

    def _book(self, who: str) -> Path:
        return self._books / f"{who}.jsonl"

    def _said(self, who: str) -> Path:
        return self._books / f"{who}.log"

    def _last_words(self, who: str) -> str:
        return self._said(who).read_text()[-1500:]

    def _note(self, what: str, who: str, since: float) -> None:
        self._pen.write(Incident(what, who, since, time.monotonic()))

    def _look(self) -> None:
        for line in self._reader.fresh():
            self.ledger.add(line)

    def _check(self, ledger: Ledger) -> Findings:
        found = checker.check(ledger, GROUPS, ORDERED, FIXED)
        of_inbox = [message for message, sent in ledger.sent.items() if sent.topic in GROUPS[INBOX]]
        found.violations += checker.effects_of(ledger, INBOX, self.effects.of(of_inbox))
        return found

    def _is_missing(self) -> bool:
        return any(checker.missing(self.ledger, group, topics) for group, topics in GROUPS.items())

    @property
    def _handled(self) -> int:
        return self.ledger.counts[DONE]

    async def _watch(self) -> None:
        """For ever: a line of progress now and then, and checks of what is over."""
        settled_at = time.monotonic()
        while True:
            await asyncio.sleep(TELL_S)
            self._look()
            self._weigh()
            if time.monotonic() - settled_at > SETTLE_S:
                settled_at = time.monotonic()
                self._settling.settle(self.ledger, settled_at - SETTLED_S)
            members = ", ".join(f"{len(members)} in {group}" for group, members in self._members.items())
            self._tell(f"          {self.ledger.counts['Acknowledged']} stored, {self._handled} handled; {members}")

    def _weigh(self) -> None:
        """Sample the memory of what runs from beginning to end; members come and go."""
        nodes = {node.name: node.pid for node in (*self._nodes.brokers.values(), *self._nodes.name_servers)}
        clients = {who: self._processes[who].pid for who in (PRODUCER, TRANSACTOR) if who in self._processes}
        for name, pid in (nodes | clients).items():
            if pid is not None and (sample := weigh(pid)):
                self.memory.add(name, sample)
                self._samples.write(f"{name},{sample.at_s:.0f},{sample.age_s:.0f},{sample.size_mb:.1f}\n")


def sentences(rig: Rig, found: Findings) -> list[str]:
    """The result, for people."""
    ledger = rig.ledger
    incidents = Counter(incident.what for incident in ledger.incidents)
    counts = ledger.counts
    rows = [
        ("messages sent", counts["Sent"]),
        ("  a second", round(counts["Sent"] / max(rig.sending_s, 1))),
        ("  acknowledged", counts["Acknowledged"]),
        ("  in doubt", counts["Doubted"]),
        ("  of transactions", counts["Decided"]),
        ("deliveries", counts["Begun"]),
        ("effects of the inbox", rig.effects.count()),
        *sorted(incidents.items()),
        *((f"handled again: {cause}", count) for cause, count in sorted(found.causes.items())),
        *((f"VIOLATION: {kind}", count) for kind, count in _kinds(found).items()),
    ]
    sizes = rig.memory.last()
    judged = "MB an hour" if rig.sending_s >= SHORTEST_S else "MB an hour, after too short a time to judge"
    grown = [
        f"  memory of {name:22}{sizes[name]:8.1f} MB, {growth:+.2f} {judged}"
        for name, growth in rig.memory.growth().items()
    ]
    return [f"  {name:32}{count:8}" for name, count in rows] + grown


def _kinds(found: Findings) -> Counter[str]:
    return Counter(violation.kind for violation in found.violations)
