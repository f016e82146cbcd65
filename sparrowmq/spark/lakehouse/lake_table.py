"""One table of a lake: its batches, its failures, and its figures.

    look(bounds)    notes the brokers' queues
    plan(rows)      stores the plan of the next batch, and returns its parts for workers; or those of an unfinished one
    add(written)    the files become rows and errors, each table once; the batch is done
    fail(error)     the table pauses; other tables do not notice

A table opens its files when it has something to add. `close` releases them, so idle tables cost nothing.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.client.cluster.routes import Addresses
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.failures import FIRST_PAUSE_S, LONGEST_PAUSE_S, Failure, failure_from
from sparrowmq.spark.lakehouse.batch_parts import ArrowRows, BatchPart, PartResult, error_text
from sparrowmq.spark.lakehouse.keyed_batch import KeyedBatch
from sparrowmq.spark.lakehouse.lake_progress import (
    Progress,
    batch_record,
    check_same_batch,
    checkpoint_progress,
    compare_progress,
    copy_offsets,
    load_progress,
    move_checkpoint_aside,
    save_progress,
    table_state,
    was_rolled_back,
)
from sparrowmq.spark.lakehouse.lake_settings import SectionSettings
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.compaction import check_needs_no_wider_types, widen_columns
from sparrowmq.spark.pipelines.lake.lake import OWN_FOLDER, Lake, TableLocation, missing_files_warning, open_lake
from sparrowmq.spark.pipelines.lake.remote_lake import RemoteLake
from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile
from sparrowmq.spark.pipelines.lake.unused_files import ReplacedFiles
from sparrowmq.spark.pipelines.running.folders import lock_folder
from sparrowmq.spark.pipelines.running.span import offsets_by_topic
from sparrowmq.spark.pipelines.tables.batch_files import UploadTarget, upload_target
from sparrowmq.spark.pipelines.tables.ddl import types_of
from sparrowmq.spark.pipelines.tables.encoded_shape import ENCODED_MODES, EncodedBodies
from sparrowmq.spark.pipelines.tables.error_retry import finish_retry
from sparrowmq.spark.pipelines.tables.json_bodies import merge_body_fields
from sparrowmq.spark.pipelines.tables.partition_columns import check_partition_types, pin_types
from sparrowmq.spark.pipelines.tables.progress import check_committed
from sparrowmq.spark.pipelines.tables.table_settings import (
    drop_unusable_key,
    load_checked_settings,
    save_settings,
    state_folder,
)
from sparrowmq.spark.pipelines.tables.table_writer import merge_fields, restore_fields
from sparrowmq.spark.source.partition_ranges import (
    Bounds,
    Offsets,
    between,
    ends_of,
    incarnations_in,
    limit_ends,
    recreated_topics,
    share,
    stream_ends,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


# Something that waits for a person, such as a folder without permission, is tried again so often.
PERMANENT_PAUSE_S: Final = 300.0
ROW_BYTES: Final = 1024  # of topics that were not read yet
_FILTERS: Final = frozenset({"subexpression", "tags", "filter.tag", "filter.sql"})
_MAX_FRESHNESS_STEPS: Final = 512


Starts = Callable[[Mapping[MessageQueue, Bounds]], Offsets]
NewStart = Callable[[Bounds], int]
Newest = Callable[[Collection[MessageQueue]], dict[str, int]]
ParseFields = Callable[[str], dict[str, str]]


@dataclass
class Figures:
    """The work of a table since the program started."""

    read: int = 0
    rows: int = 0
    errors: int = 0
    damaged: int = 0
    lost: int = 0
    recreated: int = 0  # batches that went on with a topic of the same name
    batches: int = 0
    failures: int = 0
    commit_s: float = 0.0
    delay_s: float = 0.0  # of the last batch: from storing its oldest message to its commit
    files: int | None = None  # as of the last merge
    row_bytes: float = 0.0


@dataclass
class LakeTable:
    """A topic and its table.

    `parse_fields` returns the columns of a schema that a user wrote; it raises ConfigError. `error` says why the last
    attempt failed, and `missing_files` which files were gone at the begin.
    """

    topic: str
    settings: SectionSettings
    source_options: Mapping[str, str] = field(repr=False)
    parse_fields: ParseFields = field(repr=False)
    monotonic: Callable[[], float] = time.monotonic
    clock: Callable[[], float] = time.time
    figures: Figures = field(default_factory=Figures)
    error: str = ""
    missing_files: str = ""
    failures_in_a_row: int = 0
    checks_without_route: int = 0
    is_permanent: bool = False
    is_deleted: bool = False
    busy_with: str = ""  # "merging" or "asking", while another thread works on it

    def __post_init__(self) -> None:
        self.root = self.settings.root(self.topic)
        self.state = state_folder(self.root)
        schema = self.settings.schema
        self.table_settings = self.settings.table_settings(
            self.topic, None if schema is None else self.parse_fields(schema)
        )
        self._bodies: EncodedBodies | None = None
        self._progress: Progress | None = None
        self._positions = Offsets()
        self._ends = Offsets()  # as far as batches may go
        self._bounds: Mapping[MessageQueue, Bounds] = {}  # by the brokers, when each last answered
        self._lakes: tuple[Lake, Lake] | None = None
        self._targets: tuple[UploadTarget, UploadTarget] | None = None
        self._replaced: ReplacedFiles | None = None
        self._locks = ExitStack()
        self._staging: Path | None = None
        self._parts: list[BatchPart] = []
        self._fields: dict[str, str] | None = None
        self._freshness = Freshness()
        self._due_s = 0.0
        self._batch_started_s: float | None = None

    @property
    def offsets(self) -> Offsets:
        """The next offset of each queue."""
        return self._positions

    @property
    def brokers(self) -> set[str]:
        """The names of the brokers that it was read from."""
        return {queue.broker_name for queue in self._positions}

    @property
    def lag(self) -> int:
        """The number of offsets of the brokers that the table lacks, also while it fails."""
        positions = {
            queue: offset if start <= (offset := self._positions.get(queue, start)) <= end else start
            for queue, (start, end, _) in self._bounds.items()
        }
        return sum(map(len, between(Offsets(positions, self._positions.incarnations), ends_of(self._bounds))))

    @property
    def _readable(self) -> int:
        return sum(map(len, between(self._positions, self._ends)))

    @property
    def has_failed(self) -> bool:
        return bool(self.error)

    @property
    def is_begun(self) -> bool:
        """Whether the table is locked and its progress is known."""
        return self._progress is not None

    @property
    def is_complete(self) -> bool:
        """Whether the table has all that the brokers had at the last check."""
        is_idle = self._progress is not None and self._progress.is_done and not self.has_failed
        return is_idle and bool(self._ends) and not self._readable

    def may_try(self) -> bool:
        """Whether the pause after a failure is over."""
        return self.monotonic() >= self._due_s

    @property
    def age_s(self) -> float:
        return self._freshness.age_s(self.monotonic())

    def begin(self) -> str:
        """Lock the table, and find its place.

        Returns how its state was repaired, and which files are gone, in words; "" if it was as it should be.
        Raises: ConfigError, it is another table, or another run works on it, or its messages are not known.
        """
        self._locks.enter_context(lock_folder(self.state))
        try:
            # The table may be reached by another path, with another state. In place of a folder, a file fails later.
            if isinstance(self.root, Path) and not self.root.is_file():
                self._locks.enter_context(lock_folder(self.root / OWN_FOLDER))
            stored_settings = load_checked_settings(self.root, self.table_settings)
            self.table_settings = drop_unusable_key(stored_settings or self.table_settings)
            check_partition_types(self.table_settings.partitioning, types_of(self.table_settings.fields))
            if self.table_settings.mode in ENCODED_MODES:
                self._bodies = EncodedBodies(self.table_settings, self.state / "schemas.json")
            finish_retry(self.root, self.table_settings)
            progress = load_progress(self.state)
            if progress is None:
                progress = checkpoint_progress(self.state, self.table_settings)
                if progress is not None:
                    self._save_progress(progress)
                    move_checkpoint_aside(self.state)
            progress, repair = self._repair(progress or Progress())
            if stored_settings is not None:
                save_settings(self.state, self.table_settings)  # `redrive` reads the policy of this start
            if self.table_settings.key is not None:
                stay_s = self.settings.replaced_stay_s
                self._replaced = ReplacedFiles(self.root, self.state, stay_s, self.clock, self.monotonic)
        except BaseException:
            with suppress(ConfigError, OSError):  # its lag is shown while it fails
                last_progress = (
                    load_progress(self.state) or checkpoint_progress(self.state, self.table_settings) or Progress()
                )
                self._positions = last_progress.position
            self._lakes = None
            self._locks.close()
            raise
        self._progress = progress
        self._positions = progress.position
        return repair

    def _repair(self, progress: Progress) -> tuple[Progress, str]:
        """Return the progress, or one after the commits of the tables if the state is not theirs; and the repair."""
        rows, errors = self._open_lakes()
        rows_state, errors_state = table_state(rows), table_state(errors)
        comparison = compare_progress(self.root, self.state, progress, rows_state, errors_state)
        for lake in (rows, errors) if comparison.difference and isinstance(self.root, Path) else ():
            check_committed(lake, self.table_settings.writer)
        locations = zip(self._locations(), (rows, errors), strict=True)
        self.missing_files = "; ".join(
            warning for location, lake in locations if (warning := missing_files_warning(location.path, lake))
        )
        self.release_files()
        if not comparison.difference:
            return replace(
                progress, rows=rows_state.last_with_rows, errors=errors_state.last_with_rows
            ), self.missing_files
        if comparison.fields is not None:
            self.table_settings.fields = comparison.fields
        save_settings(self.state, self.table_settings)
        self._save_progress(comparison.progress)
        repair = f"{comparison.difference}; it goes on behind what the table has"
        return comparison.progress, f"{repair}; {self.missing_files}" if self.missing_files else repair

    def _save_progress(self, progress: Progress) -> None:
        save_progress(self.state, replace(progress, is_done=False))
        if progress.is_done:
            save_progress(self.state, progress)

    def close(self) -> None:
        """Release open files and the lock."""
        self._lakes = None
        self._progress = None
        self._locks.close()

    def release_files(self) -> None:
        """Release the files; the next batch opens them again. This run stays the owner on S3."""
        for lake in self._lakes or ():
            if isinstance(lake, RemoteLake):
                lake.forget()
            else:
                self._lakes = None

    def update_offsets(
        self, bounds: Mapping[MessageQueue, Bounds], starts: Starts, new_start: NewStart, newest_ms: Newest
    ) -> None:
        """Note how far the brokers are.

        `starts` finds where the table begins, `new_start` where a queue begins that was made later, and `newest_ms`, by
        broker, when it stored its newest message.
        Raises: RowsLost, the topic was made again, or a queue has lost rows; not with failOnDataLoss=false.
        """
        if not self._positions and bounds:
            self.table_settings.newest_ms = newest_ms(bounds)
            self._positions = Offsets(starts(bounds), incarnations_in(bounds))
            self._save_begin()
        self.note_bounds(bounds)
        fails_on_loss = str(self.source_options.get("failOnDataLoss", "true")).lower() != "false"
        ends = stream_ends(self._positions, bounds, new_start, fail=fails_on_loss)
        for queue in ends.keys() - self._positions.keys():
            self._positions[queue] = ends[queue]
            self._save_begin()
        self._ends = ends

    def note_bounds(self, current: Mapping[MessageQueue, Bounds]) -> None:
        """Note the queues of brokers that answered, for the figures; those of other brokers stay as they were."""
        brokers = {queue.broker_name for queue in current}
        absent = {queue: bounds for queue, bounds in self._bounds.items() if queue.broker_name not in brokers}
        self._bounds = {**absent, **current}
        self._freshness.note_check(self._stored_offsets, self._stored_offsets - self.lag, self.monotonic())

    @property
    def _stored_offsets(self) -> int:
        return sum(bounds.end for bounds in self._bounds.values())

    def _save_begin(self) -> None:
        """Store where a new table begins, before it has a batch."""
        progress = self._progress
        assert progress is not None
        if progress.batch < 0:
            self._progress = Progress(-1, Offsets(), copy_offsets(self._positions), True)
            save_progress(self.state, self._progress)
            self.table_settings.begin = offsets_by_topic(self._positions)
            save_settings(self.state, self.table_settings)

    def is_due(self) -> bool:
        """Whether a batch may start now, and there are messages for it."""
        if self.busy_with or self.is_deleted or not self.may_try() or self._progress is None:
            return False
        if not self._progress.is_done:
            return True
        if self._batch_started_s is not None and self.monotonic() - self._batch_started_s < self.settings.every_s:
            return False
        return self._readable > 0

    @property
    def waiting_messages(self) -> int:
        """The count of messages for the next batch, without a round's limit."""
        if self._progress is not None and not self._progress.is_done:
            return sum(map(len, between(self._progress.start, self._progress.end)))
        if self.settings.rows_per_s is None:
            return self._readable
        elapsed_s = 1.0 if self._batch_started_s is None else max(0.0, self.monotonic() - self._batch_started_s)
        return min(self._readable, max(1, int(self.settings.rows_per_s * min(elapsed_s, 60.0))))

    @property
    def row_bytes(self) -> float:
        return self.figures.row_bytes or ROW_BYTES

    def plan(
        self, rows: int, most_parts: int, brokers: Callable[[Collection[str]], Mapping[str, Addresses]]
    ) -> list[BatchPart]:
        """Store the plan of a batch of about so many rows, and return its parts; none if the table begins again."""
        assert self._progress is not None
        if was_rolled_back(self._progress, *self._open_lakes()):
            self.close()  # the next look finds its place again
            return []
        if self._progress.is_done:
            end = limit_ends(self._positions, self._ends, rows)
            progress = self._progress.next(self._positions, end)
            save_progress(self.state, progress)
            self._progress = progress
        self._batch_started_s = self.monotonic()
        start, end = self._progress.start, self._progress.end
        rows_lake, _ = self._open_lakes()
        shutil.rmtree(self.state / "staged", ignore_errors=True)
        folder = self._staging = self.state / "staged" / uuid.uuid4().hex
        self._fields = self._unfinished_fields()
        settings, layout = self.table_settings, rows_lake.layout
        shape = ArrowRows(
            settings.mode,
            self._column_types(),
            settings.depth,
            None if self._bodies is None else self._bodies.known_encoding,
            settings.key,
            settings.deletes,
            layout.partitioning,
        )
        self._targets = self._upload_targets(self._progress.batch)
        self._parts = [
            BatchPart(
                self.topic,
                self.source_options,
                ranges,
                brokers({part.queue.broker_name for part in ranges}),
                shape,
                str(folder / str(number)),
                layout,
                self._targets,
            )
            for number, ranges in enumerate(share(between(start, end), 1, most_parts))
        ]
        return self._parts

    def _unfinished_fields(self) -> dict[str, str] | None:
        """The columns of this batch if one table has its part: wider ones would put messages in both, or in none."""
        assert self._progress is not None
        for lake in self._open_lakes():
            if self._progress.batch <= lake.last_batch():
                record = table_state(lake).record
                return dict(record.settled["fields"]) if record is not None else None
        return None

    def _column_types(self) -> Mapping[str, DataType]:
        return types_of(self.table_settings.fields if self._fields is None else self._fields)

    def parts_to_repeat(self, results: Sequence[PartResult]) -> list[BatchPart]:
        """Return the parts to repeat because their bodies add columns; stores the columns first."""
        fields, encoding = self._grow_fields(results), None
        if self._bodies is not None and self._parts:
            used_encoding = self._parts[0].shape.encoding or self._bodies.known_encoding
            assert self._progress is not None
            known_fields = fields if self._fields is None else None
            shape = self._bodies.grown_shape(
                used_encoding, known_fields, self._progress.batch, [result.heads for result in results]
            )
            if shape is None:
                return []
            fields, encoding = shape.fields, shape.encoding
        elif fields == self.table_settings.fields:
            return []
        if self._fields is None:
            save_settings(self.state, replace(self.table_settings, fields=fields))
            self.table_settings.fields = fields
        kinds = self._column_types()
        assert self._staging is not None
        shutil.rmtree(self._staging, ignore_errors=True)
        self.discard(results)
        self._parts = [part.with_columns(kinds, encoding) for part in self._parts]
        return self._parts

    def _grow_fields(self, results: Sequence[PartResult]) -> dict[str, str]:
        settings = self.table_settings
        if settings.mode != "json" or self._fields is not None:
            return settings.fields
        if not any(result.body_fields for result in results):
            return pin_types(settings.partitioning, settings.fields, settings.fields)
        fields = merge_fields(
            merge_body_fields(result.body_fields for result in results), settings, self._open_lakes()[0]
        )
        if isinstance(self.root, Address):  # files there are not written again: other types are errors
            fields = {name: settings.fields.get(name, kind) for name, kind in fields.items()}
        return fields

    def discard(self, results: Sequence[PartResult]) -> None:
        """Remove files behind an address that belong to no commit."""
        for result in results if self._targets is not None else ():
            for target, files in zip(self._targets or (), (result.rows, result.errors), strict=True):
                target.remove(files)

    def _upload_targets(self, batch: int) -> tuple[UploadTarget, UploadTarget] | None:
        if not isinstance(self.root, Address):
            return None
        prefix = f"{self.table_settings.writer}-{batch:09}"
        rows, errors = (
            upload_target(lake, location, self.table_settings.format, prefix)
            for lake, location in zip(self._open_lakes(), self._locations(), strict=True)
        )
        return rows, errors

    def add(self, results: Sequence[PartResult]) -> None:
        """Add the files of a batch to the table and its table of errors.

        Raises: OSError, and what the format raises: the next attempt adds what is missing. ConfigError, another run
        has written to the table, with another copy of the state.
        """
        begin = self.monotonic()
        assert self._progress is not None
        rows, errors = self._open_lakes()
        save_settings(self.state, self.table_settings)
        shape = ArrowRows(self.table_settings.mode, self._column_types())
        row_files = self._staged_files([file for result in results for file in result.rows])
        error_files = self._staged_files([file for result in results for file in result.errors])
        last_batches = self._progress.rows, self._progress.errors
        folders = [target.folder for target in self._targets] if self._targets else [None, None]
        staged = Staged(row_files, shape.schema, folder=folders[0])
        row_count = self._commit_files(rows, last_batches[0], staged, last_batches[1], is_half=bool(error_files))
        rows_batch = self._batch_reached(rows, last_batches[0])
        staged = Staged(error_files, shape.error_schema, folder=folders[1])
        error_count = self._commit_files(errors, last_batches[1], staged, rows_batch)
        self._progress = self._progress.done(rows_batch, self._batch_reached(errors, last_batches[1]))
        save_progress(self.state, self._progress)
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
        self._update_figures(results, row_count, error_count, self.monotonic() - begin)
        self.remove_replaced()

    def _batch_reached(self, lake: Lake, last_known: int) -> int:
        assert self._progress is not None
        return self._progress.batch if lake.last_batch() >= self._progress.batch else last_known

    def _commit_files(self, lake: Lake, last_known: int, staged: Staged, other: int, *, is_half: bool = False) -> int:
        """Add files unless the table has the batch, and return the rows added; `other`: the other's last batch."""
        assert self._progress is not None
        if not staged.files:
            return 0
        check_same_batch(self.root, lake, last_known, self._progress)
        if self._progress.batch <= lake.last_batch():
            return 0
        key = self.table_settings.key if lake is self._open_lakes()[0] else None
        if isinstance(self.root, Address):
            check_needs_no_wider_types(lake, staged.schema, self.root)
        else:
            widen_columns(lake, staged.schema, self.state / "rewritten")
        amount = staged.rows
        if key is not None:
            assert self._staging is not None
            target = self._targets[0] if self._targets is not None else None
            staged = KeyedBatch(key, self._staging / "keyed", self._name_file, target).apply_to(lake, staged)
            if not staged.files and not staged.removed:
                return 0  # it deletes keys that the table does not have
        settings = self.table_settings if self._fields is None else replace(self.table_settings, fields=self._fields)
        record = batch_record(self._progress, settings, other=other, is_half=is_half)
        lake.commit(self._progress.batch, replace(staged, record=record))
        if self._replaced is not None:
            self._replaced.note(staged.removed)
        return amount

    def _update_figures(self, results: Sequence[PartResult], rows: int, errors: int, commit_s: float) -> None:
        assert self._progress is not None
        figures, progress = self.figures, self._progress
        read = sum(result.read for result in results)
        figures.read += read
        figures.rows += rows
        figures.errors += errors
        figures.damaged += sum(result.damaged for result in results)
        if not any(name.lower() in _FILTERS for name in self.source_options):
            figures.lost += max(0, sum(map(len, between(progress.start, progress.end))) - read)
        figures.recreated += bool(recreated_topics(progress.start, progress.end))
        figures.batches += 1
        figures.commit_s += commit_s
        if read:
            figures.row_bytes = max(1.0, sum(result.size for result in results) / read)
        oldest = [result.oldest_ms for result in results if result.oldest_ms is not None]
        if oldest:
            figures.delay_s = max(0.0, self.clock() - min(oldest) / 1000)
        end = progress.offsets
        self._positions = Offsets({**self._positions, **end}, self._positions.incarnations | end.incarnations)
        self._freshness.note_progress(self._stored_offsets - self.lag)
        self.error, self.is_permanent, self.failures_in_a_row = "", False, 0

    def _staged_files(self, files: Sequence[StagedFile]) -> list[StagedFile]:
        return [file if file.name else self._name_file(file) for file in files]

    def _name_file(self, file: StagedFile) -> StagedFile:
        assert self._progress is not None
        name = f"{self.table_settings.writer}-{self._progress.batch:09}-{uuid.uuid4().hex}"
        return file.with_name(name, self._open_lakes()[0].layout)

    def _open_lakes(self) -> tuple[Lake, Lake]:
        if self._lakes is None:
            rows, errors = (open_lake(self.table_settings.format, location) for location in self._locations())
            self._lakes = rows, errors
            self.table_settings.fields = restore_fields(self.table_settings, self._lakes[0])
        return self._lakes

    def _locations(self) -> tuple[TableLocation, TableLocation]:
        """Without a wait for storage that is away: other tables would wait too, and the lake itself tries again."""
        stay_s = None if self.table_settings.key is None else self.settings.replaced_stay_s
        location = TableLocation(
            self.root,
            self.state,
            self.table_settings.writer,
            wait_s=0,
            replaced_stay_s=stay_s,
            file_bytes=self.settings.file_size,
            partitioning=self.table_settings.partitioning,
        )
        return location, location.errors

    @property
    def has_replaced(self) -> bool:
        return self._replaced is not None and self.is_begun and not self.busy_with and self._replaced.has_due

    def remove_replaced(self) -> None:
        """Remove the files that batches have replaced, when readers had time to finish."""
        if self._replaced is not None:
            self._replaced.remove(self._open_lakes()[0])

    def merge(self, today: date) -> tuple[int, int, int]:
        """Merge small files, also today's, and take out old days; returns the files before and after, and the days."""
        lakes = self._open_lakes()
        keep_days, days = self.settings.keep_days, 0
        old_paths = set(lakes[0].paths())
        before = len(old_paths) + len(lakes[1].paths())
        can_merge = isinstance(self.root, Path) or self.table_settings.format == "delta"
        for lake in lakes:
            if keep_days is not None:
                days += lake.expire(today - timedelta(days=min(keep_days, today.toordinal() - 1)))
            if can_merge:
                lake.compact(today + timedelta(days=1))
        self.release_files()  # the merged table is read again
        new_paths = lakes[0].paths()
        if self._replaced is not None:
            self._replaced.note(old_paths.difference(new_paths))
        self.figures.files = len(new_paths) + len(lakes[1].paths())
        return before, self.figures.files, days

    def fail(self, error: BaseException | str) -> Failure:
        """Pause after a failure: longer each time, and for minutes where a retry would fail again."""
        text = error if isinstance(error, str) else error_text(error)
        failure = failure_from(text, f"{self.root} or {self.state}")
        self.release_files()
        self.figures.failures += 1
        self.failures_in_a_row += 1
        self.error, self.is_permanent = failure.reason or failure.name or "failed", failure.is_permanent
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(self.failures_in_a_row - 1, 16)))
        self._due_s = self.monotonic() + (PERMANENT_PAUSE_S if failure.is_permanent else pause_s)
        return failure


