"""Transactions: half messages stay invisible until a commit or rollback; silent producers are asked.

    divert    half message stored (`redirect`)             first check after transactionTimeOut
    check     half stored again, CHECK_TIMES + 1 ── 39 ──> one of the group's producers, on any connection
              again every transactionCheckInterval; discarded after transactionCheckMax checks, or fileReservedTime
    wait      no producer is connected, or it is too early: nothing is counted; the half is stored again each hour
    commit    message at its own place + op record       side by side in the log: both or none
    rollback  op record
    discard   TRANS_CHECK_MAX_TIME_TOPIC + op record     323 starts it again

After a start the broker reads from the half and op topics which transactions are open, from the offsets of the group
CID_RMQ_SYS_TRANS on. These offsets are saved when all records that they depend on are on disk.

A crash can come between any two steps. The log then keeps a prefix of the appended records:
    no record of the end    the transaction is open, and is checked again
    the message, no op      the message is the last record of the log; recovery finds it by its "prepared offset"
                            (`MessageStore.settled`), and the start writes the op record
    both                    the transaction has ended
    a copy, no check        copies are linked to the first one; together they are one transaction
So a transaction ends once. Only a send can double: if a half message was stored but not acknowledged, its producer
sends another one with the same unique key.
Source: TransactionalMessageServiceImpl and EndTransactionProcessor, Java 4.9.7.

With access control, these accounts may end a transaction, and may be asked about it:

    the half message's owner                  with PUB of its topic
    another account of the producer group     no, unless it is an administrator, or the owner's account was deleted;
                                              then with PUB of the topic
    no account                                yes: access control is off, or the address needs no permissions

A half message without an owner is of a time without access control, or of such an address. Each account with PUB of its
topic may end it. An administrator may end the transactions of others, but is not asked about them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from sparrowmq.broker.clients import Clients, Member
from sparrowmq.broker.due_work import DueWork
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.part import Chore, Part, Task
from sparrowmq.broker.redirect import Redirect, restore
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.transactions import half_message
from sparrowmq.broker.transactions.open_transactions import (
    OpenTransactions,
    StoredTransactions,
    Transaction,
    TransactionRules,
)
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, CorruptRecord, DiskFull, InvalidMessage, RemoteError, RemoteProtocolError
from sparrowmq.kernel.lanes import Lanes
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import TRANSACTIONS_OPEN
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.half_record import Commit, Destination, Half
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer, may_act_for
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

CHECKS_PER_TURN: Final = 64
BYTES_PER_TURN: Final = 256 * 1024
# The precision of check times. A look costs nothing when no transaction is due.
TICK_S: Final = 1.0
DAMAGE_PAUSE_MS: Final = 60_000
REMEMBERED_ENDS: Final = 10_000
ABSENCE_LOG_PERIOD_MS: Final = 60_000
_LATE_CHECKS: Final = 3  # after so many without an end, a transaction is open for too long
_MAX_ABSENT_GROUPS: Final = 1000
# Whether an account, by its access key, may send to a topic; None if there is no such account.
MaySend: TypeAlias = Callable[[str, str], bool | None]


class Transactions:
    """The transactions of one broker; `redirect` is the path of half messages into this object."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        offsets: Offsets,
        clients: Clients,
        clock: Clock,
        rules: TransactionRules,
        figures: Figures,
        may_send: MaySend = lambda account, topic: True,
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._clock = clock
        self._rules = rules
        self._rights = TransactionRights(may_send)
        self._host = store.settings.store_host
        self.checks = DueWork("transaction checks", self._check_some, clock)
        self._log_limit = LogLimit(clock)  # a client may begin any number of transactions, and end none
        self.redirect = Redirect(
            half_message.MARK, self._divert, restore, half_message.ROOM, on_stored=self._open_transaction
        )
        self._diverted_destination: Destination | None = None  # the destination of the message that is being diverted
        self._absence_logged_ms: dict[str, int] = {}  # when the log said that a group has no producer
        self._producer_turn = 0  # picks the next producer of a group
        self._recent_ends = RecentEnds()
        self._half_counter = figures.counter("sparrowmq_transactions_begun_total", "half messages stored")
        self._commit_counter = figures.counter("sparrowmq_transactions_committed_total", "transactions committed")
        self._rollback_counter = figures.counter("sparrowmq_transactions_rolled_back_total", "transactions rolled back")
        self._discard_counter = figures.counter("sparrowmq_transactions_discarded_total", "transactions discarded")
        self._check_counter = figures.counter("sparrowmq_transaction_checks_total", "checks sent to producers")
        self._read_counter = figures.counter("sparrowmq_transaction_reads_total", "half messages read for checks")
        figures.gauge("sparrowmq_transactions_open", "open transactions", lambda: len(self.open_transactions))
        self._lanes: Lanes | None = None
        self._open_transactions, settled = StoredTransactions(store, offsets, clock, rules).read()
        self._note_ends([] if rules.is_slave else settled)

    def use_lanes(self, lanes: Lanes) -> None:
        """Learn of the transactions that lanes begin and end."""
        self._lanes = lanes

    def note_taken(self) -> None:
        """Count the transactions that lanes began, and note those that they ended."""
        lanes = self._lanes
        if lanes is None:
            return
        self._half_counter.value += lanes.begun_count
        lanes.begun_count = 0
        ended, lanes.ended = lanes.ended, []
        for queue_offset, commit in ended:
            transaction = self._open_transactions.find(queue_offset)
            if transaction is None:
                self._open_transactions.note_op(queue_offset)
            else:
                self._open_transactions.end(transaction)
            self._note_end(queue_offset, commit)

    @property
    def open_transactions(self) -> OpenTransactions:
        """The open transactions, with those that lanes began."""
        self.note_taken()
        for begun in [] if self._lanes is None else self._lanes.take_begun():
            queue_offset, offset, size, born_ms, stored_ms, content = begun
            place = Placed(offset, queue_offset, stored_ms, self._host)
            place.end += size
            properties = Properties.decode(content)
            transaction = self._make_transaction(place, born_ms, properties, half_message.destination(properties))
            self._open_transactions.add(transaction)
        return self._open_transactions

    def part(self, save_period_s: float) -> Part:
        return Part(
            chores=(Chore("pass transactions that have ended", save_period_s, self.commit_positions),),
            tasks=(Task("ask about transactions", self.checks.run),),
            saves=(self.close,),
            probes=((TRANSACTIONS_OPEN, self._long_open_condition),),
        )

    def _long_open_condition(self) -> str:
        """Return since when a transaction is open that should have been decided by some checks; "" if none is."""
        oldest, now_ms = self.open_transactions.longest_asked(), self._clock.now_ms()
        if oldest is None or now_ms - oldest.asked_from_ms < _LATE_CHECKS * self._rules.interval_ms:
            return ""
        of_group, reason = "", "no producer ends it when it is asked"
        if oldest.destination is not None and oldest.destination.group is not None:
            of_group = f" of producer group {oldest.destination.group}"
            if not self._clients.producers(oldest.destination.group):
                reason = "no producer of the group is online"
        number, age_s = len(self.open_transactions), (now_ms - oldest.begun_ms) // 1000
        are = "transaction is" if number == 1 else "transactions are"
        return f"{number} {are} open, one{of_group} for {age_s} s: {reason}"

    async def close(self) -> None:
        """Commit the positions of ended transactions to the offsets, which are saved after this."""
        self.checks.close()
        self._store.flush()
        await self.commit_positions()

    def _divert(self, entry: Entry) -> bool:
        """Make a half message of a message that begins a transaction; return whether it does. Raises: RemoteError."""
        group = entry.group
        if group is None or not half_message.is_half(entry.properties) or half_message.comes_back(entry):
            return False
        if self._rules.rejected:
            raise RemoteError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._topics.broker_name}] sending transaction message is forbidden",
            )
        self._diverted_destination = half_message.divert(entry, group)
        self._topics.ensure_own(HALF_TOPIC)
        return True

    def _open_transaction(self, entry: Entry, place: Placed) -> None:
        """Open the transaction of the half message that was diverted last and is now stored."""
        destination, self._diverted_destination = self._diverted_destination, None
        assert destination is not None
        self.open_transactions.add(
            self._make_transaction(place, entry.born_timestamp_ms, entry.properties, destination)
        )
        self._half_counter.value += 1

    def end(
        self,
        queue_offset: int,
        offset: int,
        group: str,
        *,
        commit: bool,
        peer: Peer | None = None,
        transaction_id: str | None = None,
    ) -> Placed | None:
        """Commit a transaction or roll it back; return its last record, or None if it had the same end before.

        Raises: RemoteError, no such half message, or another end; AccessDenied; StoreFailed, DiskFull, nothing was
        stored.
        """
        transaction = self.open_transactions.find(queue_offset)
        open_transaction = transaction if transaction is not None and transaction.offset == offset else None
        half = self._half_at(queue_offset, offset, open_transaction)
        destination = (
            open_transaction.destination
            if open_transaction is not None and open_transaction.destination is not None
            else _destination_of(half)
        )
        if destination.group != group:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if transaction_id and transaction_id != destination.terms.unique_key:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, "The transaction id is that of another message")
        if peer is not None:
            self._rights.check(peer, destination.owner, destination.topic)
        if transaction is None:
            self._recent_ends.refuse_another(queue_offset, commit)
            return None
        placed = self._finish(transaction, Commit(half, destination)) if commit else self._finish(transaction)
        self._note_end(queue_offset, commit)
        return placed

    def _note_end(self, queue_offset: int, commit: bool) -> None:
        self._recent_ends.add(queue_offset, commit)
        (self._commit_counter if commit else self._rollback_counter).value += 1

    def resume(self, offset: int) -> Placed:
        """Start a discarded or ended transaction again. Raises: RemoteError, there is none, or it is open."""
        message = self._decode_at(offset)
        if message is None or message.topic not in (CHECK_MAX_TIME_TOPIC, HALF_TOPIC):
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"no half message is at log offset {offset}; give the msgId of one in {CHECK_MAX_TIME_TOPIC}",
            )
        if message.topic == HALF_TOPIC and self.open_transactions.find(message.queue_offset) is not None:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"the transaction of {message} is open; nothing to resume")
        entry = half_message.resumed(message)
        [placed] = self._store.append(entry)
        now_ms = self._clock.now_ms()
        self.open_transactions.add(
            Transaction(placed.queue_offset, placed.offset, now_ms, now_ms, placed.size, begun_ms=now_ms)
        )
        return placed

    def _check_some(self) -> float:
        """Check some transactions that are due; return the seconds until others may be due."""
        size_bytes = 0
        for _ in range(CHECKS_PER_TURN):
            now_ms = self._clock.now_ms()
            due = self.open_transactions.take_due(now_ms, 1)
            if not due:
                return TICK_S
            transaction = due[0]
            try:
                self._check_transaction(transaction)
            except DiskFull:
                self._open_transactions.postpone(transaction, now_ms)
                raise
            except CorruptRecord as damage:
                self.checks.log_damage(f"the transaction at log offset {transaction.offset}", damage)
                self._open_transactions.postpone(transaction, now_ms + DAMAGE_PAUSE_MS)
            size_bytes += transaction.size
            if size_bytes >= BYTES_PER_TURN:
                break
        return 0

    async def commit_positions(self) -> None:
        """Commit the positions to the offsets of CID_RMQ_SYS_TRANS, once their records are on disk."""
        half = self._store.queues.get(HALF_TOPIC, 0)
        if half is not None:
            half_position, op_position = self.open_transactions.positions(half.next_offset)
            await self._store.flushed.reached(self._store.end)
            self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, half_position)
            self._offsets.commit(TRANSACTION_GROUP, OP_HALF_TOPIC, 0, op_position)

    def _check_transaction(self, transaction: Transaction) -> None:
        now_ms = self._clock.now_ms()
        raw = self._store.parked_at(transaction.offset, transaction.size)
        half = record.decode(raw) if raw is not None else None
        self._read_counter.value += 1
        if half is None:
            is_gone = transaction.offset < self._store.begin
            text = "the half message at log offset %d is %s; its transaction is forgotten"
            state = "gone" if is_gone else "damaged"
            self._log_limit.log(log, logging.ERROR, text, transaction.offset, state)
            self._finish(transaction)
        elif half_message.check_times(half) >= self._rules.most_checks:
            self._discard(transaction, half, f"was asked about {half_message.check_times(half)} times")
        elif now_ms - min(half.born_timestamp_ms, transaction.begun_ms) > self._rules.retention_ms:
            self._discard(transaction, half, "is older than messages are kept")
        else:
            try:
                self._check_back(transaction, half, now_ms)
            # The broker that stored the message kept no room for the extra properties of a copy.
            except InvalidMessage as error:
                self._discard(transaction, half, f"cannot be asked about: {error}")

    def _check_back(self, transaction: Transaction, half: StoredMessage, now_ms: int) -> None:
        """Copy a half message, and ask a producer if it is time to. Raises: InvalidMessage, it cannot be copied."""
        times = half_message.check_times(half)
        producers = [] if now_ms < transaction.immune_until_ms else self._producers_of(half, now_ms)
        if producers:
            entry, placed = self._copy(transaction, half, times + 1)
            self._ask_producer(producers, half, entry, placed)
        elif self._is_due_for_copy(transaction, half, now_ms):
            self._copy(transaction, half, times)
        else:
            self.open_transactions.postpone(transaction, self._next_check_ms(transaction))

    def _is_due_for_copy(self, transaction: Transaction, half: StoredMessage, now_ms: int) -> bool:
        """Whether to store a half message again although no producer is asked.

        Unlike Java, which does so at each look: 72 hours without a producer would store each message 4,320 times.
        """
        queue = self._store.queues.get(HALF_TOPIC, 0)
        behind = 0 if queue is None else queue.next_offset - transaction.queue_offset
        is_far_behind = behind > max(self._rules.place_entries, 4 * len(self.open_transactions))
        return is_far_behind or now_ms - half.store_timestamp_ms >= self._rules.place_ms

    def _copy(self, transaction: Transaction, half: StoredMessage, check_times: int) -> tuple[Entry, Placed]:
        origin = half_message.origin(half)
        entry = half_message.copy(half, transaction.origin if origin is None else origin, check_times)
        [placed] = self._store.append(entry)
        due_ms = self._next_check_ms(transaction)
        self._forget(transaction)
        self._open_transactions.move(transaction, placed.queue_offset, placed.offset, due_ms, placed.size)
        return entry, placed

    def _next_check_ms(self, transaction: Transaction) -> int:
        due_ms = self._clock.now_ms() + self._rules.interval_ms
        if due_ms < transaction.immune_until_ms < due_ms + self._rules.interval_ms:
            return transaction.immune_until_ms
        return due_ms

    def _producers_of(self, half: StoredMessage, now_ms: int) -> list[Member]:
        group = half.properties.get(Property.PGROUP, "")
        owner, topic = half.properties.get(Property.TRAN_OWNER), half.properties.get(Property.REAL_TOPIC, "")
        producers = [
            member
            for account, members in self._clients.producers_by_owner(group).items()
            if self._rights.may_be_asked(account, owner, topic)
            for member in members.values()
        ]
        if not producers and now_ms - self._absence_logged_ms.get(group, 0) >= ABSENCE_LOG_PERIOD_MS:
            if len(self._absence_logged_ms) >= _MAX_ABSENT_GROUPS:
                self._absence_logged_ms.clear()
            self._absence_logged_ms[group] = now_ms
            log.warning("no producer of group %s is online to ask about %s, and perhaps others", shown(group), half)
        return producers

    def _ask_producer(self, producers: list[Member], half: StoredMessage, entry: Entry, place: Placed) -> None:
        self._producer_turn += 1
        try:
            header, body = half_message.question(half, entry, place)
        except InvalidMessage as error:
            self._log_limit.log(log, logging.ERROR, "no producer can be asked about %s: %s", half, error)
            return
        producers[self._producer_turn % len(producers)].peer.tell(header, body)
        self._check_counter.value += 1

    def _discard(self, transaction: Transaction, half: StoredMessage, reason: str) -> None:
        text = "the transaction of %s (%s) %s, so it is moved to %s; request 323 resumes it"
        topic = half.properties.get(Property.REAL_TOPIC)
        self._log_limit.log(log, logging.ERROR, text, half, topic, reason, CHECK_MAX_TIME_TOPIC)
        self._topics.ensure_own(CHECK_MAX_TIME_TOPIC)
        self._finish(transaction, half_message.discarded(half))
        self._discard_counter.value += 1

    def _note_ends(self, transactions: list[Transaction]) -> None:
        """Store the op records that are missing because the broker was killed before it could store them."""
        for transaction in transactions:
            self._finish(transaction)
        if transactions:
            log.warning(
                "%d transactions had ended before the crash; their op records are written now", len(transactions)
            )
            self._store.publish()
        if len(self.open_transactions):
            log.info("%d transactions are open", len(self.open_transactions))
        if self._store.queues.get(HALF_TOPIC, 0) is not None:
            self._topics.ensure_own(HALF_TOPIC)

    def _make_transaction(
        self, place: Placed, born_ms: int, properties: Properties, destination: Destination
    ) -> Transaction:
        now_ms = place.store_timestamp_ms
        # A producer's clock that is ahead of ours must not delay the check.
        born_ms = min(born_ms, now_ms)
        own_immunity_s = half_message.own_immunity_s(properties)
        immune_until_ms = born_ms + (
            self._rules.timeout_ms if own_immunity_s is None else self._rules.immune_ms(own_immunity_s)
        )
        due_ms = immune_until_ms if own_immunity_s is None else min(immune_until_ms, now_ms + self._rules.interval_ms)
        return Transaction(place.queue_offset, place.offset, due_ms, immune_until_ms, place.size, destination, now_ms)

    def _finish(self, transaction: Transaction, *entries: Entry | Commit) -> Placed:
        """Store the records that end a transaction, and the op record: all or none."""
        op = half_message.op(transaction.queue_offset, self._clock.now_ms(), self._host)
        places = self._store.append(*entries, op)
        self._forget(transaction)
        self._open_transactions.end(transaction)
        return places[-1]

    def _forget(self, transaction: Transaction) -> None:
        """Let no lane end a transaction from now on."""
        if self._lanes is not None:
            self._lanes.forget_half(transaction.queue_offset)

    def _half_at(self, queue_offset: int, offset: int, open_transaction: Transaction | None) -> Half:
        """Return the half message at these offsets; unlike Java, only the half topic's queue says where."""
        if open_transaction is not None and open_transaction.queue_offset == queue_offset:
            size = open_transaction.size
        else:
            self._store.publish()
            queue = self._store.queues.get(HALF_TOPIC, 0)
            entry = queue.entry(queue_offset) if queue is not None else None
            size = entry.size if entry is not None and entry.offset == offset else 0
        raw = self._store.copy_at(offset, size) if size else None
        if raw is not None:
            try:
                return Half(raw)
            except (RemoteProtocolError, CorruptRecord) as error:
                _log_damage(offset, error)
        raise RemoteError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")

    def _decode_at(self, offset: int) -> StoredMessage | None:
        view = self._store.record_at(offset)
        try:
            return record.decode(view) if view is not None else None
        except (RemoteProtocolError, CorruptRecord) as error:
            _log_damage(offset, error)
            return None


