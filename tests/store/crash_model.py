"""A store under a random workload, what it acknowledged, and what must hold in every state that a crash can leave.

    I1  no acknowledged message is lost            I5  what is read is, byte for byte, what was sent
    I2  no message appears that was not sent       I6  queues do not end before what was acknowledged
    I3  queue offsets are dense                    I8  the log is a beginning of what was sent

    I9  no message of a topic that was deleted is shown, and one made anew begins at 0

Each recovered store then takes three messages and is cut again: a store must survive the crash after the crash.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sparrowmq.errors import DiskFull, SparrowError, StoreFailed
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.appender import FULL_PAUSE_S
from sparrowmq.store.care.check import verify
from sparrowmq.store.log.flush import Flusher, _SyncOrder
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.store.crash_states import Disk, DiskState, Effect, Mutant, RecordVfs

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"
SETTINGS = StoreSettings(
    "/store",
    commit_log_file_size=2048,
    consume_queue_file_entries=6,
    index_slots=128,
    index_entries=24,
    store_host=HOST,
)
QUEUES = (("A", 0), ("A", 1), ("B", 0))
STEPS: dict[str, float] = {
    "append": 10,
    "batch": 2,
    "dispatch": 4,
    "flush": 4,
    "checkpoint": 2,
    "reopen": 1,
    "drop": 1,
}
# Several log files without a sync between them.
BURSTS: dict[str, float] = {
    "append": 10,
    "batch": 6,
    "dispatch": 2,
    "flush": 0.4,
    "checkpoint": 0.4,
    "reopen": 0.2,
}
# Syncs that fail: the broker ends, and is started again, as its message says.
FAILS: dict[str, float] = {"append": 10, "batch": 3, "dispatch": 3, "flush": 2, "checkpoint": 1, "fail": 1.5}
# Several log and queue files that go at once.
DROPS: dict[str, float] = {"append": 4, "batch": 10, "dispatch": 1, "checkpoint": 1, "drop": 1}


# Topics that are deleted, and made anew by the next message.
DELETES: dict[str, float] = {
    "append": 10,
    "batch": 3,
    "dispatch": 3,
    "flush": 2,
    "checkpoint": 1,
    "reopen": 0.5,
    "delete": 2,
}


# A disk that is full for a while.
FULLS: dict[str, float] = {
    "append": 10,
    "batch": 6,
    "dispatch": 2,
    "flush": 1,
    "checkpoint": 1,
    "reopen": 0.5,
    "full": 2,
}
# Syncs by the thread, which begin in one step and end in a later one, as the loop goes on.
THREADS: dict[str, float] = {
    "append": 10,
    "batch": 4,
    "dispatch": 4,
    "thread": 8,
    "flush": 0.5,
    "checkpoint": 1,
    "reopen": 0.3,
}
# Steps, states of each cut, and what is done.
WORKLOADS = (
    (20, 10, STEPS),
    (25, 8, BURSTS),
    (25, 8, DROPS),
    (20, 8, FAILS),
    (20, 8, DELETES),
    (20, 8, FULLS),
    (25, 8, THREADS),
)


class FixedClock:
    """Time stands still, so that states which differ in time alone are one state."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    passed_s = 0.0

    def monotonic(self) -> float:
        return self.passed_s


class Sent(NamedTuple):
    """A message that went into the log, and how many effects there had been before it."""

    topic: str
    queue_id: int
    queue_offset: int
    offset: int
    end: int
    body: bytes
    key: str
    effects: int


class Deletion(NamedTuple):
    """A topic was deleted: on disk after `done` effects, perhaps after `begun`. What it had before `offset` is gone."""

    begun: int
    done: int
    topic: str
    offset: int


# By topic, before which offset of the log its messages are gone.
Deleted = dict[str, int]


class Promise(NamedTuple):
    """What was said after so many effects: the log is on disk up to `flushed`, and was deleted up to `begin`."""

    effects: int
    flushed: int
    begin: int


class Known(NamedTuple):
    """What holds after a cut: what had been promised, which messages may be there, and what may have been deleted."""

    promise: Promise
    maybe: list[Sent]
    deleted: list[Deleted]


