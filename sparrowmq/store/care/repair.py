"""Mend a damaged store as far as that can be done: what `corruptPolicy=quarantine` does at a start, for the whole log.

A start looks at the log's last megabytes. Here the checkpoint is first set back to the log's begin, so that recovery
reads all of it, fences off what is damaged, keeps the bytes in `set-aside`, and makes queues and index fit again.
Before that, what a copy of the log has is taken from there (replacing.py).
"""

from __future__ import annotations

from dataclasses import replace

from sparrowmq.store import checkpoint
from sparrowmq.store.locks import StoreLock
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.replacing import Copy, Replaced, replace_damaged
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Vfs


def repair(settings: StoreSettings, vfs: Vfs, copy: Copy | None = None) -> Replaced:
    """Bring a store in order that nobody has open.

    Args:
        copy: what damaged records are taken from, if it has them.
    Raises:
        StoreLocked: a broker has it open.
        BadStore: a file is missing, or has another size: restore it from a backup or a slave.
        DiskFull: there is no room for what is set aside.
        LogsDiffer: the copy is none of this log; nothing is fenced off.
        NetworkError, RemoteError: it cannot be asked; likewise.
    """
    lock = StoreLock(vfs, settings.layout)
    try:
        replaced = replace_damaged(settings, vfs, copy) if copy is not None else Replaced()
        _look_at_all(settings, vfs)
    finally:
        lock.close()
    MessageStore.open(replace(settings, corrupt_policy=CorruptPolicy.QUARANTINE), vfs=vfs).close()
    return replaced


def _look_at_all(settings: StoreSettings, vfs: Vfs) -> None:
    """Let the next start begin at the log's begin."""
    path = settings.layout.checkpoint
    found = checkpoint.load(vfs, path)
    if found.positions is not None:
        log = CommitLog(vfs, settings.layout.commit_log, settings.commit_log_file_size, writable=False)
        positions = replace(found.positions, scan_from=log.begin)
        log.close()
        checkpoint.save(vfs, path, replace(found, positions=positions))
