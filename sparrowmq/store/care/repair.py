"""Repair a damaged store as far as possible: as `corruptPolicy=quarantine` does at a start, but for the whole log.

A start checks the log's last megabytes, or after Java its last files. The recovery of a repair reads the whole log. It
fences off damage, keeps the bytes in `set-aside`, and makes queues and index match again. Before that, damaged records
are replaced by those of a copy of the log, if the caller has one (record_repair.py).
"""

from __future__ import annotations

from dataclasses import replace

from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.record_repair import Copy, RepairResult, replace_damaged, take_from
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Vfs


def repair(settings: StoreSettings, vfs: Vfs, copy: Copy | None = None) -> RepairResult:
    """Repair a store that no broker has open; records of `copy`, if given, replace damaged ones.

    Raises: StoreLocked; BadStore, a file is missing or has another size; DiskFull, nothing can be set aside;
    LogsDiffer, NetworkError, RemoteError: the other log is no copy or cannot be read, and nothing is fenced off.
    """
    replaced = RepairResult() if copy is None else take_from(copy, replace_damaged(settings, vfs))
    settings = replace(settings, corrupt_policy=CorruptPolicy.QUARANTINE, checks_all=True)
    MessageStore.open(settings, vfs=vfs).close()
    return replaced