@dataclass
class Model:
    """A store, and what it was told and said."""

    vfs: RecordVfs
    rng: random.Random
    sent: list[Sent] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    count: int = 0
    deletions: list[Deletion] = field(default_factory=list)
    store: MessageStore = None  # type: ignore[assignment]
    syncing: tuple[Flusher, _SyncOrder] | None = None  # what the thread of a store is at

    def __post_init__(self) -> None:
        self.store = self.store or open_store(self.vfs)

    def run(self, steps: int, weights: dict[str, float]) -> None:
        names = self.rng.choices(list(weights), list(weights.values()), k=steps)
        for name in ["append", "append", "dispatch", "flush", *names]:
            getattr(self, name)()

    def append(self) -> None:
        entry = self._entry(*self.rng.choice(QUEUES))
        effects = len(self.vfs.effects)
        self._sent(entry, self.store.append(entry)[0], effects)

    def batch(self) -> None:
        topic, queue_id = self.rng.choice(QUEUES)
        entries = [self._entry(topic, queue_id) for _ in range(self.rng.randint(2, 4))]
        effects = len(self.vfs.effects)
        for entry, placed in zip(entries, self.store.append(*entries), strict=True):
            self._sent(entry, placed, effects)

    def dispatch(self) -> None:
        self.store.publish()

    def flush(self) -> None:
        self.store.flush()
        self._promise()

    def thread(self) -> None:
        """What the thread that syncs is at ends, and it says so; or it begins with what was written until now."""
        flusher = self.store.flusher
        if self.syncing is not None and self.syncing[0] is flusher:
            ended, self.syncing = self.syncing[1], None
            for file in ended.files:
                self.vfs.note("sync_end", file.file.fd)
            flusher.flushed.advance(self.synced(ended))
            self._promise()
            return
        self.store.appender._write_burst()
        flusher.kick()
        self.syncing = None
        if not flusher._orders.empty() and (order := flusher._next_order()) is not None:
            self.syncing = flusher, order
            for file in order.files:
                self.vfs.note("sync_begin", file.file.fd)

    def synced(self, order: _SyncOrder) -> int:
        """Up to where the log is on disk then."""
        return order.target

    def checkpoint(self) -> None:
        self.store.checkpoint()
        self._promise()

    def reopen(self) -> None:
        self.store.close()
        self._promise()
        self.store = open_store(self.vfs)

    def fail(self) -> None:
        """A sync fails, and the process ends; the next one goes on with what it finds, and says that it is on disk."""
        self.append()
        self.vfs.fail_next_sync = True
        try:
            self.store.flush()
        except StoreFailed:
            self.store = open_store(self.vfs)
            self._promise()

    def full(self) -> None:
        """The disk is full for some steps, each of which may be refused; then there is room, and time has passed."""
        self.vfs.is_full = True
        for step in self.rng.choices(("append", "batch", "dispatch", "flush", "checkpoint"), k=4):
            with suppress(DiskFull):
                getattr(self, step)()
        self.vfs.is_full = False
        self.store.clock.passed_s += FULL_PAUSE_S  # type: ignore[attr-defined]

    def delete(self) -> None:
        topic, begun = self.rng.choice(QUEUES)[0], len(self.vfs.effects)
        self.store.delete_topic(topic)
        self.deletions.append(Deletion(begun, len(self.vfs.effects), topic, self.store.end))

    def deleted(self, cut: int) -> list[Deleted]:
        """What may have been deleted after a cut: one or two possibilities."""
        certain: Deleted = {}
        for deletion in self.deletions:
            if deletion.begun > cut:
                break
            if deletion.done > cut:
                return [certain, {**certain, deletion.topic: deletion.offset}]
            certain[deletion.topic] = deletion.offset
        return [certain]

    def drop(self) -> None:
        store = self.store
        retention = store.retention
        self.vfs.used = 0.86  # so that age does not matter
        count = retention.count_expired(0, self.vfs.used)
        if count:
            begin = store._log.row.files[count].begin
            self.promises.append(Promise(len(self.vfs.effects), self._flushed(), begin))
        list(retention.run(0))
        self.vfs.used = 0.0

    def _entry(self, topic: str, queue_id: int) -> Entry:
        self.count += 1
        key = f"k{self.count}"
        body = self.rng.randbytes(self.rng.choice((0, 10, 60, 300)))
        return Entry(topic, queue_id, body, Properties(f"UNIQ_KEY\x01{key}"), 1, HOST)

    def _sent(self, entry: Entry, placed: Placed, effects: int) -> None:
        key = entry.properties.unique_key or ""
        place = (placed.queue_offset, placed.offset, placed.end)
        self.sent.append(Sent(entry.topic, entry.queue_id, *place, bytes(entry.body), key, effects))

    def _promise(self) -> None:
        self.vfs.note("ack", 0)
        self.promises.append(Promise(len(self.vfs.effects), self.store.flushed.value, self._begin()))

    def _flushed(self) -> int:
        return self.promises[-1].flushed if self.promises else 0

    def _begin(self) -> int:
        return self.promises[-1].begin if self.promises else 0


