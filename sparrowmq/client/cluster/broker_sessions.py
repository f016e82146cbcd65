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
GOODBYE_LIMIT_S: Final = 1.0  # for the answers of all brokers that a group leaves


class Brokers:
    """Connects to brokers on behalf of one client. `heartbeat` makes the body of a heartbeat; None while there is no
    producer or consumer. `log_limit` limits the log lines that answers of brokers can cause.
    """

    def __init__(self, pool: Pool, routes: Routes, clock: Clock, heartbeat: Callable[[], bytes | None]) -> None:
        self.log_limit = LogLimit(clock)
        self._pool = pool
        self._routes = routes
        self._clock = clock
        self._heartbeat = heartbeat
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        # By session: a broker that comes back at an address may be another one.
        self._any_delay_sessions: set[Session] = set()
        self._repeat_recognising_sessions: set[Session] = set()
        self._reason_taking_sessions: set[Session] = set()
        self._denials: dict[Session, AccessDenied] = {}
        self._last_refusals: dict[Session, str] = {}
        self._logged_differences: set[str] = set()
        self._masters: set[str] = set()
        routes.watch(self._abort_mute_sessions)

    def open_session(self, address: str) -> Session | None:
        """The greeted session to an address, if it is open now."""
        session = self._sessions.get(address)
        return session if session is not None and not session.closed else None

    async def session(self, address: str) -> Session:
        """The session to an address, connected and greeted when there was none. Raises: NetworkError."""
        if session := self.open_session(address):
            return session
        async with self._locks.setdefault(address, asyncio.Lock()):
            if session := self.open_session(address):
                return session
            try:
                session = await self._pool.session(address)
                session.on_end(self._forget)
                await self._greet(session)
            except NetworkError:
                self._routes.doubt()
                raise
            if address in self._sessions:
                self._routes.doubt()  # The broker may have come back as a slave.
            session.on_mute = self._routes.doubt
            self._sessions[address] = session
            return session

    async def of(self, broker_name: str, broker_id: int = MASTER) -> Session:
        """The session to a broker's replica, or to another one. Raises: NetworkError, also if no route names it any
        more.
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
        return session in self._any_delay_sessions or session.version >= V5_0_0

    def retries_at_any_time(self, session: Session) -> bool:
        """Return whether retries have any delay: at our brokers. Apache's of 5.0 were not tried with retries."""
        return session in self._any_delay_sessions

    def recognises_repeats(self, session: Session) -> bool:
        """Return whether the broker said so: it stores a message once that is sent again after a lost answer."""
        return session in self._repeat_recognising_sessions

    def takes_reasons(self, session: Session) -> bool:
        """Return whether the broker said so: it puts a reason into a dead letter, and buries a popped message once."""
        return session in self._reason_taking_sessions

    def denial(self, session: Session) -> AccessDenied | None:
        """Return the error by which access control refused the last heartbeat, if it did."""
        return self._denials.get(session)

    async def announce(self) -> None:
        """Send a heartbeat to every broker that is known or connected. Missing answers are only logged."""
        addresses = {address for replicas in self._routes.brokers.values() for address in replicas.values()}
        addresses |= {address for address in self._sessions if self.open_session(address)}  # of no topic that is used
        for address in sorted(addresses):
            try:
                session = self.open_session(address)
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
        sessions = [session for session in self._sessions.values() if not session.closed]
        calls = [session.call(request, timeout_s=GOODBYE_LIMIT_S) for session in sessions]
        # Gathered, because a caller that is cancelled leaves no answer that nothing awaits.
        for session, answer in zip(sessions, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, BaseException):
                log.debug("%s to %s: %s", type(request).__name__, session.address, answer)

    def _forget(self, session: Session) -> None:
        self._any_delay_sessions.discard(session)
        self._repeat_recognising_sessions.discard(session)
        self._reason_taking_sessions.discard(session)
        self._denials.pop(session, None)
        self._last_refusals.pop(session, None)

    def _abort_mute_sessions(self, _topic: str) -> None:
        """End connections to brokers that are no longer masters, and do not say so."""
        former_masters, self._masters = self._masters, set(self._routes.masters)
        for address in former_masters - self._masters:
            session = self.open_session(address)
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
            for sessions, value in (
                (self._any_delay_sessions, reply.header.timer_max_delay_sec),
                (self._repeat_recognising_sessions, reply.header.repeat_window_ms),
                (self._reason_taking_sessions, reply.header.takes_reasons),
            ):
                sessions.add(session) if value else sessions.discard(session)
            self._last_refusals.pop(session, None)
            # Each of our brokers says at each heartbeat that other members of a group want something else.
            for difference in set((reply.header.difference or "").splitlines()) - self._logged_differences:
                self._logged_differences.add(difference)
                log.warning("%s", shown(difference))
        except RemoteError as error:
            # The broker may still take our sends. Calls that need the heartbeat have an error of their own. A consumer
            # of a group that does not exist sends heartbeats every second, so a refusal is logged once.
            refusal = str(error)
            level = logging.DEBUG if self._last_refusals.get(session) == refusal else logging.WARNING
            self._last_refusals[session] = refusal
            log.log(level, "%s refused our heartbeat: %s", session.address, refusal)
            if isinstance(error, AccessDenied):
                self._denials[session] = error
