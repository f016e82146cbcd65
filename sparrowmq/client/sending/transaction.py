"""A transaction: consumers see its message only if the block around it ends without an exception.

    async with mq.transaction("orders", b"paid", tag="paid") as transaction:   # a half message is stored now
        await database.commit(transaction.msg_id)                            # commit at the end, rollback if it raises

The client sends the end one-way, as in Java. If the broker does not get it, it asks the group's check. While a group of
our brokers elects another master, the client sends the end again:

    first end of a connection    a request with an answer: a former master would drop a one-way end silently
    later ends                   one-way, as in Java
    the connection ends          the ends of the last 10 s are sent again, for 10 s, until a master has them
    no connection                the end is sent for 10 s, until a master has it

Otherwise a committed message would wait until the next master checks the transaction, after
`transactionCheckInterval` (60 s). A SparrowMQ broker ignores a repeated end. Apache's would store the message again,
so it gets each end once, one-way.
Source: DefaultMQProducerImpl.sendMessageInTransaction and endTransaction, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Final, Self, TypeAlias

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.client.tracebacks import short_tracebacks
from sparrowmq.errors import ClientClosed, NetworkError, RemoteError, SendFailed, SparrowError, TransactionEnded
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Message, SysFlag
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.headers import EndTransaction
from sparrowmq.protocol.wire.header import NoFields
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)
# The flag that a broker gets; None is unknown.
ENDS: Final[dict[bool | None, int]] = {True: SysFlag.COMMIT, False: SysFlag.ROLLBACK, None: SysFlag.NOT_TRANSACTION}
_WORDS: Final = {True: "committed", False: "rolled back", None: "left open"}
RESENT_S: Final = 10.0  # a master can hang for a while before its connection ends
ELECTED_S: Final = 10.0
PAUSE_S: Final = 0.5
ANSWER_S: Final = 3.0
_AT_ONCE: Final = 64
_MAX_RECENT_ENDS: Final = 10_000  # ends of one connection


@short_tracebacks
class Transaction:
    """One transaction; enter it with `async with`, once.

    At the end of the block it is committed. An exception rolls it back, and goes on. A cancellation, or the end of the
    program, leaves it open: only the check can then say what the block has done.

    Attributes:
        is_over: it was committed, rolled back or left open.
    """

    def __init__(
        self, topic: str, message: Message, send: Callable[[], Awaitable[SendResult]], ends: TransactionEnds
    ) -> None:
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


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, as it was sent to its broker.

    Attributes:
        commit: None if the end is unknown.
    """

    request: EndTransaction
    broker: str
    tag: str | None
    keys: Sequence[str]
    commit: bool | None


OnEnd: TypeAlias = Callable[[End], object]


class TransactionEnds:
    """Send brokers the ends of one producer group's transactions.

    Args:
        has_check: whether the group in its argument has a check, so that brokers can ask.
    """

    def __init__(
        self,
        group: str,
        brokers: Brokers,
        has_check: Callable[[str], bool],
        home: LoopAffinity,
        retries: EndRetries,
        on_end: OnEnd | None = None,
    ) -> None:
        self.group = group
        self._brokers = brokers
        self._has_check = has_check
        self._on_end = on_end
        self._retries = retries
        self.home = home

    @property
    def has_check(self) -> bool:
        return self._has_check(self.group)

    async def tell(self, topic: str, message: Message, half: SendResult, commit: bool | None) -> None:
        """Send the end to the broker that has the half message. A broker that cannot be reached asks later."""
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
                self._retries.tell(session, broker_name, request)
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
                self._retries.resend_later(broker_name, [request])


class EndRetries:
    """The recent ends of one producer group, and those that wait for a master."""

    def __init__(self, brokers: Brokers, clock: Clock, spawn: Spawn) -> None:
        self._brokers = brokers
        self._clock = clock
        self._spawn = spawn
        # The recent ends by connection, once its broker has answered as a master.
        self._recent: dict[Session, deque[tuple[float, str, EndTransaction]]] = {}
        self._waiting: dict[str, list[EndTransaction]] = {}  # the ends to send again, by broker; each broker has a task

    def tell(self, session: Session, broker_name: str, request: EndTransaction) -> None:
        """Send an end: one-way if the broker has answered as a master, else with an answer."""
        if not self._brokers.takes_reasons(session):  # Apache's
            session.tell(request)
            return
        recent = self._recent.get(session)
        if recent is None:
            answered = partial(self._answered, session, broker_name, request)
            session.ask(request, b"", answered, timeout_s=ANSWER_S)
            return
        session.tell(request)
        now = self._clock.monotonic()
        while recent and now - recent[0][0] >= RESENT_S:
            recent.popleft()
        recent.append((now, broker_name, request))

    def resend_later(self, broker_name: str, requests: Sequence[EndTransaction]) -> None:
        """Send ends in a task, as soon as the broker name has a master."""
        waiting = self._waiting.get(broker_name)
        if waiting is not None:
            waiting += requests
            return
        self._waiting[broker_name] = list(requests)
        try:
            self._spawn(self._send_waiting(broker_name), f"ends of {broker_name}")
        except ClientClosed:
            del self._waiting[broker_name]

    def _answered(
        self,
        session: Session,
        broker_name: str,
        request: EndTransaction,
        answer: Response[NoFields] | None,
        error: Exception | None,
    ) -> None:
        if error is not None and _is_lost(error):
            self.resend_later(broker_name, [request])
        else:
            self._note_master(session)

    def _connection_ended(self, session: Session) -> None:
        for at, broker_name, request in self._recent.pop(session, ()):
            if self._clock.age(at) < RESENT_S:
                self.resend_later(broker_name, [request])

    async def _send_waiting(self, broker_name: str) -> None:
        begun = self._clock.monotonic()
        try:
            while (left := self._waiting[broker_name]) and self._clock.age(begun) < ELECTED_S:
                with suppress(SparrowError):
                    session = await self._brokers.of(broker_name)
                    if not self._brokers.takes_reasons(session):
                        break
                    sent = list(left)
                    failed = await self._send_all(session, sent)
                    left[: len(sent)] = failed
                    if not failed:
                        self._note_master(session)
                        begun = self._clock.monotonic()
                        continue
                await self._clock.sleep(PAUSE_S)
        finally:
            left = self._waiting.pop(broker_name)
        if left:
            log.warning("cannot send %d ends of transactions to %s, which asks later", len(left), broker_name)

    def _note_master(self, session: Session) -> None:
        if session not in self._recent and not session.closed:
            self._recent[session] = deque(maxlen=_MAX_RECENT_ENDS)
            session.on_end(self._connection_ended)

    async def _send_all(self, session: Session, left: list[EndTransaction]) -> list[EndTransaction]:
        """Send ends with answers; return the ends that no master has."""
        waiting, failed = iter(left), list[EndTransaction]()
        while some := list(islice(waiting, _AT_ONCE)):
            calls = [session.call(each, timeout_s=ANSWER_S) for each in some]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            for each, answer in zip(some, answers, strict=True):
                if isinstance(answer, BaseException) and _is_lost(answer):
                    failed.append(each)
        return failed


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, RemoteError):
        return error.is_slaves or error.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    return isinstance(error, NetworkError)
