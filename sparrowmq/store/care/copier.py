"""Copies of files and folders of a store, and the folder in which a copy grows until it is whole.

A copy grows in `DESTINATION.unfinished`, which is renamed at the end, once all of it is on disk. A copy that fails, or
the next one after a killed process, deletes this folder.

A full file of the log, of a queue or of the index never changes. If an earlier copy has it already, the new copy gets a
hard link to it. The same file is then part of both, until a recovery of the new copy writes to it: before the write it
becomes a file of its own (`CopyOnWriteDisk`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from sparrowmq.errors import BadStore, StoreError
from sparrowmq.kernel.records import Buffer
from sparrowmq.store import checkpoint
from sparrowmq.store.care.manifest import Copied, problem
from sparrowmq.store.layout import ENTRY_SIZE, row_of_files
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import File, Stamp, Vfs, closing

log = logging.getLogger(__name__)

UNFINISHED: Final = ".unfinished"
_CHUNK_BYTES: Final = 1 << 20
_ATTEMPTS: Final = 10
_OWN_STATE: Final = "epoch.json"  # and the files that snapshot.py has beside it
# A file system notes the time of a change in steps, of up to two seconds. A younger file may change once more without
# another time.
_YOUNG_NS: Final = 2_000_000_000


@contextmanager
def growing_folder(vfs: Vfs, to: str) -> Iterator[str]:
    """Yield an empty folder beside the destination. It becomes the destination at the end, and is deleted on an error.
    Raises: BadStore, the destination is not empty.
    """
    to = to.rstrip("/")
    if vfs.list_folder(to) or os.path.isfile(to):
        raise BadStore(f"{to} is not empty; choose another place, or empty it")
    growing = to + UNFINISHED
    remove(vfs, growing)
    vfs.make_folder(growing)
    try:
        yield growing
    except BaseException:
        with suppress(OSError, StoreError):  # the error of the copy is the one to report
            remove(vfs, growing)
        raise
    if vfs.exists(to):
        vfs.remove_folder(to)
    vfs.rename(growing, to)
    vfs.sync_folder(os.path.dirname(os.path.abspath(to)))


def remove(vfs: Vfs, path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for name in vfs.list_folder(path):
            remove(vfs, os.path.join(path, name))
        vfs.remove_folder(path)
    elif os.path.lexists(path):
        vfs.unlink(path)


class EarlierCopy:
    """The files of an earlier copy that a new one can link, by their paths in its manifest. With `is_checked` each is
    read before, and a damaged one is not linked.
    """

    def __init__(self, folder: str, files: Mapping[str, Copied], *, is_checked: bool = False) -> None:
        self.linked = 0  # the number of files that were linked
        self._folder = folder
        self._files = files
        self._is_checked = is_checked

    def link(self, vfs: Vfs, path: str, stamp: Stamp, to: str) -> Copied | None:
        copied_file = self._files.get(path)
        if copied_file is None or copied_file.source != stamp:
            return None
        earlier_path = os.path.join(self._folder, path)
        damage = problem(vfs, self._folder, copied_file) if self._is_checked else ""
        if damage:
            log.warning("an earlier backup is damaged: %s; the file is copied again", damage)
        if damage or not os.path.isfile(earlier_path) or not vfs.link(earlier_path, to):
            return None
        self.linked += 1
        return copied_file


class Copy:
    """Copies files and folders to the folder `root`, and syncs each. Files that vanish meanwhile are left out."""

    def __init__(self, vfs: Vfs, settings: StoreSettings, root: str, earlier: EarlierCopy | None = None) -> None:
        # The stamps that the sources had before they were copied, by the paths of the copies below `root`.
        self.stamps: dict[str, Stamp] = {}
        self.linked: dict[str, Copied] = {}  # the files that were linked instead, likewise
        self._vfs = vfs
        self._settings = settings
        self._root = root
        self._earlier = earlier

    def copy_tree(self, source: str, to: str) -> None:
        """Copy a folder with its content, except the mark of the store. A missing folder is ignored."""
        if not os.path.isdir(source):
            return
        self._vfs.make_folder(to)
        for name in self._vfs.list_folder(source):
            path, copied = os.path.join(source, name), os.path.join(to, name)
            if os.path.isdir(path):
                self.copy_tree(path, copied)
            elif os.path.isfile(path) and not name.startswith(_OWN_STATE):
                self.file(path, copied)
        self._vfs.sync_folder(to)

    def copy_queues(self, source: str, to: str) -> None:
        self._vfs.make_folder(to)
        for topic in self._vfs.list_folder(source):
            for queue in self._vfs.list_folder(os.path.join(source, topic)):
                part = os.path.join(topic, queue)
                size = self._settings.consume_queue_file_entries * ENTRY_SIZE
                self.copy_row(os.path.join(source, part), os.path.join(to, part), size)
            if not self._vfs.exists(os.path.join(source, topic)):
                remove(self._vfs, os.path.join(to, topic))
            self._vfs.sync_folder(os.path.join(to, topic))
        self._vfs.sync_folder(to)

    def copy_row(self, source: str, to: str, file_size: int) -> None:
        """Copy a row of files of one size, without those before a hole: the oldest can be deleted during the copy."""
        self.copy_tree(source, to)
        before_hole, after_hole = row_of_files(to, self._vfs.list_folder(to), file_size)
        while after_hole:
            for begin in before_hole:
                self._vfs.unlink(os.path.join(to, f"{begin:020d}"))
            before_hole, after_hole = row_of_files(to, self._vfs.list_folder(to), file_size)

    def checkpoint(self, source: str, to: str) -> None:
        """Copy the checkpoint. It may be written at the same time, so it is read again until it is whole."""
        for _ in range(_ATTEMPTS):
            saved = checkpoint.load(self._vfs, source)
            if saved.positions is not None:
                checkpoint.save(self._vfs, to, saved)
                return
        self.file(source, to)  # a broker of Java wrote it

    def file(self, source: str, to: str) -> None:
        vfs, path = self._vfs, os.path.relpath(to, self._root)
        try:
            stamp = vfs.stamp(source)
            linked_file = self._earlier.link(vfs, path, stamp, to) if self._earlier is not None else None
            if linked_file is not None:
                self.linked[path] = linked_file
            else:
                copy_file(vfs, source, to)
        except FileNotFoundError:
            return
        if stamp.changed_ns < time.time_ns() - _YOUNG_NS:
            self.stamps[path] = stamp


def copy_file(vfs: Vfs, source: str, to: str) -> None:
    """Copy one file, with its holes. Raises: FileNotFoundError, DiskFull."""
    with (
        closing(vfs, vfs.open(source, writable=False)) as source_file,
        closing(vfs, vfs.create(to, source_file.size, allocate=False)) as copied_file,
    ):
        for begin, end in vfs.used_parts(source_file, 0):
            for offset in range(begin, end, _CHUNK_BYTES):
                vfs.write(copied_file, offset, vfs.read(source_file, offset, min(_CHUNK_BYTES, end - offset)))
        vfs.sync(copied_file)


class CopyOnWriteDisk:
    """A disk on which each linked file becomes a file of its own before something writes to it."""

    def __init__(self, vfs: Vfs, linked: set[str]) -> None:
        self.written: set[str] = set()  # the files that were written to, by their paths
        self._vfs = vfs
        self._linked = linked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vfs, name)

    def write(self, file: File, offset: int, content: Buffer) -> None:
        self._copy_if_linked(file)
        self._vfs.write(file, offset, content)

    def truncate(self, file: File, size: int) -> None:
        self._copy_if_linked(file)
        self._vfs.truncate(file, size)

    def _copy_if_linked(self, file: File) -> None:
        self.written.add(file.path)
        if file.path not in self._linked:
            return
        vfs, own_path = self._vfs, file.path + ".own"
        copy_file(vfs, file.path, own_path)
        vfs.rename(own_path, file.path)
        vfs.sync_folder(os.path.dirname(file.path))
        self._linked.discard(file.path)
        own_file = vfs.open(file.path, writable=True)
        file.fd, own_file.fd = own_file.fd, file.fd
        vfs.close(own_file)
