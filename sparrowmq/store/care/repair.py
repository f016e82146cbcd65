"""Repair a damaged store as far as possible: as `corruptPolicy=quarantine` does at a start, but for the whole log.

A start checks the log's last megabytes, or after Java its last files. The recovery of a repair reads the whole log. It
fences off damage, keeps the bytes in `set-aside`, and makes queues and index match again. Before that, damaged records
are replaced by those of a copy of the log, if the caller has one (record_repair.py).
"""

from __future__ import annotations

from dataclasses import replace

from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.record_repair import Copy, Replaced, replace_damaged
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import StoreLock, Vfs


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
    replaced = Replaced()
    if copy is not None:
        lock = StoreLock(vfs, settings.layout)
        try:
            replaced = replace_damaged(settings, vfs, copy)
        finally:
            lock.close()
    settings = replace(settings, corrupt_policy=CorruptPolicy.QUARANTINE, checks_all=True)
    MessageStore.open(settings, vfs=vfs).close()
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
