"""What was sent and what came of it, and the sentences that must hold between the two and the log.

Every body names its producer and number, so it can be recognised wherever it turns up. The ledger lives in
the harness, not on the disk of the broker. The checks (reliability of a log, in words):

    I1  every acknowledged message is in its queue at the offset that was answered
    I2  nothing is there that was not sent
    I3  offsets of a queue are dense, from 0
    I4  a message acknowledged before another was sent to the same queue has the lower offset
    I5  what an offset showed once it shows for ever
    I6  no message is there twice (the harness never sends one twice)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

LONGEST_SEND_NS: Final = 120 * 10**9


@dataclass(slots=True)
class Sent:
    """One message: `returned_ns` and `offset` are None unless it was acknowledged."""

    body: bytes
    queue_id: int
    invoked_ns: int
    returned_ns: int | None = None
    offset: int | None = None


@dataclass(slots=True)
class Ledger:
    """All that was sent, by body, and what each queue showed so far."""

    sent: dict[bytes, Sent] = field(default_factory=dict)
    shown: dict[int, list[bytes]] = field(default_factory=dict)
    acknowledged: int = 0
    deleted: dict[int, int] = field(default_factory=dict)

    def send(self, body: bytes, queue_id: int, now_ns: int) -> Sent:
        assert body not in self.sent, "the harness must not send a body twice"
        entry = self.sent[body] = Sent(body, queue_id, now_ns)
        return entry

    @property
    def acked(self) -> int:
        return sum(entry.offset is not None for entry in self.sent.values())

    def sent_since(self, since_ns: int) -> Iterator[Sent]:
        """What was sent at that time or later, the last one first."""
        for entry in reversed(self.sent.values()):
            if entry.invoked_ns < since_ns:
                return
            yield entry

    def show(self, queue_id: int, start: int, bodies: list[bytes]) -> Iterator[str]:
        """A queue's content from `start` on; yields what contradicts earlier content (I5) or its density (I3)."""
        known = self.shown.setdefault(queue_id, [])
        if start > len(known):
            yield f"queue {queue_id}: offsets {len(known)} to {start - 1} are missing"
            return
        for offset, body in enumerate(bodies, start):
            if offset < len(known) and known[offset] != body:
                yield f"queue {queue_id} offset {offset} showed {known[offset][:40]!r} and now {body[:40]!r}"
        if start + len(bodies) < len(known):
            yield f"queue {queue_id} had {len(known)} messages and now has {start + len(bodies)}"
        known[start:] = bodies

    def forget(self, queue_id: int, end: int, since_ns: int) -> list[int]:
        """A queue ends at `end` now, and what was acknowledged from `since_ns` on may be gone: as if it never was sent.

        Returns: when each of those messages had been acknowledged.
        """
        gone = []
        for entry in reversed(self.sent.values()):
            if entry.invoked_ns < since_ns - LONGEST_SEND_NS:
                break
            if entry.queue_id != queue_id or entry.offset is None or entry.offset < end:
                continue
            if entry.returned_ns is not None and entry.returned_ns >= since_ns:
                gone.append(entry.returned_ns)
                entry.returned_ns = entry.offset = None
        del self.shown.setdefault(queue_id, [])[end:]
        return gone

    def delete(self, queue_id: int, begin: int) -> None:
        """A queue begins at `begin` now: what was older had to go, as the disk was full."""
        known = self.shown.setdefault(queue_id, [])
        known[:begin] = [b""] * begin
        self.deleted[queue_id] = begin

    def violations(self) -> Iterator[str]:
        """Every broken sentence, after all queues were shown to their end."""
        yield from self._lost()
        yield from self._strange()
        for queue_id in self.shown:
            yield from self._disordered(queue_id)

    def _lost(self) -> Iterator[str]:
        for entry in self.sent.values():
            if entry.offset is None or entry.offset < self.deleted.get(entry.queue_id, 0):
                continue
            queue = self.shown.get(entry.queue_id, [])
            if entry.offset >= len(queue) or queue[entry.offset] != entry.body:
                yield f"lost: {entry.body[:40]!r} was acknowledged at queue {entry.queue_id} offset {entry.offset}"

    def _strange(self) -> Iterator[str]:
        places: dict[bytes, tuple[int, int]] = {}
        for queue_id, bodies in self.shown.items():
            begin = self.deleted.get(queue_id, 0)
            for offset, body in enumerate(bodies[begin:], begin):
                entry = self.sent.get(body)
                if entry is None:
                    yield f"phantom: queue {queue_id} offset {offset} holds {body[:40]!r}, which was never sent"
                elif entry.queue_id != queue_id:
                    yield f"misplaced: {body[:40]!r} was sent to queue {entry.queue_id}, found in {queue_id}"
                if body in places:
                    yield f"doubled: {body[:40]!r} at {places[body]} and {(queue_id, offset)}"
                places[body] = (queue_id, offset)

    def _disordered(self, queue_id: int) -> Iterator[str]:
        earliest_return = None
        for body in reversed(self.shown[queue_id]):
            entry = self.sent.get(body)
            if entry is None or entry.returned_ns is None:
                continue
            if earliest_return is not None and earliest_return < entry.invoked_ns:
                yield f"disorder: {body[:40]!r} in queue {queue_id} lies before one that was acknowledged earlier"
            earliest_return = min(earliest_return or entry.returned_ns, entry.returned_ns)
