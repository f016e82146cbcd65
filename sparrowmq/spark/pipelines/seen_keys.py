"""Drops repeats from the batches of a stream: a message with the key of an earlier one, stored within a window of it.

    rows of a batch  ->  key, store time, place  ->  the driver  ->  places of repeats  ->  the tasks that copy

Of the messages of a batch the first in the order of their store times passes. The driver looks their keys up among
those of messages that have passed, on its disk: a SQLite database for each span of time. So a batch costs what its own
messages cost, however many keys are known.

    STATE/seen/keys-1767225600000-1767830400000.db     keys of messages that were stored from the first to the second ms
    STATE/seen/last.json                               the last batch: its number, its window, the keys that it let
                                                       pass, and how often keys were added to each database

A key is the first 16 bytes of a SHA-256. A span is as long as the window, and an hour at least. So a message needs the
keys of two or three spans, and a span that no message needs any more is forgotten by deleting its file.

The keys of a batch are added when the next batch begins, for only then the batch is surely done: a repeated batch finds
what it found the first time. Each addition counts up a number in the database, so a database that is gone, or an older
copy, is noticed at the next start: repeats of its keys would pass in silence.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sqlite3
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sparrowmq.core import snapshot
from sparrowmq.core.snapshot import sync
from sparrowmq.errors import BadStore, ConfigError, NetworkError, NoRoute
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.running.checkpoint_files import last_done_batch, repeat_batch
from sparrowmq.spark.pipelines.running.report import Say
from sparrowmq.spark.pipelines.running.session import depends_on_row, first_line, is_deterministic, without_error_log
from sparrowmq.spark.pipelines.running.span import ends_before
from sparrowmq.spark.source.stream_source import planned_end

Key = bytes
# A key, and when its message was stored, in ms.
KeyTime = tuple[Key, int]

Dropped = Mapping[MessageQueue, frozenset[int]]

_KEY_BYTES: Final = 16
_ORDER: Final = ("at", "topic", "brokerName", "queueId", "queueOffset")
# By so much the clocks of brokers may differ.
_MAX_CLOCK_SKEW_MS: Final = 600_000
_CLEANUP_PERIOD_S: Final = 60.0
_EARLIER_FOLDER_NAME: Final = re.compile(r"keys-([0-9]{9})(-merged)?")
_LAST_FILE: Final = "last.json"
_MIN_SPAN_MS: Final = 3_600_000
_MAX_OPEN_FILES: Final = 8  # files at once
_LOST_SUFFIX: Final = ".lost"
_REMEDY: Final = (
    f"if you move it to {{}}{_LOST_SUFFIX}, or make an empty file of that name, repeats of its keys pass once more"
)
_SELECT_TIMES: Final = "select at from seen where key = ? and at > ? and at < ?"
_stored_at: Final = itemgetter(1)
_FILE_NAME: Final = re.compile(r"keys-([0-9]+)-([0-9]+)(-earlier)?\.db")
# The second line spares the shared memory that network file systems do not have; no other process reads the file.
_DATABASE_SETTINGS: Final = """
    pragma locking_mode = exclusive;
    pragma journal_mode = wal;
    pragma synchronous = full;
