"""Staged batches: messages that are invisible until one request publishes all of them, once. An extension of ours.

    stage  (writer, run, batch, attempt, number)  messages for one queue, stored in rmq_sys_STAGED as one record
    commit (writer, run, batch, [attempts])       one record decides; the attempts' messages go to their queues,
                                                  then a "done" record
    commit again, or stage, of that batch         nothing more is stored: it was committed

A writer, such as a Spark query, numbers its batches upwards. It may crash and repeat the last one. The commit names the
staged attempts to publish; the others are never published. A run is one life of a writer. The first request of a new
run ends the runs before it, and their later requests are refused.

The log has the whole state, and a crash keeps a prefix of the log. If the broker is killed, the log may have:
    nothing of the commit          the batch was not committed; its writer stages it again
    the commit record              the batch was committed, and the next start publishes it
    some of its messages           likewise: the start reads each queue from its end at the commit, and does not store
                                   the messages again that it finds there, by unique keys in their order
    all of them, no "done"         the same, and nothing is left to store
So each committed message is stored once. Readers see the messages of a batch one after the other. The oldest batch goes
first. A damaged piece stops its batch and the later ones of its writer, and is tried again.

A batch may be staged at several brokers. One of them decides: its commit record also names the attempts that the others
publish, and a repeated commit there returns them. So a writer that crashed between two commits can complete a decided
batch with the attempts of its earlier run. For that, an ended run's attempts stay here until their batch is decided.

A start reads the state (`writers`) from the topic's records, from a saved position on: at or before the first record of
every batch that is staged and undecided, or committed and not done. Retention may have deleted some of the records, so
the topic also has the state of each writer in full (writers.py). The file is saved only after the log that it describes
is on disk. A member that has lost an election may have to cut the end of its log. If that end is in the file, the
member deletes the file before its log grows again, and a start reads the whole topic.

    open, done    begin a run of a writer, and end the publication of a batch
    part          messages for one queue
    commit        the decision on a batch
    kept          the state of a writer (writers.py)

Clients cannot send to this topic. A record that no broker of ours writes, as another program may have left in the log,
is left out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from sparrowmq.broker.batches import PART, PART_OF_ENTRIES, pieces
from sparrowmq.broker.due_work import MAX_WAIT_S, DueWork
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.part import Chore, Part, Task
from sparrowmq.broker.saved_state import SavedFile, records_from
from sparrowmq.broker.staging.writers import (
    GONE,
    NO_OTHERS,
    REMEMBERED_RUNS,
    Address,
    Attempt,
    CommitBody,
    Decision,
    OpenPiece,
    Others,
    OthersJson,
    Piece,
    Publication,
    SavedStaging,
    SavedWriter,
    Source,
    WriterRecords,
    WriterState,
    begins,
    check_decision_room,
    check_repetition,
    json_of,
    saved,
    take_saved,
)
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.transactions import half_message
from sparrowmq.core import snapshot
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import BadStore, CorruptRecord, InvalidMessage, RemoteError
from sparrowmq.kernel.batch_layout import PLACE_BYTES
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.names import STAGED_TOPIC
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

# The properties and the kinds of the records of rmq_sys_STAGED.
_KIND: Final = "STAGED_KIND"
_WRITER: Final = "STAGED_WRITER"
_RUN: Final = "STAGED_RUN"
_BATCH: Final = "STAGED_BATCH"
_ATTEMPT: Final = "STAGED_ATTEMPT"
_NUMBER: Final = "STAGED_NUMBER"
_TOPIC: Final = "STAGED_TOPIC"
_QUEUE: Final = "STAGED_QUEUE"
_OWNER: Final = "STAGED_OWNER"
_RUN_OPENED, _STAGED, _COMMITTED, _PUBLISHED, _WRITER_STATE = "open", "part", "commit", "done", "kept"

# A writer without requests for so long is forgotten, with the messages that it staged.
FORGOTTEN_MS: Final = 30 * 86_400_000
SAVE_PERIOD_S: Final = 5.0


class Staging:
    """The staged batches of a broker. A slave has no writers and publishes nothing. Raises: BadStore, CorruptRecord."""

    def __init__(
        self,
        store: MessageStore,
        writer: Writer,
        topics: Topics,
        path: Path,
        clock: Clock,
        figures: Figures,
        *,
        is_slave: bool = False,
    ) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._clock = clock
        self._is_slave = is_slave
        self._host = store.settings.store_host
        self.writers: dict[str, WriterState] = {}
        self._saved = SavedStaging()
        self._commit_counter = figures.counter("sparrowmq_batches_committed_total", "staged batches committed")
        self.publishing = Publishing(
            store, writer, clock, figures, lambda source: self._append(_PUBLISHED, source, b"done")
        )
        self.file = SavedFile(path, lambda: self._saved, msgspec.json.encode)
        self.saved_writers = WriterRecords(store, self.writers, partial(self._append, _WRITER_STATE))
        if not is_slave:
            self._recover(self._load(path))
        else:
            with suppress(BadStore):
                self._load(path)

    def part(self) -> Part:
        if self._is_slave:
            return Part()
        return Part(
            chores=(
                Chore("keep writers in the log", SAVE_PERIOD_S, self.saved_writers.keep),
                Chore("save staged batches", SAVE_PERIOD_S, self.save),
            ),
            tasks=(Task("publish staged batches", self.publishing.work.run),),
            saves=(self.close,),
        )

    def check(self, shared: Entry, places: bytes) -> Steps[None]:
        """Check messages before they are staged. Raises: RemoteError, one of them could not be published later."""
        body = bytes(shared.body)
        plain = self._writer.plain(shared, body, places)
        if plain is not None and plain.have_unique_keys:
            return
        for part in pieces(places, PART_OF_ENTRIES):
            yield
            for entry in batches.entries(shared, body, part):
                self._check_message(entry.properties)

    def stage(self, source: Source, attempt: str, number: int, entry: Entry) -> Placed | None:
        """Store messages for one queue that `check` has passed, to publish them with their batch.

        A repeated request, with a known `number` in its attempt, or for a committed batch, stores nothing and returns
        None. Raises: RemoteError, the writer has a newer run; StoreFailed, DiskFull, nothing was stored.
        """
        writer_state = self._open_run(source)
        attempt_state = writer_state.attempts.get(attempt)
        is_staged = attempt_state is not None and attempt_state.run == source.run and number in attempt_state.pieces
        if source.batch <= writer_state.last_batch or is_staged:
            return None
        target = entry.topic, entry.queue_id
        properties = properties_of_part(StagedPart(attempt, number, target))
        placed = self._append(_STAGED, source, entry.body, properties, entry.born_timestamp_ms, entry.born_host)
        self._add_piece(source, attempt, number, placed.queue_offset, Piece(placed.offset, placed.size, target))
        return placed

    def commit(
        self, source: Source, attempts: Mapping[str, int], others: Others | None = None, plan: str = ""
    ) -> Decision:
        """Decide that these attempts are the batch. They are published soon, if need be after a restart.

        `attempts` has the number of requests that each attempt has staged, and `others` the same for the attempts that
        other brokers publish. `plan` names what the batch was made of; "" if the writer does not say it.

        Raises:
            RemoteError: the writer has a newer run, or a request of the attempts is missing here, or another batch was
                committed under this number.
            StoreFailed, DiskFull: nothing was decided.
        """
        others = others or {}
        others_json = json_of(others)
        check_decision_room(self.writers, source, others_json)
        writer_state = self._open_run(source)
        if source.batch <= writer_state.last_batch:
            check_repetition(writer_state, source, plan)
            self._drop_attempts(writer_state, source.batch)
            return Decision(writer_state.commit_end, True, writer_state.others)
        pieces, position = self._pieces_of_attempts(writer_state, source, attempts)
        if not pieces and not others:
            raise RemoteError(
                ResponseCode.ILLEGAL_OPERATION, f"{source} has no staged messages; stage them before the commit"
            )
        body = CommitBody(dict(attempts), self._queue_ends(pieces), others, plan)
        placed = self._append(_COMMITTED, source, msgspec.json.encode(body))
        self._decide(writer_state, _publication(writer_state, source, position, pieces), others_json, plan, placed.end)
        self._commit_counter.value += 1
        return Decision(placed.end, False, others_json)

    def topics_of(self, source: Source, attempts: Mapping[str, int]) -> set[str]:
        writer_state = self.writers.get(source.writer)
        if writer_state is None or source.batch <= writer_state.last_batch:
            return set()
        named = [writer_state.attempts[name] for name in attempts if name in writer_state.attempts]
        return {piece.target[0] for attempt in named for piece in attempt.pieces.values()}

    async def save(self) -> None:
        """Save the state, once the log that it describes is on disk."""
        self._forget_old_writers()
        state = self._current_state()
        await self._store.flushed.reached(state.log_end)
        if state != msgspec.structs.replace(self._saved, log_end=state.log_end):
            self._saved = state
            self.file.touch()
        await self.file.save()

    async def close(self) -> None:
        self._store.flush()
        await self.save()

    def _open_run(self, source: Source) -> WriterState:
        """Return the writer if this is its latest run. A new run ends those before it. Raises: RemoteError."""
        writer_state = self.writers.get(source.writer)
        if writer_state is None or not writer_state.runs or writer_state.runs[-1] != source.run:
            if writer_state is not None and source.run in writer_state.runs:
                raise RemoteError(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"{shown(source.writer)} was started again as run {shown(writer_state.runs[-1])}, which ends run "
                    f"{shown(source.run)}; do not run a query twice",
                )
            placed = self._append(_RUN_OPENED, source, b"open")
            writer_state = self._begin_run(source, placed.offset)
        writer_state.owner = source.owner
        writer_state.used_ms = self._clock.now_ms()
        return writer_state

    def _begin_run(self, source: Source, kept_at: int) -> WriterState:
        """Return the writer with this run. For a new one, `kept_at` says from where on the log has all of it."""
        writer_state = self.writers.setdefault(source.writer, WriterState(kept_at=kept_at))
        if source.run in writer_state.runs:
            return writer_state
        writer_state.runs = [*writer_state.runs[1 - REMEMBERED_RUNS :], source.run]
        writer_state.attempts = {
            name: attempt for name, attempt in writer_state.attempts.items() if attempt.run in writer_state.runs
        }
        return writer_state

    def _check_message(self, properties: Properties) -> None:
        if half_message.is_half(properties):
            raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, "a staged batch cannot hold messages of a transaction")
        if properties.unique_key is None:
            raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, "a staged message needs a unique key (UNIQ_KEY)")
        self._writer.check_plain(properties)

    def _pieces_of_attempts(
        self, writer_state: WriterState, source: Source, attempts: Mapping[str, int], *, is_decided: bool = False
    ) -> tuple[list[Piece], int]:
        """Return the pieces of the attempts in their order, and the position of the first record of them.

        Of a batch that was decided, pieces may be deleted. Raises: RemoteError, pieces of another one are missing.
        """
        pieces: list[Piece] = []
        position = self._next_position
        for name, count in attempts.items():
            attempt = writer_state.attempts.get(name)
            pieces_by_number = {} if attempt is None or attempt.batch != source.batch else attempt.pieces
            if len(pieces_by_number) != count:
                if not is_decided:
                    raise RemoteError(
                        ResponseCode.ILLEGAL_OPERATION,
                        f"{source} cannot be committed: of {count} requests of "
                        f"attempt {shown(name)} {len(pieces_by_number)} are here; stage the batch again",
                    )
                pieces.append(GONE)
            pieces += [pieces_by_number[number] for number in sorted(pieces_by_number)]
            if attempt is not None:
                position = min(position, attempt.position)
        return pieces, position

    def _decide(
        self, writer_state: WriterState, publication: Publication, others: OthersJson, plan: str, end: int
    ) -> None:
        batch = publication.source.batch
        writer_state.last_batch, writer_state.others, writer_state.plan = batch, others, plan
        writer_state.commit_end = end
        self._drop_attempts(writer_state, batch)
        self.publishing.begin(publication)

    def _drop_attempts(self, writer_state: WriterState, batch: int) -> None:
        attempts = writer_state.attempts
        writer_state.attempts = {name: attempt for name, attempt in attempts.items() if attempt.batch > batch}

    def _add_piece(self, source: Source, attempt: str, number: int, position: int, piece: Piece) -> None:
        attempts = self.writers[source.writer].attempts
        attempt_state = attempts.get(attempt)
        if attempt_state is None or attempt_state.run != source.run:
            attempt_state = attempts[attempt] = Attempt(source.batch, source.run, position)
        attempt_state.pieces.setdefault(number, piece)

    def _append(
        self,
        kind: str,
        source: Source,
        body: bytes | bytearray | memoryview,
        extra: Mapping[str, str] | None = None,
        born_ms: int | None = None,
        born_host: bytes | None = None,
    ) -> Placed:
        self._topics.ensure_own(STAGED_TOPIC)
        properties = Properties(render(properties_of(kind, source) | dict(extra or {})))
        born_ms = self._clock.now_ms() if born_ms is None else born_ms
        entry = Entry(STAGED_TOPIC, 0, body, properties, born_ms, born_host or self._host)
        return self._store.append(entry)[0]

    def _queue_ends(self, pieces: Iterable[Piece]) -> dict[str, int]:
        self._store.publish()
        addresses = {piece.target for piece in pieces}
        return {f"{topic}@{queue}": self._store.queues.obtain(topic, queue).end.value for topic, queue in addresses}

    @property
    def _next_position(self) -> int:
        queue = self._store.queues.get(STAGED_TOPIC, 0)
        return 0 if queue is None else queue.end.value

    def _load(self, path: Path) -> SavedStaging:
        """Return the saved state; an empty one if the log was cut since then. Raises: BadStore."""
        saved = snapshot.load(path, SavedStaging) or SavedStaging()
        if saved.log_end <= self._store.end:
            return saved
        log.warning("%s is newer than the log; reading the staged batches from the log", path)
        try:
            snapshot.delete(path)
        except OSError as error:
            log.warning("%s cannot be deleted: %s", path, error)
        return SavedStaging()

    def _recover(self, saved: SavedStaging) -> None:
        self._saved = saved
        for name, saved_writer in saved.writers.items():
            take_saved(self.writers.setdefault(name, WriterState()), saved_writer)
        lines = LogLimit(self._clock)
        for raw in records_from(self._store, STAGED_TOPIC, 0, saved.position):
            message = record.decode(raw)
            try:
                self._replay(message, read(message))
            except (KeyError, ValueError, msgspec.DecodeError) as error:
                place, reason = message.physical_offset, shown(error)
                lines.log(
                    log,
                    logging.ERROR,
                    "a record at log offset %d is not a staged record; skipping it: %s",
                    place,
                    reason,
                )
        for publication in self.publishing.pending:
            log.warning("%s was committed before the restart; publishing the rest", publication.source)
            publication.skipped = {
                target: self._count_published(publication.pieces, target, begin)
                for target, begin in publication.begins.items()
            }

    def _replay(self, message: StoredMessage, staged: StagedRecord) -> None:
        kind, source, content = staged
        log_offset = message.physical_offset
        if isinstance(content, SavedWriter):
            # All that has changed the writer's state since comes later in the log.
            writer_state = self.writers.setdefault(source.writer, WriterState())
            take_saved(writer_state, content)
            writer_state.kept_at = log_offset
            return
        writer_state = self._begin_run(source, log_offset if kind == _RUN_OPENED else -1)
        writer_state.owner = source.owner
        writer_state.used_ms = message.store_timestamp_ms
        if kind == _PUBLISHED:
            self.publishing.end(source)
        elif source.batch <= writer_state.last_batch:
            return
        elif isinstance(content, StagedPart):
            piece = Piece(log_offset, message.store_size, content.target)
            self._add_piece(source, content.attempt, content.number, message.queue_offset, piece)
        elif content is not None:
            pieces, first_position = self._pieces_of_attempts(writer_state, source, content.attempts, is_decided=True)
            publication = _publication(writer_state, source, first_position, pieces)
            publication.begins = begins(content)
            end = log_offset + message.store_size
            self._decide(writer_state, publication, json_of(content.others), content.plan, end)

    def _count_published(self, pieces: Iterable[Piece], target: Address, begin: int) -> int:
        """Count the messages of the pieces that are in their queue already, from `begin` on, in their order."""
        keys = self._unique_keys(piece for piece in pieces if piece.target == target)
        count, wanted_key = 0, next(keys, None)
        for message in map(record.decode, records_from(self._store, *target, begin)):
            if wanted_key is None:
                break
            if message.unique_key == wanted_key:
                count, wanted_key = count + 1, next(keys, None)
        return count

    def _unique_keys(self, pieces: Iterable[Piece]) -> Iterator[str | None]:
        for piece in pieces:
            message = self.publishing.message_of(piece)
            for part in batches.decode(message.body) if message is not None else ():
                yield Properties.decode(part.properties).unique_key

    def _current_state(self) -> SavedStaging:
        """Return the state that a start needs besides the topic's records from `position` on."""
        writers = {name: saved(writer_state) for name, writer_state in self.writers.items()}
        positions = [self._next_position, *(publication.position for publication in self.publishing.pending)]
        for writer_state in self.writers.values():
            positions += [attempt.position for attempt in writer_state.attempts.values()]
        for publication in reversed(self.publishing.pending):
            saved_writer = writers[publication.source.writer]
            saved_writer.last_batch, saved_writer.plan = publication.previous_batch, publication.previous_plan
            saved_writer.others = msgspec.Raw(publication.previous_others or NO_OTHERS)
        return SavedStaging(min(positions), self._store.end, writers)

    def _forget_old_writers(self) -> None:
        """Drop writers without requests for FORGOTTEN_MS, and attempts whose records are deleted."""
        now_ms = self._clock.now_ms()
        busy = {publication.source.writer for publication in self.publishing.pending}
        queue = self._store.queues.get(STAGED_TOPIC, 0)
        begin = 0 if queue is None else queue.min_offset
        for name, writer_state in list(self.writers.items()):
            if name not in busy and now_ms - writer_state.used_ms > FORGOTTEN_MS:
                del self.writers[name]
            attempts = writer_state.attempts
            writer_state.attempts = {key: attempt for key, attempt in attempts.items() if attempt.position >= begin}


