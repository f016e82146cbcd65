"""The message store as a part of the broker: how it is opened, its task, its figures and its conditions.

A damaged log first takes records from brokers that should have the same log:

    a slave with failover     the other members, whose addresses etcd has; it waits for them for a while
    a master with failover    likewise, but it does not wait: it gives up its lease, and repairs its log as a slave
    a fixed role              the other brokers of its name, as the name servers say; it does not wait

If no other broker has the records, the start is refused.

When a write or a sync fails, or the disk has no room for a start, the broker refuses messages, and goes on serving
reads until it is stopped:

    a start without room on the disk ── the store begins as failed, but not at a master with failover: other members go
                                        first ── once there is room, `Broker.serve` returns, and a member with failover
                                        starts another broker (member.py)
    the store fails ── waiting requests get the error ── name servers learn that clients cannot send here
                    ── parts that store something end (`while_writable`); the others, and reads, go on
                    ── at the stop the broker raises the failure: its exit status is 1
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from sparrowmq.broker.access_control import sign_of
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.replication.peer_repair import repair_closed, same_log_addresses
from sparrowmq.broker.replication.slave_link import lag_s
from sparrowmq.errors import CorruptRecord, DiskFull, OutOfResources, StoreFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics import condition_kinds as kinds
from sparrowmq.metrics.condition_kinds import Kind, Probe
from sparrowmq.metrics.figures import Figures, Rows
from sparrowmq.metrics.server_figures import disk_use, with_logs
from sparrowmq.protocol.messages.record import store_timestamp_ms
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.tls.contexts import client_context
from sparrowmq.store.appender import LogEnded
from sparrowmq.store.log.flush import ROOM_BYTES
from sparrowmq.store.log.set_aside import DAMAGED, FORKED, LOST, Piece, list_pieces
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Disk

_PATIENCE_LEASES: Final = 8  # the lease times to wait for another member that can repair our log
_MAX_REPAIRS: Final = 8
log = logging.getLogger(__name__)
_ROOM_PERIOD_S: Final = 1.0
_NEVER: Final = 1 << 63  # an offset that no log reaches
HANGS_S: Final = 10.0
_NO_ROOM: Final = 0.995
NEARLY_FULL_MARGIN: Final = 0.05  # below the share of the disk from which no message is taken
# The consequence of a full disk, by the files on it, if the log is on another disk.
_WHEN_FULL: Final = {
    "consumequeue": "no message is taken",
    "index": "messages are taken, but new ones are not found by their keys",
}


async def open_store(settings: BrokerSettings, store_settings: StoreSettings, clock: Clock, term: Term) -> MessageStore:
    """Open the store of a broker, or of a member with failover. Raises: as `MessageStore.open`, and DiskFull."""
    has_copies = term.is_elected or settings.role is not BrokerRole.ASYNC_MASTER
    store_settings = replace(store_settings, awaits_copy=has_copies and settings.corrupt_policy is CorruptPolicy.FAIL)
    for _ in range(_MAX_REPAIRS):
        try:
            return await _open(store_settings, clock, term)
        except CorruptRecord as damage:
            log.error("%s; the records are taken from another broker, if one has them", damage)
            patience_s = _PATIENCE_LEASES * settings.lease_s if term.is_elected and not term.in_sync else 0.0
            peers = term.peers if term.is_elected else None
            reason = await repair_from_peers(settings, clock, damage.offset, patience_s, peers)
            if reason and store_settings.awaits_copy and not term.is_elected:
                store_settings = replace(store_settings, awaits_copy=False)  # no broker has a copy now
            elif reason:
                text = f"{damage.expected}. No other broker can repair it: {reason}"
                raise CorruptRecord(damage.file, damage.offset, text) from damage
    raise StoreFailed(f"the log is damaged again after {_MAX_REPAIRS} repairs; check the disk")


async def _open(store_settings: StoreSettings, clock: Clock, term: Term) -> MessageStore:
    try:
        if not term.is_elected:
            return MessageStore.open(store_settings, clock=clock)
        # Open it in a thread, because a task of this event loop renews the lease of a master meanwhile.
        return await asyncio.to_thread(MessageStore.open, store_settings, clock=clock, cut_at=term.cut_at)
    except DiskFull as full:
        if isinstance(full, OutOfResources) or term.in_sync is not None:
            raise
        return MessageStore.open_full(store_settings, full, clock=clock)


async def repair_from_peers(
    settings: BrokerSettings,
    clock: Clock,
    first_damage: int,
    patience_s: float = 0.0,
    peers: Callable[[], Awaitable[Sequence[str]]] | None = None,
) -> str:
    """Take damaged records from another broker within `patience_s`; return why that was impossible, or ""."""
    tls = client_context(settings) if settings.talks_tls else None
    pool = Pool(clock, sign=sign_of(settings), tls=tls)
    peers = peers or partial(same_log_addresses, settings, settings.address(settings.port), pool)
    try:
        return await repair_closed(settings.store(settings.port), first_damage, pool, peers, clock, patience_s)
    finally:
        pool.close()
        await pool.wait_until_ended()


def store_part(
    store: MessageStore, turn: Turn, clock: Clock, figures: Figures, on_failure: Callable[[], object] = lambda: None
) -> Part:
    figures.gauge("sparrowmq_log_begin_offset", "where the log begins", lambda: store.begin)
    figures.gauge("sparrowmq_log_end_offset", "where the log ends", lambda: store.end)
    count_at_start, bytes_at_start = store.appender.count_added()
    figures.read_counter(
        "sparrowmq_messages_stored_total",
        "messages stored: of producers, and retries, delayed and half messages",
        lambda: store.appender.count_added()[0] - count_at_start,
    )
    figures.gauge(
        "sparrowmq_stored_bytes",
        "bytes of the messages stored since the start",
        lambda: store.appender.count_added()[1] - bytes_at_start,
    )
    figures.gauge("sparrowmq_flush_behind_bytes", "bytes not on disk yet", lambda: store.end - store.flushed.value)
    figures.gauge(
        "sparrowmq_dispatch_behind_bytes", "bytes not in the queues yet", lambda: store.end - store.dispatched.value
    )
    _declare_store_times(store, figures)
    scrubber = store.scrubber
    figures.gauge("sparrowmq_scrub_rounds", "complete checks of the log for damage", lambda: scrubber.rounds)
    figures.gauge("sparrowmq_scrub_bytes", "bytes checked for damage", lambda: scrubber.checked_bytes)
    figures.gauge("sparrowmq_log_damages", "damaged places in the log", lambda: len(scrubber.damaged))
    figures.gauge("sparrowmq_set_aside_bytes", "bytes in the folder set-aside", lambda: set_aside(store)[0])
    figures.gauge(
        "sparrowmq_set_aside_forked",
        "parts of the log in set-aside that no other broker had",
        lambda: set_aside(store)[1],
    )
    figures.gauge("sparrowmq_store_failed", "1 after a failed write or sync", lambda: int(has_failed(store)))
    return Part(
        tasks=(
            Task("store", lambda: store.run(turn), needs_writing=False),
            Task("disk", lambda: _await_failure(store, on_failure)),
        ),
        probes=store_probes(store, clock),
    )


def _declare_store_times(store: MessageStore, figures: Figures) -> None:
    def oldest_ms() -> int:
        record = store.record_at(store.begin)
        return store_timestamp_ms(record) if record is not None else -1

    def seconds(time_ms: int) -> Rows:
        return [((), time_ms / 1000)] if time_ms > 0 else []

    figures.gauges(
        "sparrowmq_oldest_message_timestamp_seconds",
        "store time of the oldest message",
        (),
        lambda: seconds(oldest_ms()),
    )
    figures.gauges(
        "sparrowmq_newest_message_timestamp_seconds",
        "store time of the newest message",
        (),
        lambda: seconds(store.newest_ms),
    )
    figures.gauges(
        "sparrowmq_index_lacks_from_timestamp_seconds",
        "time from which on the index lacks keys",
        (),
        lambda: seconds(store.index_lacks_from_ms),
    )


def has_failed(store: MessageStore) -> bool:
    return store.flushed.error is not None


def opened_full(store: MessageStore) -> bool:
    """Whether the disk had no room to open the store, so it only serves reads until another start."""
    failure = store.flushed.error
    return failure is not None and isinstance(failure.__cause__, DiskFull)


class FreedSpace:
    """Notices that a full disk has got room for a start. The log may be on another disk: then the fuller one counts."""

    def __init__(self, store: MessageStore) -> None:
        layout = store.settings.layout
        self._path = min((layout.root, layout.commit_log), key=_free_bytes)
        self._needed_bytes = _free_bytes(self._path) + ROOM_BYTES

    def is_free(self) -> bool:
        if _free_bytes(self._path) < self._needed_bytes:
            return False
        log.warning("the disk has room again: the broker starts again")
        return True


async def wait_for_space(freed: FreedSpace | None, clock: Clock) -> None:
    """Return when a disk that was full has got room for a start; never if it was not full."""
    if freed is None:
        await asyncio.get_running_loop().create_future()
    while freed is not None and not freed.is_free():
        await clock.sleep(_ROOM_PERIOD_S)


async def while_writable(work: Coroutine[Any, Any, object], name: str) -> None:
    """Do work that ends when the store has failed, while the broker goes on."""
    try:
        await work
    except* StoreFailed:
        log.warning("the store failed: %s stopped, the broker is read-only", name)


async def _await_failure(store: MessageStore, on_failure: Callable[[], object]) -> None:
    try:
        await store.written.reached(_NEVER)
    finally:
        if has_failed(store):
            on_failure()


def _free_bytes(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def store_probes(store: MessageStore, clock: Clock) -> tuple[Probe, ...]:
    def failed() -> str:
        failure = store.flushed.error
        if failure is None or isinstance(failure.__cause__, DiskFull):
            return ""
        return f"{failure}. Its messages are in {store.settings.layout.commit_log}"

    def full() -> str:
        failure = store.flushed.error
        if failure is not None:
            return str(failure) if isinstance(failure.__cause__, DiskFull) else ""
        reason = store.appender.full_error
        if isinstance(reason, LogEnded):
            return ""
        return f"{reason}{_usage_of_log(store)}" if reason else ""

    def nearly_full() -> str:
        return "" if full() else _nearly_full(store)

    standstill = _Standstill(store, clock)

    def hangs() -> str:
        age_s = 0.0 if failed() else standstill.age_s()
        return (
            f"for {age_s:.0f} s no message came to the disk of {store.settings.layout.commit_log}"
            if age_s > HANGS_S
            else ""
        )

    def forked() -> str:
        names = ", ".join(piece.name for piece in _set_aside_pieces(store, FORKED))
        return f"messages that no other member had are in set-aside: {names}" if names else ""

    def lost() -> str:
        return "; ".join(
            f"a start found {piece.size} damaged bytes at the end of the log and cut them off: {piece.name}"
            for piece in _set_aside_pieces(store, LOST)
        )

    def lacks_keys() -> str:
        begin_ms = store.index_lacks_from_ms
        if not begin_ms:
            return ""
        begin_text = datetime.fromtimestamp(begin_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"the index lacks the keys of messages from {begin_text} on, so searches do not find them"

    scrubber = store.scrubber
    return (
        (kinds.STORE_FAILED, failed),
        (kinds.DISK_FULL, full),
        (kinds.DISK_NEARLY_FULL, nearly_full),
        (kinds.DISK_HANGS, hangs),
        (kinds.LOG_DAMAGED, lambda: _describe_ranges("damaged", scrubber.damaged)),
        (kinds.LOG_FENCED, lambda: _fenced(store)),
        (kinds.LOG_CUT, lost),
        (kinds.FORKED_MESSAGES, forked),
        (_index_incomplete(store), lacks_keys),
    )


class _Standstill:
    """Measures for how long nothing came to the disk although messages wait; the age of copied ones says nothing."""

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._flushed_end = store.flushed.value
        self._standstill_begin_s = clock.monotonic()

    def age_s(self) -> float:
        flushed = self._store.flushed.value
        if flushed != self._flushed_end or flushed >= self._store.end:
            self._flushed_end, self._standstill_begin_s = flushed, self._clock.monotonic()
        return min(self._clock.age(self._standstill_begin_s), lag_s(self._store, flushed, self._clock.now_ms()))


def _nearly_full(store: MessageStore) -> str:
    """Return which disk is nearly full, and what happens when it is full."""
    limit = store.settings.disk_full_ratio
    files, folder, used = max(_disk_uses(store), key=lambda use: use[2], default=("", "", 0.0))
    if used < limit - NEARLY_FULL_MARGIN:
        return ""
    usage = f"{used:.0%} of the disk of {folder} is used"
    if files == "commitlog":
        return f"{usage}, from {limit:.0%} on no message is taken{_usage_of_log(store)}"
    when = "so" if used >= _NO_ROOM else "when it is full,"
    return f"{usage}; {when} {_WHEN_FULL.get(files, 'its files cannot be written')}{_usage_of_files(folder)}"


def _index_incomplete(store: MessageStore) -> Kind:
    layout, is_apart = store.settings.layout, False
    with suppress(OSError):
        is_apart = os.stat(layout.index).st_dev != os.stat(layout.commit_log).st_dev
    return replace(kinds.INDEX_INCOMPLETE, follows=("disk_nearly_full",)) if is_apart else kinds.INDEX_INCOMPLETE


def _fenced(store: MessageStore) -> str:
    names = {piece.name for piece in _set_aside_pieces(store, DAMAGED)}
    by_name = {f"{begin:020d}-{end:020d}.{DAMAGED}": (begin, end) for begin, end in store.scrubber.fenced.items()}
    ranges = {name: range_of_name for name, range_of_name in by_name.items() if name in names}
    sentence = _describe_ranges("fenced off", dict(ranges.values()))
    files = (f"{store.settings.layout.set_aside}/{name}" for name in sorted(ranges))
    return f"{sentence}: {', '.join(files)}" if sentence else ""


def folders(store: MessageStore) -> dict[str, str | Path]:
    layout = store.settings.layout
    return {
        "commitlog": layout.commit_log,
        "consumequeue": layout.consume_queue,
        "index": layout.index,
        "timers": layout.timers,
        "config": Path(layout.root) / "config",
    }


def _disk_uses(store: MessageStore) -> Iterator[tuple[str, str, float]]:
    for files, folder in with_logs(folders(store)).items():
        with suppress(OSError):  # a folder that does not exist yet
            yield files, str(folder), disk_use(folder).used


def _usage_of_log(store: MessageStore) -> str:
    try:
        size = disk_use(store.settings.layout.commit_log).size_bytes
    except OSError:
        return ""
    return f"; the log has {(store.end - store.begin) >> 20} of {size >> 20} MiB"


def _usage_of_files(folder: str) -> str:
    try:
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        return f"; the files there have {size / (1 << 20):.1f} of {disk_use(folder).size_bytes / (1 << 20):.1f} MiB"
    except OSError:
        return ""


def set_aside(store: MessageStore) -> tuple[int, int]:
    """Return the size of set-aside, and the number of its pieces of a forked log."""
    set_aside_pieces = list_pieces(Disk(), store.settings.layout)
    return sum(piece.size for piece in set_aside_pieces), sum(piece.reason == FORKED for piece in set_aside_pieces)


def _set_aside_pieces(store: MessageStore, reason: str) -> list[Piece]:
    return [piece for piece in list_pieces(Disk(), store.settings.layout) if piece.reason == reason]


def _describe_ranges(state: str, ranges: dict[int, int]) -> str:
    if not ranges:
        return ""
    size = sum(end - begin for begin, end in ranges.items())
    return f"{size} bytes of the log are {state}, the first at offset {min(ranges)}; their messages are not served"
