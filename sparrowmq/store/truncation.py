"""Cut a log to the part that another broker's log has too. A former master does this before it follows the new one.

    the new master's log     ■■■■■■■■■■■■■■|■■■■■■■■■■ ■■     `at`: where its time as a master began
    the log here             ■■■■■■■■■■■■■■|~~~~~~            no other broker has this part: to set-aside, as .forked;
                                                              as .cut if it has the state of the broker alone

The caller must have a proof that both logs are the same before `at` (broker/failover/group_state.py). If no record of
ours begins at `at`, the logs differ before, and nothing is cut.

    1  copy the bytes to set-aside, and sync    2  mark the store as crashed; lower the checkpoint's offsets to `at`
    3  delete queue ends and timers             4  write zeros from `at` on, delete later files
    5  recovery continues: it removes the entries of queues and index after `at`

If the log is longer, `check_queue_files` first opens the store as it is, and lets it rebuild queue files that differ
from the checksums in queue ends. Damage of the log after `at` is fenced off for that, because these bytes leave it
anyway.

After a crash between two steps the log has its old end, ends at `at`, or has a torn tail after `at`. Each step can be
repeated. The pending timers are read from the log again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from sparrowmq.errors import BadStore, CorruptRecord, LogsDiffer, StoreError
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.store.log import flush
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_ends import SavedEnds
from sparrowmq.store.recovery import Recovery
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)


class OpenedStore(Protocol):
    @property
    def queues(self) -> Iterable[ConsumeQueue]: ...


def check_queue_files(
    settings: StoreSettings,
    vfs: Vfs,
    at: int | None,
    open_whole: Callable[[StoreSettings], AbstractContextManager[OpenedStore]],
) -> None:
    """Compare the queue files with their checksums, and rebuild damaged ones, if the log is to be cut at `at`. Raises:
    CorruptRecord, the log is damaged before `at`.
    """
    if at is None:
        return
    commit_log = LogReader.open(settings, vfs)
    try:
        is_longer = commit_log.last_used_byte(at) > at
    finally:
        commit_log.close()
    if not is_longer:
        return
    fencing = replace(settings, corrupt_policy=CorruptPolicy.QUARANTINE)
    if (
        _compare_queue_files(settings, at, open_whole) is not None
        and (bad := _compare_queue_files(fencing, at, open_whole)) is not None
    ):
        log.warning("not all queue files can be compared with their checksums before the log is cut: %s", bad)


def _compare_queue_files(
    settings: StoreSettings, at: int, open_whole: Callable[[StoreSettings], AbstractContextManager[OpenedStore]]
) -> StoreError | None:
    """Return why not all queue files can be compared; None if they agree now. Raises: CorruptRecord, before `at`."""
    try:
        with open_whole(settings) as store:
            for queue in store.queues:
                queue.check_files()
    except (CorruptRecord, BadStore) as bad:
        cause = bad.__cause__ if isinstance(bad, BadStore) else bad
        if isinstance(cause, CorruptRecord) and cause.offset < at:
            raise cause from bad
        return bad
    return None


def truncate(recovery: Recovery, at: int) -> None:
    """Cut the log at `at`, before recovery reads it. A log that ends there or before is not changed. Raises:
    LogsDiffer, no record of ours begins at `at`, or the files up to it were deleted; DiskFull.
    """
    commit_log = recovery.log
    used_end = commit_log.last_used_byte(at)
    if used_end <= at:
        return
    positions, begins = recovery.checkpoint.positions, at >= commit_log.begin and commit_log.examine(at)[2] is None
    if not begins and positions is not None and commit_log.begin <= at >= positions.flushed:
        return  # This may be the torn tail of a crash in step 4. Recovery then cuts it at `at` or before.
    if not begins:
        raise logs_differ(at)
    recovery.set_aside(at, used_end, "forked" if _has_messages(commit_log, at, used_end) else "cut")
    if positions is not None:
        file_begin = max(at // commit_log.file_size * commit_log.file_size, commit_log.begin)
        positions = replace(
            positions,
            scan_from=positions.scan_from if positions.scan_from <= at else file_begin,
            flushed=min(positions.flushed, at),
            dispatched=min(positions.dispatched, at),
        )
    recovery.lower(positions)
    vfs, layout = recovery.vfs, recovery.layout
    flush.lower_mark(vfs, layout.abort, at)
    recovery.synced = min(recovery.synced, at)
    for folder in (layout.ends, layout.timers):
        for name in vfs.list_folder(folder):
            vfs.unlink(os.path.join(folder, name))
        if vfs.exists(folder):
            vfs.sync_folder(folder)
    recovery.ends = SavedEnds(deleted=recovery.ends.deleted)
    recovery.cut(at)
    log.warning("the log is cut at offset %d, which it has in common with its master's", at)


def _has_messages(commit_log: LogReader, begin: int, end: int) -> bool:
    """Whether a part of the log may have more than topics, groups and offsets. A master writes offsets every second."""
    try:
        return any(record.decode(record_view).topic != STATE_TOPIC for record_view in commit_log.walk(begin, end))
    except CorruptRecord:
        return True


def logs_differ(at: int) -> LogsDiffer:
    return LogsDiffer(
        f"this log must be cut at offset {at}, where another broker became the master, but no record of ours begins "
        "there: move the store away (it may contain messages that no other broker has) and start with an empty one"
    )
