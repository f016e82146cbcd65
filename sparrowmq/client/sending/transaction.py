"""A transaction: consumers see its message only if the block around it ends without an exception.

    async with mq.transaction("orders", b"paid", tag="paid") as transaction:   # a half message is stored now
        await database.commit(transaction.msg_id)                            # commit at the end, rollback if it raises

The client sends the end one-way, as in Java. If the broker does not get it, it asks the group's check after
`transactionCheckInterval` (60 s). So while our brokers elect another master, the client sends the end again:

    first end of a connection    a request with an answer: a former master would drop a one-way end silently
    later ends                   one-way, as in Java
    the connection ends          the ends of the last 10 s are sent again, for 10 s, until a master has them
    no connection                the end is sent for 10 s, until a master has it

A SparrowMQ broker ignores a repeated end. Apache's would store the message again, so it gets each end once, one-way.
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
END_FLAGS: Final[dict[bool | None, int]] = {
    True: SysFlag.COMMIT,
    False: SysFlag.ROLLBACK,
    None: SysFlag.NOT_TRANSACTION,
}
_END_WORDS: Final = {True: "committed", False: "rolled back", None: "left open"}
RESEND_WINDOW_S: Final = 10.0  # a master can hang for a while before its connection ends
ELECTION_LIMIT_S: Final = 10.0
PAUSE_S: Final = 0.5
ANSWER_S: Final = 3.0
_ENDS_AT_ONCE: Final = 64
_MAX_RECENT_ENDS: Final = 10_000  # ends of one connection


@short_tracebacks
class Transaction:
    """One transaction; enter it with `async with`, once. `is_over` says that it was committed, rolled back or left
    open.

    At the end of the block it is committed. An exception rolls it back, and goes on. A cancellation, or the end of the
    program, leaves it open: only the check can then say what the block has done.
    """

    def __init__(
        self, topic: str, message: Message, send: Callable[[], Awaitable[SendResult]], transaction_ends: TransactionEnds
    ) -> None:
        self._topic = topic
        self._message = message
        self._send = send
        self._transaction_ends = transaction_ends
        self._half_result: SendResult | None = None
        self.is_over = False
        self._commit: bool | None = None

    @property
    def result(self) -> SendResult:
        """The result of the half message, with its offset in the half topic. Raises: TransactionEnded, not entered."""
        if self._half_result is None:
            raise TransactionEnded("the transaction has not begun; enter it with `async with`")
        return self._half_result

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
        """Send the half message. Raises: SendFailed, it is not stored, or so unsafely that it is rolled back."""
        if self._half_result is not None:
            raise TransactionEnded("a transaction is entered once; begin another one")
        half = self._half_result = await self._send()
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
        self._transaction_ends.loop_affinity.check()
        if self.is_over:
            if self._commit is not commit:
                raise TransactionEnded(f"the transaction {half.msg_id} is {_END_WORDS[self._commit]} already")
            return
        self.is_over, self._commit = True, commit
        await self._transaction_ends.send_end(self._topic, self._message, half, commit)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, as it was sent to its broker. `commit` is None if the end is unknown."""

    request: EndTransaction
    broker: str
    tag: str | None
    keys: Sequence[str]
    commit: bool | None


OnEnd: TypeAlias = Callable[[End], object]


