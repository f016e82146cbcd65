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
from sparrowmq.spark.failures import failure
from sparrowmq.spark.lakehouse.batch_parts import Part, Written, error_text
from sparrowmq.spark.lakehouse.lake_progress import brokers_in
from sparrowmq.spark.lakehouse.lake_settings import LakeSettings, TableSettings
from sparrowmq.spark.lakehouse.lake_table import Declared, KeptTable
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.report import Say, to_stderr
from sparrowmq.spark.pipelines.table import today
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets
from sparrowmq.spark.source.presence import Presence
from sparrowmq.spark.source.query_offsets import Plan

_ASKS_AT_ONCE: Final = 8
_ASK_S: Final = 2.0  # for which a round waits for a schema registry
_COMMITS_AT_ONCE: Final = 4
_LENIENT: Final = TableSettings(options={"failOnDataLoss": "false"})
_LOOKS_FOR_A_ROUTE: Final = 5
_MOST_REPEATS: Final = 5  # of a batch whose bodies add columns
_OPEN_TABLES: Final = 64  # whose files stay open for their next batch


T = TypeVar("T")


class Workers(Protocol):
    """Does parts, in any order. `tasks`: how many are worth having."""

    tasks: int

    def __call__(self, parts: Sequence[Part]) -> list[Written]: ...