class Freshness:
    """The age of the oldest message that a table lacks, found without reading the message.

    Each look at the brokers counts their messages. A table with fewer messages lacks some that arrived after the last
    look which counted no more than the table has.
    """

    def __init__(self) -> None:
        # The count, and the look before, which did not count it.
        self._unread_checks: deque[tuple[int, float]] = deque()
        self._last_check_s: float | None = None
        self._last_count = 0

    def note_check(self, count: int, table_count: int, now_s: float) -> None:
        """Note a check of the brokers: the sum of offsets of the brokers and of the table."""
        self._last_count = count
        newest = self._unread_checks[-1][0] if self._unread_checks else table_count
        if count > newest:
            begin_s = now_s if self._last_check_s is None else self._last_check_s
            self._unread_checks.append((count, begin_s))
        if len(self._unread_checks) > _MAX_FRESHNESS_STEPS:  # a table that is behind for long needs no exact steps
            self._unread_checks = deque(check for index, check in enumerate(self._unread_checks) if index % 2 == 0)
        self._last_check_s = now_s
        self.note_progress(table_count)

    def note_progress(self, table_count: int) -> None:
        if table_count >= self._last_count:  # also if a topic was made again, and counts from 0
            self._unread_checks.clear()
        while self._unread_checks and self._unread_checks[0][0] <= table_count:
            self._unread_checks.popleft()

    def age_s(self, now_s: float) -> float:
        """Return an upper bound; 0 if the table lacks no message."""
        return max(0.0, now_s - self._unread_checks[0][1]) if self._unread_checks else 0.0
