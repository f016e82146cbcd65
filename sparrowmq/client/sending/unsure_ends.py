"""Sends ends of transactions to brokers of ours so that the next master has them, too, while another one is elected.

    first end of a connection    asked with an answer: a former master would drop the end without a word
    later ends                   one-way, as in Java
    the connection ends          those of the last 10 s are asked again, for 10 s, until a master has them
    no connection                likewise

Without this a committed message would wait for the check of the next master, which comes after
`transactionCheckInterval` (60 s). An end that comes again changes nothing at brokers of ours. At Apache's it would
store the message again, so those get an end once, one-way.
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
from sparrowmq.loop.background import Spawn
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.headers import EndTransaction
from sparrowmq.protocol.wire.header import NoFields
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)

UNSURE_S: Final = 10.0  # a master that hangs ends no connection
ELECTED_S: Final = 10.0
PAUSE_S: Final = 0.5
ANSWER_S: Final = 3.0
_AT_ONCE: Final = 64
_MOST: Final = 10_000  # ends of one connection


class UnsureEnds:
    """The ends that one producer group has lately sent."""

    def __init__(self, brokers: Brokers, clock: Clock, spawn: Spawn) -> None:
        self._brokers = brokers
        self._clock = clock
        self._spawn = spawn
        # By the connections whose brokers have answered an end as masters.
        self._recent: dict[Session, deque[tuple[float, str, EndTransaction]]] = {}
        self._waiting: dict[str, list[EndTransaction]] = {}  # by broker; each has a task

    def tell(self, session: Session, broker_name: str, request: EndTransaction) -> None:
        """Send an end, one-way if the broker is known to be the master."""
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
        """Send ends as soon as the broker has a master."""
        waiting = self._waiting.get(broker_name)
        if waiting is not None:
            waiting += requests
            return
        self._waiting[broker_name] = list(requests)
        try:
            self._spawn(self._send(broker_name), f"ends of {broker_name}")
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
            self._is_master(session)

    def _ended(self, session: Session) -> None:
        for at, broker_name, request in self._recent.pop(session, ()):
            if self._clock.age(at) < UNSURE_S:
                self.later(broker_name, [request])

    async def _send(self, broker_name: str) -> None:
        begun = self._clock.monotonic()
        try:
            while (left := self._waiting[broker_name]) and self._clock.age(begun) < ELECTED_S:
                with suppress(SparrowError):
                    session = await self._brokers.of(broker_name)
                    if not self._brokers.takes_reasons(session):
                        break
                    sent = list(left)
                    failed = await self._some(session, sent)
                    left[: len(sent)] = failed
                    if not failed:
                        self._is_master(session)
                        begun = self._clock.monotonic()
                        continue
                await self._clock.sleep(PAUSE_S)
        finally:
            left = self._waiting.pop(broker_name)
        if left:
            log.warning("%s does not get the ends of %d transactions, and asks later", broker_name, len(left))

    def _is_master(self, session: Session) -> None:
        if session not in self._recent and not session.closed:
            self._recent[session] = deque(maxlen=_MOST)
            session.on_end(self._ended)

    async def _some(self, session: Session, left: list[EndTransaction]) -> list[EndTransaction]:
        """Send ends; return those that no master has."""
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
