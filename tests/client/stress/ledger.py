"""What happened to each message, as producers, members and the rig wrote it down, each into a file of its own.

A record is a line of JSON, written by one `write`: what a process wrote before it was killed is there. Times are those
of the machine's monotonic clock, in seconds, which all processes share.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

DONE: Final = "done"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed out"
CANCELLED: Final = "cancelled"
SKIPPED: Final = "skipped"  # another one of its portion failed before its turn came
CUT_SHORT: Final = "cut short"  # its member left meanwhile


class Place(NamedTuple):
    """Where a message is stored."""

    topic: str
    broker: str
    queue_id: int
    offset: int


class Record(msgspec.Struct, tag=True):
    """A line of the ledger."""


class Sent(Record):
    """A producer gives a message to the client; `key` and `sequence` only where their order counts."""

    message: str
    topic: str
    at: float
    key: str = ""
    sequence: int = 0


class Acknowledged(Record):
    """The send returned: from now on the message must not be lost."""

    message: str
    place: Place
    at: float


class Decided(Record):
    """The half message of a transaction is stored, and how the transaction ends: handled in the end, or never."""

    message: str
    place: Place
    is_committed: bool
    at: float


class Doubted(Record):
    """The send raised: the message may or may not be stored."""

    message: str
    error: str
    at: float


class Begun(Record):
    """A handler got a message.

    Attributes:
        delivery: tells the deliveries of one member apart.
        attempt: how many deliveries failed before, as the message says.
        is_owned: whether the member owned the message's queue at that moment.
    """

    member: str
    group: str
    delivery: int
    message: str
    place: Place
    attempt: int
    is_owned: bool
    at: float


class Ended(Record):
    """A handler is done with a message, one way or another."""

    member: str
    delivery: int
    outcome: str
    at: float


class Entered(Record):
    """A member has joined its group, or a producer begins."""

    who: str
    at: float


class Left(Record):
    """A process has left its client in order; what is named here should not be there any more."""

    who: str
    took_s: float
    unanswered: int = 0
    tasks: list[str] = []
    threads: list[str] = []
    descriptors: list[str] = []


class Incident(Record):
    """What was done to the cluster or a group: `what` befell `who` from `since` to `until`."""

    what: str
    who: str
    since: float
    until: float


Line = Sent | Acknowledged | Decided | Doubted | Begun | Ended | Entered | Left | Incident


@dataclass(slots=True)
class Delivery:
    """One time that a message was handled."""

    begun: Begun
    ended_at: float | None = None
    outcome: str | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome == DONE

    @property
    def has_failed(self) -> bool:
        return self.outcome in (FAILED, TIMED_OUT, CANCELLED, SKIPPED)


@dataclass(slots=True)
class Ledger:
    """All records, by what they are about.

    Attributes:
        counts: how many records of each kind came, and how many deliveries were done; what was taken counts still.
    """

    sent: dict[str, Sent] = field(default_factory=dict)
    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)
    doubted: dict[str, Doubted] = field(default_factory=dict)
    deliveries: dict[tuple[str, str], list[Delivery]] = field(default_factory=dict)
    incidents: list[Incident] = field(default_factory=list)
    entered: dict[str, float] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    done: dict[str, set[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    _open: dict[tuple[str, int], Delivery] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Take one record in; those of one process come in their order."""
        self.counts[type(line).__name__] += 1
        match line:
            case Sent():
                self.sent[line.message] = line
            case Acknowledged():
                self.acknowledged[line.message] = line
            case Decided():
                self._decide(line)
            case Doubted():
                self.doubted[line.message] = line
            case Begun():
                delivery = Delivery(line)
                self.deliveries.setdefault((line.group, line.message), []).append(delivery)
                self._open[line.member, line.delivery] = delivery
            case Ended():
                self._end(line)
            case Entered():
                self.entered[line.who] = line.at
            case Left():
                self.left.append(line)
            case Incident():
                self.incidents.append(line)

    def _decide(self, line: Decided) -> None:
        if line.is_committed:
            self.acknowledged[line.message] = Acknowledged(line.message, line.place, line.at)
        else:
            self.rolled_back.add(line.message)

    def _end(self, line: Ended) -> None:
        delivery = self._open.pop((line.member, line.delivery))
        delivery.ended_at, delivery.outcome = line.at, line.outcome
        if line.outcome == DONE:
            self.counts[DONE] += 1
            self.done.setdefault(delivery.begun.group, set()).add(delivery.begun.message)

    def take(self, message: str, to: Ledger) -> None:
        """Move all that is known of a message to another ledger."""
        to.sent[message] = self.sent.pop(message)
        for mine, others in ((self.acknowledged, to.acknowledged), (self.doubted, to.doubted)):
            if message in mine:
                others[message] = mine.pop(message)  # type: ignore[assignment]
        if message in self.rolled_back:
            self.rolled_back.discard(message)
            to.rolled_back.add(message)
        for group, done in self.done.items():
            if message in done:
                done.discard(message)
                to.done.setdefault(group, set()).add(message)
            if found := self.deliveries.pop((group, message), None):
                to.deliveries[group, message] = found


class Pen:
    """Writes records to a file; what is written survives the death of the process."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._encoder = msgspec.json.Encoder()

    def write(self, line: Line) -> None:
        os.write(self._descriptor, self._encoder.encode(line) + b"\n")


class Reader:
    """Reads what was written to the files of a folder since it last looked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._decoder = msgspec.json.Decoder(Line)

    def fresh(self) -> Iterator[Line]:
        """The records since last time, those of each file in their order; half a line waits for its end."""
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read[path] = self._read.get(path, 0) + len(whole) + 1
                yield from map(self._decoder.decode, whole.split(b"\n"))
