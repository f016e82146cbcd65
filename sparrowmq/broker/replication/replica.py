"""The slave's side of replication: find the master, follow its log, come back when the connection is lost.

    no master known ── haMasterAddress, or the name server's answer to our registration ── connect ── follow
          ^                                                                                  |         |
          |             five seconds                                                         |         |
          +──────────────────────────────────────── unreachable, silent, a full disk <───────+─────────+
                                                     logs differ: an alarm, and never again with this master; in a
                                                     group that elects, again after a while

The store shows the copied log to queues and index like appended messages, and clients read it from there. The slave
reports its end of the log after each piece and every haSendHeartbeatInterval. It leaves a master that is silent for
haHousekeepingInterval. It checks each message: the record is whole, at its place, and its CRCs are right.

The slave does not cut its log here, because that log may have acknowledged messages. If the slave has more bytes than
its master, or others, it stops following and logs the steps to take. Where the master is elected, a proof shows the
common part of both logs, and the log was cut to that part before (store/truncation.py).
Source: HAClient, Java 4.9.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final

from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.replication.upstream import Upstream
from sparrowmq.errors import BrokerUnreachable, LogsDiffer, NetworkError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import MASTER_NOT_FOLLOWED
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.requests.bodies import FollowingState, HaStatus
from sparrowmq.remoting.tls_errors import why_not
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_ENDED: Final = "it ended the connection: it was stopped, or its log says why"
_SAID_NOTHING: Final = "it ended the connection before it said anything: its log says why, or it wants a haSecret"
PAUSE_S: Final = 5.0
COMPARE_AGAIN_S: Final = 10.0
CONNECT_S: Final = 5.0


@dataclass(frozen=True)
class ReplicaRules:
    """The rules by which a slave follows, with the names of settings in brackets.

    Attributes:
        master: the address to follow, instead of that from name servers (haMasterAddress).
        report_s: the time between two reports (haSendHeartbeatInterval).
        silence_s: the slave leaves a master that is silent for this long (haHousekeepingInterval).
        is_flushed_first: whether it reports only what is on disk (slaveAck=flushed).
        secret: the secret that both sides know (haSecret).
        introduction: the bytes by which a member introduces itself to an elected master.
        pause_s: the pause after a connection that ended, instead of PAUSE_S.
        tls: encrypts the connection (tls.enable, tls.client.*).
    """

    master: str | None = None
    report_s: float = 5.0
    silence_s: float = 20.0
    is_flushed_first: bool = False
    secret: str | None = field(default=None, repr=False)
    introduction: bytes = b""
    pause_s: float | None = None
    tls: SSLContext | None = field(default=None, repr=False)


class Replica:
    """Follow a master while the broker runs.

    Attributes:
        link: the connection to the master, if there is one.
        alarm: the reason why the master is not followed any more.
        trusts_master: whether the log of the master at this address was equal to ours, without a difference since.
        on_trust: called when the logs were found equal.
        on_lost: called each time there is no master to follow; a name server may know a new address.
        shown: the offset up to which consumers may read, as an elected master has said it; 0 if it has not.
        on_shown: called when `shown` has risen.
    """

    def __init__(self, store: MessageStore, clock: Clock, rules: ReplicaRules, figures: Figures) -> None:
        self.link: Upstream | None = None
        self.alarm: SparrowError | None = None
        self.trusts_master = False
        self.on_trust: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None
        self.shown = 0
        self.on_shown: Callable[[], object] = lambda: None
        self._store = store
        self._clock = clock
        self._rules = rules
        self._address = rules.master
        self._is_stopped = False
        self._changed = asyncio.Event()
        self._logged = ""
        self._differed_at = 0.0
        self._why_ended = ""
        self._speed = 0  # bytes in each second between the last two looks
        self._seen = clock.monotonic(), 0.0
        self._copied_bytes = figures.counter("sparrowmq_replicated_bytes_total", "bytes copied from the master")
        figures.gauge("sparrowmq_follows_master", "1 while connected to a master", lambda: int(self.is_following))
        figures.gauge("sparrowmq_master_ahead_bytes", "bytes that the slave lacks", self._behind)
        figures.gauge("sparrowmq_logs_differ", "1 if the master's log differs", lambda: int(self.alarm is not None))

    def part(self) -> Part:
        return Part(tasks=(Task("replica", self.run),), probes=((MASTER_NOT_FOLLOWED, lambda: self.problem),))

    def status(self) -> HaStatus:
        """Return how this slave follows its master."""
        following = FollowingState(self._address, self._speed, self._store.end)
        if self.link is not None:
            following.last_read_timestamp = self._ms_of(self.link.last_heard)
            following.last_write_timestamp = self._ms_of(self.link.last_reported)
            following.master_flush_offset = self.link.master_end
        return HaStatus(ha_client_runtime_info=following)

    def _ms_of(self, moment: float) -> int:
        return self._clock.now_ms() - round(1000 * (self._clock.monotonic() - moment))

    @property
    def is_following(self) -> bool:
        """Whether there is a connection to a master that has everything in our log."""
        return self.link is not None and self.link.is_following

    @property
    def problem(self) -> str:
        """The reason why no master is followed now; "" if one is, or if none is known."""
        if self.is_following or self._is_stopped:
            return ""
        return str(self.alarm) if self.alarm is not None else self._logged

    def use(self, address: str) -> None:
        """Follow the master at an address from a name server; ignored if haMasterAddress is set."""
        if self._rules.master is None and not self._is_stopped and address and address != self._address:
            log.info("the master ships its log at %s", address)
            self._address = address
            self.trusts_master = False
            self._changed.set()
            if self.link is not None:
                self.link.close()

    def refuse(self, problem: SparrowError) -> None:
        """Follow this master no more, for a problem that only an operator can solve."""
        log.critical("the master is not followed: %s", problem)
        self.alarm, self.trusts_master = problem, False
        if self.link is not None:
            self.link.close(problem)

    def stop(self) -> None:
        """Take nothing more from any master; the end of our log stays as it is."""
        self._address, self._is_stopped = None, True
        if self.link is not None:
            self.link.close()

    async def run(self) -> None:
        """Follow the master until cancelled."""
        while True:
            self._changed.clear()
            address, error = self._address, None
            if address and (self.alarm is None or self._may_compare_again()):
                error = await self._follow(address)
                self._note(address, error)
            self.on_lost()
            with suppress(TimeoutError):
                await self._clock.wait_for(self._changed.wait(), self._rules.pause_s or PAUSE_S)
            if self._changed.is_set():
                self.alarm = None

    def _may_compare_again(self) -> bool:
        """Whether the logs may be equal by now: an elected master may have repaired its log."""
        is_due = self._clock.age(self._differed_at) >= COMPARE_AGAIN_S
        return isinstance(self.alarm, LogsDiffer) and bool(self._rules.introduction) and is_due

    async def _follow(self, address: str) -> SparrowError | None:
        """Follow until the connection ends; return the reason."""
        try:
            link = await self._connect(address)
        except NetworkError as error:
            return error
        self.link = link
        if self._is_stopped:
            link.close()
        try:
            while not link.ended.is_set():
                with suppress(TimeoutError):
                    await self._clock.wait_for(link.ended.wait(), self._rules.report_s / 4)
                self._look(link)
        finally:
            link.close()
            self.link = None
        self._why_ended = _ENDED if link.has_heard else _SAID_NOTHING
        return link.error

    async def _connect(self, address: str) -> Upstream:
        """Raises: NetworkError."""
        rules = self._rules
        try:
            host, port = split_address(address)
            _, link = await self._clock.wait_for(
                asyncio.get_running_loop().create_connection(
                    lambda: Upstream(
                        self._store,
                        self._clock,
                        secret=rules.secret,
                        is_flushed_first=rules.is_flushed_first,
                        introduction=rules.introduction,
                        took=self._took,
                        follows=self._follows,
                        showed=self._showed,
                    ),
                    host,
                    port,
                    ssl=rules.tls,
                ),
                CONNECT_S,
            )
        except (SparrowError, OSError, UnicodeError) as error:
            if rules.tls is not None and isinstance(error, OSError):
                reason: object = why_not(error)
            else:
                reason = getattr(error, "strerror", None) or str(error)
            reason = reason or f"no answer within {CONNECT_S:g} s"
            raise BrokerUnreachable(address, reason) from error
        return link

    def _look(self, link: Upstream) -> None:
        """Send a heartbeat if it is due, and leave a master that is silent."""
        now = self._clock.monotonic()
        before, taken = self._seen
        if now > before:
            self._speed = int((self._copied_bytes.value - taken) / (now - before))
            self._seen = now, self._copied_bytes.value
        if self._clock.age(link.last_heard) > self._rules.silence_s:
            link.close(NetworkError(f"it said nothing for {self._rules.silence_s:g} s"))
        elif now - link.last_reported >= self._rules.report_s:
            link.report()

    def _follows(self) -> None:
        self.trusts_master, self.alarm = True, None
        self.on_trust()

    def _showed(self, offset: int) -> None:
        if offset > self.shown:
            self.shown = offset
            self.on_shown()

    def _took(self, count: int) -> None:
        self._copied_bytes.value += count
        self._logged = ""

    def _behind(self) -> int:
        return max(self.link.master_end - self._store.end, 0) if self.link is not None else 0

    def _note(self, address: str, error: SparrowError | None) -> None:
        """Log once why the master is not followed now, or raise the alarm if it will not be followed again."""
        if isinstance(error, LogsDiffer):
            is_known, self._differed_at = self.alarm is not None, self._clock.monotonic()
            self.alarm, self.trusts_master = error, False
            if is_known:
                return
            log.critical(
                "the master at %s is not followed any more, and nothing is thrown away: %s. If the master is right, "
                "move the store of this slave away (it may hold messages that exist nowhere else) and start it again, "
                "empty; if this one is right, stop the master and let this one take its place "
                "(docs/operate/replication.md)",
                *(address, error),
            )
            return
        text = str(error) if error is not None else self._why_ended
        if self.alarm is None and text != self._logged:
            self._logged = text
            log.warning("the master at %s is not followed now, trying again and again: %s", address, text)
