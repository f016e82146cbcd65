"""A log is cut to what another broker's log has, too: what a former master does before it follows the new one.

    the new master's log     ■■■■■■■■■■■■■■|■■■■■■■■■■ ■■     `at`: where its time as a master began
    what is here             ■■■■■■■■■■■■■■|~~~~~~            from there on nobody else has it: to set-aside, as .forked

Who cuts has to have a proof that both are the same before `at` (broker/failover/group_state.py); what this looks at is
that a record of ours begins there, too, for where it does not the logs differ before it, and nothing is cut.

    1  set-aside has the bytes, on disk         2  the folder is one that a crash left, and has no queue ends
    3  the checkpoint says nothing beyond `at`  4  zeros from `at` on, later files deleted
    5  the recovery goes on: queues and index lose what pointed there

After a crash between any two of them the log ends where it did, or at `at`, or in a torn tail behind it, and each step
can be taken again. What was pending of timers is told by the log anew.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace

from sparrowmq.errors import CorruptRecord, LogsDiffer
from sparrowmq.store.checkpoint import save
from sparrowmq.store.queues.queue_ends import Known
from sparrowmq.store.recovery import Recovery

log = logging.getLogger(__name__)


def shorten(recovery: Recovery, at: int) -> None:
    """Cut the log at `at` before a recovery looks at it; nothing happens where it ends before.

    Raises:
        LogsDiffer: no record of ours begins there, or what lies before it is gone.
        DiskFull: set-aside has no room for what would be cut.
    """
    commit_log = recovery.log
    used = commit_log.last_used_byte(at)
    if used <= at:
        return
    positions, begins = recovery.checkpoint.positions, at >= commit_log.begin and _begins(recovery, at)
    if not begins and positions is not None and commit_log.begin <= at >= positions.flushed:
        return  # A torn tail, as a crash in step 4 leaves it: if it is one, recovery cuts it there or before.
    if not begins:
        raise differ(at)
    recovery.set_aside(at, used, "forked")
    vfs, layout = recovery.vfs, recovery.layout
    if not vfs.exists(layout.abort):
        vfs.close(vfs.create(layout.abort, 0, allocate=False))
        vfs.sync_folder(layout.root)
    for folder in (layout.ends, layout.timers):
        for name in vfs.list_folder(folder):
            vfs.unlink(os.path.join(folder, name))
        if vfs.exists(folder):
            vfs.sync_folder(folder)
    recovery.clean = False
    recovery.ends = Known(deleted=recovery.ends.deleted)
    if positions is not None:
        file_begin = max(at // commit_log.file_size * commit_log.file_size, commit_log.begin)
        lower = replace(
            positions,
            scan_from=positions.scan_from if positions.scan_from <= at else file_begin,
            flushed=min(positions.flushed, at),
            dispatched=min(positions.dispatched, at),
        )
        recovery.checkpoint = replace(recovery.checkpoint, positions=lower)
        save(vfs, layout.checkpoint, recovery.checkpoint)
    recovery.cut(at)
    log.warning("the log is cut at offset %d, which it has in common with its master's", at)


def differ(at: int) -> LogsDiffer:
    """What is said when it cannot be cut there."""
    return LogsDiffer(
        f"the log here has to be cut at offset {at}, where another broker became the master, but no record of ours "
        "begins there: move the store away (it may hold messages that exist nowhere else) and start it empty"
    )


def _begins(recovery: Recovery, at: int) -> bool:
    """Whether a record of ours begins there, or the blank end of a file."""
    try:
        record, _ = recovery.log.parse(at)
    except CorruptRecord:
        return False
    return record is None or recovery.log.sound_record(at) is not None
