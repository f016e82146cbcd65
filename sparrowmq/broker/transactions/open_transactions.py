"""The open transactions, when each is due for its next check, and the positions before which all have ended.

    half topic   0 1 2 3 4 5 6 7 8          each store of a half message is one entry: 2 was checked, and stored
                     └─────────┘            again as 7, its newest copy; 2 and 7 are the same transaction
    op topic     0: "0"   1: "1"   2: "3,4,6"     the ended transactions; 5.x names many in one record

    half position   the lowest newest copy of an open transaction: all transactions before it have ended or moved on
    op position     the first record that names a half message at or after the half position: a reader that starts both
                    topics at these positions learns everything

Uses no disk and no clock. An open transaction costs about 600 bytes. Each op record costs one number until the op
position has passed it. A heap finds the due transactions, so no others are looked at. A transaction that ends before
the next look (once a second) never enters the heap.
Source: TransactionalMessageServiceImpl.check and calculateOpOffset, Java 4.9.7.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

from sparrowmq.compiled import mypyc_attr
from sparrowmq.protocol.messages.half_record import Destination

# Surplus of the heap over the open transactions before it is rebuilt: most transactions end long before they are due.
_SLACK: Final = 1024
_LOOKED_AT: Final = 1000  # transactions, to find an old one
_NEVER: Final = 1 << 62


@mypyc_attr(acyclic=True, free_list_len=1)
class Transaction:
    """An open transaction.

    Attributes:
        queue_offset: of its newest copy in the half topic.
        offset, size: of that copy in the log.
        due_ms: the time of the next look at it.
        immune_until_ms: the time before which no producer is asked.
        begun_ms: when its oldest known copy was stored; a producer's clock may be years ahead.
        to: the destination of its message, if it is known without reading the message.
        older: the known queue offsets of its other copies, the first copy first.
    """

    __slots__ = ("begun_ms", "due_ms", "immune_until_ms", "offset", "older", "queue_offset", "size", "to")

    def __init__(
        self,
        queue_offset: int,
        offset: int,
        due_ms: int,
        immune_until_ms: int,
        size: int,
        to: Destination | None = None,
        begun_ms: int = _NEVER,
    ) -> None:
        self.queue_offset = queue_offset
        self.offset = offset
        self.due_ms = due_ms
        self.immune_until_ms = immune_until_ms
        self.size = size
        self.to = to
        self.begun_ms = begun_ms
        self.older: tuple[int, ...] = ()

    @property
    def asked_from_ms(self) -> int:
        """The time from which producers may be asked; a producer's clock may be years behind."""
        return max(self.begun_ms, self.immune_until_ms)

    @property
    def origin(self) -> int:
        return self.older[0] if self.older else self.queue_offset


class OpenTransactions:
    """All open transactions.

    Args:
        op_position: the position of the first op record that `ended` will get.
    """

    def __init__(self, op_position: int = 0) -> None:
        self._newest: dict[int, Transaction] = {}  # in the order of their queue offsets
        self._older: dict[int, Transaction] = {}
        self._due: list[tuple[int, int]] = []
        # Transactions added since the last `take_due`, not in the heap yet: most end before the next one.
        self._fresh: list[Transaction] = []
        # The greatest half offset in each op record, from the op position on.
        self._ops: deque[int] = deque()
        self._op_position = op_position

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, transaction: Transaction) -> None:
        """Add a transaction; its queue offset is greater than those of all others."""
        self._newest[transaction.queue_offset] = transaction
        for older in transaction.older:
            self._older[older] = transaction
        self._schedule(transaction)

    def find(self, queue_offset: int) -> Transaction | None:
        """Return the open transaction that has a copy at this queue offset."""
        return self._newest.get(queue_offset) or self._older.get(queue_offset)

    def move(self, transaction: Transaction, queue_offset: int, offset: int, due_ms: int, size: int) -> None:
        """Note that a transaction was stored again, after all others."""
        del self._newest[transaction.queue_offset]
        transaction.older = (*transaction.older, transaction.queue_offset)
        transaction.queue_offset, transaction.offset, transaction.size = queue_offset, offset, size
        transaction.due_ms = due_ms
        self.add(transaction)

    def postpone(self, transaction: Transaction, due_ms: int) -> None:
        """Set the time of the next look; the transaction keeps its place."""
        transaction.due_ms = due_ms
        self._schedule(transaction)

    def end(self, transaction: Transaction) -> None:
        """Remove a transaction whose op record is stored."""
        self.ended(transaction.queue_offset)
        del self._newest[transaction.queue_offset]
        if transaction.older:
            for older in transaction.older:
                del self._older[older]

    def ended(self, last_half: int) -> None:
        """Note one more op record; `last_half` is the greatest half offset in it."""
        self._ops.append(last_half)

    def take_due(self, now_ms: int, most: int) -> list[Transaction]:
        """Return due transactions, the longest waiting first. The caller must move, postpone or end each of them."""
        for fresh in self._fresh:
            if self._newest.get(fresh.queue_offset) is fresh:
                heappush(self._due, (fresh.due_ms, fresh.queue_offset))
        self._fresh.clear()
        due: list[Transaction] = []
        while self._due and self._due[0][0] <= now_ms and len(due) < most:
            due_ms, queue_offset = heappop(self._due)
            transaction = self._newest.get(queue_offset)
            # A transaction that was postponed before this look is in the heap twice.
            is_known = bool(due) and due[-1] is transaction
            if transaction is not None and transaction.due_ms == due_ms and not is_known:
                due.append(transaction)
        return due

    def longest_asked(self) -> Transaction | None:
        """Return the one whose producers could be asked first, of those whose newest copies are the oldest."""
        first = islice(self._newest.values(), _LOOKED_AT)
        return min(first, key=lambda each: each.asked_from_ms, default=None)

    def positions(self, half_end: int) -> tuple[int, int]:
        """Return the half and the op position.

        Args:
            half_end: the end of the half topic's queue: the half position when no transaction is open.
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