@dataclass
class Rounds:
    """The tables of a lake, and the rounds over them.

    Attributes:
        settings: the file. network: to the brokers; used by the thread that calls. workers: who does the parts.
        declared: as `KeptTable` has it. say: gets lines about the progress.
    """

    settings: LakeSettings
    network: BlockingNetwork
    workers: Workers
    declared: Declared
    say: Say = to_stderr
    monotonic: Callable[[], float] = time.monotonic
    tables: dict[str, KeptTable] = field(default_factory=dict)
    looked_s: float | None = None  # when all name servers and brokers were last asked
    why: str = ""  # the last look failed
    looks_without_some: int = 0  # in a row, in which brokers were away

    def __post_init__(self) -> None:
        self._presence = Presence(self.monotonic)
        self._topics_due_s = 0.0
        self._pace = Pace(self.settings.rows_per_round, self.settings.round_s)
        self._commits = ThreadPoolExecutor(_COMMITS_AT_ONCE, "commit")
        self._asks = ThreadPoolExecutor(_ASKS_AT_ONCE, "ask")
        self._asking: dict[str, tuple[Future[list[Part]], list[Written]]] = {}
        self._upkeep = Upkeep(self.say, self.monotonic)
        self._rested: list[str] = []

    def close(self) -> None:
        """Wait for what is being committed or merged, and let go of all tables."""
        self._upkeep.close()
        self._asks.shutdown(cancel_futures=True)
        self._commits.shutdown()
        for table in self.tables.values():
            table.close()

    def round(self) -> bool:
        """Do one round; returns whether any table has more to do at once."""
        self._look()
        self._end_asks()
        due = [table for table in self.tables.values() if table.is_due()]
        if due:
            begin = self.monotonic()
            amount = self._work(due)
            self._pace.note(amount, self.monotonic() - begin)
        for table in [table for table in self.tables.values() if table.has_replaced]:
            self._attempt(table, table.remove_replaced)
        self._upkeep.look(self.tables.values())
        return any(table.is_due() for table in self.tables.values())

    @property
    def away(self) -> list[str]:
        """The brokers whose messages the tables may lack, as they did not answer."""
        return sorted(self._presence.absent)

    # Looking ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        try:
            self._find_topics()
            self._find_ends()
        except SparrowError as error:
            if not self.why:
                self.say(f"the brokers cannot be asked: {error}; it is tried again")
            self.why = str(error)
        else:
            self.why = ""
            self.looked_s = self.monotonic()
            self.looks_without_some = self.looks_without_some + 1 if self.away else 0

    def _find_topics(self) -> None:
        if self.monotonic() < self._topics_due_s:
            return
        there = set(self.network.topics())
        if not self.network.registered:
            raise BrokersAway("no name server knows a broker now; start the brokers, or wait until they are back")
        self._topics_due_s = self.monotonic() + self.settings.new_topics_every_s
        begun = self._topics_away(there) if self.looked_s is None else set()
        for topic in sorted((there | begun) - self.tables.keys()):
            if (settings := self.settings.of(topic)) is not None:
                given = self.settings.source(settings)
                self.tables[topic] = KeptTable(topic, settings, given, self.declared, self.monotonic)
                self.say(f"{topic}: is kept at {settings.root(topic)}")
        for topic, table in self.tables.items():
            # The topics of a broker that is away are not listed either.
            is_gone = topic not in there | begun and table.brokers <= self.network.registered
            if table.is_gone != is_gone:
                table.is_gone = is_gone
                self.say(f"{topic}: {'was deleted; its table stays' if table.is_gone else 'is there again'}")

    def _topics_away(self, there: Collection[str]) -> set[str]:
        """The topics that an earlier run has read from brokers which no name server lists now."""
        states = {topic: state for topic, state in self.settings.states().items() if topic not in there}
        return {topic for topic, state in states.items() if brokers_in(state) - self.network.registered}

    def _find_ends(self) -> None:
        there = [table for table in self.tables.values() if not table.is_gone]
        for table in there:
            self._begin(table)
        begun = Offsets()
        for table in there:
            begun |= table.offsets
            begun.incarnations |= table.offsets.incarnations
        routed = [table.topic for table in there if self._has_route(table)]
        if not routed:
            return
        # What a table does about lost rows is its own affair, and seen when it looks.
        plan = Plan(self.network, _options(self.settings.source(_LENIENT), routed))
        found: dict[str, dict[MessageQueue, Bounds]] = {}
        for queue, held in self._presence.bounds(plan, begun).items():
            found.setdefault(queue.topic, {})[queue] = held
        for table in there:
            queues = found.get(table.topic, {})
            if table.is_begun and (table.may_try() or not table.is_permanent):
                self._attempt(table, partial(self._look_at, table, queues))
            else:
                table.note(queues)

    def _has_route(self, table: KeptTable) -> bool:
        """Whether a topic can be asked for; one that was just made has no route for a moment."""
        if table.offsets:
            return True
        try:
            self.network.route(table.topic)
        except NoRoute as error:
            table.looks_without_route += 1
            is_late = table.looks_without_route > _LOOKS_FOR_A_ROUTE
            if is_late and table.is_begun and table.may_try():
                self._failed(table, error)
            return False
        return True

    def _look_at(self, table: KeptTable, held: Mapping[MessageQueue, Bounds]) -> None:
        plan = Plan(self.network, _options(table.given, [table.topic]))
        table.look(held, partial(plan.starts, otherwise="earliest"), plan.new_start, plan.newest_ms)

    def _begin(self, table: KeptTable) -> None:
        if not table.is_begun and table.may_try() and (repaired := self._attempt(table, table.begin)):
            self.say(f"{table.topic}: {repaired}")

    # Working ------------------------------------------------------------------------------------------------------

    def _work(self, due: Collection[KeptTable]) -> int:
        """Do a batch of each table; returns how much was done, in rows."""
        per_unit = self.settings.bytes_per_round / self.settings.rows_per_round
        units = {table.topic: max(1.0, table.row_bytes / per_unit) for table in due}
        waiting = {table.topic: int(table.waiting * units[table.topic]) + 1 for table in due}
        shares = fair_shares(waiting, self._pace.budget)
        parts: list[Part] = []
        for table in due:
            rows = max(1, int(shares[table.topic] / units[table.topic]))
            parts += self._attempt(table, partial(self._parts, table, rows)) or []
        self._commit(self._written(parts))
        self._rest([table.topic for table in due])
        return sum(shares.values())

    def _parts(self, table: KeptTable, rows: int) -> list[Part]:
        return table.plan(rows, self.workers.tasks, self.network.addresses_of)

    def _written(self, parts: list[Part]) -> dict[str, list[Written]]:
        """Do parts, and those again whose bodies add columns."""
        done: dict[str, list[Written]] = {part.topic: [] for part in parts}
        for _ in range(_MOST_REPEATS):
            found: dict[str, list[Written]] = {}
            for written in self.workers(parts):
                found.setdefault(written.topic, []).append(written)
            done |= found
            parts = []
            asks = {
                topic: self._asks.submit(self.tables[topic].again, some)
                for topic, some in found.items()
                if not any(written.error for written in some)
            }
            wait(asks.values(), _ASK_S)
            for topic, ask in asks.items():
                again = self._asked(topic, ask, found[topic])
                if again is None:
                    del done[topic]
                parts += again or []
            if not parts:
                break
        for topic in {part.topic for part in parts}:  # its files are gone already
            del done[topic]
            self._failed(self.tables[topic], "its bodies add columns each time")
        return done

    def _asked(self, topic: str, ask: Future[list[Part]], some: list[Written]) -> list[Part] | None:
        """Return the parts of a table to be done again; None if it failed, or still asks for schemas."""
        table = self.tables[topic]
        if not ask.done():
            table.held_for = "asking"
            self._asking[topic] = ask, some
            return None
        if (error := ask.exception()) is None:
            return ask.result()
        self._failed(table, error)
        self._attempt(table, partial(table.discard, some))
        return None

    def _end_asks(self) -> None:
        """Let the tables go on whose registry has answered: they do their batch again, with the schemas."""
        for topic, (ask, some) in list(self._asking.items()):
            if ask.done():
                del self._asking[topic]
                table = self.tables[topic]
                table.held_for = ""
                if self._asked(topic, ask, some) is not None:
                    self._attempt(table, partial(table.discard, some))

    def _commit(self, done: Mapping[str, list[Written]]) -> None:
        commits: dict[str, Future[None]] = {}
        for topic, written in done.items():
            table = self.tables[topic]
            if errors := [each.error for each in written if each.error]:
                self._failed(table, errors[0])
                commits[topic] = self._commits.submit(table.discard, written)
            else:
                commits[topic] = self._commits.submit(table.add, written)
        for topic, commit in commits.items():
            error = commit.exception()
            if error is not None:
                self._failed(self.tables[topic], error)

    def _attempt(self, table: KeptTable, work: Callable[[], T]) -> T | None:
        """Do something for one table, in another thread. Returns None after a failure, which is that table's alone.

        Formats raise errors of many packages. A thread keeps any of them until it is asked.
        """
        done = self._commits.submit(work)
        if (error := done.exception()) is not None:
            self._failed(table, error)
            return None
        return done.result()

    def _failed(self, table: KeptTable, error: BaseException | str) -> None:
        found = table.fail(error)
        what = "waits for you" if found.is_permanent else "is tried again"
        self.say(f"{table.topic}: failed: {table.why}; it {what}, the other tables go on")

    def _rest(self, topics: Iterable[str]) -> None:
        """Close the tables that were used longest ago."""
        used = list(topics)
        self._rested = [topic for topic in self._rested if topic not in used] + used
        for topic in self._rested[:-_OPEN_TABLES]:
            self.tables[topic].rest()
        self._rested = self._rested[-_OPEN_TABLES:]