@dataclass
class Tally:
    """What an exploration did."""

    states: set[int] = field(default_factory=set)
    examined: int = 0
    kills: int = 0
    violations: list[str] = field(default_factory=list)


@dataclass
class Exploration:
    """One workload, cut everywhere.

    Attributes:
        per_cut: how many states of each cut are examined.
        second_cuts: how often each recovered store is cut again.
    """

    seed: int
    steps: int
    per_cut: int
    tally: Tally
    mutant: Mutant | None = None
    second_cuts: int = 1
    weights: dict[str, float] = field(default_factory=lambda: dict(STEPS))
    seen: set[tuple] = field(default_factory=set)

    def run(self) -> None:
        """Stop at the first violation."""
        rng = random.Random(self.seed)
        vfs = RecordVfs(mutant=self.mutant)
        model = Model(vfs, rng)
        model.run(self.steps, self.weights)
        for number, (cut, state) in enumerate(cuts(vfs.start, vfs.effects, self.per_cut, rng)):
            promise, maybe = promised(model, cut)
            deleted = model.deleted(cut)
            case = state.key(), promise.flushed, promise.begin, len(maybe), str(deleted)
            if case not in self.seen:
                self.seen.add(case)
                own = random.Random(f"{self.seed} {number}")
                known = Known(promise, maybe, deleted)
                problem = self.power_cut(state, known, own)
                if not problem and number % 8 == 0:
                    problem = self.kill(vfs, cut, known, own)
                if problem:
                    where = f"seed {self.seed}, cut {cut} of {len(vfs.effects)}, state {number}"
                    self.tally.violations.append(f"{where}: {problem}")
                    return

    def power_cut(self, state: DiskState, known: Known, rng: random.Random) -> str | None:
        """What is wrong with a state, after recovery, and after three messages more and another cut."""
        self.tally.states.add(state.key())
        self.tally.examined += 1
        return self.go_on(RecordVfs(state, self.mutant), known, rng)

    def kill(self, vfs: RecordVfs, cut: int, known: Known, rng: random.Random) -> str | None:
        """The same when only the process dies: its pages live on, until the power fails too."""
        self.tally.kills += 1
        return self.go_on(RecordVfs.after_kill(vfs, cut, self.mutant), known, rng)

    def go_on(self, vfs: RecordVfs, known: Known, rng: random.Random) -> str | None:
        before, (promise, maybe, (certain, *_)) = len(vfs.effects), known
        try:
            store = open_store(vfs)
            recovered = len(vfs.effects)
            problem, deleted = compare(store, known)
            if problem:
                return problem
            sent = [message._replace(effects=-1) for message in maybe if message.end <= store.end]
            promises = [promise._replace(effects=-1), Promise(len(vfs.effects), store.end, promise.begin)]
            # What was not on disk for certain, as after a kill, is when the recovery is over.
            new = {topic: at for topic, at in deleted.items() if certain.get(topic) != at}
            deletions = [
                Deletion(-1, done, topic, min(at, store.end))
                for done, those in ((-1, certain), (recovered, new))
                for topic, at in those.items()
            ]
            model = Model(vfs, rng, sent, promises, 1000, deletions, store)
            for step in ("append", "append", "dispatch", "flush", "append"):
                getattr(model, step)()
        except SparrowError as error:
            return f"{type(error).__name__}: {error}"
        for _ in range(self.second_cuts):
            problem = self.second_cut(model, before, rng)
            if problem:
                return problem
        return None

    def second_cut(self, model: Model, before: int, rng: random.Random) -> str | None:
        """Cut the recovered store once more: while it recovered, or while it went on."""
        effects = model.vfs.effects
        cut = rng.randint(before, len(effects))
        disk = Disk(model.vfs.start)
        for effect in effects[:cut]:
            disk.apply(effect)
        promise, maybe = promised(model, cut)
        for state in disk.states(1, rng):
            self.tally.states.add(state.key())
            self.tally.examined += 1
            vfs = RecordVfs(state)
            try:
                store = open_store(vfs)
                problem, _ = compare(store, Known(promise, maybe, model.deleted(cut)))
                store.close()
            except SparrowError as error:
                problem = f"{type(error).__name__}: {error}"
            problem = problem or next(verify(SETTINGS, vfs), None)
            if problem:
                return f"after a second cut ({cut} of {before} to {len(effects)}): {problem}"
        return None


