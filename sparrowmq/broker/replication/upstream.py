"""The slave's connection to its master: what comes is compared with what is here, or appended, and reported.

    our log     ■■■■■■■■■■■■■■|~~~~~~|             the last part of it, up to 64 KiB, is asked for again
    master                    |~~~~~~|■■■■■ ■■     and compared: only who has the same bytes there is followed
                                     ^ from here on all whole, sound records are appended, and then reported

Without that a slave whose log ends where another log goes on would mix the two, as one of Java's does. It works with a
master of Java's, for which it is a slave that lacks a little more.

A master that has nothing to send where we still compare has lost the end of its log, or never had it: two signs of
life in a row say so (one may have been on its way), or one with an offset before ours, as our own masters send it.
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
_LAST_SIGNS: Final = 2


class Upstream(asyncio.Protocol):
    """One connection to a master.

    Args:
        secret: that both sides must know; None for a master that asks for none.
        is_flushed_first: whether only what is on disk is reported (slaveAck=flushed).
        introduction: what a member says ahead of its first report where the master is elected.
        took: is told of the number of bytes that were appended.
        follows: is told when the master was found to have all that is here.
    Attributes:
        ended: set when the connection is over.
        error: what it ended by, if by us; `LogsDiffer` will be no better the next time.
        is_following: whether the master was found to have all that is here.
        master_end: up to where the master's log is known to be.
        has_heard: whether the master said anything.
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
        self._transport: asyncio.Transport | None = None
        self._transfers = Transfers()
        self._whole: WholeRecords | None = None  # once the comparing is over
        self._compared = self._start()
        self._signs = 0  # of life, since the last byte that was compared
        self._waiter: Waiter | None = None
        self._hello = b""
        self._said = b""
        self.last_heard = self.last_reported = clock.monotonic()

    # What asyncio tells ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not one by its type
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

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    # What the owner asks for ----------------------------------------------------------------------------------------

    def close(self, error: SparrowError | None = None) -> None:
        """Leave the master."""
        self.error = self.error or error
        if self._waiter is not None:
            self._waiter.cancel()
            self._waiter = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.ended.set()

    def report(self) -> None:
        """Say how far the log is here; it is a sign of life, too."""
        if self._transport is not None and not self._hello:
            self._transport.write(REPORT.pack(self._safe_end()))
            self.last_reported = self._clock.monotonic()

    # Inside ---------------------------------------------------------------------------------------------------------

    def _start(self) -> int:
        """From where on to ask: a little before our log's end, in the same file of it."""
        end = self._store.end
        if self._store.log_bytes(end - 1, 1) is None:
            return end  # There is nothing to compare.
        file_size = self._store.settings.commit_log_file_size
        return max((end - 1) // file_size * file_size, end - COMPARED_BYTES, self._store.begin)

    def _introduced(self, chunk: bytes) -> bytes:
        """Take the master's part of the handshake; what it said beyond that. Raises: RemoteProtocolError."""
        self._said += chunk
        whole = HELLO_SIZE + PROOF_SIZE
        if not self._said.startswith(GREETING[: len(self._said)]):
            raise RemoteProtocolError("it shows no secret, as none of Java's can; haSecret is set here")
        if len(self._said) < whole or self._transport is None:
            return b""
        of_master, shown = self._said[:HELLO_SIZE], self._said[HELLO_SIZE:whole]
        secret = self._secret or ""
        if not replication.is_proof(secret, "master", self._hello, of_master, shown):
            raise RemoteProtocolError("its haSecret is another one; both need the same")
        self._transport.write(replication.proof(secret, "slave", self._hello, of_master))
        self._hello = b""
        self._begin()
        return self._said[whole:]

    def _begin(self) -> None:
        if self._introduction and self._transport is not None:
            self._transport.write(self._introduction)
        if self._compared == self._store.end and self._store.end > 0:
            self._follow()
        self.report()

    def _safe_end(self) -> int:
        if self._whole is None:
            return self._compared
        return self._store.flushed.value if self._is_flushed_first else self._store.end

    def _report_soon(self) -> None:
        """Report what was appended: now, or when it is on disk."""
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
            self._take_sign(offset, expected)
            return
        if self._whole is None and not self._store.end and not self._store.begin:
            if offset:
                self._store.begin_at(offset)
            self._compared = expected = offset
        if offset != expected:
            raise RemoteProtocolError(f"the master sends its log from {offset} on where {expected} is next")
        self.master_end = max(self.master_end, offset + len(content))
        if self._whole is None:
            content = self._compare(offset, content)
        if self._whole is not None and len(content):
            self._append(self._whole, content)

    def _take_sign(self, offset: int, expected: int) -> None:
        """The master lives, and has nothing new; so it has to have what is here."""
        self.master_end = max(self.master_end, offset)
        if self._whole is not None:
            return
        if not self._store.end:
            if offset == 0:
                self._follow()  # Neither has anything yet.
            return
        self._signs += 1
        if offset < expected or self._signs >= _LAST_SIGNS:
            raise LogsDiffer(
                f"the master has nothing at offset {expected} of its log, and ours ends at {self._store.end}: it lost "
                "its last messages, or is another broker's"
            )

    def _compare(self, offset: int, content: memoryview) -> memoryview:
        """Compare the master's bytes with ours as far as those go; what is behind them. Raises: LogsDiffer."""
        size = min(len(content), self._store.end - offset)
        ours = self._store.log_bytes(offset, size) if size else memoryview(b"")
        if ours is None or ours != content[: len(ours)]:
            raise LogsDiffer(f"the master has other bytes than we between {offset} and {offset + size}")
        self._compared += len(ours)
        self._signs = 0
        if self._compared == self._store.end:
            self._follow()
        return content[len(ours) :]

    def _follow(self) -> None:
        self.is_following = True
        self._whole = WholeRecords(self._store.end, self._store.settings.commit_log_file_size)
        log.info("the master has all that is here; it is followed from offset %d on", self._store.end)
        self._follows()

    def _append(self, records: WholeRecords, content: memoryview) -> None:
        """Append what is whole now. Raises: CorruptRecord, and as `MessageStore.follow`."""
        offset = records.position
        whole = records.take(content)
        if len(whole):
            self._store.follow(offset, whole)
            self._took(len(whole))
        if records.problem is not None:
            raise records.problem
