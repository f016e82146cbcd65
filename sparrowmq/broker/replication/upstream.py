"""The slave's connection to its master: it compares received bytes with the slave's log, or appends and reports them.

    our log     ■■■■■■■■■■■■■■|~~~~~~|             the slave asks again for its last part, up to 64 KiB,
    master                    |~~~~~~|■■■■■ ■■     and compares: it follows only a master with the same bytes there
                                     ^ from here on, it appends whole, sound records, and then reports them

Without the comparison, a slave whose log ends inside another log would mix the two, as Java's slaves do. It works with
a Java master too, which sees a slave that lacks a little more.

A master that sends no bytes during the comparison has lost the end of its log, or never had it. Two heartbeats in a row
show this, because the first one may have been sent before. A heartbeat with an offset below ours shows it at once;
SparrowMQ masters send one.
Source: HAClient, Java 4.9.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast

from sparrowmq.errors import LogsDiffer, RemoteProtocolError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.watermark import Waiter
from sparrowmq.protocol import replication
from sparrowmq.protocol.replication import (
    GREETING,
    HELLO_SIZE,
    PROOF_SIZE,
    REPORT,
    Piece,
    Transfers,
    WholeRecords,
)
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

COMPARED_BYTES: Final = 64 << 10
_LAST_HEARTBEATS: Final = 2


class Upstream(asyncio.Protocol):
    """One connection to a master.

    Args:
        secret: the secret that both sides must know; None for a master without one.
        is_flushed_first: whether only bytes on disk are reported (slaveAck=flushed).
        introduction: the bytes that a member sends before its first report to an elected master.
        took: called with the number of bytes that were appended.
        follows: called when the master is found to have everything in our log.
        showed: called with the newest offset from the master up to which consumers may read.
    Attributes:
        ended: set when the connection is over.
        error: the reason why this side ended the connection. After `LogsDiffer` another attempt is useless.
        is_following: whether the master is found to have everything in our log.
        master_end: the known end of the master's log.
        has_heard: whether the master has sent anything.
    """

    def __init__(
        self,
        store: MessageStore,
        clock: Clock,
        *,
        secret: str | None = None,
        is_flushed_first: bool = False,
        introduction: bytes = b"",
        took: Callable[[int], object] = lambda _: None,
        follows: Callable[[], object] = lambda: None,
        showed: Callable[[int], object] = lambda _: None,
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
        self._took = took
        self._follows = follows
        self._showed = showed
        self._transport: asyncio.Transport | None = None
        self._transfers = Transfers()
        self._whole: WholeRecords | None = None  # set after the comparison
        self._compared = self._start()
        self._heartbeats = 0  # heartbeats since the last compared byte
        self._waiter: Waiter | None = None
        self._hello = b""
        self._handshake = b""
        self.last_heard = self.last_reported = clock.monotonic()

    # Events of asyncio ----------------------------------------------------------------------------------------------

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
                chunk = self._introduced(chunk)
            for piece in self._transfers.receive(chunk):
                self._take(piece)
        except SparrowError as error:
            self.close(error)
            return
        if self._whole is not None:
            self._report_soon()
            self._showed(self._transfers.shown)

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    # Calls of the owner ---------------------------------------------------------------------------------------------

    def close(self, error: SparrowError | None = None) -> None:
        """End the connection. `error`: the reason."""
        self.error = self.error or error
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.ended.set()

    def report(self) -> None:
        """Report the end of our log; this is also a heartbeat."""
        if self._transport is not None and not self._hello:
            self._transport.write(REPORT.pack(self._safe_end()))
            self.last_reported = self._clock.monotonic()

    # Internal -------------------------------------------------------------------------------------------------------

    def _start(self) -> int:
        """Return the offset to ask from: a little before our log's end, in the same file, and not above `_safe`."""
        end = self._store.end
        if self._store.log_bytes(end - 1, 1) is None:
            return end  # there is nothing to compare
        file_size = self._store.settings.commit_log_file_size
        start = max((end - 1) // file_size * file_size, end - COMPARED_BYTES)
        return max(self._safe(start), self._store.begin)

    def _introduced(self, chunk: bytes) -> bytes:
        """Check the master's part of the handshake; return the bytes after it. Raises: RemoteProtocolError."""
        self._handshake += chunk
        whole = HELLO_SIZE + PROOF_SIZE
        if not self._handshake.startswith(GREETING[: len(self._handshake)]):
            raise RemoteProtocolError("the master shows no secret (Java has none); haSecret is set here")
        if len(self._handshake) < whole or self._transport is None:
            return b""
        of_master, shown = self._handshake[:HELLO_SIZE], self._handshake[HELLO_SIZE:whole]
        secret = self._secret or ""
        if not replication.is_proof(secret, "master", self._hello, of_master, shown):
            raise RemoteProtocolError("the master has another haSecret than this slave; both need the same")
        self._transport.write(replication.proof(secret, "slave", self._hello, of_master))
        self._hello = b""
        self._begin()
        return self._handshake[whole:]

    def _begin(self) -> None:
        if self._introduction and self._transport is not None:
            self._transport.write(self._introduction)
        if self._compared == self._store.end and self._store.end > 0:
            self._follow()
        self.report()

    def _safe_end(self) -> int:
        """Return the offset to report. Every report can count as an acknowledgement, also the first one."""
        return self._safe(self._compared if self._whole is None else self._store.end)

    def _safe(self, offset: int) -> int:
        """Return the offset, or with slaveAck=flushed the end of the bytes on disk if that is lower.

        After a reconnection, a slow sync may leave more bytes off the disk than the comparison covers.
        """
        return min(offset, self._store.flushed.value) if self._is_flushed_first else offset

    def _report_soon(self) -> None:
        """Report appended bytes: now, or when they are on disk."""
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

    def _take(self, piece: Piece) -> None:
        expected = self._whole.end if self._whole is not None else self._compared
        offset, content = piece
        if not len(content):
            self._take_heartbeat(offset, expected)
            return
        if self._whole is None and not self._store.end and not self._store.begin:
            if offset:
                self._store.begin_at(offset)
            self._compared = expected = offset
        if offset != expected:
            raise RemoteProtocolError(f"the master sent offset {offset} of its log instead of {expected}")
        self.master_end = max(self.master_end, offset + len(content))
        if self._whole is None:
            content = self._compare(offset, content)
        if self._whole is not None and len(content):
            self._append(self._whole, content)

    def _take_heartbeat(self, offset: int, expected: int) -> None:
        """Handle a heartbeat, a piece without bytes. Raises: LogsDiffer, the master lacks a part of our log."""
        self.master_end = max(self.master_end, offset)
        if self._whole is not None:
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
        self._heartbeats += 1
        if offset < expected or self._heartbeats >= _LAST_HEARTBEATS:
            raise LogsDiffer(
                f"the master has nothing at offset {expected} of its log, and ours ends at {self._store.end}: it lost "
                "its last messages, or is another broker's"
            )

    def _compare(self, offset: int, content: memoryview) -> memoryview:
        """Compare the master's bytes with ours up to our end; return the bytes after it. Raises: LogsDiffer."""
        size = min(len(content), self._store.end - offset)
        while size and content:
            ours = self._store.log_bytes(self._compared, size)
            if ours is None or ours != content[: len(ours)]:
                raise LogsDiffer(f"the master has other bytes than we between {offset} and {offset + size}")
            self._compared += len(ours)
            size, content = size - len(ours), content[len(ours) :]
        self._heartbeats = 0
        if self._compared == self._store.end:
            self._follow()
        return content

    def _follow(self) -> None:
        self.is_following = True
        self._whole = WholeRecords(self._store.end, self._store.settings.commit_log_file_size)
        log.info("following the master from offset %d on: it has everything in our log", self._store.end)
        self._follows()

    def _append(self, records: WholeRecords, content: memoryview) -> None:
        """Append all complete records. Raises: CorruptRecord, and as `MessageStore.follow`."""
        offset = records.position
        whole = records.take(content)
        if len(whole):
            self._store.follow(offset, whole, records.has_crcs)
            self._took(len(whole))
        if records.problem is not None:
            raise records.problem