def open_store(vfs: RecordVfs) -> MessageStore:
    return MessageStore.open(SETTINGS, vfs=vfs, clock=FixedClock())  # type: ignore[arg-type]


def cuts(start: DiskState, effects: list[Effect], per_cut: int, rng: random.Random) -> Iterator[tuple[int, DiskState]]:
    """States of each cut, with how many effects came before it."""
    disk = Disk(start)
    for cut, effect in enumerate([*effects, None]):
        for state in disk.states(per_cut, rng):
            yield cut, state
        if effect is not None:
            disk.apply(effect)


def promised(model: Model, cut: int) -> tuple[Promise, list[Sent]]:
    """What holds after a cut: what had been promised by then, and which messages may be there."""
    promise = max((p for p in model.promises if p.effects <= cut), default=Promise(0, 0, 0))
    return promise, [sent for sent in model.sent if sent.effects < cut]


def compare(store: MessageStore, known: Known) -> tuple[str | None, Deleted]:
    """What of a recovered store does not fit what was sent and promised; and what turned out to be deleted."""
    problem, deleted = _compare_log(store, known), known.deleted[0]
    for deleted in [] if problem else known.deleted:
        problem = _compare_queues(store, known.maybe, deleted)
        if problem is None:
            break
    return problem, deleted


def _compare_log(store: MessageStore, known: Known) -> str | None:
    begin, end = store.begin, store.end
    promise, maybe, _ = known
    if begin > promise.begin:
        return f"the log begins at {begin}, it was deleted up to {promise.begin}"
    if end < promise.flushed:
        return f"acknowledged up to {promise.flushed}, the log ends at {end}"
    found = [bytes(record) for record in store._log.walk(begin, end)]
    sent = [message for message in maybe if begin <= message.offset and message.end <= end]
    if len(found) != len(sent):
        return f"{len(found)} records in the log, {len(sent)} were sent"
    for record, message in zip(found, sent, strict=True):
        if message.body not in record or message.key.encode() not in record:
            return f"the record at {message.offset} is not what was sent"
    return None


def _compare_queues(store: MessageStore, maybe: list[Sent], deleted: Deleted) -> str | None:
    alive = [
        message for message in maybe if message.end <= store.end and message.offset >= deleted.get(message.topic, 0)
    ]
    sent = [message for message in alive if message.offset >= store.begin]
    ends = Counter((message.topic, message.queue_id) for message in alive)
    for topic, queue_id in QUEUES:
        queue = store.queues.get(topic, queue_id)
        found = queue.max_offset if queue else 0
        if found != ends[topic, queue_id]:
            return f"queue {topic}/{queue_id} ends at {found}, {ends[topic, queue_id]} were sent"
    for message in sent:
        read = store.read(message.topic, message.queue_id, message.queue_offset, 1)
        if read.count != 1 or message.body not in bytes(read.views[0]):
            return f"entry {message.queue_offset} of {message.topic}/{message.queue_id} is not what was sent: {read}"
    if sent and not store.query(sent[-1].topic, sent[-1].key, 9, 0, 1 << 60):
        return f"key {sent[-1].key} is not found"
    return None


def sites_of(seeds: range, steps: int) -> set[str]:
    """The places in the store that sync, in running and in recovery."""
    nowhere = Mutant("")
    for seed in seeds:
        Exploration(seed, steps, 1, Tally(), nowhere, second_cuts=0).run()
    return nowhere.met