def _publication(writer_state: WriterState, source: Source, position: int, pieces: Iterable[Piece]) -> Publication:
    return Publication(source, writer_state.last_batch, writer_state.others, writer_state.plan, position, deque(pieces))


class Publishing:
    """Publishes the committed batches of one broker; `pending` has those that are not published yet, oldest first."""

    def __init__(
        self,
        store: MessageStore,
        writer: Writer,
        clock: Clock,
        figures: Figures,
        store_done_record: Callable[[Source], object],
    ) -> None:
        self.pending: deque[Publication] = deque()
        self._store = store
        self._writer = writer
        self._clock = clock
        self._store_done_record = store_done_record
        self.work = DueWork("committed batches", self.publish_some, clock)
        self._published_counter = figures.counter("sparrowmq_staged_published_total", "messages published")
        figures.gauge("sparrowmq_batches_publishing", "batches being published", lambda: len(self.pending))

    def begin(self, publication: Publication) -> None:
        self.pending.append(publication)
        self.work.wake()

    def end(self, source: Source) -> None:
        self.pending = deque(publication for publication in self.pending if publication.source != source)

    def publish_some(self) -> float:
        """Publish a part of the oldest batch, or its "done"; return the seconds to wait. Raises: DiskFull."""
        publication = self._next_due()
        if publication is None:
            return MAX_WAIT_S
        if not publication.pieces:
            self._store_done_record(publication.source)
            self.pending.remove(publication)
            return 0
        try:
            if self._publish(publication, publication.pieces[0]):
                publication.pieces.popleft()
        except CorruptRecord as damage:
            self.work.log_damage(str(publication.source), damage)
            publication.retry_s = self._clock.monotonic() + MAX_WAIT_S
        return 0

    def message_of(self, piece: Piece) -> StoredMessage | None:
        """Return the message of a piece; None if it is deleted, or damaged and skipped. Raises: CorruptRecord."""
        raw = None if piece is GONE else self._store.parked_at(piece.offset, piece.size)
        return None if raw is None else record.decode(raw)

    def _next_due(self) -> Publication | None:
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
        if publication.open_piece is None:
            publication.open_piece = self._open(publication, piece)
        open_piece = publication.open_piece
        if open_piece is not None and open_piece.remaining_places:
            self._publish_part(open_piece)
            if open_piece.remaining_places:
                return False
        publication.open_piece = None
        return True

    def _open(self, publication: Publication, piece: Piece) -> OpenPiece | None:
        """Read a piece, without its messages that were published before a restart. Returns None if it is deleted."""
        message = self.message_of(piece)
        if message is None:
            if piece.offset < self._store.begin:
                log.error("messages of %s were deleted: they were older than fileReservedTime", publication.source)
            return None
        body, skipped = bytes(message.body), publication.skipped
        places = batches.places(body)
        skip_count = min(skipped.get(piece.target, 0), len(places) // PLACE_BYTES)
        skipped[piece.target] = skipped.get(piece.target, 0) - skip_count
        born = message.born_timestamp_ms, hosts.pack(message.born_host)
        shared = Entry(*piece.target, b"", Properties(), *born)
        return OpenPiece(shared, body, places[skip_count * PLACE_BYTES :])

    def _publish_part(self, piece: OpenPiece) -> None:
        part, shared, body = piece.remaining_places[: PART * PLACE_BYTES], piece.shared, piece.body
        try:
            if self._writer.put_plain(shared, body, part) is None:
                part = part[: PART_OF_ENTRIES * PLACE_BYTES]
                self._writer.put_batch(batches.entries(shared, body, part))
            self._note_published(piece, len(part))
        # Together they are too long for a file of the log; or one was staged under a shorter name of the cluster.
        except (InvalidMessage, RemoteError):
            for entry in batches.entries(shared, body, part):
                try:
                    self._writer.put(entry)
                except (InvalidMessage, RemoteError) as error:
                    log.error("a message of a committed batch cannot be stored: %s: %s", entry, shown(error))
                self._note_published(piece, PLACE_BYTES)

    def _note_published(self, piece: OpenPiece, places_bytes: int) -> None:
        piece.remaining_places = piece.remaining_places[places_bytes:]
        self._published_counter.value += places_bytes // PLACE_BYTES


class StagedPart(NamedTuple):
    attempt: str
    number: int
    target: Address


class StagedRecord(NamedTuple):
    """A record: `content` is a `StagedPart`, a `CommitBody` or a `SavedWriter` by its kind; None of the other kinds."""

    kind: str
    source: Source
    content: StagedPart | CommitBody | SavedWriter | None = None


def properties_of(kind: str, source: Source) -> dict[str, str]:
    properties = {_KIND: kind, _WRITER: source.writer, _RUN: source.run, _BATCH: str(source.batch)}
    return properties if source.owner is None else properties | {_OWNER: source.owner}


def properties_of_part(part: StagedPart) -> dict[str, str]:
    topic, queue_id = part.target
    return {_ATTEMPT: part.attempt, _NUMBER: str(part.number), _TOPIC: topic, _QUEUE: str(queue_id)}


def read(message: StoredMessage) -> StagedRecord:
    """Return a record of the topic. Raises: KeyError, ValueError, DecodeError: no broker of ours has written it."""
    properties = message.properties
    kind = properties[_KIND]
    content: StagedPart | CommitBody | SavedWriter | None = None
    source = Source(properties[_WRITER], properties[_RUN], int(properties[_BATCH]), properties.get(_OWNER))
    if kind == _STAGED:
        target = properties[_TOPIC], int(properties[_QUEUE])
        content = StagedPart(properties[_ATTEMPT], int(properties[_NUMBER]), target)
    elif kind == _COMMITTED:
        content = msgspec.json.decode(message.body, type=CommitBody)
    elif kind == _WRITER_STATE:
        content = msgspec.json.decode(message.body, type=SavedWriter)
    elif kind not in (_RUN_OPENED, _PUBLISHED):
        raise ValueError(f"{kind!r} is not a kind of record")
    return StagedRecord(kind, source, content)
