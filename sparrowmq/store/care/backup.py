"""A consistent copy of a store while its broker runs, and a store restored from such a copy.

A copy takes time, and the broker goes on working meanwhile. So the copy is like a store after a crash, and is recovered
like one. The order of copying makes this possible:

    config       the consumer offsets of groups: never ahead of the log, which is copied later
    checkpoint   the offsets up to which queues, index and log are on disk: files that are copied later have more
    queues, index, timers
    the log      up to its end, perhaps in the middle of a record, which is a torn tail
    recovery     of the copy, as of a store whose broker was killed
    a check      of each record of the copy's log: recovery checks only the log's end, and messages that no client has
                 read for years may have bit rot; an unchecked, damaged copy could replace one that was whole

Files that are deleted meanwhile are the oldest of the log or of a queue, or all of a deleted topic. The files that were
copied before such a hole are deleted from the copy too.

The failover state of a broker is not copied (`config/epoch.json`, own_epoch.py). It has the mark of that store, and
says what the store's log is part of. A copy is another store, and lacks messages a moment later. With the mark, it
would take the lease of the broker that it was copied from.

The copy is written to `DESTINATION.unfinished`, which is renamed at the end, once everything is on disk. So a kill at
any time leaves a whole copy or none.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.store import checkpoint
from sparrowmq.store.layout import ENTRY_SIZE, Layout, row_of_files
from sparrowmq.store.locks import StoreLock
from sparrowmq.store.log.scrub import look
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.progress_vfs import Watch
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 20
_UNFINISHED: Final = ".unfinished"
_ATTEMPTS: Final = 10
_OF_THE_STORE: Final = "epoch.json"  # and the files that snapshot.py has beside it


def backup(settings: StoreSettings, to: Path | str, vfs: Vfs, watch: Watch | None = None) -> int:
    """Copy a store to a new folder, and return the end of the copy's log. The store's broker may be running.

    With corruptPolicy=quarantine damaged records are copied as they are, and a warning is logged.

    Args:
        watch: called with the progress of the check.
    Raises:
        BadStore: there is no store, or `to` is not empty.
        CorruptRecord: bytes that had been on disk are damaged, anywhere in the log; repair the store first.
        DiskFull: there is no room for the copy.
    """
    layout = settings.layout
    if not vfs.exists(layout.commit_log):
        raise BadStore(f"there is no store at {settings.path}: {layout.commit_log} is not there")
    unfinished = _begin(vfs, str(to))
    made = Layout.of(unfinished)
    copy = _Copy(vfs, settings)
    config, queues, index, timers, of_log = zip(sources(layout), sources(made), strict=True)
    copy.tree(*config)
    copy.checkpoint(layout.checkpoint, made.checkpoint)
    copy.queues(*queues)
    copy.tree(*index)
    copy.tree(*timers)
    copy.row(*of_log, settings.commit_log_file_size)
    vfs.close(vfs.create(made.abort, 0, allocate=False))
    with MessageStore.open(replace(settings, path=unfinished, commit_log_path=None), vfs=vfs) as store:
        _look(store, layout, watch or (lambda *_: None))
        end = store.end
    _finish(vfs, unfinished, str(to))
    return end


def _look(store: MessageStore, source: Layout, watch: Watch) -> None:
    """Compare each record of a copy with its checksums. Raises: CorruptRecord, which names the file of the source."""
    copied = store.scrubber.log
    at = copied.begin
    while at < copied.written:
        watch("checking the copy", at - copied.begin, copied.written - copied.begin)
        at, problem = look(copied, at)
        if problem is None:
            continue
        file = copied.row.find(at)
        name = os.path.basename(file.path) if file is not None else ""
        damage = CorruptRecord(os.path.join(source.commit_log, name), at, problem)
        if store.settings.corrupt_policy is not CorruptPolicy.QUARANTINE:
            damage.expected += (
                "; it is not copied; stop the broker and take what is missing from a slave: `sparrowmq store repair "
                "FOLDER --from HOST:PORT`; without one that fences the damage off. corruptPolicy=quarantine copies it"
            )
            raise damage
        log.warning("%s; it is copied as it is", damage)
        at = copied.next_sound(at, copied.written) or copied.written


def sources(layout: Layout) -> list[str]:
    """The folders that a backup copies, in their order."""
    config = os.path.join(layout.root, "config")
    return [config, layout.consume_queue, layout.index, layout.timers, layout.commit_log]


def restore(source: Path | str, settings: StoreSettings, vfs: Vfs) -> None:
    """Create the store of a stopped broker from a copy that `backup` made. The copy is not changed.

    Raises:
        BadStore: there is no such copy, or the folder of the new store is not empty.
        DiskFull: there is no room for the new store.
    """
    if settings.commit_log_path is not None:
        raise BadStore("storePathCommitLog is set: restore without it, and move commitlog there afterwards")
    found = Layout.of(source)
    if not vfs.exists(found.commit_log) or not vfs.exists(found.checkpoint) or vfs.exists(found.abort):
        raise BadStore(f"{source} is no copy that `store backup` made and finished")
    lock = StoreLock(vfs, found)
    try:
        unfinished = _begin(vfs, settings.layout.root)
        _Copy(vfs, settings).tree(found.root, unfinished)
        _finish(vfs, unfinished, settings.layout.root)
    finally:
        lock.close()


def _begin(vfs: Vfs, to: str) -> str:
    """Create an empty folder beside the destination. The folder of an earlier attempt that was killed is deleted."""
    if vfs.list_folder(to) or os.path.isfile(to):
        raise BadStore(f"{to} holds something; choose another place, or move that away")
    unfinished = to.rstrip("/") + _UNFINISHED
    if vfs.exists(unfinished):
        _remove(vfs, unfinished)
    vfs.make_folder(unfinished)
    return unfinished


def _finish(vfs: Vfs, unfinished: str, to: str) -> None:
    """Rename the folder to the destination, once all of it is on disk."""
    to = to.rstrip("/")
    if vfs.exists(to):
        vfs.remove_folder(to)
    vfs.rename(unfinished, to)
    vfs.sync_folder(os.path.dirname(os.path.abspath(to)))


def _remove(vfs: Vfs, path: str) -> None:
    if not os.path.isdir(path):
        vfs.unlink(path)
        return
    for name in vfs.list_folder(path):
        _remove(vfs, os.path.join(path, name))
    vfs.remove_folder(path)


class _Copy:
    """Copies files and folders, and syncs each of them. Files that are deleted meanwhile are left out."""

    def __init__(self, vfs: Vfs, settings: StoreSettings) -> None:
        self._vfs = vfs
        self._settings = settings

    def tree(self, source: str, to: str) -> None:
        """Copy a folder with its content, except the mark of the store. A missing folder is ignored."""
        if not os.path.isdir(source):
            return
        self._vfs.make_folder(to)
        for name in self._vfs.list_folder(source):
            path, copied = os.path.join(source, name), os.path.join(to, name)
            if os.path.isdir(path):
                self.tree(path, copied)
            elif os.path.isfile(path) and not name.startswith(_OF_THE_STORE):
                self.file(path, copied)
        self._vfs.sync_folder(to)

    def queues(self, source: str, to: str) -> None:
        """Copy the queues of all topics."""
        self._vfs.make_folder(to)
        for topic in self._vfs.list_folder(source):
            for queue in self._vfs.list_folder(os.path.join(source, topic)):
                part = os.path.join(topic, queue)
                size = self._settings.consume_queue_file_entries * ENTRY_SIZE
                self.row(os.path.join(source, part), os.path.join(to, part), size)
            if not self._vfs.exists(os.path.join(source, topic)) and self._vfs.exists(
                os.path.join(to, topic)
            ):
                _remove(self._vfs, os.path.join(to, topic))
        self._vfs.sync_folder(to)

    def row(self, source: str, to: str, file_size: int) -> None:
        """Copy a row of files of one size, without those before a hole: the oldest can be deleted during the copy."""
        self.tree(source, to)
        row, rest = row_of_files(to, self._vfs.list_folder(to), file_size)
        while rest:
            for begin in row:
                self._vfs.unlink(os.path.join(to, f"{begin:020d}"))
            row, rest = row_of_files(to, self._vfs.list_folder(to), file_size)

    def checkpoint(self, source: str, to: str) -> None:
        """Copy the checkpoint. It may be written at the same time, so it is read again until it is whole."""
        for _ in range(_ATTEMPTS):
            found = checkpoint.load(self._vfs, source)
            if found.positions is not None:
                checkpoint.save(self._vfs, to, found)
                return
        self.file(source, to)  # a broker of Java wrote it

    def file(self, source: str, to: str) -> None:
        """Copy one file, with its holes. A missing file is ignored."""
        vfs = self._vfs
        try:
            opened = vfs.open(source, writable=False)
        except FileNotFoundError:
            return
        try:
            made = vfs.create(to, opened.size, allocate=False)
            try:
                for begin, end in vfs.used_parts(opened, 0):
                    for offset in range(begin, end, _CHUNK):
                        vfs.write(made, offset, vfs.read(opened, offset, min(_CHUNK, end - offset)))
                vfs.sync(made)
            finally:
                vfs.close(made)
        finally:
            vfs.close(opened)
