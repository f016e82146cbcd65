"""Sends the ends of transactions (commit, rollback), and sends them again while another master is elected.

    first end of a connection    a request with an answer: a former master would drop a one-way end silently
    later ends                   one-way, as in Java
    the connection ends          the ends of the last 10 s are sent again, for 10 s, until a master has them
    no connection                the end is sent for 10 s, until a master has it

Without this, a committed message would wait until the next master checks the transaction, after
`transactionCheckInterval` (60 s). A SparrowMQ broker ignores a repeated end. Apache's would store the message again,
so it gets each end once, one-way.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.errors import ClientClosed, NetworkError, RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.headers import EndTransaction
from sparrowmq.protocol.wire.header import NoFields
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)

UNSURE_S: Final = 10.0  # a master can hang for a while before its connection ends
ELECTED_S: Final = 10.0
PAUSE_S: Final = 0.5
ANSWER_S: Final = 3.0
_AT_ONCE: Final = 64
_MOST: Final = 10_000  # ends of one connection


class UnsureEnds:
    """The recent ends of one producer group, and those that wait for a master."""

    def __init__(self, brokers: Brokers, clock: Clock, spawn: Spawn) -> None:
        self._brokers = brokers
        self._clock = clock
        self._spawn = spawn
        # The recent ends by connection, once its broker has answered as a master.
        self._recent: dict[Session, deque[tuple[float, str, EndTransaction]]] = {}
        self._waiting: dict[str, list[EndTransaction]] = {}  # by broker; each broker has a task

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
        while recent and now - recent[0][0] >= UNSURE_S:
            recent.popleft()
        recent.append((now, broker_name, request))

    def later(self, broker_name: str, requests: Sequence[EndTransaction]) -> None:
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
            self.later(broker_name, [request])
        else:
            self._note_master(session)

    def _ended(self, session: Session) -> None:
        for at, broker_name, request in self._recent.pop(session, ()):
            if self._clock.age(at) < UNSURE_S:
                self.later(broker_name, [request])

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
            self._recent[session] = deque(maxlen=_MOST)
            session.on_end(self._ended)

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
    """Whether the next master may lack the end."""
    if isinstance(error, RemoteError):
        return error.is_slaves or error.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    return isinstance(error, NetworkError)
