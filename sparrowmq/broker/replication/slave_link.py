"""One slave of this master: it reports how much of the log it has, and gets the rest.

    the slave's first report    the log is sent from this offset on; 0 means from the oldest file on
    the log grows               new bytes leave at once, in pieces of haTransferBatchSize, as fast as the slave reads
    a later report              the slave has the log up to this offset
    consumers may read more     the master says so within SHOW_S to a member that has asked

The first report acknowledges nothing: the slave may find afterwards that its log differs from ours.
The master does not send damaged bytes: a slave gets everything before them, and is then disconnected
(store/log/shipping.py). A report beyond the sent bytes is no acknowledgement: such a slave has a log of its own.
Unlike Java, which starts an empty slave at the last file, and accepts any report as an acknowledgement.
Source: HAConnection, Java 4.9.7.

The lag of a slave in seconds is the age of the first record that it lacks (`lag_s`): it shows a disk that hangs or a
slave without connection even if few messages arrive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from sparrowmq.errors import CorruptRecord
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.watermark import Waiter, Watermark
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import replication
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.protocol.replication import (
    GREETING,
    HEAD,
    HELLO_SIZE,
    MEMBER_SIZE,
    NONCE_SIZE,
    PROOF_SIZE,
    VISIBLE_END,
    Reports,
)
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.store.log.shipping import Shipping
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_MAX_BYTES_PER_TURN: Final = 1 << 20  # bytes sent per look at the log at most, so that other connections get their turn
_WRITE_BUFFER_BYTES: Final = 1 << 20  # bytes buffered for a slave that reads slowly
VISIBLE_END_DELAY_S: Final = 0.01


@dataclass(frozen=True)
class ShippingRules:
    """The rules by which a master serves its slaves.

    A slave must know the `secret`; None lets in any slave, and "" none. Slaves of an elected master must name its
    `epoch`.
    """

    batch_bytes: int = 32 << 10
    heartbeat_s: float = 5.0
    silence_s: float = 20.0
    secret: str | None = field(default=None, repr=False)
    epoch: int | None = None


class SlaveLink(asyncio.Protocol):
    """A connection to one slave, which gets the log up to `shipped_end`.

    `on_acknowledgement` is called after the first report, and after each one that acknowledges more. `acked` is None
    until the first report, which a later one confirms. `registered` is its brokerId and its address as a broker, once
    they are known, and `member` its id where the master is elected. It is sent the log from `position` on.
    """

    def __init__(
        self,
        store: MessageStore,
        shipped_end: Watermark,
        clock: Clock,
        rules: ShippingRules,
        on_acknowledgement: Callable[[SlaveLink], None],
        on_end: Callable[[SlaveLink], None],
        visible_end: Callable[[], int] = lambda: 0,
        log_limit: LogLimit | None = None,
    ) -> None:
        self.address = "?"
        self.registered: tuple[int, str] | None = None
        self.acked: int | None = None
        self.is_confirmed = False
        self.member: int | None = None
        self._store = store
        self._shipped_end = shipped_end
        self._clock = clock
        self._shipping = Shipping(store.scrubber)
        self._rules = rules
        self._on_acknowledgement = on_acknowledgement
        self._on_end = on_end
        self._visible_end = visible_end
        self._log_limit = log_limit or LogLimit(clock)
        self._wants_visible_end = False
        self._sent_visible_end = 0
        self._visible_end_timer: asyncio.TimerHandle | None = None
        self._reports = Reports()
        self._transport: asyncio.Transport | None = None
        self._waiter: Waiter | None = None
        self.position = self._sampled_position = 0
        self.speed = 0
        self._last_sample_s = clock.monotonic()
        self._is_paused = False
        self._is_closed = False
        self._has_proved_secret = rules.secret is None
        self._handshake = b""  # received bytes of the handshake
        self._introduction = b""
        self._hello = b""
        self.last_heard = self._last_sent = clock.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not one by its type
        self._transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
        peername = transport.get_extra_info("peername")
        if peername is None or self._is_closed:  # the peer or this side closed it before it began
            self._transport.abort()
            return
        host, port = peername[:2]
        self.address = f"{host}:{port}"

    def encrypted(self, transport: asyncio.Transport) -> None:
        """Write to `transport`, which encrypts for the transport that the connection began with."""
        self._transport = transport
        transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)

    def certified(self, name: str) -> None:
        """Do nothing: haSecret shows that the peer is a slave."""

    def data_received(self, chunk: bytes) -> None:
        self.last_heard = self._clock.monotonic()
        if not self._has_proved_secret:
            chunk = self._read_handshake(chunk)
        if self._has_proved_secret and self._rules.epoch is not None and self.member is None:
            chunk = self._read_introduction(chunk, self._rules.epoch)
        reported = self._reports.receive(chunk) if self._has_proved_secret else None
        if reported is None or self._transport is None:
            return
        if self.acked is None:
            self._begin_shipping(reported)
        elif reported > self.position:
            self.close(f"it says that it has the log up to {reported}, of which it got {self.position}")
        elif reported > self.acked or not self.is_confirmed:
            self.acked, self.is_confirmed = max(reported, self.acked), True
            self._on_acknowledgement(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.send_visible_end_soon()
        self._ship(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if self._visible_end_timer is not None:
            self._visible_end_timer.cancel()
        if self.acked is not None:
            self._log_limit.log(log, logging.INFO, "%s has gone", self.description)
        self._on_end(self)

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def label(self) -> str:
        return self.address if self.registered is None else self.registered[1]

    @property
    def description(self) -> str:
        """The slave as doctor names it, or else its connection."""
        return f"the slave at {self.address}" if self.registered is None else "slave {} at {}".format(*self.registered)

    def check(self) -> None:
        now = self._clock.monotonic()
        if now > self._last_sample_s:
            self.speed = int((self.position - self._sampled_position) / (now - self._last_sample_s))
            self._sampled_position, self._last_sample_s = self.position, now
        if self._clock.age(self.last_heard) > self._rules.silence_s:
            self.close(f"it was silent for {self._rules.silence_s:g} s")
        elif self._is_idle and now - self._last_sent >= self._rules.heartbeat_s:
            self._send_heartbeat()

    def send_visible_end_soon(self) -> None:
        if self._wants_visible_end and self.acked is not None and self._visible_end_timer is None:
            self._visible_end_timer = asyncio.get_running_loop().call_later(VISIBLE_END_DELAY_S, self._send_visible_end)

    def close(self, reason: str | None = None) -> None:
        self._is_closed = True
        if self._transport is not None:
            if reason is not None:
                self._log_end(reason)
            self._transport.abort()
            self._transport = None

    @property
    def _is_idle(self) -> bool:
        """Whether the slave has everything: it waits for new bytes, or the store failed and none will come."""
        return self._waiter is not None or (self.acked is not None and self._shipped_end.error is not None)

    def _read_handshake(self, chunk: bytes) -> bytes:
        self._handshake += chunk
        if self._transport is None:
            return b""
        if not self._hello:
            if not self._rules.secret:
                self.close("haSecret is not set; set the same here and at the slave")
            elif not self._handshake.startswith(GREETING[: len(self._handshake)]):
                self.close("it does not prove that it knows haSecret (Java's slaves cannot)")
            elif len(self._handshake) >= HELLO_SIZE:
                self._hello = replication.hello()
                proof = replication.proof(self._rules.secret or "", "master", self._hello_of_slave, self._hello)
                self._transport.write(self._hello + proof)
        size = HELLO_SIZE + PROOF_SIZE
        if not self._hello or len(self._handshake) < size or self._transport is None:
            return b""
        proof = self._handshake[HELLO_SIZE:size]
        if not replication.is_proof(self._rules.secret or "", "slave", self._hello_of_slave, self._hello, proof):
            self.close("its haSecret differs")
            return b""
        self._has_proved_secret = True
        return self._handshake[size:]

    def _read_introduction(self, chunk: bytes, own_epoch: int) -> bytes:
        self._introduction += chunk
        if not replication.is_introduction(self._introduction):
            self.close("only members can follow an elected master: set enableControllerMode=true there, too")
        if len(self._introduction) < MEMBER_SIZE or self._transport is None:
            return b""
        self.member, epoch, self._wants_visible_end = replication.parse_introduction(self._introduction[:MEMBER_SIZE])
        if epoch != own_epoch:
            self.close(f"it means to follow the master of epoch {epoch}, and this is epoch {own_epoch}")
        return self._introduction[MEMBER_SIZE:]

    @property
    def _hello_of_slave(self) -> bytes:
        return self._handshake[: len(GREETING) + NONCE_SIZE]

    def _begin_shipping(self, reported: int) -> None:
        begin, end = self._store.begin, self._shipped_end.value
        self.acked = self.position = self._sampled_position = reported or begin
        if not begin <= self.position <= end:
            self._refuse(reported, begin, end)
            return
        text = "a slave follows from %s, from offset %d on"
        self._log_limit.log(log, logging.INFO, text, self.address, self.position)
        self._on_acknowledgement(self)
        if self.position == end:
            self._send_heartbeat()  # tells the slave at once that it lacks nothing
        self.send_visible_end_soon()
        self._ship(None)

    def _refuse(self, reported: int, begin: int, end: int) -> None:
        self.acked = None
        if reported > end:
            reason = "it has more than its master, so one of the two lost messages or has others"
            self.position = end
        else:
            reason = "it was away for longer than messages are kept; start it with an empty store"
            self.position = begin
        if self._transport is not None:
            # A SparrowMQ slave understands this heartbeat, and logs the steps to take. A Java slave keeps reconnecting.
            self._send_heartbeat()
            self._transport.close()
            self._transport = None
        text = "the slave at %s asks for the log from offset %d on, which has %d to %d here: %s"
        self._log_limit.log(log, logging.WARNING, text, self.address, reported, begin, end, reason)
        self.close()

    def _ship(self, error: BaseException | None) -> None:
        """Send what the slave lacks, as fast as it reads, then wait for more."""
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if error is not None:
            return  # the store failed, and appends nothing any more
        if self._transport is not None and self._transport.is_closing():
            return
        sent = 0
        while self._transport is not None and self.acked is not None and not self._is_paused:
            missing = self._shipped_end.value - self.position
            if missing <= 0:
                self._waiter = self._shipped_end.when(self.position + 1, self._ship)
                return
            if sent >= _MAX_BYTES_PER_TURN:
                asyncio.get_running_loop().call_soon(self._ship, None)
                return
            size = self._ship_piece(min(missing, self._rules.batch_bytes))
            if not size:
                return
            sent += size

    def _ship_piece(self, size: int) -> int:
        try:
            reachable_size = self._shipping.reach(self.position, size)
            if not reachable_size:
                asyncio.get_running_loop().call_soon(self._ship, None)
                return 0
            piece = self._store.log_bytes(self.position, reachable_size)
        except CorruptRecord as damage:
            self._disconnect_after_sending(
                f"{damage}; no slave gets more until that is repaired, as the line before says"
            )
            return 0
        if piece is None or self._transport is None:
            self.close("it reads so slowly that what it lacks was deleted here; start it with an empty store")
            return 0
        # A copy, because the file may be deleted before the slave has read it.
        self._transport.write(b"".join((HEAD.pack(self.position, len(piece)), piece)))
        self.position += len(piece)
        self._last_sent = self._clock.monotonic()
        return len(piece)

    def _disconnect_after_sending(self, reason: str) -> None:
        if self._transport is not None:
            self._log_end(reason)
            self._transport.close()

    def _log_end(self, reason: str) -> None:
        """Log that the connection is ended. Strangers have a limit of their own, so they hide no line about a slave."""
        text = "%s is disconnected: %s" if self.acked is not None else "%s is disconnected before it follows: %s"
        self._log_limit.log(log, logging.WARNING, text, self.description, reason)

    def _send_visible_end(self) -> None:
        self._visible_end_timer = None
        visible_end = self._visible_end()
        if self._transport is not None and not self._is_paused and visible_end > self._sent_visible_end:
            self._transport.write(HEAD.pack(visible_end, VISIBLE_END))
            self._sent_visible_end = visible_end

    def _send_heartbeat(self) -> None:
        if self._transport is not None:
            self._transport.write(HEAD.pack(self.position, 0))
            self._last_sent = self._clock.monotonic()


def lag_s(store: MessageStore, offset: int, now_ms: int) -> float:
    """Return the age of the record at `offset`, in seconds; 0 after the last record.

    The offset of Apache's slaves may be within a record. They lack that record, but their lag counts from the next one.
    """
    if offset >= store.end:
        return 0.0
    record = store.record_at(max(offset, store.begin))
    if record is None:  # the blank end of a file, or the middle of a record
        size = store.settings.commit_log_file_size
        record = store.record_at((offset // size + 1) * size)
    stored_ms = store.newest_ms if record is None else store_timestamp_ms(record)
    return max(now_ms - stored_ms, 0) / 1000


def declare_lags(store: MessageStore, clock: Clock, figures: Figures) -> None:

    def behind(position: Callable[[], int]) -> Callable[[], float]:
        return lambda: lag_s(store, position(), clock.now_ms())

    figures.gauge(
        "sparrowmq_flush_lag_seconds", "age of the oldest message not on disk", behind(lambda: store.flushed.value)
    )
    figures.gauge(
        "sparrowmq_dispatch_lag_seconds",
        "age of the oldest message not in its queue",
        behind(lambda: store.dispatched.value),
    )