def _options(given: Mapping[str, str], topics: Sequence[str]) -> SourceOptions:
    return parse(SourceOptions, {**given, "topic": ",".join(topics)})


def fair_shares(waiting: Mapping[str, int], budget: int) -> dict[str, int]:
    """Return the share of each table in a budget: 1 at least, even if that exceeds the budget.

    Tables that need little get all they need, and the others share the rest equally. So a topic with a large backlog
    delays the others by one round at most.

        waiting   a 10   b 500   c 100,000      budget 1,000
        share     a 10   b 495   c 495
    """
    shares: dict[str, int] = {}
    left = budget
    for done, (name, amount) in enumerate(sorted(waiting.items(), key=lambda each: (each[1], each[0]))):
        share = min(amount, max(1, left // (len(waiting) - done)))
        shares[name] = share
        left -= share
    return shares


class Pace:
    """The budget of a round: as much as the last rounds did in the time that a round should take.

    Args:
        most: the budget of a quick machine, and of the first round.
        round_s: the time that a round should take.
    """

    def __init__(self, most: int, round_s: float) -> None:
        self._most = most
        self._round_s = round_s
        self.budget = most

    def note(self, amount: int, seconds: float) -> None:
        """Note a round; small ones, whose time is that of starting, say nothing about the pace."""
        if seconds <= 0 or (amount < self.budget // 2 and seconds < self._round_s):
            return
        wanted = int(amount / seconds * self._round_s)
        self.budget = max(self._most // 20, 1, min(self._most, (self.budget + wanted) // 2))


@dataclass
class Upkeep:
    """Merges small files of tables and removes old days, one table at a time. The thread of the rounds calls it.

    A table gets no batch while it is merged; its next batch has all messages that arrived meanwhile. A failed merge is
    tried again when the next one is due.
    """

    say: Say
    monotonic: Callable[[], float]
    _due_s: dict[str, float] = field(default_factory=dict)
    _merged_at: dict[str, int] = field(default_factory=dict)  # the number of batches at its last merge
    _at_work: tuple[KeptTable, Future[tuple[int, int, int]]] | None = None

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "upkeep")

    def look(self, tables: Iterable[KeptTable]) -> None:
        """End a merge that is done, and begin the next one that is due."""
        if self._at_work is not None and self._at_work[1].done():
            self._end(*self._at_work)
            self._at_work = None
        for table in tables:
            if self._is_due(table) and self._at_work is None:
                table.held_for = "merging"
                self._at_work = table, self._thread.submit(table.merge, today())

    def close(self) -> None:
        """Wait for the merge at hand."""
        self._thread.shutdown()
        if self._at_work is not None:
            self._end(*self._at_work)
            self._at_work = None

    def _is_due(self, table: KeptTable) -> bool:
        """Whether a table has new batches, and its time has come; the first time comes one span after the start."""
        span_s = table.settings.compact_every_s
        if not span_s or not table.is_begun:
            return False
        due_s = self._due_s.setdefault(table.topic, self.monotonic() + span_s)
        has_new = table.figures.batches > self._merged_at.get(table.topic, 0)
        return has_new and not table.held_for and self.monotonic() >= due_s

    def _end(self, table: KeptTable, merge: Future[tuple[int, int, int]]) -> None:
        table.held_for = ""
        self._due_s[table.topic] = self.monotonic() + table.settings.compact_every_s
        self._merged_at[table.topic] = table.figures.batches
        error = merge.exception()
        if error is not None:
            table.rest()
            why = failure(error_text(error), f"{table.root} or {table.state}")
            self.say(f"{table.topic}: its files were not merged: {why.why or why.kind}; tried again when due next")
            return
        before, after, days = merge.result()
        gone = f", {days:,} old days taken out" if days else ""
        self.say(f"{table.topic}: {counted(before, 'file')} merged to {after:,}{gone}")