class TransactionEnds:
    """Sends brokers the ends of one producer group's transactions."""

    def __init__(
        self,
        group: str,
        brokers: Brokers,
        has_check: Callable[[str], bool],
        loop_affinity: LoopAffinity,
        retries: EndRetries,
        on_end: OnEnd | None = None,
    ) -> None:
        self.group = group
        self._brokers = brokers
        self._has_check = has_check
        self._on_end = on_end
        self._retries = retries
        self.loop_affinity = loop_affinity

    @property
    def has_check(self) -> bool:
        return self._has_check(self.group)

    async def send_end(self, topic: str, message: Message, half: SendResult, commit: bool | None) -> None:
        """Send the end to the broker that has the half message. A broker that cannot be reached asks later."""
        request = EndTransaction(
            producer_group=self.group,
            tran_state_table_offset=half.offset,
            commit_log_offset=parse_offset_id(half.offset_msg_id).physical_offset,
            commit_or_rollback=END_FLAGS[commit],
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
                self._retries.send_end(session, broker_name, request)
            if self._on_end is not None:
                self._on_end(End(request, session.address, message.tag, message.keys, commit))
        except NetworkError as error:
            log.warning(
                "%s does not get the message that %s is %s, and asks later: %s",
                half.queue,
                half.msg_id,
                _END_WORDS[commit],
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
        self._recent_ends: dict[Session, deque[tuple[float, str, EndTransaction]]] = {}
        self._waiting_ends: dict[
            str, list[EndTransaction]
        ] = {}  # the ends to send again, by broker; each broker has a task

    def send_end(self, session: Session, broker_name: str, request: EndTransaction) -> None:
        """Send an end: one-way if the broker has answered as a master, else with an answer."""
        if not self._brokers.takes_reasons(session):  # Apache's
            session.tell(request)
            return
        recent = self._recent_ends.get(session)
        if recent is None:
            on_answer = partial(self._on_answer, session, broker_name, request)
            session.ask(request, b"", on_answer, timeout_s=ANSWER_S)
            return
        session.tell(request)
        now = self._clock.monotonic()
        while recent and now - recent[0][0] >= RESEND_WINDOW_S:
            recent.popleft()
        recent.append((now, broker_name, request))

    def resend_later(self, broker_name: str, requests: Sequence[EndTransaction]) -> None:
        """Send ends in a task, as soon as the broker name has a master."""
        waiting_ends = self._waiting_ends.get(broker_name)
        if waiting_ends is not None:
            waiting_ends += requests
            return
        self._waiting_ends[broker_name] = list(requests)
        try:
            self._spawn(self._send_waiting(broker_name), f"ends of {broker_name}")
        except ClientClosed:
            del self._waiting_ends[broker_name]

    def _on_answer(
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

    def _on_connection_end(self, session: Session) -> None:
        for sent_at, broker_name, request in self._recent_ends.pop(session, ()):
            if self._clock.age(sent_at) < RESEND_WINDOW_S:
                self.resend_later(broker_name, [request])

    async def _send_waiting(self, broker_name: str) -> None:
        began_at = self._clock.monotonic()
        try:
            while (unsent := self._waiting_ends[broker_name]) and self._clock.age(began_at) < ELECTION_LIMIT_S:
                with suppress(SparrowError):
                    session = await self._brokers.of(broker_name)
                    if not self._brokers.takes_reasons(session):
                        break
                    sent = list(unsent)
                    failed = await self._send_all(session, sent)
                    unsent[: len(sent)] = failed
                    if not failed:
                        self._note_master(session)
                        began_at = self._clock.monotonic()
                        continue
                await self._clock.sleep(PAUSE_S)
        finally:
            unsent = self._waiting_ends.pop(broker_name)
        if unsent:
            log.warning("cannot send %d ends of transactions to %s, which asks later", len(unsent), broker_name)

    def _note_master(self, session: Session) -> None:
        if session not in self._recent_ends and not session.closed:
            self._recent_ends[session] = deque(maxlen=_MAX_RECENT_ENDS)
            session.on_end(self._on_connection_end)

    async def _send_all(self, session: Session, ends: list[EndTransaction]) -> list[EndTransaction]:
        """Send ends with answers; return the ends that no master has."""
        remaining, failed = iter(ends), list[EndTransaction]()
        while portion := list(islice(remaining, _ENDS_AT_ONCE)):
            calls = [session.call(end, timeout_s=ANSWER_S) for end in portion]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            for end, answer in zip(portion, answers, strict=True):
                if isinstance(answer, BaseException) and _is_lost(answer):
                    failed.append(end)
        return failed


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, RemoteError):
        return error.is_slaves or error.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    return isinstance(error, NetworkError)
