"""Copies of files and folders of a store, and the folder in which a copy grows until it is whole.

A copy grows in `DESTINATION.unfinished`, which is renamed at the end, once all of it is on disk. A copy that fails
deletes this folder. If the process is killed, the next copy to the same destination deletes it.

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
_CHUNK: Final = 1 << 20
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
    """Delete a file, or a folder with its content, if there is one."""
    if os.path.isdir(path) and not os.path.islink(path):
        for name in vfs.list_folder(path):
            remove(vfs, os.path.join(path, name))
        vfs.remove_folder(path)
    elif os.path.lexists(path):
        vfs.unlink(path)


class EarlierCopy:
    """The files of an earlier copy that a new one can link.

    Args:
        folder: of the earlier copy.
        files: those of its manifest, by their paths.
        is_checked: read each file before it is linked. A damaged one is not linked.
    Attributes:
        linked: the number of files that were linked.
    """

    def __init__(self, folder: str, files: Mapping[str, Copied], *, is_checked: bool = False) -> None:
        self.linked = 0
        self._folder = folder
        self._files = files
        self._is_checked = is_checked

    def link(self, vfs: Vfs, path: str, stamp: Stamp, to: str) -> Copied | None:
        """Link the copy of a file that has this stamp now; None if there is no such copy."""
        known = self._files.get(path)
        if known is None or known.source != stamp:
            return None
        found = os.path.join(self._folder, path)
        wrong = problem(vfs, self._folder, known) if self._is_checked else ""
        if wrong:
            log.warning("an earlier backup is damaged: %s; the file is copied again", wrong)
        if wrong or not os.path.isfile(found) or not vfs.link(found, to):
            return None
        self.linked += 1
        return known


class Copy:
    """Copies files and folders to the folder `root`, and syncs each of them. Files that vanish meanwhile are left out.

    Attributes:
        stamps: the stamps that the sources had before they were copied, by the paths of the copies below `root`.
        linked: the files that were linked instead, likewise.
    """

    def __init__(self, vfs: Vfs, settings: StoreSettings, root: str, earlier: EarlierCopy | None = None) -> None:
        self.stamps: dict[str, Stamp] = {}
        self.linked: dict[str, Copied] = {}
        self._vfs = vfs
        self._settings = settings
        self._root = root
        self._earlier = earlier

    def tree(self, source: str, to: str) -> None:
        """Copy a folder with its content, except the mark of the store. A missing folder is ignored."""
        if not os.path.isdir(source):
            return
        self._vfs.make_folder(to)
        for name in self._vfs.list_folder(source):
            path, copied = os.path.join(source, name), os.path.join(to, name)
            if os.path.isdir(path):
                self.tree(path, copied)
            elif os.path.isfile(path) and not name.startswith(_OWN_STATE):
                self.file(path, copied)
        self._vfs.sync_folder(to)

    def queues(self, source: str, to: str) -> None:
        self._vfs.make_folder(to)
        for topic in self._vfs.list_folder(source):
            for queue in self._vfs.list_folder(os.path.join(source, topic)):
                part = os.path.join(topic, queue)
                size = self._settings.consume_queue_file_entries * ENTRY_SIZE
                self.row(os.path.join(source, part), os.path.join(to, part), size)
            if not self._vfs.exists(os.path.join(source, topic)):
                remove(self._vfs, os.path.join(to, topic))
            self._vfs.sync_folder(os.path.join(to, topic))
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
        """Copy one file with its holes, or link an earlier copy. A missing file is ignored."""
        vfs, path = self._vfs, os.path.relpath(to, self._root)
        try:
            stamp = vfs.stamp(source)
            known = self._earlier.link(vfs, path, stamp, to) if self._earlier is not None else None
            if known is not None:
                self.linked[path] = known
            else:
                copy_file(vfs, source, to)
        except FileNotFoundError:
            return
        if stamp.changed_ns < time.time_ns() - _YOUNG_NS:
            self.stamps[path] = stamp


def copy_file(vfs: Vfs, source: str, to: str) -> None:
    """Copy one file, with its holes. Raises: FileNotFoundError, DiskFull."""
    with (
        closing(vfs, vfs.open(source, writable=False)) as opened,
        closing(vfs, vfs.create(to, opened.size, allocate=False)) as made,
    ):
        for begin, end in vfs.used_parts(opened, 0):
            for offset in range(begin, end, _CHUNK):
                vfs.write(made, offset, vfs.read(opened, offset, min(_CHUNK, end - offset)))
        vfs.sync(made)


class CopyOnWriteDisk:
    """A disk on which each linked file becomes a file of its own before something writes to it.

    Attributes:
        written: the files that were written to, by their paths.
    """

    def __init__(self, vfs: Vfs, linked: set[str]) -> None:
        self.written: set[str] = set()
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
        vfs, beside = self._vfs, file.path + ".own"
        copy_file(vfs, file.path, beside)
        vfs.rename(beside, file.path)
        vfs.sync_folder(os.path.dirname(file.path))
        self._linked.discard(file.path)
        own = vfs.open(file.path, writable=True)
        file.fd, own.fd = own.fd, file.fd
        vfs.close(own)
