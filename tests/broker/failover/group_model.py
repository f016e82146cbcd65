"""Histories of a group without brokers: its logs are lists, its etcd is a variable, and each step can be the last one.

Every decision is one of `group_state`. The rules of `InSync` are written down again here, in a few lines.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from sparrowmq.broker.failover import group_state
from sparrowmq.broker.failover.group_state import GroupState, OwnEpoch, with_in_sync

Record = tuple[int, int]  # the epoch that it was appended in, and its number


class Own(OwnEpoch):
    """A member's own record, on no disk."""

    def save(self, epoch: int, line: str, acknowledged: int = 0) -> None:
        epochs = self.epochs if line == self.line else ()
        self.epochs = (*(each for each in epochs if each != epoch), epoch)
        self.epoch, self.line, self.acknowledged = epoch, line, acknowledged


@dataclass
class Machine:
    """One member.

    Attributes:
        is_whole: its disk was never replaced while etcd had it in sync.
    """

    number: int
    own: Own
    log: list[Record] = field(default_factory=list)
    is_up: bool = True
    is_whole: bool = True


@dataclass
class Term:
    """The time of one master."""

    machine: Machine
    state: GroupState  # as the master knows it
    named: set[int] = field(default_factory=set)
    marks: dict[int, int] = field(default_factory=dict)  # of the members that are connected

    @property
    def named_here(self) -> set[int]:
        return self.named | (set(self.state.in_sync) if self.state.is_settled else set())


class Group:
    """A group and its history up to now.

    Attributes:
        acknowledged: what was acknowledged, in order.
        in_sync: the members that a master has named last, in etcd. Nothing is acknowledged without them.
    """

    def __init__(self, chance: random.Random, members: int) -> None:
        self.chance = chance
        self.machines = {number: self._new(number) for number in range(1, members + 1)}
        self.state: GroupState | None = None
        self.term: Term | None = None  # of the master that has the lease
        self.acknowledged: list[Record] = []
        self.in_sync: tuple[int, ...] = ()
        self.elections = 0
        self._count = 0

    def _new(self, number: int) -> Machine:
        return Machine(number, Own(Path("epoch.json"), 0, "", f"store {self.chance.random()}"))

    def step(self) -> None:
        """Do one thing that can happen."""
        chosen = self.chance.choice(list(self.machines.values()))
        if self.chance.random() < 0.005:
            self.replace_disk(chosen)
            return
        steps = {
            self.elect: 3,
            self.follow: 4,
            self.copy: 6,
            self.append: 2,
            self.acknowledge: 4,
            self.settle: 3,
        }
        rare = {self.leave: 0.3, self.crash: 0.5, self.start: 3}
        every = {**steps, **rare}
        self.chance.choices(list(every), list(every.values()))[0](chosen)

    # The steps ------------------------------------------------------------------------------------------------------

    def elect(self, machine: Machine) -> None:
        if self.term is not None or not machine.is_up or not self.may_lead(machine):
            return
        self.elections += 1
        state = group_state.elected(self.state, machine.number, machine.own, len(machine.log))
        assert machine.log[: len(self.acknowledged)] == self.acknowledged, "a master lacks acknowledged messages"
        self.state = state
        if self._is_lucky():  # otherwise it died, or did not hear of it, and its lease ends
            machine.own.save(state.epoch, state.line)
            if self._is_lucky():
                self.term = Term(machine, state)

    def may_lead(self, machine: Machine) -> bool:
        state = self.state
        if state is None:
            return not self.elections
        is_named = state.may_lead(machine.number, is_fresh=False)
        return is_named and state.doubt(machine.number, machine.own, len(machine.log)) is None

    def follow(self, machine: Machine) -> None:
        """Connect to the master, with a log that is cut by the proof; what is left must be the master's."""
        term, own = self.term, machine.own
        if term is None or not machine.is_up or machine is term.machine or machine.number in term.marks:
            return
        if machine.number in term.named_here:
            return
        assert self.state is not None
        cut_at = self.state.shared_end(own.epoch, own.line)
        if cut_at is not None:
            assert cut_at >= own.acknowledged
            del machine.log[cut_at:]
        ours = len(machine.log)
        assert machine.log == term.machine.log[:ours], "a log that was cut by the proof differs"
        if own.epoch != term.state.epoch:
            own.save(term.state.epoch, term.state.line)
        term.marks[machine.number] = len(term.machine.log)

    def copy(self, machine: Machine) -> None:
        if self.term is not None and machine.number in self.term.marks and machine.is_up:
            here, there = len(machine.log), self.term.machine.log
            machine.log += there[here : here + self.chance.randint(1, 3)]

    def append(self, machine: Machine) -> None:
        if self.term is not None:
            self._count += 1
            self.term.machine.log.append((self.term.state.epoch, self._count))

    def acknowledge(self, machine: Machine) -> None:
        term = self.term
        if term is None or not term.state.is_settled or len(term.state.in_sync) < 2:
            return
        waited = (set(term.state.in_sync) | term.named | term.marks.keys()) - {term.machine.number}
        if not waited <= term.marks.keys():
            return
        end = min(len(self.machines[number].log) for number in waited)
        if end > len(self.acknowledged):
            self.acknowledged = term.machine.log[:end]

    def settle(self, machine: Machine) -> None:
        """Report the members that follow: those in sync that are connected, and those that have reached their mark."""
        term = self.term
        if term is None:
            return
        ready = {number for number, mark in term.marks.items() if len(self.machines[number].log) >= mark}
        wanted = {term.machine.number} | ready
        if term.state.is_settled:
            wanted |= set(term.state.in_sync) & term.marks.keys()
        elif not term.named and self.chance.random() < 0.5:
            return  # nothing waits for it yet
        term.named |= wanted
        if not self._is_lucky():
            return
        assert self.state is not None
        self.state = with_in_sync(term.state, wanted)
        self.in_sync = self.state.in_sync
        if self._is_lucky():  # otherwise no answer comes
            term.state, term.named = self.state, set()

    def leave(self, machine: Machine) -> None:
        """The connection to the master ends."""
        if self.term is not None:
            self.term.marks.pop(machine.number, None)

    def crash(self, machine: Machine) -> None:
        machine.is_up = False
        self.leave(machine)
        if self.term is not None and self.term.machine is machine:
            if self._is_lucky():
                machine.own.acknowledged = len(self.acknowledged)
            self.term = None

    def start(self, machine: Machine) -> None:
        machine.is_up = True

    def replace_disk(self, machine: Machine) -> None:
        """The machine comes back with an empty disk; at most one, or acknowledged messages are lost for sure."""
        if all(each.is_whole for each in self.machines.values()) and self.elections:
            self.crash(machine)
            machine.log, machine.own = [], self._new(machine.number).own
            machine.is_whole = False

    def _is_lucky(self) -> bool:
        return self.chance.random() < 0.8

    # The promises ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Each member in sync with its store may lead, and has all that was acknowledged."""
        state = self.state
        if state is None or self.term is not None:
            return
        for machine in map(self.machines.__getitem__, self.in_sync):
            if machine.is_whole:
                assert machine.log[: len(self.acknowledged)] == self.acknowledged
                assert self.may_lead(machine), f"member {machine.number} is in sync and may not lead: {state}"