"""
_CREATE_TABLE: Final = "create table seen (key blob, at integer, primary key (key, at)) without rowid;"


class SeenMessage(NamedTuple):
    """A message of a batch."""

    key: Key | None
    at_ms: int
    queue: MessageQueue
    offset: int


class Repeats:
    """Finds repeats by the SQL expression `by`, over the source's columns; null is no repeat of null."""

    def __init__(self, folder: Path, by: str, window_ms: int) -> None:
        self._folder = folder
        self._by = by
        self.keys = KnownKeys(folder, window_ms)
        self._last_cleanup_s = 0.0
        # A body that is looked at must be decompressed, and is then sent so.
        self.options = {"decompress": "true"} if re.search(r"\bbody\b", by) else {}

    def check(self, rows: DataFrame) -> None:
        """Raises: ConfigError, `by` is no expression over these columns, or a message has another key each time."""
        try:
            with without_error_log():
                keys = rows.select(f.expr(self._by).cast("string"))
        except AnalysisException as error:
            raise ConfigError(
                f"by={self._by!r} cannot be understood: {first_line(error)}; write msgId, keys or an SQL expression"
            ) from None
        if not (is_deterministic(keys) and depends_on_row(keys, rows)):
            raise ConfigError(
                f"by={self._by!r} is no property of a message: the result must come from the columns of its row, and "
                "be the same each time; write msgId, keys or an SQL expression over them"
            )

    def may_plan_again(self, batch: int) -> bool:
        """Whether it was never decided which messages of a batch pass: of others, other ones could pass as well."""
        return self.keys.last_number < batch

    def repeat_lost_batch(self, checkpoint: Path, say: Say) -> None:
        """Let a batch be done again that is done, but whose keys a fault of the disk has taken.

        The keys of the batches before it were added, so the same messages pass again, and their copies are there.

        Raises: BadStore, the keys of more batches are gone.
        """
        done_batch, last_batch = last_done_batch(checkpoint), self.keys.last_number
        if last_batch >= done_batch or (last_batch < 0 and _has_earlier_keys(self._folder)):
            return
        if last_batch != done_batch - 1 and (last_batch >= 0 or not self.keys.has_any):
            raise BadStore(
                f"{self._folder} lacks the keys of batches up to {done_batch}, so repeats of them would pass; restore "
                "the folder of the state from a backup, or see `A damaged checkpoint` in docs/use/pipelines.md"
            )
        repeat_batch(checkpoint, done_batch)
        say(
            f"the keys of batch {done_batch} in {self._folder} were lost; the batch is done again, which changes "
            "nothing"
        )

    def with_sent_flags(self, rows: DataFrame) -> DataFrame:
        """The rows of a batch with the flags that copies of them get."""
        return rows.withColumn("sysFlag", f.lit(0)) if self.options else rows

    def find(self, rows: DataFrame, batch: int) -> tuple[int, Dropped]:
        """Return how many rows a batch has, and which of them are repeats of each other or of earlier messages."""
        take_over_earlier_keys(self._folder, self.keys, batch)
        window_ms = self.keys.begin(batch)
        digest = f.sha2(f.expr(self._by).cast("string").cast("binary"), 256)
        key = f.unhex(f.substring(digest, 1, 2 * _KEY_BYTES)).alias("key")
        time = f.unix_millis("storeTimestamp").alias("at")
        messages = list(sort_messages(rows.select(key, time, *_ORDER[1:]).toArrow()))
        keyed = [(place.key, place.at_ms) for place in messages if place.key is not None]
        dropped, passed = find_repeats(messages, self.keys.times(keyed, window_ms), window_ms)
        self.keys.note(batch, window_ms, passed)
        return len(messages), dropped

    def forget(self, options: Mapping[str, str], checkpoint: str, batch: int) -> None:
        """Delete keys that no message needs, unless a broker is away. The batches before `batch` are done."""
        if time.monotonic() - self._last_cleanup_s < _CLEANUP_PERIOD_S or batch == 0:
            return
        self._last_cleanup_s = time.monotonic()
        read_offsets = planned_end(checkpoint, batch - 1)

        def is_read(until_ms: int) -> bool:
            try:
                ends = ends_before(options, until_ms)
            except (NetworkError, NoRoute):
                return False
            return all(offset <= read_offsets.get(queue, -1) for queue, offset in ends.items())

        self.keys.forget(time.time_ns() // 1_000_000 - _MAX_CLOCK_SKEW_MS, is_read)


def sort_messages(rows: pa.Table) -> Iterator[SeenMessage]:
    """The messages of a batch in the order in which they pass."""
    for batch in rows.sort_by([(name, "ascending") for name in _ORDER]).to_batches():
        columns: list[list[Any]] = [batch.column(name).to_pylist() for name in ("key", *_ORDER)]
        for key, time_ms, topic, broker, queue_id, offset in zip(*columns, strict=True):
            yield SeenMessage(key, time_ms, MessageQueue(topic, broker, queue_id), offset)


def find_repeats(
    messages: Iterable[SeenMessage], times: Mapping[Key, Iterable[int]], window_ms: int
) -> tuple[Dropped, list[KeyTime]]:
    """Return the repeats among ordered messages, and the keys of others; `times` has when earlier ones were stored."""
    dropped: dict[MessageQueue, set[int]] = {}
    passed: list[KeyTime] = []
    newest: dict[Key, int] = {}
    for key, at_ms, queue, offset in messages:
        if key is None:
            continue
        is_repeat = key in newest and at_ms - newest[key] < window_ms
        if is_repeat or any(abs(at_ms - time_ms) < window_ms for time_ms in times.get(key, ())):
            dropped.setdefault(queue, set()).add(offset)
        else:
            newest[key] = at_ms
            passed.append((key, at_ms))
    return {queue: frozenset(offsets) for queue, offsets in dropped.items()}, passed


def take_over_earlier_keys(folder: Path, keys: KnownKeys, batch: int) -> None:
    """Take the keys that an earlier release has left as Parquet files: those of the batches before this one."""
    names = ((path, _EARLIER_FOLDER_NAME.fullmatch(path.name)) for path in sorted(folder.glob("keys-*")))
    folders = [(path, int(match[1])) for path, match in names if match is not None]
    for path, number in folders:
        if number < batch and (path / "_SUCCESS").exists():
            for file in sorted(path.glob("*.parquet")):
                keys.add_earlier(list(_read_earlier_file(file)))
    for path, _number in folders:
        shutil.rmtree(path)


def _has_earlier_keys(folder: Path) -> bool:
    return any(_EARLIER_FOLDER_NAME.fullmatch(path.name) or is_earlier(path) for path in folder.glob("keys-*"))


def _read_earlier_file(file: Path) -> Iterator[KeyTime]:
    for batch in pq.ParquetFile(file).iter_batches(columns=["_key", "_seen_at_s"]):
        columns = (batch.column(name).to_pylist() for name in ("_key", "_seen_at_s"))
        for key, seen_at_s in zip(*columns, strict=True):
            yield key_of(key), int(seen_at_s * 1000)


def key_of(text: str) -> Key:
    """The key of a text, as Spark computes it for `Repeats.find`."""
    return hashlib.sha256(text.encode()).digest()[:_KEY_BYTES]


class LastBatch(msgspec.Struct):
    """The batch that was begun last; `additions` is how often keys were added to each file before."""

    number: int
    window_ms: int
    passed: list[KeyTime]
    additions: dict[str, int] = {}


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The keys stored in `[start_ms, end_ms)`; at some time before, if they come from an earlier release."""

    start_ms: int
    end_ms: int
    is_earlier: bool = False

    @property
    def file(self) -> str:
        return f"keys-{self.start_ms}-{self.end_ms}{'-earlier' if self.is_earlier else ''}.db"

    def lookups(self, passed: Sequence[KeyTime], window_ms: int) -> list[tuple[Key, int, int]]:
        """Return ordered keys, with the times, both exclusive, of messages here that they may repeat."""
        first = 0 if self.is_earlier else bisect_right(passed, self.start_ms - window_ms, key=_stored_at)
        end = bisect_left(passed, self.end_ms + window_ms - 1, key=_stored_at)
        last_ms = self.end_ms if self.is_earlier else 0
        return sorted({(key, at - window_ms, last_ms or at + window_ms) for key, at in passed[first:end]})


class KnownKeys:
    """The keys in a folder; a context manager."""

    def __init__(self, folder: Path, window_ms: int) -> None:
        self._folder = folder
        self._window_ms = window_ms
        self._open: OrderedDict[Span, sqlite3.Connection] = OrderedDict()
        self._spans: list[Span] = []
        self._additions: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Raises: BadStore, keys are gone."""
        self._folder.mkdir(parents=True, exist_ok=True)
        spans = map(_span_of, sorted(path.name for path in self._folder.iterdir()))
        self._spans = sorted(span for span in spans if span is not None)
        last = self._load_last()
        self._additions = {} if last is None else dict(last.additions)
        try:
            for file in sorted(self._additions):
                self._check_additions(file)
        except BadStore:
            self.__exit__()
            raise
        return self

    def _check_additions(self, file: str) -> None:
        """Raises: BadStore, a file with keys lacks some of them."""
        path, span, additions = self._folder / file, _span_of(file), -1
        if path.exists() and span is not None:
            with self._database(span) as database:
                additions = _additions_in(database)
        elif path.with_name(f"{file}{_LOST_SUFFIX}").exists():
            del self._additions[file]
            return
        if additions < self._additions[file]:
            raise BadStore(
                f"{path} is gone, or lacks keys that were added to it, so repeats of them would pass; restore the "
                f"folder of the state from a backup; {_REMEDY.format(file)}"
            )

    def __exit__(self, *_error: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    @property
    def has_any(self) -> bool:
        """Whether there is a file with keys."""
        return any(_FILE_NAME.fullmatch(path.name) for path in self._folder.glob("keys-*"))

    @property
    def last_number(self) -> int:
        """The number of the last batch whose keys were noted; -1 before the first."""
        last = self._load_last()
        return -1 if last is None else last.number

    def _load_last(self) -> LastBatch | None:
        return snapshot.load(self._folder / _LAST_FILE, LastBatch)

    def begin(self, batch: int) -> int:
        """Add the keys of the batch before; returns the window of this batch, which a repetition keeps.

        After an older checkpoint was restored, the noted batch may be a later one. It is not known whether that was
        done, so its keys are left out.
        """
        last = self._load_last()
        if last is not None and last.number < batch:
            self.add(last.passed)
        return last.window_ms if last is not None and last.number == batch else self._window_ms

    def note(self, batch: int, window_ms: int, passed: list[KeyTime]) -> None:
        """Keep what a batch lets pass, before it is copied."""
        snapshot.save(self._folder / _LAST_FILE, LastBatch(batch, window_ms, passed, self._additions))

    def times(self, passed: Iterable[KeyTime], window_ms: int) -> dict[Key, list[int]]:
        """Return when messages were stored that these may repeat; keys without one are left out."""
        times: dict[Key, list[int]] = {}
        sorted_keys = sorted(passed, key=_stored_at)
        for span in self._spans:
            if lookups := span.lookups(sorted_keys, window_ms):
                with self._database(span) as database:
                    for lookup in lookups:
                        for (time_ms,) in database.execute(_SELECT_TIMES, lookup):
                            times.setdefault(lookup[0], []).append(time_ms)
        return times

    def add(self, passed: Iterable[KeyTime]) -> None:
        width = max(self._window_ms, _MIN_SPAN_MS)
        by_start: dict[int, list[KeyTime]] = {}
        for key, time_ms in passed:
            by_start.setdefault(time_ms // width * width, []).append((key, time_ms))
        for start, rows in sorted(by_start.items()):
            self._insert(Span(start, start + width), rows)

    def add_earlier(self, passed: list[KeyTime]) -> None:
        """Add keys of which is known only that their messages were stored before the time given."""
        if passed:
            times = [time_ms for _key, time_ms in passed]
            self._insert(Span(min(times), max(times) + 1, is_earlier=True), passed)

    def forget(self, now_ms: int, is_read: Callable[[int], bool]) -> None:
        """Delete the spans that no message needs; `is_read`: earlier batches have read all that was stored before."""
        expired = list[Span]()
        for span in sorted(self._spans, key=lambda span: span.end_ms):
            needed_until = span.end_ms + self._window_ms
            if needed_until > now_ms or not is_read(needed_until):
                break
            expired.append(span)
            self._additions.pop(span.file, None)
        if expired and (last := self._load_last()) is not None:  # first, as a start demands the files that are noted
            self.note(last.number, last.window_ms, last.passed)
        for span in expired:
            self._delete_span(span)

    def _insert(self, span: Span, rows: list[KeyTime]) -> None:
        with self._database(span) as database:
            database.execute("begin")
            database.executemany("insert or ignore into seen values (?, ?)", sorted(rows))
            additions = _additions_in(database) + 1
            database.execute(f"pragma user_version = {additions}")
            database.execute("commit")
        self._additions[span.file] = additions

    def _delete_span(self, span: Span) -> None:
        if span in self._open:
            self._open.pop(span).close()
        for suffix in ("-wal", ""):
            (self._folder / f"{span.file}{suffix}").unlink(missing_ok=True)
        self._spans.remove(span)

    @contextmanager
    def _database(self, span: Span) -> Iterator[sqlite3.Connection]:
        """The open database of a span. Raises: BadStore; OSError, its disk or a limit of the system is to blame."""
        path = self._folder / span.file
        try:
            if span not in self._open:
                if not path.exists():
                    _make_database(path)
                self._open[span] = _connect(path)
            self._open.move_to_end(span)
            if len(self._open) > _MAX_OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            if span not in self._spans:
                self._spans.insert(bisect_left(self._spans, span), span)
            yield self._open[span]
        except sqlite3.Error as error:
            if span in self._open:
                self._open.pop(span).close()
            _check_disk(path, error)
            raise BadStore(
                f"the keys in {path} cannot be used: {error}; restore the folder of the state from a backup; "
                f"{_REMEDY.format(path.name)}"
            ) from error


def _span_of(file: str) -> Span | None:
    match = _FILE_NAME.fullmatch(file)
    return None if match is None else Span(int(match[1]), int(match[2]), bool(match[3]))


def _check_disk(path: Path, error: sqlite3.Error) -> None:
    """Look whether a fault of the system has stopped a database: its file is whole then. Raises: OSError, it has."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF  # without what SQLite adds to it
    if code == sqlite3.SQLITE_FULL:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR):
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as system_error:
            raise OSError(system_error.errno, system_error.strerror, str(path)) from error


def _additions_in(database: sqlite3.Connection) -> int:
    (count,) = database.execute("pragma user_version").fetchone()
    return int(count)


def is_earlier(path: Path) -> bool:
    """Whether a file has keys that were taken over from an earlier release."""
    match = _FILE_NAME.fullmatch(path.name)
    return match is not None and bool(match[3])


def _make_database(path: Path) -> None:
    """Make a database that has its name when it is whole, so an empty one is damaged and not new."""
    temporary = path.with_name("new.db")
    for leftover in (temporary, temporary.with_name("new.db-wal"), path.with_name(f"{path.name}-wal")):
        leftover.unlink(missing_ok=True)
    database = _connect(temporary)
    try:
        database.executescript(_CREATE_TABLE)
    finally:
        database.close()
    sync(temporary)
    temporary.rename(path)
    sync(path.parent)


def _connect(path: Path) -> sqlite3.Connection:
    # Spark calls from a thread of its own.
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.executescript(_DATABASE_SETTINGS)
    except BaseException:
        database.close()
        raise
    return database
