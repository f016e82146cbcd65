"""Adds the files of a stored log to a table: each part of the log once, in any order of its backups.

    /lake/orders.state/stored-broker-a.json     of each file: how far the table has it

    first backup    | file 2 |== file 3 ==|= 4       4 was being written
    older backup    | file 1 |
    newer backup    |        |            |= 4 ====| 5 ==|      of 4 only what is behind the known end

A part is a batch. It is noted before it is written, and its end after: one that was cut short is written again, as the
same batch, and the tables know whether they have that. The commit of a part also says what is noted, so that a state
which was lost, or is older than the table, or newer, is put right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as f

from sparrowmq.core import snapshot
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.tables.error_retry import PLAN_FILE, RetryPlan
from sparrowmq.spark.source.log_files import LogFile, Span
from sparrowmq.store.layout import offset_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparrowmq.spark.pipelines.running.runner import Runner
    from sparrowmq.spark.pipelines.tables.table_settings import TableSettings
    from sparrowmq.spark.pipelines.tables.table_writer import TableWriter


# Reads a log file, with columns beside those of the table.
ReadLog = Callable[[LogFile, Sequence[str]], "DataFrame"]

_OFFSET_COLUMN: Final = "offsetMsgId"  # its last 16 digits are the place of the message in the log


def log_reader(spark: SparkSession, settings: TableSettings, broker: str | None, options: Mapping[str, str]) -> ReadLog:
    """Return a function that reads log files of a broker, for a table."""

    def read(file: LogFile, more: Sequence[str]) -> DataFrame:
        source_options = {**options, "topic": settings.topic, "brokerName": broker, "path": file.path}
        source_options |= {"columns": ",".join((*settings.shape().columns, *more))}
        return spark.read.format("rocketmq").options(**source_options).load()

    return read


def end_by_batches(writer: TableWriter, files: Sequence[LogFile]) -> int:
    """Return the end of a log in a table of a release that noted nothing, by the count of its batches."""
    return (writer.last_batch + 1) * max((file.size for file in files), default=0)


def last_batches(state: Path) -> dict[str, int]:
    """Return by broker the last batch with rows of stored logs, and that of errors that became rows."""
    batches: dict[str, int] = {}
    for path in sorted(state.glob("stored-*.json")):
        log_state = snapshot.load(path, _LogState) or _LogState()
        batches[path.stem] = log_state.last_batch if log_state.writing is None else log_state.writing.batch
    plan = snapshot.load(state / PLAN_FILE, RetryPlan)
    if plan is not None:
        batches["retried"] = plan.batch
    return {name: batch for name, batch in batches.items() if batch >= 0}


class _Part(msgspec.Struct):
    """A range of the file that begins at `begin`, relative to it."""

    begin: int
    start: int
    end: int
    batch: int


class _LogState(msgspec.Struct):
    """The parts of a log that a table has: all files that begin before `before`, and others up to their `ends`.

    `ends` are by where the files begin. `writing` is what is being added, and `last_batch` the last one that had rows.
    """

    before: int = 0
    ends: dict[int, int] = {}
    writing: _Part | None = None
    last_batch: int = -1


class LogParts:
    """The parts of one broker's log that a table has."""

    def __init__(self, path: Path, runner: Runner, before: int = 0) -> None:
        """`before`: the table has all files that begin before it, if nothing is noted yet."""
        self._path = path
        self._runner = runner
        stored = snapshot.load(path, _LogState)
        self._is_known = stored is not None or before > 0
        self._state = stored or _LogState(before)

    def add(self, spans: Sequence[Span], writer: TableWriter, read: ReadLog) -> None:
        """Add what the table lacks of these parts of files.

        Raises: ConfigError, a run was stopped while it added a file, and that is not there; or the parts that the table
        has are not known.
        """
        self._compare(writer)
        self._repeat_unfinished(spans, writer, read)
        for span in spans:
            begin = span.file.begin
            start = self._state.ends.get(begin, span.end if begin < self._state.before else 0)
            if start < span.end:
                part = _Part(begin, start, span.end, writer.last_batch + 1)
                self._write_part(part, span, writer, read)

    def _compare(self, writer: TableWriter) -> None:
        """Compare the notes with the table's commits; if they differ in time, the table is right."""
        state, record = self._state, writer.newest_record
        if record is not None and record.log is not None:
            table_state = msgspec.convert(record.log, _LogState, strict=False)  # the keys of JSON are text
            if record.batch != state.last_batch and table_state.writing != state.writing:
                self._runner.say(f"{writer.root}: its state is of another time; goes on with what the table has")
                self._state = table_state
                if not record.is_half:  # else its errors come next
                    self._finish_part(record.batch)
        elif writer.last_batch < 0 <= state.last_batch:
            self._runner.say(f"{writer.root}: its state is newer than the table; adds what the table lacks")
            self._state = _LogState(state.before)
        elif not self._is_known and writer.last_batch >= 0:
            raise ConfigError(
                f"{writer.root} has rows of a stored log, but {self._path} is gone, so it is not known which they are; "
                "restore it, or make the table again in another folder"
            )

    def _repeat_unfinished(self, spans: Sequence[Span], writer: TableWriter, read: ReadLog) -> None:
        """Write an unfinished part again: it may be in the table, but not yet in the table of errors."""
        part = self._state.writing
        if part is None or part.batch > writer.last_batch:
            return
        span = next(
            (candidate for candidate in spans if candidate.file.begin == part.begin and candidate.end >= part.end), None
        )
        if span is None:
            raise ConfigError(
                f"a run was stopped while it added the log file {offset_name(part.begin)} to {writer.root}; "
                "give a store that has that file first"
            )
        self._write_part(part, span, writer, read)

    def _write_part(self, part: _Part, span: Span, writer: TableWriter, read: ReadLog) -> None:
        self._state.writing = part
        snapshot.save(self._path, self._state)
        writer.note_log(msgspec.to_builtins(self._state))
        self._runner.batch(writer.write, _part_rows(part, span.file, read), part.batch)
        self._finish_part(writer.last_batch)
        snapshot.save(self._path, self._state)

    def _finish_part(self, last_batch: int) -> None:
        part = self._state.writing
        assert part is not None
        self._state.writing = None
        self._state.ends[part.begin] = part.end
        self._state.last_batch = last_batch


def _part_rows(part: _Part, file: LogFile, read: ReadLog) -> DataFrame:
    if part.start == 0 and part.end == file.size:
        return read(file, ())
    position = f.conv(f.substring(_OFFSET_COLUMN, -16, 16), 16, 10).cast("bigint")
    return read(file, (_OFFSET_COLUMN,)).where(position.between(part.begin + part.start, part.begin + part.end - 1))
