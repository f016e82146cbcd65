"""Publishes committed batches: their messages go from the staging topic to their queues, some at a time.

    batch 7 of a writer    piece  piece  piece    each is a record that holds messages for one queue
                           └─ open: some of its messages are in their queue
                    then   "done"                 a start does not publish the batch again

The oldest batch goes first. A damaged piece stops its batch and the later ones of its writer, and is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from sparrowmq.broker.batches import PART, PART_OF_ENTRIES, pieces
from sparrowmq.broker.later.delivery import LONGEST_WAIT_S, Alarms
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.staging.writers import GONE, OpenPiece, Piece, Publication, Source
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import CorruptRecord, DiskFull, InvalidMessage, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import in_turns
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_DISK_FULL_PAUSE_S: Final = 10.0


class Publishing:
    """Publishes the committed batches of one broker.

    Args:
        done: stores the "done" record of a batch. Raises: StoreFailed, DiskFull.
    Attributes:
        pending: the batches that are not published yet, the oldest first.
    """

    def __init__(
        self,
        store: MessageStore,
        writer: Writer,
        clock: Clock,
        figures: Figures,
        done: Callable[[Source], object],
    ) -> None:
        self.pending: deque[Publication] = deque()
        self._store = store
        self._writer = writer
        self._clock = clock
        self._done = done
        self._wake = asyncio.Event()
        self._alarms = Alarms()
        self._published = figures.counter("sparrowmq_staged_published_total", "messages published")
        figures.gauge("sparrowmq_batches_publishing", "batches being published", lambda: len(self.pending))

    def begin(self, publication: Publication) -> None:
        """Publish a batch after those before it."""
        self.pending.append(publication)
        self._wake.set()

    def end(self, source: Source) -> None:
        """Leave out a batch that is published already, by the log at a start."""
        self.pending = deque(each for each in self.pending if each.source != source)

    async def run(self) -> None:
        """Publish committed batches as long as the broker runs."""
        while True:
            self._wake.clear()
            try:
                await in_turns(self.publish_some)
            except DiskFull as error:
                log.warning("committed batches wait: %s", error)
                await self._clock.sleep(_DISK_FULL_PAUSE_S)
                continue
            with suppress(TimeoutError):
                await self._clock.wait_for(self._wake.wait(), LONGEST_WAIT_S)

    def publish_some(self) -> bool:
        """Publish some messages of the oldest committed batch, or store its "done". Returns False if there is none.

        Raises: StoreFailed, DiskFull, the batch is not published yet.
        """
        publication = self._next()
        if publication is None:
            return False
        if publication.pieces:
            try:
                is_whole = self._publish(publication, publication.pieces[0])
            except CorruptRecord as bad:
                self._alarms.tell(str(publication.source), bad)
                publication.retry_s = self._clock.monotonic() + LONGEST_WAIT_S
                return True
            if is_whole:
                publication.pieces.popleft()
        else:
            self._done(publication.source)
            self.pending.remove(publication)
        return True

    def stored(self, piece: Piece) -> StoredMessage | None:
        """Return the message of a piece; None if it is deleted, or damaged and skipped. Raises: CorruptRecord."""
        raw = None if piece is GONE else self._store.parked_at(piece.offset, piece.size)
        return None if raw is None else record.decode(raw)

    def _next(self) -> Publication | None:
        """Return the oldest batch that need not wait. A damaged batch waits, and later ones of its writer with it."""
        now_s = self._clock.monotonic()
        waiting: set[str] = set()
        for publication in self.pending:
            writer = publication.source.writer
            if writer not in waiting and publication.retry_s <= now_s:
                return publication
            waiting.add(writer)
        return None

    def _publish(self, publication: Publication, piece: Piece) -> bool:
        """Publish some messages of a piece. Returns whether that was all of it."""
        if publication.open_piece is None:
            publication.open_piece = self._opened(publication, piece)
        opened = publication.open_piece
        if opened is not None and opened.left:
            self._publish_part(opened)
        if opened is not None and opened.left:
            return False
        publication.open_piece = None
        return True

    def _opened(self, publication: Publication, piece: Piece) -> OpenPiece | None:
        """Read a piece, without its messages that were published before a restart. Returns None if it is deleted."""
        message = self.stored(piece)
        if message is None:
            if piece.offset < self._store.begin:
                log.error("messages of %s are gone: they were older than fileReservedTime", publication.source)
            return None
        body, skipped = bytes(message.body), publication.skipped
        places = batches.places(body)
        there = min(skipped.get(piece.to, 0), len(places) // batches.PLACE_BYTES)
        skipped[piece.to] = skipped.get(piece.to, 0) - there
        born = message.born_timestamp_ms, hosts.pack(message.born_host)
        shared = Entry(*piece.to, b"", Properties(), *born)
        return OpenPiece(shared, body, places[there * batches.PLACE_BYTES :])

    def _publish_part(self, piece: OpenPiece) -> None:
        part, shared, body = next(pieces(piece.left, PART)), piece.shared, piece.body
        try:
            if self._writer.put_plain(shared, body, part) is None:
                part = next(pieces(part, PART_OF_ENTRIES))
                self._writer.put_batch(batches.entries(shared, body, part))
            self._note_published(piece, len(part))
        # Together they are too long for a file of the log; or one was staged under a shorter name of the cluster.
        except (InvalidMessage, RemoteError):
            for entry in batches.entries(shared, body, part):
                self._put_alone(entry)
                self._note_published(piece, batches.PLACE_BYTES)

    def _note_published(self, piece: OpenPiece, places_bytes: int) -> None:
        piece.left = piece.left[places_bytes:]
        self._published.value += places_bytes // batches.PLACE_BYTES

    def _put_alone(self, entry: Entry) -> None:
        try:
            self._writer.put(entry)
        except (InvalidMessage, RemoteError) as error:
            log.error("a message of a committed batch cannot be stored: %s: %s", entry, shown(error))
