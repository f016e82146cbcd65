"""END_TRANSACTION (37): a producer reports the end of its transaction; RESUME_CHECK_HALF_MESSAGE (323): an operator
restarts the checks of a discarded transaction.

Java's clients send 37 one-way: their broker only logs an error, and asks later. A client that waits for an answer gets
it once the end is as safe as a sent message, also if the transaction had this end before.
Source: EndTransactionProcessor and AdminBrokerProcessor.resumeCheckHalfMessage, Java 4.9.7.
"""

from __future__ import annotations

import logging

from sparrowmq.broker.handlers.handler import physical_offset_of, system_error
from sparrowmq.broker.transactions.transactions import Transactions
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.requests.headers import EndTransaction, ResumeCheckHalfMessage
from sparrowmq.remoting.handler import ReplyWhenDurable, handles
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class TransactionHandler:
    def __init__(self, store: MessageStore, transactions: Transactions, clock: Clock) -> None:
        self._store = store
        self._transactions = transactions
        self._log_limit = LogLimit(clock)  # a client can invent any number of transactions

    @handles(EndTransaction)
    def end(self, header: EndTransaction, body: bytes, peer: Peer) -> ReplyWhenDurable | None:
        """Commit or roll back; "unknown" changes nothing."""
        commit_or_rollback = header.commit_or_rollback
        if commit_or_rollback == SysFlag.NOT_TRANSACTION:
            return None
        if commit_or_rollback != SysFlag.COMMIT and commit_or_rollback != SysFlag.ROLLBACK:
            raise system_error(f"commitOrRollback={commit_or_rollback}: 8 commits, 12 rolls back, 0 is unknown")
        try:
            placed = self._transactions.end(
                header.tran_state_table_offset,
                header.commit_log_offset,
                header.producer_group,
                commit=commit_or_rollback == SysFlag.COMMIT,
                peer=peer,
                transaction_id=header.transaction_id,
            )
        except RemoteError as error:
            text = "%s ends a transaction, %s: %s"
            ended = shown(header.msg_id), shown(error.remark)
            self._log_limit.log(log, logging.WARNING, text, peer.address, *ended)
            raise
        return ReplyWhenDurable(self._store.durability(True), self._store.end if placed is None else placed.end, None)

    @handles(ResumeCheckHalfMessage)
    def resume(self, header: ResumeCheckHalfMessage, body: bytes, peer: Peer) -> ReplyWhenDurable:
        placed = self._transactions.resume(physical_offset_of(header.msg_id or ""))
        log.info("%s resumes the checks of transaction %s", peer.address, shown(header.msg_id or ""))
        return ReplyWhenDurable(self._store.durability(True), placed.end, None)
