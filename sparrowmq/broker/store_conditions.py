"""The conditions of a broker's store: what is wrong with its disk, its log, its index and what was set aside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sparrowmq.broker.replication.replica_lag import lag_s
from sparrowmq.errors import DiskFull
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics import condition_kinds as kinds
from sparrowmq.metrics.condition_kinds import Kind, Probe
from sparrowmq.metrics.disks import disk_use, with_logs
from sparrowmq.store.appender import LogEnded
from sparrowmq.store.log.set_aside import DAMAGED, FORKED, LOST, Piece, pieces
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.vfs import Disk

HANGS_S: Final = 10.0
_NO_ROOM: Final = 0.995
NEARLY: Final = 0.05  # below the share of the disk from which no message is taken
# The consequence of a full disk, by the files on it, if the log is on another disk.
_WHEN_FULL: Final = {
    "consumequeue": "no message is taken",
    "index": "messages are taken, but new ones are not found by their keys",
}


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
        why = store.appender.full
        if isinstance(why, LogEnded):
            return ""
        return f"{why}{_share_of_log(store)}" if why else ""

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
        names = ", ".join(piece.name for piece in _pieces_set_aside(store, FORKED))
        return f"messages that no other member had are in set-aside: {names}" if names else ""

    def lost() -> str:
        return "; ".join(
            f"a start found {piece.size} damaged bytes at the end of the log and cut them off: {piece.name}"
            for piece in _pieces_set_aside(store, LOST)
        )

    def lacks_keys() -> str:
        begin_ms = store.filling.lacks_from_ms
        if not begin_ms:
            return ""
        since = datetime.fromtimestamp(begin_ms / 1000, UTC).isoformat(timespec="seconds")
        return f"the index lacks the keys of messages from {since} on, so searches do not find them"

    scrubber = store.scrubber
    return (
        (kinds.STORE_FAILED, failed),
        (kinds.DISK_FULL, full),
        (kinds.DISK_NEARLY_FULL, nearly_full),
        (kinds.DISK_HANGS, hangs),
        (kinds.LOG_DAMAGED, lambda: _places("damaged", scrubber.damaged)),
        (kinds.LOG_FENCED, lambda: _fenced(store)),
        (kinds.LOG_CUT, lost),
        (kinds.FORKED_MESSAGES, forked),
        (_index_incomplete(store), lacks_keys),
    )


class _Standstill:
    """Measures for how long nothing has come to the disk although messages wait.

    The age of these messages is not enough: those that a slave catches up on are old when they arrive.
    """

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._flushed = store.flushed.value
        self._since_s = clock.monotonic()

    def age_s(self) -> float:
        """Return this time, but at most the age of the oldest message that waits."""
        flushed = self._store.flushed.value
        if flushed != self._flushed or flushed >= self._store.end:
            self._flushed, self._since_s = flushed, self._clock.monotonic()
        return min(self._clock.age(self._since_s), lag_s(self._store, flushed, self._clock.now_ms()))


def _nearly_full(store: MessageStore) -> str:
    """Return which disk is nearly full, and what happens when it is full."""
    limit = store.settings.disk_full_ratio
    files, folder, used = max(_uses(store), key=lambda use: use[2], default=("", "", 0.0))
    if used < limit - NEARLY:
        return ""
    what = f"{used:.0%} of the disk of {folder} is used"
    if files == "commitlog":
        return f"{what}, from {limit:.0%} on no message is taken{_share_of_log(store)}"
    when = "so" if used >= _NO_ROOM else "when it is full,"
    return f"{what}; {when} {_WHEN_FULL.get(files, 'its files cannot be written')}{_share_of(folder)}"


def _index_incomplete(store: MessageStore) -> Kind:
    """Return the kind, which follows from what is reported about the disk that the index is on."""
    layout, is_apart = store.settings.layout, False
    with suppress(OSError):
        is_apart = os.stat(layout.index).st_dev != os.stat(layout.commit_log).st_dev
    return replace(kinds.INDEX_INCOMPLETE, follows=("disk_nearly_full",)) if is_apart else kinds.INDEX_INCOMPLETE


def _fenced(store: MessageStore) -> str:
    fenced = store.scrubber.fenced
    kept = {f"{begin:020d}-{end:020d}.{DAMAGED}": (begin, end) for begin, end in fenced.items()}
    seen = {piece.name for piece in _pieces_set_aside(store, DAMAGED)}
    sentence = _places("fenced off", {begin: end for name, (begin, end) in kept.items() if name in seen})
    files = (f"{store.settings.layout.set_aside}/{name}" for name in sorted(kept.keys() & seen))
    return f"{sentence}: {', '.join(files)}" if sentence else ""


def folders(store: MessageStore) -> dict[str, str | Path]:
    """Return the folders of a store that may be on disks of their own, by the files in them."""
    layout = store.settings.layout
    return {
        "commitlog": layout.commit_log,
        "consumequeue": layout.consume_queue,
        "index": layout.index,
        "timers": layout.timers,
        "config": Path(layout.root) / "config",
    }


def _uses(store: MessageStore) -> Iterator[tuple[str, str, float]]:
    """Yield the files in each folder of the broker, the folder, and the used share of its disk."""
    for files, folder in with_logs(folders(store)).items():
        with suppress(OSError):  # a folder that does not exist yet
            yield files, str(folder), disk_use(folder).used


def _share_of_log(store: MessageStore) -> str:
    """Return how much of its disk the log has, so that people see whether it helps to keep less."""
    try:
        size = disk_use(store.settings.layout.commit_log).size_bytes
    except OSError:
        return ""
    return f"; the log has {(store.end - store.begin) >> 20} of {size >> 20} MiB"


def _share_of(folder: str) -> str:
    """Return how much of its disk the files of a folder without subfolders have."""
    try:
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
        return f"; the files there have {size / (1 << 20):.1f} of {disk_use(folder).size_bytes / (1 << 20):.1f} MiB"
    except OSError:
        return ""


def set_aside(store: MessageStore) -> tuple[int, int]:
    """Return the size of set-aside, and the number of its pieces of a forked log."""
    kept = pieces(Disk(), store.settings.layout)
    return sum(piece.size for piece in kept), sum(piece.reason == FORKED for piece in kept)


def _pieces_set_aside(store: MessageStore, reason: str) -> list[Piece]:
    """Return the pieces in set-aside that are there for one reason."""
    return [piece for piece in pieces(Disk(), store.settings.layout) if piece.reason == reason]


def _places(how: str, places: dict[int, int]) -> str:
    if not places:
        return ""
    size = sum(end - begin for begin, end in places.items())
    return f"{size} bytes of the log are {how}, the first at offset {min(places)}; their messages are not served"