class RecentEnds:
    """The ends of the latest transactions: whether each was a commit, by the queue offset in its end request."""

    def __init__(self) -> None:
        self._latest: dict[int, bool] = {}
        self._earlier: dict[int, bool] = {}  # the generation before

    def add(self, queue_offset: int, commit: bool) -> None:
        if len(self._latest) >= REMEMBERED_ENDS:
            self._earlier, self._latest = self._latest, {}
        self._latest[queue_offset] = commit

    def refuse_another(self, queue_offset: int, commit: bool) -> None:
        """Raise for a different end. Unlike Java, which stores the message twice, or after its rollback."""
        earlier_end = self._latest.get(queue_offset, self._earlier.get(queue_offset))
        if earlier_end is not commit:
            state = {True: "was committed", False: "was rolled back", None: "is not open any more"}[earlier_end]
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"the transaction {state}; one with too many check-backs is in {CHECK_MAX_TIME_TOPIC}",
            )


def _log_damage(offset: int, error: Exception) -> None:
    log.error("the half message at log offset %d is damaged: %s", offset, error)


def _destination_of(half: Half) -> Destination:
    try:
        return half_message.destination(half.properties, half.owner)
    except InvalidMessage as error:
        raise RemoteError(ResponseCode.SYSTEM_ERROR, str(error)) from error


class TransactionRights:
    def __init__(self, may_send: MaySend) -> None:
        self._may_send = may_send

    def may_be_asked(self, account: str | None, owner: str | None, topic: str) -> bool:
        """Whether a producer of an account may be asked about a message to a topic. The question contains it."""
        if account is None:
            return True
        return bool(self._may_send(account, topic)) and (account == owner or self._is_ownerless(owner, topic))

    def check(self, peer: Peer, owner: str | None, topic: str) -> None:
        principal = peer.principal
        if principal is None:
            return
        if not self._may_send(principal.access_key, topic):
            raise AccessDenied(f"No default permission for topic:{topic}: a transaction that sends to it needs PUB")
        if not (may_act_for(peer, owner) or self._is_ownerless(owner, topic)):
            raise AccessDenied(
                f"the transaction was begun by another account than accessKey={principal.access_key}; end it with the "
                "account that sent its half message"
            )

    def _is_ownerless(self, owner: str | None, topic: str) -> bool:
        return owner is None or self._may_send(owner, topic) is None
