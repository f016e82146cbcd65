"""The loop of a lake: one look at all brokers, one job for all topics, a commit for each table.

    look       finds the topics, and how far their queues go; one request for each queue, all at once
    share      each table gets as much of the round as it needs, or a fair part
    work       the parts of all tables, in one job of Spark
    commit     each table by itself, some side by side
    upkeep     merges one table at a time, while the others continue

No table has a query or a process of its own, so an idle table costs a few requests for each look. A table that fails
pauses, longer each time, and the others do not notice. A table that waits for a slow schema registry does its batch
again when the registry has answered, and the others continue meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from sparrowmq.client.cluster.blocking_network import BlockingNetwork, BrokersAway
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import NoRoute, SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.failures import failure_from
from sparrowmq.spark.lakehouse.batch_parts import BatchPart, PartResult, error_text
from sparrowmq.spark.lakehouse.lake_progress import brokers_in
from sparrowmq.spark.lakehouse.lake_settings import LakeSettings, SectionSettings
from sparrowmq.spark.lakehouse.lake_table import LakeTable, ParseFields
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.report import Say, to_stderr
from sparrowmq.spark.pipelines.table import today
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets
from sparrowmq.spark.source.presence import Presence
from sparrowmq.spark.source.query_offsets import OffsetClient

_MAX_REGISTRY_THREADS: Final = 8
_REGISTRY_WAIT_S: Final = 2.0  # for which a round waits for a schema registry
_MAX_COMMIT_THREADS: Final = 4
_LOSSES_ALLOWED: Final = SectionSettings(options={"failOnDataLoss": "false"})
_MAX_CHECKS_WITHOUT_ROUTE: Final = 5
_MAX_BATCH_REPEATS: Final = 5  # of a batch whose bodies add columns
_MAX_OPEN_TABLES: Final = 64  # whose files stay open for their next batch


T = TypeVar("T")


class Workers(Protocol):
    """Runs parts, in any order. `tasks`: a useful count of parts."""

    tasks: int

    def __call__(self, parts: Sequence[BatchPart]) -> list[PartResult]: ...


@dataclass
class LakeLoop:
    """The tables of a lake, and the rounds over them. `network` is used by the thread that calls."""

    settings: LakeSettings
    network: BlockingNetwork
    workers: Workers
    parse_fields: ParseFields
    say: Say = to_stderr
    monotonic: Callable[[], float] = time.monotonic
    tables: dict[str, LakeTable] = field(default_factory=dict)
    checked_s: float | None = None  # when all name servers and brokers were last asked
    error: str = ""  # of the last check of the brokers
    incomplete_checks: int = 0  # in a row, in which brokers were away

    def __post_init__(self) -> None:
        self._presence = Presence(self.monotonic)
        self._topics_due_s = 0.0
        self._pace = Pace(self.settings.rows_per_round, self.settings.round_s)
        self._commit_threads = ThreadPoolExecutor(_MAX_COMMIT_THREADS, "commit")
        self._lookup_threads = ThreadPoolExecutor(_MAX_REGISTRY_THREADS, "ask")
        self._lookups: dict[str, tuple[Future[list[BatchPart]], list[PartResult]]] = {}
        self._upkeep = Upkeep(self.say, self.monotonic)
        self._open_tables: list[str] = []

    def close(self) -> None:
        """Wait for running commits and merges, and close all tables."""
        self._upkeep.close()
        self._lookup_threads.shutdown(cancel_futures=True)
        self._commit_threads.shutdown()
        for table in self.tables.values():
            table.close()

    def run_round(self) -> bool:
        """Do one round; returns whether any table has more to do now."""
        self._check_brokers()
        self._finish_lookups()
        due = [table for table in self.tables.values() if table.is_due()]
        if due:
            begin = self.monotonic()
            amount = self._work(due)
            self._pace.note(amount, self.monotonic() - begin)
        for table in [table for table in self.tables.values() if table.has_replaced]:
            self._attempt(table, table.remove_replaced)
        self._upkeep.run_due(self.tables.values())
        return any(table.is_due() for table in self.tables.values())

    @property
    def absent_brokers(self) -> list[str]:
        """The brokers that did not answer: tables may lack their messages."""
        return sorted(self._presence.absent)

    def _check_brokers(self) -> None:
        try:
            self._find_topics()
            self._find_ends()
        except SparrowError as error:
            if not self.error:
                self.say(f"the brokers cannot be asked: {error}; it is tried again")
            self.error = str(error)
        else:
            self.error = ""
            self.checked_s = self.monotonic()
            self.incomplete_checks = self.incomplete_checks + 1 if self.absent_brokers else 0

    def _find_topics(self) -> None:
        if self.monotonic() < self._topics_due_s:
            return
        listed = set(self.network.topics())
        if not self.network.registered:
            raise BrokersAway("no name server knows a broker now; start the brokers, or wait until they are back")
        self._topics_due_s = self.monotonic() + self.settings.new_topics_every_s
        unlisted = self._topics_away(listed) if self.checked_s is None else set()
        for topic in sorted((listed | unlisted) - self.tables.keys()):
            if (settings := self.settings.section_for(topic)) is not None:
                options = self.settings.source(settings)
                self.tables[topic] = LakeTable(topic, settings, options, self.parse_fields, self.monotonic)
                self.say(f"{topic}: is kept at {settings.root(topic)}")
        for topic, table in self.tables.items():
            # The topics of a broker that is away are not listed either.
            is_gone = topic not in listed | unlisted and table.brokers <= self.network.registered
            if table.is_deleted != is_gone:
                table.is_deleted = is_gone
                self.say(f"{topic}: {'was deleted; its table stays' if table.is_deleted else 'is there again'}")

    def _topics_away(self, listed: Collection[str]) -> set[str]:
        """Return topics that an earlier run read from brokers which no name server lists now."""
        states = {topic: state for topic, state in self.settings.states().items() if topic not in listed}
        return {topic for topic, state in states.items() if brokers_in(state) - self.network.registered}

    def _find_ends(self) -> None:
        present = [table for table in self.tables.values() if not table.is_deleted]
        for table in present:
            self._begin(table)
        offsets = Offsets()
        for table in present:
            offsets |= table.offsets
            offsets.incarnations |= table.offsets.incarnations
        routed = [table.topic for table in present if self._has_route(table)]
        if not routed:
            return
        # What a table does about lost rows is decided when it looks for its own offsets.
        offset_client = OffsetClient(self.network, _options(self.settings.source(_LOSSES_ALLOWED), routed))
        bounds_by_topic: dict[str, dict[MessageQueue, Bounds]] = {}
        for queue, bounds in self._presence.bounds(offset_client, offsets).items():
            bounds_by_topic.setdefault(queue.topic, {})[queue] = bounds
        for table in present:
            queues = bounds_by_topic.get(table.topic, {})
            if table.is_begun and (table.may_try() or not table.is_permanent):
                self._attempt(table, partial(self._update_table, table, queues))
            else:
                table.note_bounds(queues)

    def _has_route(self, table: LakeTable) -> bool:
        """Whether a topic has a route; a new topic has none for a moment."""
        if table.offsets:
            return True
        try:
            self.network.route(table.topic)
        except NoRoute as error:
            table.checks_without_route += 1
            is_late = table.checks_without_route > _MAX_CHECKS_WITHOUT_ROUTE
            if is_late and table.is_begun and table.may_try():
                self._note_failure(table, error)
            return False
        return True

    def _update_table(self, table: LakeTable, bounds: Mapping[MessageQueue, Bounds]) -> None:
        offset_client = OffsetClient(self.network, _options(table.source_options, [table.topic]))
        table.update_offsets(
            bounds,
            partial(offset_client.starts, otherwise="earliest"),
            offset_client.new_start,
            offset_client.newest_ms,
        )

    def _begin(self, table: LakeTable) -> None:
        if not table.is_begun and table.may_try() and (repaired := self._attempt(table, table.begin)):
            self.say(f"{table.topic}: {repaired}")

    def _work(self, due: Collection[LakeTable]) -> int:
        """Do a batch of each table; returns the work done, in rows."""
        bytes_per_row = self.settings.bytes_per_round / self.settings.rows_per_round
        units = {table.topic: max(1.0, table.row_bytes / bytes_per_row) for table in due}
        waiting = {table.topic: int(table.waiting_messages * units[table.topic]) + 1 for table in due}
        shares = fair_shares(waiting, self._pace.budget)
        parts: list[BatchPart] = []
        for table in due:
            rows = max(1, int(shares[table.topic] / units[table.topic]))
            parts += (
                self._attempt(table, partial(table.plan, rows, self.workers.tasks, self.network.addresses_of)) or []
            )
        self._commit(self._run_parts(parts))
        self._release_idle([table.topic for table in due])
        return sum(shares.values())

    def _run_parts(self, parts: list[BatchPart]) -> dict[str, list[PartResult]]:
        """Run parts, and again those whose bodies add columns."""
        done: dict[str, list[PartResult]] = {part.topic: [] for part in parts}
        for _ in range(_MAX_BATCH_REPEATS):
            new_results: dict[str, list[PartResult]] = {}
            for result in self.workers(parts):
                new_results.setdefault(result.topic, []).append(result)
            done |= new_results
            parts = []
            lookups = {
                topic: self._lookup_threads.submit(self.tables[topic].parts_to_repeat, results)
                for topic, results in new_results.items()
                if not any(result.error for result in results)
            }
            wait(lookups.values(), _REGISTRY_WAIT_S)
            for topic, lookup in lookups.items():
                repeated = self._finish_lookup(topic, lookup, new_results[topic])
                if repeated is None:
                    del done[topic]
                parts += repeated or []
            if not parts:
                break
        for topic in {part.topic for part in parts}:  # its files are gone already
            del done[topic]
            self._note_failure(self.tables[topic], "its bodies add columns each time")
        return done

    def _finish_lookup(
        self, topic: str, lookup: Future[list[BatchPart]], results: list[PartResult]
    ) -> list[BatchPart] | None:
        """Return the parts to repeat; None if the table failed, or still waits for the registry."""
        table = self.tables[topic]
        if not lookup.done():
            table.busy_with = "asking"
            self._lookups[topic] = lookup, results
            return None
        if (error := lookup.exception()) is None:
            return lookup.result()
        self._note_failure(table, error)
        self._attempt(table, partial(table.discard, results))
        return None

    def _finish_lookups(self) -> None:
        """Continue the tables whose registry has answered: they repeat their batch with the schemas."""
        for topic, (lookup, results) in list(self._lookups.items()):
            if lookup.done():
                del self._lookups[topic]
                table = self.tables[topic]
                table.busy_with = ""
                if self._finish_lookup(topic, lookup, results) is not None:
                    self._attempt(table, partial(table.discard, results))

    def _commit(self, done: Mapping[str, list[PartResult]]) -> None:
        commits: dict[str, Future[None]] = {}
        for topic, results in done.items():
            table = self.tables[topic]
            if errors := [result.error for result in results if result.error]:
                self._note_failure(table, errors[0])
                commits[topic] = self._commit_threads.submit(table.discard, results)
            else:
                commits[topic] = self._commit_threads.submit(table.add, results)
        for topic, commit in commits.items():
            error = commit.exception()
            if error is not None:
                self._note_failure(self.tables[topic], error)

    def _attempt(self, table: LakeTable, work: Callable[[], T]) -> T | None:
        """Do something for one table, in a thread, which keeps any error. Returns None after a failure."""
        future = self._commit_threads.submit(work)
        if (error := future.exception()) is not None:
            self._note_failure(table, error)
            return None
        return future.result()

    def _note_failure(self, table: LakeTable, error: BaseException | str) -> None:
        failure = table.fail(error)
        consequence = "waits for you" if failure.is_permanent else "is tried again"
        self.say(f"{table.topic}: failed: {table.error}; it {consequence}, the other tables go on")

    def _release_idle(self, topics: Iterable[str]) -> None:
        used = list(topics)
        self._open_tables = [topic for topic in self._open_tables if topic not in used] + used
        for topic in self._open_tables[:-_MAX_OPEN_TABLES]:
            self.tables[topic].release_files()
        self._open_tables = self._open_tables[-_MAX_OPEN_TABLES:]


def _options(source_options: Mapping[str, str], topics: Sequence[str]) -> SourceOptions:
    return parse(SourceOptions, {**source_options, "topic": ",".join(topics)})


def fair_shares(waiting: Mapping[str, int], budget: int) -> dict[str, int]:
    """Return the share of each table in a budget: 1 at least, even if that exceeds the budget.

    Tables that need little get all they need, and the others share the rest equally. So a topic with a large backlog
    delays the others by one round at most.

        waiting   a 10   b 500   c 100,000      budget 1,000
        share     a 10   b 495   c 495
    """
    shares: dict[str, int] = {}
    remaining = budget
    for index, (name, amount) in enumerate(sorted(waiting.items(), key=lambda item: (item[1], item[0]))):
        share = min(amount, max(1, remaining // (len(waiting) - index)))
        shares[name] = share
        remaining -= share
    return shares


class Pace:
    """The budget of a round: as much as the last rounds did in `round_s`; `most` for the first round, and at most."""

    def __init__(self, most: int, round_s: float) -> None:
        self._most = most
        self._round_s = round_s
        self.budget = most

    def note(self, amount: int, seconds: float) -> None:
        """Note a round; small rounds say nothing about the pace, as most of their time is overhead."""
        if seconds <= 0 or (amount < self.budget // 2 and seconds < self._round_s):
            return
        amount_per_round = int(amount / seconds * self._round_s)
        self.budget = max(self._most // 20, 1, min(self._most, (self.budget + amount_per_round) // 2))


@dataclass
class Upkeep:
    """Merges small files of tables and removes old days, one table at a time. The thread of the rounds calls it.

    A table gets no batch while it is merged; its next batch has all messages that arrived meanwhile. A failed merge is
    tried again when the next one is due.
    """

    say: Say
    monotonic: Callable[[], float]
    _due_s: dict[str, float] = field(default_factory=dict)
    _batches_at_merge: dict[str, int] = field(default_factory=dict)  # the number of batches at its last merge
    _running_merge: tuple[LakeTable, Future[tuple[int, int, int]]] | None = None

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "upkeep")

    def run_due(self, tables: Iterable[LakeTable]) -> None:
        """Finish a merge that is done, and start the next one that is due."""
        if self._running_merge is not None and self._running_merge[1].done():
            self._end(*self._running_merge)
            self._running_merge = None
        for table in tables:
            if self._is_due(table) and self._running_merge is None:
                table.busy_with = "merging"
                self._running_merge = table, self._thread.submit(table.merge, today())

    def close(self) -> None:
        """Wait for the running merge."""
        self._thread.shutdown()
        if self._running_merge is not None:
            self._end(*self._running_merge)
            self._running_merge = None

    def _is_due(self, table: LakeTable) -> bool:
        every_s = table.settings.compact_every_s
        if not every_s or not table.is_begun:
            return False
        due_s = self._due_s.setdefault(table.topic, self.monotonic() + every_s)
        has_new = table.figures.batches > self._batches_at_merge.get(table.topic, 0)
        return has_new and not table.busy_with and self.monotonic() >= due_s

    def _end(self, table: LakeTable, merge: Future[tuple[int, int, int]]) -> None:
        table.busy_with = ""
        self._due_s[table.topic] = self.monotonic() + table.settings.compact_every_s
        self._batches_at_merge[table.topic] = table.figures.batches
        error = merge.exception()
        if error is not None:
            table.release_files()
            failure = failure_from(error_text(error), f"{table.root} or {table.state}")
            self.say(
                f"{table.topic}: its files were not merged: {failure.reason or failure.name}; tried again when due next"
            )
            return
        before, after, days = merge.result()
        removed_days = f", {days:,} old days taken out" if days else ""
        self.say(f"{table.topic}: {counted(before, 'file')} merged to {after:,}{removed_days}")
