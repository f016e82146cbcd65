"""Disks that report the progress of work on a store. The code that does the work does not have to report it.

A `Watch` is called with the name of the current work, the amount done, and the total amount.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from sparrowmq.kernel.records import Buffer
from sparrowmq.store.layout import parse_offset_name
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, File, Vfs, closing

Watch: TypeAlias = Callable[[str, int, int], None]


class ReadDisk(Disk):
    """Reports the position of reads in the log of one store. A repair reads the whole log more than once."""

    def __init__(self, settings: StoreSettings, watch: Watch) -> None:
        log = LogReader.open(settings, Disk())
        self._begin, self._end = log.begin, log.last_used_byte(log.begin)
        log.close()
        self._folder = os.path.normpath(settings.layout.commit_log)
        self._watch = watch

    def read(self, file: File, offset: int, size: int) -> bytes:
        folder, name = os.path.split(file.path)
        begin = parse_offset_name(name)
        if begin is not None and os.path.normpath(folder) == self._folder:
            self._watch("reading the log", begin + offset - self._begin, self._end - self._begin)
        return super().read(file, offset, size)


class WrittenDisk(Disk):
    """Reports how much of a copy has been written. `sources`: the files and folders to copy. Bytes that are added to
    them meanwhile are not counted.
    """

    def __init__(self, sources: list[str], watch: Watch) -> None:
        self._total = sum(used_bytes(Disk(), source) for source in sources)
        self._written = 0
        self._watch = watch

    def write(self, file: File, offset: int, content: Buffer) -> None:
        super().write(file, offset, content)
        self._written += memoryview(content).nbytes
        self._watch("copying", min(self._written, self._total), self._total)

    def link(self, path: str, to: str) -> bool:
        is_linked = super().link(path, to)
        self._written += used_bytes(self, path) if is_linked else 0
        return is_linked


def used_bytes(vfs: Vfs, path: str) -> int:
    """The bytes of a file or folder, without its holes; 0 if it is missing."""
    if os.path.isdir(path):
        return sum(used_bytes(vfs, os.path.join(path, name)) for name in vfs.list_folder(path))
    with suppress(FileNotFoundError), closing(vfs, vfs.open(path, writable=False)) as file:
        return sum(end - begin for begin, end in vfs.used_parts(file, 0))
    return 0
