"""Reads at a start which transactions are open, from the half and op topics.

    half topic   half 1   half 2   copy of 1   half 3          copies of one message make a chain: one transaction
    op topic     ended: 2                                       a chain with an op record has ended

The broker reads both topics from the offsets of the group CID_RMQ_SYS_TRANS on. A chain without an op record may have
ended all the same: the broker died between the message and the op record (`MessageStore.settled`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec

from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.saved_state import records_from
from sparrowmq.broker.transactions import half_message
from sparrowmq.broker.transactions.open_transactions import OpenTransactions, Transaction
from sparrowmq.broker.transactions.transaction_rules import TransactionRules
from sparrowmq.errors import CorruptRecord
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class StoredTransactions:
    """The transactions that the store of one broker has at its start."""

    def __init__(self, store: MessageStore, offsets: Offsets, clock: Clock, rules: TransactionRules) -> None:
        self._store = store
        self._offsets = offsets
        self._clock = clock
        self._rules = rules

    def read(self) -> tuple[OpenTransactions, list[Transaction]]:
        """Return the open transactions, and those of them that a record has ended, but no op record."""
        op_start = self._start(OP_HALF_TOPIC)
        found = OpenTransactions(op_start)
        ended: set[int] = set()
        for message in self._read(OP_HALF_TOPIC, op_start):
            offsets = half_message.ended_by(message)
            ended.update(offsets)
            found.ended(max(offsets, default=-1))
        unfinished = []
        for transaction, is_settled in self._chains(ended):
            found.add(transaction)
            if is_settled:
                unfinished.append(transaction)
        return found, unfinished

    def _chains(self, ended: set[int]) -> Iterator[tuple[Transaction, bool]]:
        """Yield each transaction without an op record, with its copies linked, and whether a record ended it."""
        chains: dict[int, list[StoredMessage]] = {}
        by_identity: dict[tuple[str | None, str | None, int], int] = {}
        for half in self._read(HALF_TOPIC, self._start(HALF_TOPIC)):
            first = half_message.origin(half)
            identity = half_message.identity(half)
            if first is None:
                is_copy = half_message.check_times(half) > 0 and half.unique_key is not None
                first = by_identity.get(identity, half.queue_offset) if is_copy else half.queue_offset
            by_identity[identity] = first
            chains[first] = [*chains.pop(first, []), _without_body(half)]
        for first, copies in chains.items():
            places = {first, *[each.queue_offset for each in copies]}
            if ended.isdisjoint(places):
                settled = any(each.physical_offset in self._store.finished_halves for each in copies)
                yield self._reopened(first, copies), settled

    def _reopened(self, first: int, copies: list[StoredMessage]) -> Transaction:
        """Return an open transaction after a start. As in Java, its first check comes an interval later, so that
        producers can connect first.
        """
        newest = copies[-1]
        now_ms = self._clock.now_ms()
        own_s = half_message.own_immunity_s(newest.properties) or 0
        begun_ms = min(now_ms, *[each.store_timestamp_ms for each in copies])
        immune_until_ms = min(newest.born_timestamp_ms, begun_ms) + self._rules.immune_ms(own_s)
        due_ms = now_ms + self._rules.interval_ms
        transaction = Transaction(
            newest.queue_offset,
            newest.physical_offset,
            due_ms,
            immune_until_ms,
            newest.store_size,
            begun_ms=begun_ms,
        )
        places = {first, *[each.queue_offset for each in copies]} - {newest.queue_offset}
        transaction.older = tuple(sorted(places))
        return transaction

    def _start(self, topic: str) -> int:
        """Return the offset to read from; the beginning if no offset was saved, as in Java."""
        queue = self._store.queues.get(topic, 0)
        if queue is None:
            return 0
        saved = self._offsets.query(TRANSACTION_GROUP, topic, 0)
        return min(max(saved or 0, queue.min_offset), queue.max_offset)

    def _read(self, topic: str, offset: int) -> Iterator[StoredMessage]:
        """Yield the messages of a system topic from an offset on, without damaged ones."""
        for each in records_from(self._store, topic, 0, offset):
            try:
                yield record.decode(each)
            except CorruptRecord as error:
                log.error("a message of %s is damaged, and left out: %s", topic, error)


def _without_body(message: StoredMessage) -> StoredMessage:
    """Return the message without its body: at a start, all open ones are in memory for a moment."""
    return msgspec.structs.replace(message, body=b"")
