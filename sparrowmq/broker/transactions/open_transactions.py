"""The open transactions, when each is due for its next check, and the positions before which all have ended.

    half topic   0 1 2 3 4 5 6 7 8          each store of a half message is one entry: 2 was checked, and stored
                     └─────────┘            again as 7, its newest copy; 2 and 7 are the same transaction
    op topic     0: "0"   1: "1"   2: "3,4,6"     the ended transactions; 5.x names many in one record

    half position   the lowest newest copy of an open transaction: all transactions before it have ended or moved on
    op position     the first record that names a half message at or after the half position: a reader that starts both
                    topics at these positions learns everything

`OpenTransactions` uses no disk and no clock. An open transaction costs about 600 bytes. Each op record costs one number
until the op position has passed it. A transaction that ends before the next look (once a second) never enters the heap.
Source: TransactionalMessageServiceImpl.check and calculateOpOffset, Java 4.9.7.

A start reads which transactions are open from the half and op topics (`StoredTransactions`):

    half topic   half 1   half 2   copy of 1   half 3          copies of one message make a chain: one transaction
    op topic     ended: 2                                       a chain with an op record has ended

The broker reads both topics from the offsets of the group CID_RMQ_SYS_TRANS on. A chain without an op record may have
ended all the same (`MessageStore.settled`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

import msgspec

from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.saved_state import records_from
from sparrowmq.broker.transactions import half_message
from sparrowmq.errors import CorruptRecord
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.half_record import Destination
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# Surplus of the heap over the open transactions before it is rebuilt: most transactions end long before they are due.
_HEAP_SLACK: Final = 1024
_MAX_AGES_COMPARED: Final = 1000  # transactions, to find an old one
_NEVER: Final = 1 << 62


@dataclass(frozen=True, kw_only=True)
class TransactionRules:
    """The time limits of open transactions.

    Producers are asked from `timeout_ms` after the message's birth on, every `interval_ms`, `most_checks` times. A half
    message that waits for a producer is stored again after `place_ms`, or when the half topic has grown by
    `place_entries`, so that the log before it can be deleted. The start of a slave adds no op records.
    """

    timeout_ms: int = 6000
    interval_ms: int = 60_000
    most_checks: int = 15
    retention_ms: int = 72 * 3_600_000
    place_ms: int = 3_600_000
    place_entries: int = 100_000
    rejected: bool = False
    is_slave: bool = False

    def immune_ms(self, own_s: int) -> int:
        return min(own_s * 1000, self.retention_ms)


class Transaction:
    """An open transaction: its newest copy, and the queue offsets of the `older` ones, the first one first.

    `begun_ms` is when its oldest known copy was stored; a producer's clock may be years ahead.
    """

    __slots__ = ("begun_ms", "destination", "due_ms", "immune_until_ms", "offset", "older", "queue_offset", "size")

    def __init__(
        self,
        queue_offset: int,
        offset: int,
        due_ms: int,
        immune_until_ms: int,
        size: int,
        destination: Destination | None = None,
        begun_ms: int = _NEVER,
    ) -> None:
        self.queue_offset = queue_offset
        self.offset = offset
        self.due_ms = due_ms
        self.immune_until_ms = immune_until_ms
        self.size = size
        self.destination = destination
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
    """All open transactions; `op_position` is the position of the first op record that it will get."""

    def __init__(self, op_position: int = 0) -> None:
        self._by_newest_copy: dict[int, Transaction] = {}  # in the order of their queue offsets
        self._by_older_copy: dict[int, Transaction] = {}
        self._due_heap: list[tuple[int, int]] = []
        # Transactions added since the last `take_due`, not in the heap yet: most end before the next one.
        self._unscheduled: list[Transaction] = []
        # The greatest half offset in each op record, from the op position on.
        self._last_halves: deque[int] = deque()
        self._op_position = op_position

    def __len__(self) -> int:
        return len(self._by_newest_copy)

    def add(self, transaction: Transaction) -> None:
        """Add a transaction; its queue offset is greater than those of all others."""
        self._by_newest_copy[transaction.queue_offset] = transaction
        for older in transaction.older:
            self._by_older_copy[older] = transaction
        self._schedule(transaction)

    def find(self, queue_offset: int) -> Transaction | None:
        return self._by_newest_copy.get(queue_offset) or self._by_older_copy.get(queue_offset)

    def move(self, transaction: Transaction, queue_offset: int, offset: int, due_ms: int, size: int) -> None:
        del self._by_newest_copy[transaction.queue_offset]
        transaction.older = (*transaction.older, transaction.queue_offset)
        transaction.queue_offset, transaction.offset, transaction.size = queue_offset, offset, size
        transaction.due_ms = due_ms
        self.add(transaction)

    def postpone(self, transaction: Transaction, due_ms: int) -> None:
        transaction.due_ms = due_ms
        self._schedule(transaction)

    def end(self, transaction: Transaction) -> None:
        self.note_op(transaction.queue_offset)
        del self._by_newest_copy[transaction.queue_offset]
        if transaction.older:
            for older in transaction.older:
                del self._by_older_copy[older]

    def note_op(self, last_half: int) -> None:
        """Note one more op record; `last_half` is the greatest half offset in it."""
        self._last_halves.append(last_half)

    def take_due(self, now_ms: int, max_count: int) -> list[Transaction]:
        """Return due transactions, the longest waiting first. The caller must move, postpone or end each of them."""
        for added in self._unscheduled:
            if self._by_newest_copy.get(added.queue_offset) is added:
                heappush(self._due_heap, (added.due_ms, added.queue_offset))
        self._unscheduled.clear()
        due: list[Transaction] = []
        while self._due_heap and self._due_heap[0][0] <= now_ms and len(due) < max_count:
            due_ms, queue_offset = heappop(self._due_heap)
            transaction = self._by_newest_copy.get(queue_offset)
            # A transaction that was postponed before this look is in the heap twice.
            is_known = bool(due) and due[-1] is transaction
            if transaction is not None and transaction.due_ms == due_ms and not is_known:
                due.append(transaction)
        return due

    def longest_asked(self) -> Transaction | None:
        """Return the one whose producers could be asked first, of those whose newest copies are the oldest."""
        oldest_copies = islice(self._by_newest_copy.values(), _MAX_AGES_COMPARED)
        return min(oldest_copies, key=lambda transaction: transaction.asked_from_ms, default=None)

    def positions(self, half_end: int) -> tuple[int, int]:
        """Return the half and the op position; `half_end` is the half position when no transaction is open."""
        half_position = next(iter(self._by_newest_copy), half_end)
        while self._last_halves and self._last_halves[0] < half_position:
            self._last_halves.popleft()
            self._op_position += 1
        return half_position, self._op_position

    def _schedule(self, transaction: Transaction) -> None:
        self._unscheduled.append(transaction)
        if len(self._due_heap) + len(self._unscheduled) > 2 * len(self._by_newest_copy) + _HEAP_SLACK:
            self._unscheduled.clear()
            self._due_heap = [
                (transaction.due_ms, transaction.queue_offset) for transaction in self._by_newest_copy.values()
            ]
            heapify(self._due_heap)


class StoredTransactions:
    def __init__(self, store: MessageStore, offsets: Offsets, clock: Clock, rules: TransactionRules) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._rules = rules

    def read(self) -> tuple[OpenTransactions, list[Transaction]]:
        """Return the open transactions, and those of them that a record has ended, but no op record."""
        op_start = self._start_position(OP_HALF_TOPIC)
        open_transactions = OpenTransactions(op_start)
        ended_offsets: set[int] = set()
        for message in self._read_messages(OP_HALF_TOPIC, op_start):
            offsets = half_message.ended_by(message)
            ended_offsets.update(offsets)
            open_transactions.note_op(max(offsets, default=-1))
        unfinished = []
        for transaction, is_settled in self._unended_chains(ended_offsets):
            open_transactions.add(transaction)
            if is_settled:
                unfinished.append(transaction)
        return open_transactions, unfinished

    def _unended_chains(self, ended_offsets: set[int]) -> Iterator[tuple[Transaction, bool]]:
        """Yield each transaction without an op record, with its copies linked, and whether a record ended it."""
        chains: dict[int, list[StoredMessage]] = {}
        by_identity: dict[tuple[str | None, str | None, int], int] = {}
        for half in self._read_messages(HALF_TOPIC, self._start_position(HALF_TOPIC)):
            origin = half_message.origin(half)
            identity = half_message.identity(half)
            if origin is None:
                is_copy = half_message.check_times(half) > 0 and half.unique_key is not None
                origin = by_identity.get(identity, half.queue_offset) if is_copy else half.queue_offset
            by_identity[identity] = origin
            chains[origin] = [*chains.pop(origin, []), msgspec.structs.replace(half, body=b"")]  # all open ones at once
        for origin, copies in chains.items():
            queue_offsets = {origin, *[copy.queue_offset for copy in copies]}
            if ended_offsets.isdisjoint(queue_offsets):
                settled = any(copy.physical_offset in self._store.finished_halves for copy in copies)
                yield self._reopen(origin, copies), settled

    def _reopen(self, origin: int, copies: list[StoredMessage]) -> Transaction:
        """Return an open transaction after a start. As in Java, its first check comes an interval later."""
        newest = copies[-1]
        now_ms = self._clock.now_ms()
        own_s = half_message.own_immunity_s(newest.properties) or 0
        begun_ms = min(now_ms, *[copy.store_timestamp_ms for copy in copies])
        immune_until_ms = min(newest.born_timestamp_ms, begun_ms) + self._rules.immune_ms(own_s)
        due_ms = now_ms + self._rules.interval_ms
        transaction = Transaction(
            newest.queue_offset, newest.physical_offset, due_ms, immune_until_ms, newest.store_size, begun_ms=begun_ms
        )
        queue_offsets = {origin, *[copy.queue_offset for copy in copies]} - {newest.queue_offset}
        transaction.older = tuple(sorted(queue_offsets))
        return transaction

    def _start_position(self, topic: str) -> int:
        """Return the offset to read from; the beginning if no offset was saved, as in Java."""
        queue = self._store.queues.get(topic, 0)
        if queue is None:
            return 0
        saved = self._offsets.query(TRANSACTION_GROUP, topic, 0)
        return min(max(saved or 0, queue.min_offset), queue.max_offset)

    def _read_messages(self, topic: str, offset: int) -> Iterator[StoredMessage]:
        for raw_record in records_from(self._store, topic, 0, offset):
            try:
                yield record.decode(raw_record)
            except CorruptRecord as error:
                log.error("skipping a damaged message of %s: %s", topic, error)
