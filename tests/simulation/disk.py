"""The disk of a simulated host: what its system shows, and what a power cut leaves of it.

The promises are those of `sparrowmq/store/vfs.py`: bytes are safe once their file was synced, names once their folder
was. Before, each sector may have any version that it went through, and each change of a name may be there or not. After
a sync that failed, the system shows bytes that no later sync brings to the disk.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

SECTOR: Final = 512
_VERSIONS: Final = 4  # of an unsynced sector that are remembered


@dataclass(eq=False, slots=True)
class Inode:
    """A file.

    Attributes:
        data: what the system shows.
        loose: by sector, the versions since the last sync, the synced one first.
        lost: by sector, the version on disk of bytes that a failed sync has dropped.
        sizes: since the last sync, the synced one first.
    """

    number: int
    data: bytearray = field(default_factory=bytearray)
    loose: dict[int, list[bytes]] = field(default_factory=dict)
    lost: dict[int, bytes] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=lambda: [0])

    def write(self, offset: int, content: bytes | bytearray | memoryview) -> None:
        """Write, and lengthen the file if need be."""
        end = offset + len(content)
        if end > len(self.data):
            self.resize(end)
        for sector in range(offset // SECTOR, (end + SECTOR - 1) // SECTOR):
            self._touch(sector)
        self.data[offset:end] = content

    def resize(self, size: int) -> None:
        """Cut, or lengthen by zeros."""
        if size < len(self.data):
            sectors: Iterable[int] = range(size // SECTOR, (len(self.data) + SECTOR - 1) // SECTOR)
            if self.data[size:] == bytes(len(self.data) - size):  # what a power cut brings back would be zeros, too
                sectors = [sector for sector in (*self.loose, *self.lost) if sector in sectors]
            for sector in sectors:
                self._touch(sector)
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.sizes.append(size)

    def _touch(self, sector: int) -> None:
        now = bytes(self.data[sector * SECTOR : (sector + 1) * SECTOR])
        versions = self.loose.get(sector)
        if versions is None:
            self.loose[sector] = [self.lost.pop(sector, now)]
        elif len(versions) < _VERSIONS:
            versions.append(now)

    def sync(self) -> None:
        """Bring it to the disk."""
        self.loose.clear()
        self.sizes = [len(self.data)]

    def fail_sync(self) -> None:
        """Take everything for written that is not."""
        for sector, versions in self.loose.items():
            self.lost.setdefault(sector, versions[0])
        self.loose.clear()

    def cut_power(self, rng: random.Random, keeps: float) -> None:
        """Leave any state that a power cut can leave. `keeps` is the share of unsynced sectors that are kept."""
        size = rng.choice(self.sizes) if rng.random() >= keeps else len(self.data)
        changed = {sector: [old] for sector, old in self.lost.items()}
        changed.update(self.loose)
        self.data.extend(bytes(max(0, max(self.sizes) - len(self.data))))
        for sector in sorted(changed):
            if sector in self.lost or rng.random() >= keeps:
                old = rng.choice(changed[sector])
                begin = sector * SECTOR
                self.data[begin : begin + SECTOR] = old.ljust(min(SECTOR, len(self.data) - begin), b"\0")
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))
        self.loose, self.lost, self.sizes = {}, {}, [size]


@dataclass(eq=False, slots=True)
class Name:
    """A change of a name that may be lost: `inode` is None for one that is removed, `folder` for a folder."""

    kind: str
    path: str
    inode: Inode | None = None
    to: str = ""


class SimDisk:
    """Folders and files of one host.

    Attributes:
        is_full: nothing can be created or lengthened.
        is_read_only: nothing can be changed.
        failing_syncs: the number of next syncs that fail.
        sync_s: how long a sync takes.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.names: dict[str, Inode | None] = {root: None}  # None: a folder
        self.is_full = False
        self.is_read_only = False
        self.failing_syncs = 0
        self.sync_s = 0.0005
        self.capacity = 1 << 30
        self._durable: dict[str, Inode | None] = {root: None}
        self._loose: list[Name] = []
        self._inodes = 0

    def create(self, path: str) -> Inode:
        self._inodes += 1
        inode = Inode(self._inodes)
        self.names[path] = inode
        self._loose.append(Name("create", path, inode))
        return inode

    def make_folder(self, path: str) -> None:
        self.names[path] = None
        self._loose.append(Name("make_folder", path))

    def remove(self, path: str) -> None:
        del self.names[path]
        self._loose.append(Name("remove", path))

    def rename(self, path: str, to: str) -> None:
        _rename(self.names, path, to)
        self._loose.append(Name("rename", path, to=to))

    def sync_folder(self, path: str) -> None:
        """Make the names of a folder safe."""
        rest = []
        for name in self._loose:
            if os.path.dirname(name.path) == path:
                _apply(self._durable, name)
            else:
                rest.append(name)
        self._loose = rest

    def children(self, path: str) -> list[str]:
        begin = path.rstrip("/") + "/"
        return sorted(
            name[len(begin) :] for name in self.names if name.startswith(begin) and "/" not in name[len(begin) :]
        )

    def used(self) -> int:
        return sum(len(inode.data) for inode in self.names.values() if inode is not None)

    def lose_all(self) -> None:
        """Become another, empty disk."""
        self.names, self._durable, self._loose = {self.root: None}, {self.root: None}, []

    def cut_power(self, rng: random.Random) -> None:
        """Leave any state that a power cut can leave."""
        keeps = rng.choice((0.0, 0.5, 0.9, 1.0))
        names = dict(self._durable)
        for name in self._loose:
            if rng.random() < keeps:
                _apply(names, name)
        self.names = {path: inode for path, inode in names.items() if self._is_rooted(path, names)}
        self._durable, self._loose = dict(self.names), []
        inodes = {inode.number: inode for inode in self.names.values() if inode is not None}
        for number in sorted(inodes):
            inodes[number].cut_power(rng, keeps)

    def _is_rooted(self, path: str, names: dict[str, Inode | None]) -> bool:
        while path != self.root:
            path = os.path.dirname(path)
            if names.get(path, self) is not None:
                return False
        return True


def _apply(names: dict[str, Inode | None], name: Name) -> None:
    if name.kind in ("create", "make_folder"):
        names[name.path] = name.inode
    elif name.kind == "remove":
        names.pop(name.path, None)
    elif name.path in names:
        _rename(names, name.path, name.to)


def _rename(names: dict[str, Inode | None], path: str, to: str) -> None:
    names[to] = names.pop(path)
    below = path + "/"
    for each in [each for each in names if each.startswith(below)]:
        names[to + each[len(path) :]] = names.pop(each)
