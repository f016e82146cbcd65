"""A transaction: consumers see its message only if the block around it ends without an exception.

    async with mq.transaction("orders", b"paid", tag="paid") as transaction:   # a half message is stored now
        await database.commit(transaction.msg_id)                            # commit at the end, rollback if it raises

The client sends the end one-way, as in Java. If the broker does not get it, it asks the group's check. While a group of
our brokers elects another master, the client sends it again (unsure_ends.py).
Source: DefaultMQProducerImpl.sendMessageInTransaction and endTransaction, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.client.sending.outcome import SendResult, SendStatus
from sparrowmq.client.sending.unsure_ends import UnsureEnds
from sparrowmq.client.tracebacks import short_tracebacks
from sparrowmq.errors import NetworkError, SendFailed, TransactionEnded
from sparrowmq.protocol.messages.message import Message, SysFlag
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.headers import EndTransaction

log = logging.getLogger(__name__)

# The flag that a broker gets; None is unknown.
ENDS: Final[dict[bool | None, int]] = {
    True: SysFlag.COMMIT,
    False: SysFlag.ROLLBACK,
    None: SysFlag.NOT_TRANSACTION,
}
_WORDS: Final = {True: "committed", False: "rolled back", None: "left open"}


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, as it was sent to its broker.

    Attributes:
        broker: the address of the broker.
        tag, keys: of its message.
        commit: None if the end is unknown.
    """

    request: EndTransaction
    broker: str
    tag: str | None
    keys: Sequence[str]
    commit: bool | None


OnEnd: TypeAlias = Callable[[End], object]


class Ends:
    """Send brokers the ends of one producer group's transactions.

    Args:
        group: the name that brokers know.
        has_check: whether the group in its argument has a check, so that brokers can ask.
        home: the loop in which transactions end.
        unsure: sends ends again.
        told: called with every end that was sent to a broker.
    """

    def __init__(
        self,
        group: str,
        brokers: Brokers,
        has_check: Callable[[str], bool],
        home: LoopAffinity,
        unsure: UnsureEnds,
        on_end: OnEnd | None = None,
    ) -> None:
        self.group = group
        self._brokers = brokers
        self._has_check = has_check
        self._on_end = on_end
        self._unsure = unsure
        self.home = home

    @property
    def has_check(self) -> bool:
        return self._has_check(self.group)

    async def tell(self, topic: str, message: Message, half: SendResult, commit: bool | None) -> None:
        """Send the end to the broker that has the half message. A broker that cannot be reached asks later.

        Args:
            topic: of the message, as brokers know it.
        """
        request = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=half.offset,
            commit_log_offset=parse_offset_id(half.offset_msg_id).physical_offset,
            commit_or_rollback=ENDS[commit],
            msg_id=half.msg_id,
            topic=topic,
            from_transaction_check=False,
            transaction_id=half.msg_id,
        )
        broker_name = half.queue.broker_name
        try:
            session = await self._brokers.of(broker_name)
            if commit is None:
                session.tell(request)
            else:
                self._unsure.tell(session, broker_name, request)
            if self._on_end is not None:
                self._on_end(End(request, session.address, message.tag, message.keys, commit))
        except NetworkError as error:
            log.warning(
                "%s does not get the message that %s is %s, and asks later: %s",
                half.queue,
                half.msg_id,
                _WORDS[commit],
                error,
            )
            if commit is not None:
                self._unsure.later(broker_name, [request])


@short_tracebacks
class Transaction:
    """One transaction; enter it with `async with`, once.

    At the end of the block it is committed. An exception rolls it back, and goes on. A cancellation, or the end of the
    program, leaves it open: only the check can then say what the block has done.

    Attributes:
        is_over: it was committed, rolled back or left open.
    """

    def __init__(self, topic: str, message: Message, send: Callable[[], Awaitable[SendResult]], ends: Ends) -> None:
        self._topic = topic
        self._message = message
        self._send = send
        self._ends = ends
        self._half: SendResult | None = None
        self.is_over = False
        self._how: bool | None = None

    @property
    def result(self) -> SendResult:
        """The result of the half message, with its offset in the half topic. Raises: TransactionEnded, not entered."""
        if self._half is None:
            raise TransactionEnded("the transaction has not begun; enter it with `async with`")
        return self._half

    @property
    def msg_id(self) -> str:
        """The message's id, which consumers and the check see, too. Raises: as `result`."""
        return self.result.msg_id

    async def commit(self) -> None:
        """Let consumers have the message, before the block ends. Raises: TransactionEnded, it ended otherwise."""
        await self._end(True)

    async def rollback(self) -> None:
        """Drop the message, and go on in the block. Raises: TransactionEnded, it ended otherwise."""
        await self._end(False)

    async def unknown(self) -> None:
        """Leave the transaction open: the broker asks the check. Raises: TransactionEnded, it ended otherwise."""
        await self._end(None)

    async def __aenter__(self) -> Self:
        """Send the half message.

        Raises:
            SendFailed: it is not stored. If it is stored less safely than configured, it is rolled back.
            others: as `Producer.send`.
        """
        if self._half is not None:
            raise TransactionEnded("a transaction is entered once; begin another one")
        half = self._half = await self._send()
        if half.status is not SendStatus.OK:
            await self._end(False)
            raise SendFailed(
                f"the half message was stored less safely than promised ({half.status.name}), so it is rolled back. "
                "Nothing was done; begin the transaction again",
                False,
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_over:
            return
        if kind is None:
            await self.commit()
        elif issubclass(kind, Exception):
            await self.rollback()
        else:
            log.warning("the transaction %s is left open by %r; its check will be asked", self.msg_id, error)
            self.is_over = True

    async def _end(self, commit: bool | None) -> None:
        half = self.result
        self._ends.home.check()
        if self.is_over:
            if self._how is not commit:
                raise TransactionEnded(f"the transaction {half.msg_id} is {_WORDS[self._how]} already")
            return
        self.is_over, self._how = True, commit
        await self._ends.tell(self._topic, self._message, half, commit)
