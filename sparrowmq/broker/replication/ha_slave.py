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
its master, or others, it stops following and logs the steps to take. Where the master is elected, the log was cut
before, to the part that is proved to be common (store/truncation.py).

A connection (`MasterLink`) compares received bytes with the slave's log, or appends and reports them:

    our log     ■■■■■■■■■■■■■■|~~~~~~|             the slave asks again for its last part, up to 64 KiB,
    master                    |~~~~~~|■■■■■ ■■     and compares: it follows only a master with the same bytes there
                                     ^ from here on, it appends whole, sound records, and then reports them

Without the comparison, a slave whose log ends inside another log would mix the two, as Java's slaves do. A master that
sends no bytes during the comparison has lost the end of its log, or never had it. Two heartbeats in a row show this,
because the first one may have been sent before. A heartbeat with an offset below ours shows it at once; SparrowMQ
masters send one.
Source: HAClient, Java 4.9.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Final, cast

from sparrowmq.broker.broker_settings import BrokerSettings, SlaveAck
from sparrowmq.broker.part import Part, Task
from sparrowmq.errors import BrokerUnreachable, LogsDiffer, NetworkError, RemoteProtocolError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.watermark import Waiter
from sparrowmq.metrics.condition_kinds import MASTER_NOT_FOLLOWED
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import replication
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.replication import GREETING, HELLO_SIZE, PROOF_SIZE, REPORT, Piece, Transfers, WholeRecords
from sparrowmq.protocol.requests.bodies import FollowingState, HaStatus
from sparrowmq.remoting.connection_errors import why_tls_failed
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_ENDED: Final = "it closed the connection: it was stopped, or see its log"
_ENDED_WITHOUT_REPLY: Final = "it closed the connection without a reply: see its log, or set haSecret here"
PAUSE_S: Final = 5.0
COMPARE_AGAIN_S: Final = 10.0
CONNECT_S: Final = 5.0
COMPARED_BYTES: Final = 64 << 10
_MAX_HEARTBEATS_WITHOUT_BYTES: Final = 2


@dataclass(frozen=True)
class HaSlaveRules:
    """The rules by which a slave follows.

    `master` is the address instead of that from name servers, and `pause_s` counts instead of PAUSE_S. With
    `is_flushed_first` it reports only what is on disk. A member introduces itself to an elected master by
    `introduction`.
    """

    master: str | None = None
    report_s: float = 5.0
    silence_s: float = 20.0
    is_flushed_first: bool = False
    secret: str | None = field(default=None, repr=False)
    introduction: bytes = b""
    pause_s: float | None = None
    tls: SSLContext | None = field(default=None, repr=False)


def ha_slave_rules(settings: BrokerSettings, tls: SSLContext | None) -> HaSlaveRules:
    return HaSlaveRules(
        settings.ha_master,
        settings.ha_heartbeat_ms / 1000,
        settings.ha_silence_ms / 1000,
        settings.slave_ack is SlaveAck.FLUSHED,
        settings.ha_secret or None,
        tls=tls,
    )


