"""What clients sent, heard and read while everything failed, and the sentences that must hold of it.

The ledger's (ledger.py), of what the last master shows: acknowledged messages are where they were said to be, none is
there that was not sent, none twice. And beyond that, of brokers that may each take themselves for the master:

    at both     what was acknowledged is in the log of each broker, at that place, at any time from then on
    usurped     who acknowledges a message is the master of the epoch in which its place in the log lies. Else two
                brokers were masters at once, whatever both believed
    disorder    a message that was sent after another one was acknowledged lies behind it, in the whole log
    reused      no two messages are acknowledged with the same offset of a queue, or the same place
    changed     what a consumer read is there for ever, at the offset that it was read at
    unread      what was acknowledged came to a consumer
    early       ... and none came before it was sent

A log has one order, and answers say places in it. So all of this is looked up, and nothing has to be searched for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.errors import ProtocolError
from sparrowmq.protocol.messages import record
from tests.crash.ledger import Ledger

_SIZE_BYTES: Final = 4  # the first field of a record


@dataclass(frozen=True, slots=True)
class Acked:
    """A message of which a broker said that it is safe; `place` is the offset of its record in the log."""

    body: bytes
    queue_id: int
    offset: int
    place: int
    broker: str
    invoked_ns: int
    returned_ns: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """The time of one master: where in the log it began, and whose it was; "" if that was not seen."""

    number: int
    begin: int
    broker: str


@dataclass(slots=True)
class History:
    """All of it.

    Attributes:
        ledger: what was sent, and what the last master shows.
        acked: in the order in which their answers came.
        reads: the body that a consumer got from a queue and an offset, and when.
    """

    ledger: Ledger = field(default_factory=Ledger)
    acked: list[Acked] = field(default_factory=list)
    reads: list[tuple[bytes, int, int, int]] = field(default_factory=list)

    def take(self, kind: str, body: str, *told: Any) -> None:
        """One event, as talker.py writes it."""
        raw = body.encode()
        if kind == "sent":
            self.ledger.send(raw, -1, *told)
        elif kind == "read":
            self.reads.append((raw, *told))
        elif kind == "stored":
            self.ledger.sent[raw].queue_id = told[0]
        else:
            queue_id, offset, place, broker, at_ns = told
            sent = self.ledger.sent[raw]
            sent.queue_id, sent.offset, sent.returned_ns = queue_id, offset, at_ns
            self.acked.append(Acked(raw, queue_id, offset, place, broker, sent.invoked_ns, at_ns))

    def show(self, queue_id: int, bodies: list[bytes]) -> Iterator[str]:
        """All that a queue of the last master has."""
        for body in bodies:
            sent = self.ledger.sent.get(body)
            if sent is not None and sent.queue_id < 0:
                sent.queue_id = queue_id  # never answered, and there
        yield from self.ledger.show(queue_id, 0, bodies)

    def violations(self, epochs: Mapping[int, Epoch]) -> Iterator[str]:
        """Every broken sentence, after all queues were shown.

        Args:
            epochs: those that are known, by number; none where masters are not elected.
        """
        yield from self.ledger.violations()
        yield from self._usurped(sorted(epochs.values(), key=lambda each: each.number))
        yield from self._disordered()
        yield from self._reused()
        yield from self._misread()

    def not_in(self, log: bytes | bytearray, name: str, acked: Iterable[Acked]) -> Iterator[str]:
        """What of these the log of a broker does not have."""
        for each in acked:
            problem = _problem_at(log, each)
            if problem is not None:
                yield f"lost: {each.body[:40]!r}, acknowledged by {each.broker}, is not at {name}: {problem}"

    def _usurped(self, epochs: list[Epoch]) -> Iterator[str]:
        begins = [epoch.begin for epoch in epochs]
        for each in self.acked if epochs else ():
            # Of epochs that begin at one place only the last one has anything.
            last = bisect_right(begins, each.place) - 1
            if last >= 0 and epochs[last].broker not in ("", each.broker):
                yield (
                    f"usurped: {each.body[:40]!r} was acknowledged by {each.broker} at {each.place}, in epoch "
                    f"{epochs[last].number} of {epochs[last].broker}"
                )

    def _disordered(self) -> Iterator[str]:
        earliest_ns = None
        for each in sorted(self.acked, key=lambda each: -each.place):
            if earliest_ns is not None and earliest_ns < each.invoked_ns:
                yield f"disorder: {each.body[:40]!r} lies before one that was acknowledged before it was sent"
            earliest_ns = min(earliest_ns or each.returned_ns, each.returned_ns)

    def _reused(self) -> Iterator[str]:
        offsets: dict[tuple[int, int], bytes] = {}
        places: dict[int, bytes] = {}
        for each in self.acked:
            at = (each.queue_id, each.offset)
            for other in (offsets.setdefault(at, each.body), places.setdefault(each.place, each.body)):
                if other != each.body:
                    yield f"doubled: {at} at {each.place} was given to {other[:40]!r} and to {each.body[:40]!r}"

    def _misread(self) -> Iterator[str]:
        read = set()
        for body, queue_id, offset, at_ns in self.reads:
            read.add(body)
            there = self.ledger.shown.get(queue_id, [])[offset : offset + 1]
            if there != [body]:
                yield f"phantom: queue {queue_id} offset {offset} was read as {body[:40]!r}, and has {there} now"
            sent = self.ledger.sent.get(body)
            if sent is not None and at_ns < sent.invoked_ns:
                yield f"phantom: {body[:40]!r} was read before it was sent"
        for each in self.acked:
            if each.body not in read:
                yield f"lost: {each.body[:40]!r} was acknowledged and came to no consumer"


def _problem_at(log: bytes | bytearray, acked: Acked) -> str | None:
    """What is wrong with the record at its place, if anything."""
    size = int.from_bytes(log[acked.place : acked.place + _SIZE_BYTES], "big")
    if not size or acked.place + size > len(log):
        return f"nothing is at {acked.place} of {len(log)}"
    try:
        stored = record.decode(log[acked.place : acked.place + size])
    except ProtocolError as error:
        return str(error)
    if (stored.body, stored.queue_offset) != (acked.body, acked.offset):
        return f"{stored.body[:40]!r} is at {acked.place}"
    return None
