"""Which transactions are open, when each is to be asked about next, and up to where all of them have ended.

    half topic   0 1 2 3 4 5 6 7 8          a half message lies there once for each time it was stored: 2 was asked
                     └─────────┘            about, and stored again as 7, its newest copy; both stand for it
    op topic     0: "0"   1: "1"   2: "3,4,6"     which of them have ended; 5.x names many in one record

    half position   the first newest copy of an open transaction: all before it have ended or moved on
    op position     the first record that names a half message at or behind that one: who begins to read both topics
                    there learns everything

No disk, no clock. A transaction costs some 600 bytes while it is open, and one of its round's numbers until the op
position has passed it. What is due is found by a heap: nothing is looked at that is not. What ends before the next look
(once a second) never comes into the heap.
Source: TransactionalMessageServiceImpl.check and calculateOpOffset, Java 4.9.7.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Final

from sparrowmq.compiled import mypyc_attr
from sparrowmq.protocol.messages.half_record import Destination

# What waits to be due is made anew when it is this much longer than what it is for: most end long before they are due.
_SLACK: Final = 1024


@mypyc_attr(acyclic=True, free_list_len=1)
class Transaction:
    """An open one.

    Attributes:
        queue_offset: of its newest copy in the half topic.
        offset, size: of that copy in the log.
        due_ms: when to look at it again.
        immune_until_ms: nobody is asked before this time.
        to: where its message goes, if that is known without reading it.
        older: the queue offsets of its other copies that are known, the first one first.
    """

    __slots__ = ("due_ms", "immune_until_ms", "offset", "older", "queue_offset", "size", "to")

    def __init__(
        self,
        queue_offset: int,
        offset: int,
        due_ms: int,
        immune_until_ms: int,
        size: int,
        to: Destination | None = None,
    ) -> None:
        self.queue_offset = queue_offset
        self.offset = offset
        self.due_ms = due_ms
        self.immune_until_ms = immune_until_ms
        self.size = size
        self.to = to
        self.older: tuple[int, ...] = ()

    @property
    def origin(self) -> int:
        """The queue offset of its first copy."""
        return self.older[0] if self.older else self.queue_offset


class OpenTransactions:
    """All that are open.

    Args:
        op_position: of the first op record that `ended` will be told of.
    """

    def __init__(self, op_position: int = 0) -> None:
        self._newest: dict[int, Transaction] = {}  # in the order of their queue offsets
        self._older: dict[int, Transaction] = {}
        self._due: list[tuple[int, int]] = []
        # Not among the due ones yet: of those that were added since the last look at what is due, most have ended.
        self._fresh: list[Transaction] = []
        # The greatest half offset that each op record names, from the op position on.
        self._ops: deque[int] = deque()
        self._op_position = op_position

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, transaction: Transaction) -> None:
        """One more; its queue offset is behind those of all others."""
        self._newest[transaction.queue_offset] = transaction
        for older in transaction.older:
            self._older[older] = transaction
        self._schedule(transaction)

    def find(self, queue_offset: int) -> Transaction | None:
        """The open transaction that has a copy there."""
        return self._newest.get(queue_offset) or self._older.get(queue_offset)

    def move(self, transaction: Transaction, queue_offset: int, offset: int, due_ms: int, size: int) -> None:
        """It was stored again, behind all others."""
        del self._newest[transaction.queue_offset]
        transaction.older = (*transaction.older, transaction.queue_offset)
        transaction.queue_offset, transaction.offset, transaction.size = queue_offset, offset, size
        transaction.due_ms = due_ms
        self.add(transaction)

    def postpone(self, transaction: Transaction, due_ms: int) -> None:
        """Look at it later; it stays where it is."""
        transaction.due_ms = due_ms
        self._schedule(transaction)

    def end(self, transaction: Transaction) -> None:
        """It is open no more, and the op record that says so is stored."""
        self.ended(transaction.queue_offset)
        del self._newest[transaction.queue_offset]
        if transaction.older:
            for older in transaction.older:
                del self._older[older]

    def ended(self, last_half: int) -> None:
        """One more op record is there; `last_half` is the greatest half offset that it names."""
        self._ops.append(last_half)

    def take_due(self, now_ms: int, most: int) -> list[Transaction]:
        """Those that are due, the longest waiting first; each must be moved, postponed or ended."""
        for fresh in self._fresh:
            if self._newest.get(fresh.queue_offset) is fresh:
                heappush(self._due, (fresh.due_ms, fresh.queue_offset))
        self._fresh.clear()
        due: list[Transaction] = []
        while self._due and self._due[0][0] <= now_ms and len(due) < most:
            due_ms, queue_offset = heappop(self._due)
            transaction = self._newest.get(queue_offset)
            # One that was put off before anybody looked is there twice.
            is_known = bool(due) and due[-1] is transaction
            if transaction is not None and transaction.due_ms == due_ms and not is_known:
                due.append(transaction)
        return due

    def positions(self, half_end: int) -> tuple[int, int]:
        """Half and op position.

        Args:
            half_end: of the half topic's queue: where the half position is when nothing is open.
        """
        half_position = next(iter(self._newest), half_end)
        while self._ops and self._ops[0] < half_position:
            self._ops.popleft()
            self._op_position += 1
        return half_position, self._op_position

    def _schedule(self, transaction: Transaction) -> None:
        self._fresh.append(transaction)
        if len(self._due) + len(self._fresh) > 2 * len(self._newest) + _SLACK:
            self._fresh.clear()
            self._due = [(each.due_ms, each.queue_offset) for each in self._newest.values()]
            heapify(self._due)
