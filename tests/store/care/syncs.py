"""A disk that knows what a power cut could still lose."""

from __future__ import annotations

import os

from sparrowmq.kernel.records import Buffer
from sparrowmq.store.care import manifest
from sparrowmq.store.vfs import Disk, File


class SyncedDisk(Disk):
    """Demands that a copy is on disk before it gets its name, and its files before the manifest says that they are.

    Attributes:
        unsynced: files and folders with a change that no sync has covered.
        renamed: folders that got their names.
    """

    def __init__(self) -> None:
        self.unsynced: set[str] = set()
        self.renamed: list[str] = []

    def create(self, path: str, size: int, allocate: bool) -> File:
        if os.path.basename(path) == manifest.NAME:
            left = sorted(
                each for each in self.unsynced if each.startswith(os.path.dirname(path)) and not _is_lock(each)
            )
            assert not left, left
        self.unsynced |= {path, os.path.dirname(path)}
        return super().create(path, size, allocate)

    def write(self, file: File, offset: int, content: Buffer) -> None:
        self.unsynced.add(file.path)
        super().write(file, offset, content)

    def truncate(self, file: File, size: int) -> None:
        self.unsynced.add(file.path)
        super().truncate(file, size)

    def link(self, path: str, to: str) -> bool:
        self.unsynced.add(os.path.dirname(to))
        return super().link(path, to)

    def make_folder(self, path: str) -> None:
        while not os.path.isdir(path):
            self.unsynced |= {path, os.path.dirname(path)}
            super().make_folder(os.path.dirname(path))
            os.mkdir(path)

    def rename(self, path: str, to: str) -> None:
        if os.path.isdir(path):
            left = [
                each for each in self.unsynced if (each.startswith(f"{path}/") or each == path) and not _is_lock(each)
            ]
            assert not left, left
            self.renamed.append(to)
        self.unsynced.discard(path)
        self.unsynced |= {os.path.dirname(os.path.abspath(to))}
        super().rename(path, to)

    def unlink(self, path: str) -> None:
        self.unsynced.discard(path)  # the name may come back; it is empty then, or as it was
        super().unlink(path)

    def sync(self, file: File) -> None:
        super().sync(file)
        self.unsynced.discard(file.path)

    def sync_path(self, path: str) -> None:
        super().sync_path(path)
        self.unsynced.discard(path)

    def sync_folder(self, path: str) -> None:
        super().sync_folder(path)
        self.unsynced.discard(path)


def _is_lock(path: str) -> bool:
    """Whether a file has no content that counts."""
    return os.path.basename(path) == "lock"