class HaSlave:
    """Follow a master while the broker runs.

    `alarm` says why the master is not followed any more. `trusts_master`: its log was equal to ours, without a
    difference since; then `on_trust` is called. `on_lost` is called each time there is no master to follow. Consumers
    may read up to `visible_end`, by an elected master.
    """

    def __init__(self, store: MessageStore, clock: Clock, rules: HaSlaveRules, figures: Figures) -> None:
        self.link: MasterLink | None = None
        self.alarm: SparrowError | None = None
        self.trusts_master = False
        self.on_trust: Callable[[], object] = lambda: None
        self.on_lost: Callable[[], object] = lambda: None
        self.visible_end = 0
        self.on_visible_end: Callable[[], object] = lambda: None
        self._store = store
        self._clock = clock
        self._rules = rules
        self._address = rules.master
        self._is_stopped = False
        self._wake = asyncio.Event()
        self._logged_problem = ""
        self._differed_s = 0.0
        self._end_reason = ""
        self._speed = 0  # bytes in each second between the last two looks
        self._last_speed_sample = clock.monotonic(), 0.0
        self._copied_bytes = figures.counter("sparrowmq_replicated_bytes_total", "bytes copied from the master")
        figures.gauge("sparrowmq_follows_master", "1 while connected to a master", lambda: int(self.is_following))
        figures.gauge("sparrowmq_master_ahead_bytes", "bytes that the slave lacks", self._bytes_behind)
        figures.gauge("sparrowmq_logs_differ", "1 if the master's log differs", lambda: int(self.alarm is not None))

    def part(self) -> Part:
        return Part(tasks=(Task("replica", self.run),), probes=((MASTER_NOT_FOLLOWED, lambda: self.problem),))

    def status(self) -> HaStatus:
        following = FollowingState(self._address, self._speed, self._store.end)
        if self.link is not None:
            following.last_read_timestamp = self._wall_clock_ms(self.link.last_heard)
            following.last_write_timestamp = self._wall_clock_ms(self.link.last_reported)
            following.master_flush_offset = self.link.master_end
        return HaStatus(ha_client_runtime_info=following)

    def _wall_clock_ms(self, moment: float) -> int:
        return self._clock.now_ms() - round(1000 * (self._clock.monotonic() - moment))

    @property
    def is_following(self) -> bool:
        return self.link is not None and self.link.is_following

    @property
    def problem(self) -> str:
        """The reason why no master is followed now; "" if one is, or if none is known."""
        if self.is_following or self._is_stopped:
            return ""
        return str(self.alarm) if self.alarm is not None else self._logged_problem

    def set_master(self, address: str) -> None:
        """Follow the master at an address from a name server; ignored if haMasterAddress is set."""
        if self._rules.master is None and not self._is_stopped and address and address != self._address:
            log.info("the master ships its log at %s", address)
            self._address = address
            self.trusts_master = False
            self._wake.set()
            if self.link is not None:
                self.link.close()

    def refuse(self, problem: SparrowError) -> None:
        log.critical("the master is not followed: %s", problem)
        self.alarm, self.trusts_master = problem, False
        if self.link is not None:
            self.link.close(problem)

    def stop(self) -> None:
        self._address, self._is_stopped = None, True
        if self.link is not None:
            self.link.close()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            address, error = self._address, None
            if address and (self.alarm is None or self._may_compare_again()):
                error = await self._follow(address)
                self._log_end(address, error)
            self.on_lost()
            with suppress(TimeoutError):
                await self._clock.wait_for(self._wake.wait(), self._rules.pause_s or PAUSE_S)
            if self._wake.is_set():
                self.alarm = None

    def _may_compare_again(self) -> bool:
        """Whether the logs may be equal by now: an elected master may have repaired its log."""
        is_due = self._clock.age(self._differed_s) >= COMPARE_AGAIN_S
        return isinstance(self.alarm, LogsDiffer) and bool(self._rules.introduction) and is_due

    async def _follow(self, address: str) -> SparrowError | None:
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
                self._check_link(link)
        finally:
            link.close()
            self.link = None
        self._end_reason = _ENDED if link.has_heard else _ENDED_WITHOUT_REPLY
        return link.error

    async def _connect(self, address: str) -> MasterLink:
        rules = self._rules
        try:
            host, port = split_address(address)
            _, link = await self._clock.wait_for(
                asyncio.get_running_loop().create_connection(
                    lambda: MasterLink(
                        self._store,
                        self._clock,
                        secret=rules.secret,
                        is_flushed_first=rules.is_flushed_first,
                        introduction=rules.introduction,
                        on_appended=self._on_appended,
                        on_match=self._on_match,
                        on_visible=self._on_visible,
                    ),
                    host,
                    port,
                    ssl=rules.tls,
                ),
                CONNECT_S,
            )
        except (SparrowError, OSError, UnicodeError) as error:
            if rules.tls is not None and isinstance(error, OSError):
                reason: object = why_tls_failed(error)
            else:
                reason = getattr(error, "strerror", None) or str(error)
            reason = reason or f"no answer within {CONNECT_S:g} s"
            raise BrokerUnreachable(address, reason) from error
        return link

    def _check_link(self, link: MasterLink) -> None:
        now = self._clock.monotonic()
        sampled_s, sampled_bytes = self._last_speed_sample
        if now > sampled_s:
            self._speed = int((self._copied_bytes.value - sampled_bytes) / (now - sampled_s))
            self._last_speed_sample = now, self._copied_bytes.value
        if self._clock.age(link.last_heard) > self._rules.silence_s:
            link.close(NetworkError(f"it was silent for {self._rules.silence_s:g} s"))
        elif now - link.last_reported >= self._rules.report_s:
            link.report()

    def _on_match(self) -> None:
        self.trusts_master, self.alarm = True, None
        self.on_trust()

    def _on_visible(self, offset: int) -> None:
        if offset > self.visible_end:
            self.visible_end = offset
            self.on_visible_end()

    def _on_appended(self, count: int) -> None:
        self._copied_bytes.value += count
        self._logged_problem = ""

    def _bytes_behind(self) -> int:
        return max(self.link.master_end - self._store.end, 0) if self.link is not None else 0

    def _log_end(self, address: str, error: SparrowError | None) -> None:
        """Log once why the master is not followed now, or raise the alarm if it will not be followed again."""
        if isinstance(error, LogsDiffer):
            was_differing, self._differed_s = self.alarm is not None, self._clock.monotonic()
            self.alarm, self.trusts_master = error, False
            if was_differing:
                return
            log.critical(
                "the master at %s is not followed any more, and nothing is discarded: %s. If the master is right, "
                "move the store of this slave away (it may hold messages that exist nowhere else) and start it again, "
                "empty; if this one is right, stop the master and let this one take its place "
                "(docs/operate/replication.md)",
                *(address, error),
            )
            return
        text = str(error) if error is not None else self._end_reason
        if self.alarm is None and text != self._logged_problem:
            self._logged_problem = text
            log.warning("the master at %s is not followed now; retrying: %s", address, text)


