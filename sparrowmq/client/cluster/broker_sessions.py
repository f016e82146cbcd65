"""Sessions to brokers. Each begins with a heartbeat, before it is used.

A broker knows its clients by their heartbeats: without one it refuses a consumer's pull (24, 25) and cannot push.
So a new connection, after a broker's restart too, begins with a heartbeat, and a pull can never overtake it.
After that heartbeats go out every 30 s; a broker forgets a client that was silent for 120 s.

A master that hangs, or is cut off, ends no connection:

    1 s without any answer     routes are asked for each second, because another master may be elected
    it is not the master now   the connection is ended, so that waiting calls can go to the new master at once
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from sparrowmq.client.cluster.routes import MASTER, Routes
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, BrokerUnreachable, NetworkError, NoRoute, RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import V5_0_0
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import HeartBeat
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)

FIRST_HEARTBEAT_S: Final = 1.0
HEARTBEAT_S: Final = 30.0
GOODBYE_S: Final = 1.0  # for the answers of all brokers that a group leaves


class Brokers:
    """Connects to brokers on behalf of one client.

    Args:
        heartbeat: makes the body of a heartbeat; None while there is no producer or consumer.
    Attributes:
        lines: limits the log lines that answers of brokers can cause.
    """

    def __init__(self, pool: Pool, routes: Routes, clock: Clock, heartbeat: Callable[[], bytes | None]) -> None:
        self.lines = LogLimit(clock)
        self._pool = pool
        self._routes = routes
        self._clock = clock
        self._heartbeat = heartbeat
        self._greeted: dict[str, Session] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        # By session: all brokers behind a proxy have the same address.
        self._at_any_time: set[Session] = set()
        self._recognising: set[Session] = set()
        self._take_reasons: set[Session] = set()
        self._denials: dict[Session, AccessDenied] = {}
        self._refusals: dict[Session, str] = {}
        self._differences: set[str] = set()
        self._masters: set[str] = set()
        routes.watch(self._leave_mute)

    def live(self, address: str) -> Session | None:
        """The greeted session to an address, if it is open now."""
        session = self._greeted.get(address)
        return session if session is not None and not session.closed else None

    async def session(self, address: str) -> Session:
        """The session to an address, connected and greeted when there was none.

        Raises: NetworkError, it cannot be connected, or did not answer the greeting.
        """
        if session := self.live(address):
            return session
        async with self._locks.setdefault(address, asyncio.Lock()):
            if session := self.live(address):
                return session
            try:
                session = await self._pool.session(address)
                session.on_end(self._forget)
                await self._greet(session)
            except NetworkError:
                self._routes.doubt()
                raise
            if address in self._greeted:
                self._routes.doubt()  # The broker may have come back as a slave.
            session.on_mute = self._routes.doubt
            self._greeted[address] = session
            return session

    async def of(self, broker_name: str, broker_id: int = MASTER) -> Session:
        """The session to a broker's replica, or to another replica if that is not there.

        Raises: NetworkError, it cannot be connected, or no route names it any more.
        """
        address = self._routes.replica(broker_name, broker_id)
        if address is None:
            self._routes.doubt()
            raise BrokerUnreachable(broker_name, "no route names this broker now")
        return await self.session(address)

    async def having(self, queue: MessageQueue, broker_id: int = MASTER) -> Session:
        """As `of`, for the broker of a queue. The queue may come from a file, so that no route names its broker yet."""
        if self._routes.replica(queue.broker_name, broker_id) is None:
            with suppress(NoRoute):  # The broker may be away for a while.
                await self._routes.of(queue.topic)
        return await self.of(queue.broker_name, broker_id)

    def delivers_at_any_time(self, session: Session) -> bool:
        """Return whether the broker said so in its answer to a heartbeat, or is Apache's of 5.0 or later."""
        return session in self._at_any_time or session.version >= V5_0_0

    def retries_at_any_time(self, session: Session) -> bool:
        """Return whether retries have any delay: at our brokers. Apache's of 5.0 were not tried with retries."""
        return session in self._at_any_time

    def recognises_repeats(self, session: Session) -> bool:
        """Return whether the broker said so: it stores a message once that is sent again after a lost answer."""
        return session in self._recognising

    def takes_reasons(self, session: Session) -> bool:
        """Return whether the broker said so: it puts a reason into a dead letter, and buries a popped message once."""
        return session in self._take_reasons

    def denial(self, session: Session) -> AccessDenied | None:
        """Return the error by which access control refused the last heartbeat, if it did."""
        return self._denials.get(session)

    async def announce(self) -> None:
        """Send a heartbeat to every broker that is known or connected. Missing answers are only logged."""
        addresses = {address for each in self._routes.brokers.values() for address in each.values()}
        addresses |= {address for address in self._greeted if self.live(address)}  # of no topic that is used
        for address in sorted(addresses):
            try:
                session = self.live(address)
                if session is None:
                    await self.session(address)
                else:
                    await self._greet(session)
            except SparrowError as error:
                log.warning("no heartbeat to %s: %s", address, error)

    async def keep_alive(self) -> None:
        """Send heartbeats after 1 s, then every 30 s, until cancelled."""
        delay_s = FIRST_HEARTBEAT_S
        while True:
            await self._clock.sleep(delay_s)
            delay_s = HEARTBEAT_S
            await self.announce()

    async def tell_all(self, request: Request[Any]) -> None:
        """Send a request to every connected broker, and wait for their answers, including errors."""
        sessions = [session for session in self._greeted.values() if not session.closed]
        calls = [session.call(request, timeout_s=GOODBYE_S) for session in sessions]
        # Gathered, because a caller that is cancelled leaves no answer that nothing awaits.
        for session, answer in zip(sessions, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, BaseException):
                log.debug("%s to %s: %s", type(request).__name__, session.address, answer)

    def _forget(self, session: Session) -> None:
        self._at_any_time.discard(session)
        self._recognising.discard(session)
        self._take_reasons.discard(session)
        self._denials.pop(session, None)
        self._refusals.pop(session, None)

    def _leave_mute(self, _topic: str) -> None:
        """End connections to brokers that are no longer masters, and do not say so."""
        before, self._masters = self._masters, set(self._routes.masters)
        for address in before - self._masters:
            session = self.live(address)
            if session is not None and session.is_mute:
                log.warning("%s does not answer, and is the master no more", address)
                session.abort()

    async def _greet(self, session: Session) -> None:
        body = self._heartbeat()
        if body is None:
            return
        self._denials.pop(session, None)
        try:
            reply = await session.call(HeartBeat(), body)
            for known, is_said in (
                (self._at_any_time, reply.header.timer_max_delay_sec),
                (self._recognising, reply.header.repeat_window_ms),
                (self._take_reasons, reply.header.takes_reasons),
            ):
                known.add(session) if is_said else known.discard(session)
            self._refusals.pop(session, None)
            self._log_differences(reply.header.difference or "")
        except RemoteError as error:
            # The broker may still take our sends. Calls that need the heartbeat have an error of their own.
            self._log_refusal(session, error)
            if isinstance(error, AccessDenied):
                self._denials[session] = error

    def _log_differences(self, text: str) -> None:
        """Log once that other members of a group want something else. Each of our brokers says so at each heartbeat."""
        for difference in set(text.splitlines()) - self._differences:
            self._differences.add(difference)
            log.warning("%s", shown(difference))

    def _log_refusal(self, session: Session, error: RemoteError) -> None:
        """Log a refusal once. A consumer of a group that does not exist sends heartbeats every second."""
        refusal = str(error)
        level = logging.DEBUG if self._refusals.get(session) == refusal else logging.WARNING
        self._refusals[session] = refusal
        log.log(level, "%s refused our heartbeat: %s", session.address, refusal)
