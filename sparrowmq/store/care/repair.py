"""Repair a damaged store as far as possible: as `corruptPolicy=quarantine` does at a start, but for the whole log.

A start checks the log's last megabytes. A repair first sets the checkpoint back to the log's begin. So recovery reads
the whole log, fences off damage, keeps the bytes in `set-aside`, and makes queues and index match again. Before that,
damaged records are replaced by those of a copy of the log, if the caller has one (replacing.py).
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
    """Repair a store that no broker has open.

    Args:
        copy: a copy of the log, whose records replace the damaged ones.
    Raises:
        StoreLocked: a broker has the store open.
        BadStore: a file is missing, or has another size: restore it from a backup or a slave.
        DiskFull: there is no room for the bytes to set aside.
        LogsDiffer: the other log is no copy of this one; nothing is fenced off.
        NetworkError, RemoteError: the copy cannot be read; nothing is fenced off.
    """
    lock = StoreLock(vfs, settings.layout)
    try:
        replaced = replace_damaged(settings, vfs, copy) if copy is not None else Replaced()
        _look_at_all(settings, vfs)
    finally:
        lock.close()
    MessageStore.open(replace(settings, corrupt_policy=CorruptPolicy.QUARANTINE), vfs=vfs).close()
    return replaced


def replace_closed(settings: StoreSettings, vfs: Vfs, copy: Copy, begin: int) -> Replaced:
    """Only replace the damaged records that the copy has. Arguments and errors are those of `repair`.

    Args:
        begin: an offset in the first file of the log to search.
    """
    lock = StoreLock(vfs, settings.layout)
    try:
        return replace_damaged(settings, vfs, copy, begin, is_partial=True)
    finally:
        lock.close()


def _look_at_all(settings: StoreSettings, vfs: Vfs) -> None:
    """Let the next start check the log from its begin."""
    path = settings.layout.checkpoint
    found = checkpoint.load(vfs, path)
    if found.positions is not None:
        log = CommitLog(vfs, settings.layout.commit_log, settings.commit_log_file_size, writable=False)
        positions = replace(found.positions, scan_from=log.begin)
        log.close()
        checkpoint.save(vfs, path, replace(found, positions=positions))