class MasterLink(asyncio.Protocol):
    """One connection to a master.

    `on_visible` gets the newest offset up to which consumers may read; `on_match` says that the master has everything
    in our log. After the `error` `LogsDiffer` another attempt is useless.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        secret: str | None = None,
        is_flushed_first: bool = False,
        introduction: bytes = b"",
        on_appended: Callable[[int], object] = lambda _: None,
        on_match: Callable[[], object] = lambda: None,
        on_visible: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.ended = asyncio.Event()
        self.error: SparrowError | None = None
        self.is_following = False
        self.has_heard = False
        self.master_end = 0
        self._store = store
        self._clock = clock
        self._secret = secret
        self._is_flushed_first = is_flushed_first
        self._introduction = introduction
        self._on_appended = on_appended
        self._on_match = on_match
        self._on_visible = on_visible
        self._transport: asyncio.Transport | None = None
        self._transfers = Transfers()
        self._records: WholeRecords | None = None  # set after the comparison
        self._compared_end = self._comparison_start()
        self._heartbeats_without_bytes = 0  # heartbeats since the last compared byte
        self._waiter: Waiter | None = None
        self._hello = b""
        self._handshake = b""
        self.last_heard = self.last_reported = clock.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not inherit from it
        if self._secret is not None:
            self._hello = replication.hello()
            self._transport.write(self._hello)
        else:
            self._begin()

    def data_received(self, chunk: bytes) -> None:
        self.last_heard, self.has_heard = self._clock.monotonic(), True
        try:
            if self._hello:
                chunk = self._read_handshake(chunk)
            for piece in self._transfers.receive(chunk):
                self._take_piece(piece)
        except SparrowError as error:
            self.close(error)
            return
        if self._records is not None:
            self._report_soon()
            self._on_visible(self._transfers.visible_end)

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def close(self, error: SparrowError | None = None) -> None:
        self.error = self.error or error
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.ended.set()

    def report(self) -> None:
        if self._transport is not None and not self._hello:
            # Every report can count as an acknowledgement, also the first one.
            end = self._reportable(self._compared_end if self._records is None else self._store.end)
            self._transport.write(REPORT.pack(end))
            self.last_reported = self._clock.monotonic()

    def _comparison_start(self) -> int:
        """Return the offset to ask from: a little before our log's end, in the same file, at most `_reportable`."""
        end = self._store.end
        if self._store.log_bytes(end - 1, 1) is None:
            return end  # there is nothing to compare
        file_size = self._store.settings.commit_log_file_size
        start = max((end - 1) // file_size * file_size, end - COMPARED_BYTES)
        return max(self._reportable(start), self._store.begin)

    def _read_handshake(self, chunk: bytes) -> bytes:
        """Check the master's part of the handshake; return the bytes after it. Raises: RemoteProtocolError."""
        self._handshake += chunk
        size = HELLO_SIZE + PROOF_SIZE
        if not self._handshake.startswith(GREETING[: len(self._handshake)]):
            raise RemoteProtocolError("the master shows no secret (Java has none); haSecret is set here")
        if len(self._handshake) < size or self._transport is None:
            return b""
        masters_hello, proof = self._handshake[:HELLO_SIZE], self._handshake[HELLO_SIZE:size]
        secret = self._secret or ""
        if not replication.is_proof(secret, "master", self._hello, masters_hello, proof):
            raise RemoteProtocolError("the master has another haSecret than this slave; both need the same")
        self._transport.write(replication.proof(secret, "slave", self._hello, masters_hello))
        self._hello = b""
        self._begin()
        return self._handshake[size:]

    def _begin(self) -> None:
        if self._introduction and self._transport is not None:
            self._transport.write(self._introduction)
        if self._compared_end == self._store.end and self._store.end > 0:
            self._follow()
        self.report()

    def _reportable(self, offset: int) -> int:
        """Return the offset, or with slaveAck=flushed the end of the bytes on disk if that is lower.

        After a reconnection, a slow sync may leave more bytes off the disk than the comparison covers.
        """
        return min(offset, self._store.flushed.value) if self._is_flushed_first else offset

    def _report_soon(self) -> None:
        end = self._store.end
        if not self._is_flushed_first:
            self.report()
        elif self._waiter is None and self._store.flushed.value < end:
            self._store.flusher.kick()
            self._waiter = self._store.flushed.when(end, self._flushed)

    def _flushed(self, error: BaseException | None) -> None:
        self._waiter = None
        if error is None:
            self.report()
            self._report_soon()

    def _take_piece(self, piece: Piece) -> None:
        expected = self._records.end if self._records is not None else self._compared_end
        offset, content = piece
        if not len(content):
            self._take_heartbeat(offset, expected)
            return
        if self._records is None and not self._store.end and not self._store.begin:
            if offset:
                self._store.begin_at(offset)
            self._compared_end = expected = offset
        if offset != expected:
            raise RemoteProtocolError(f"the master sent offset {offset} of its log instead of {expected}")
        self.master_end = max(self.master_end, offset + len(content))
        if self._records is None:
            content = self._compare(offset, content)
        if self._records is not None and len(content):
            self._append(self._records, content)

    def _take_heartbeat(self, offset: int, expected: int) -> None:
        """Handle a heartbeat, a piece without bytes. Raises: LogsDiffer, the master lacks a part of our log."""
        self.master_end = max(self.master_end, offset)
        if self._records is not None:
            return
        if not self._store.end:
            if offset == 0:
                self._follow()  # both logs are empty
            return
        if offset > self._store.end:
            raise LogsDiffer(
                f"the master's log begins at offset {offset}, and ours ends at {self._store.end}: this slave was away "
                "for longer than messages are kept (fileReservedTime), and lacks what was deleted meanwhile"
            )
        self._heartbeats_without_bytes += 1
        if offset < expected or self._heartbeats_without_bytes >= _MAX_HEARTBEATS_WITHOUT_BYTES:
            raise LogsDiffer(
                f"the master has nothing at offset {expected} of its log, and ours ends at {self._store.end}: it lost "
                "its last messages, or is another broker's"
            )

    def _compare(self, offset: int, content: memoryview) -> memoryview:
        """Compare the master's bytes with ours up to our end; return the bytes after it. Raises: LogsDiffer."""
        size = min(len(content), self._store.end - offset)
        while size and content:
            ours = self._store.log_bytes(self._compared_end, size)
            if ours is None or ours != content[: len(ours)]:
                raise LogsDiffer(f"the master's log differs from ours between {offset} and {offset + size}")
            self._compared_end += len(ours)
            size, content = size - len(ours), content[len(ours) :]
        self._heartbeats_without_bytes = 0
        if self._compared_end == self._store.end:
            self._follow()
        return content

    def _follow(self) -> None:
        self.is_following = True
        self._records = WholeRecords(self._store.end, self._store.settings.commit_log_file_size)
        log.info("following the master from offset %d on: it has everything in our log", self._store.end)
        self._on_match()

    def _append(self, records: WholeRecords, content: memoryview) -> None:
        offset = records.position
        records_bytes = records.take(content)
        if len(records_bytes):
            self._store.follow(offset, records_bytes, records.has_crcs)
            self._on_appended(len(records_bytes))
        if records.problem is not None:
            raise records.problem
