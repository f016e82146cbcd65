"""Every state in which a power cut can leave a disk.

`RecordVfs` is a file system in memory that writes down each effect, and may be full. `Disk` replays such a list up to
any point, and gives the states that a cut there could leave: what a sync covered is there; of the rest any
combination of 512-byte sectors, each in any version that it went through, any size that a file went through,
and any of the names that no folder sync covered. A file whose folder is not there is not there.

A sync of another thread takes its time: it covers what was written before its `sync_begin`, once it has its `sync_end`.
After a sync that failed the kernel takes for written what it could not write: it can be read, no later sync brings it
to disk, and only what is written again is.

A mutant is a store that forgets one of its syncs, or does it one effect too late: `Mutant` plays it, by the
place in the store that asks for the sync.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sparrowmq.errors import DiskFull, StoreError
from sparrowmq.kernel.records import Buffer
from sparrowmq.store.layout import SECTOR
from sparrowmq.store.vfs import File, Stamp

Effect = tuple[Any, ...]
folder_of: Callable[[str], str] = cache(os.path.dirname)  # asked millions of times
_LOCK = -2  # the descriptor of the lock file: what it holds matters to Java's stores alone


@dataclass(slots=True)
class DiskState:
    """Folders, and files with their content."""

    folders: set[str] = field(default_factory=lambda: {"/"})
    files: dict[str, bytes] = field(default_factory=dict)

    def key(self) -> int:
        return hash((frozenset(self.folders), frozenset(self.files.items())))


@dataclass(slots=True)
class Mutant:
    """A store of which one place does not sync, or syncs only after its next effect; `met` are all such places."""

    site: str
    late: bool = False
    held: Effect | None = None
    met: set[str] = field(default_factory=set)


class RecordVfs:
    """A file system in memory. `effects` is what was done to it, one tuple each; numbers stand for files."""

    def __init__(self, state: DiskState | None = None, mutant: Mutant | None = None) -> None:
        state = state or DiskState()
        self.start = state
        self.folders = set(state.folders)
        self.data: list[bytearray] = [bytearray(content) for content in state.files.values()]
        self.names = {path: number for number, path in enumerate(state.files)}
        self.effects: list[Effect] = []
        self.used = 0.0
        self.fail_next_sync = False
        self.is_full = False
        self._has_room: set[int] = set(self.names.values())
        self._mutant = mutant

    @classmethod
    def after_kill(cls, vfs: RecordVfs, cut: int, mutant: Mutant | None) -> RecordVfs:
        """What the next process finds when this one was killed after `cut` effects: all of them, synced or not."""
        found = cls(vfs.start, mutant)
        for effect in vfs.effects[:cut]:
            found._repeat(*effect)
        return found

    def _repeat(self, kind: str, first: Any, *rest: Any) -> None:
        if kind == "create":
            assert first == len(self.data)
            self.data.append(bytearray(rest[1]))
            self.names[rest[0]] = first
        elif kind == "write":
            self.data[first][rest[0] : rest[0] + len(rest[1])] = rest[1]
        elif kind == "truncate":
            self.data[first] = _content(bytes(self.data[first]), [("size", rest[0])])
        elif kind not in ("sync", "sync_begin", "sync_end", "sync_failed", "sync_folder", "ack"):
            _link(self.folders, self.names, (kind, first, *rest))
        self.effects.append((kind, first, *rest))

    def note(self, *effect: Any) -> None:
        """Write an effect down, or what a mutant makes of it."""
        mutant = self._mutant
        if effect[0] in ("sync", "sync_folder") and mutant is not None:
            site = _site(effect[0])
            mutant.met.add(site)
            if mutant.site == site:
                mutant.held = effect if mutant.late else None
                return
        self.effects.append(effect)
        if mutant is not None and mutant.held is not None:
            self.effects.append(mutant.held)
            mutant.held = None

    def create(self, path: str, size: int, allocate: bool) -> File:
        assert path not in self.names, f"{path} exists"
        assert folder_of(path) in self.folders, f"no folder for {path}"
        self._demand_room(path)
        number = len(self.data)
        if allocate:
            self._has_room.add(number)
        self.data.append(bytearray(size))
        self.names[path] = number
        self.note("create", number, path, size)
        return File(path, number, size)

    def open(self, path: str, writable: bool) -> File:
        if path not in self.names:
            raise FileNotFoundError(path)
        return File(path, self.names[path], len(self.data[self.names[path]]))

    def close(self, file: File) -> None:
        file.fd = -1

    def read(self, file: File, offset: int, size: int) -> bytes:
        if file.fd == _LOCK:
            return b""
        return bytes(self.data[file.fd][offset : offset + size])

    def used_parts(self, file: File, offset: int) -> list[tuple[int, int]]:
        return [(offset, file.size)] if offset < file.size else []

    def write(self, file: File, offset: int, content: Buffer) -> None:
        if file.fd == _LOCK:
            return
        data = self.data[file.fd]
        if offset + len(content) > len(data):
            raise StoreError(f"a write past the end of {file.path}, which was made in its full size")
        if file.fd not in self._has_room:
            self._demand_room(file.path)
        data[offset : offset + len(content)] = content
        self.note("write", file.fd, offset, bytes(content))

    def truncate(self, file: File, size: int) -> None:
        data = self.data[file.fd]
        if size < len(data):
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))
        file.size = size
        self.note("truncate", file.fd, size)

    def sync(self, file: File) -> None:
        assert file.fd >= 0, f"sync of {file.path}, which is closed"
        if self.fail_next_sync:
            self.fail_next_sync = False
            self.effects.append(("sync_failed", file.fd))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.note("sync", file.fd)

    def sync_path(self, path: str) -> None:
        if path in self.names:
            self.note("sync", self.names[path])

    def sync_folder(self, path: str) -> None:
        if path in self.folders:
            self.note("sync_folder", path)

    def rename(self, path: str, to: str) -> None:
        self.names[to] = self.names.pop(path)
        self.note("rename", path, to)

    def unlink(self, path: str) -> None:
        del self.names[path]
        self.note("unlink", path)

    def make_folder(self, path: str) -> None:
        if path not in self.folders:
            self._demand_room(path)
            self.make_folder(folder_of(path))
            self.folders.add(path)
            self.note("make_folder", path)

    def remove_folder(self, path: str) -> None:
        if not self.list_folder(path):
            self.folders.discard(path)
            self.note("remove_folder", path)

    def list_folder(self, path: str) -> list[str]:
        return sorted(os.path.basename(p) for p in {*self.names, *self.folders} if folder_of(p) == path and p != "/")

    def _demand_room(self, path: str) -> None:
        if self.is_full:
            raise DiskFull(f"no room on the disk for {path}")

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.folders

    def size(self, path: str) -> int:
        return len(self.data[self.names[path]])

    def link(self, path: str, to: str) -> bool:
        return False

    def stamp(self, path: str) -> Stamp:
        return Stamp(self.size(path), 0, self.names[path])

    def is_whole(self, file: File) -> bool:
        return True

    def is_cached(self, file: File, offset: int) -> bool:
        return True

    def read_cached(self, file: File, offset: int, into: memoryview) -> int:
        content = self.read(file, offset, len(into))
        into[: len(content)] = content
        return len(content)

    def forget(self, file: File, offset: int, size: int) -> None:
        """Forget nothing."""

    def used_ratio(self, path: str) -> float:
        return self.used

    def lock(self, path: str) -> File | None:
        return File(path, _LOCK, 0)

    def lock_folder(self, path: str) -> File | None:
        return File(path, -1, 0)


def _site(kind: str) -> str:
    """Which function of the store asked for the sync, and what kind it is."""
    frame = sys._getframe(2)
    while "/sparrowmq/store/" not in (path := frame.f_code.co_filename) or frame.f_code.co_qualname.startswith(
        "LogFile."
    ):
        assert frame.f_back is not None, "an effect that the store did not ask for"
        frame = frame.f_back
    return f"{os.path.basename(path)}:{frame.f_code.co_name}:{kind}"


class Disk:
    """What is certainly on disk after some effects, and what may be."""

    def __init__(self, start: DiskState) -> None:
        self.folders = set(start.folders)
        self.names = {path: number for number, path in enumerate(start.files)}
        self.data: dict[int, bytes] = dict(enumerate(start.files.values()))
        self.loose_names: list[Effect] = []
        self.loose_data: dict[int, list[Effect]] = {}
        self.begun: dict[int, int] = {}  # by file, how many of its loose changes the sync covers that is under way
        self.believed: dict[int, list[Effect]] = {}  # what a failed sync left: no sync will bring it to disk

    def apply(self, effect: Effect) -> None:
        kind, first, *rest = effect
        if kind == "create":
            self.data[first] = b""
            self.loose_names.append(effect)
            self.loose_data[first] = [("size", rest[1])]
        elif kind == "write":
            self.loose_data.setdefault(first, []).append((rest[0], rest[1]))
        elif kind == "truncate":
            self.loose_data.setdefault(first, []).append(("size", rest[0]))
        elif kind == "sync_begin":
            self.begun[first] = len(self.loose_data.get(first, []))
        elif kind == "sync_end":
            self._end_sync(first)
        elif kind == "sync_failed":
            self.begun.pop(first, None)
            self.believed.setdefault(first, []).extend(self.loose_data.pop(first, []))
        elif kind == "sync":
            self._sync(first)
        elif kind == "sync_folder":
            for name in [name for name in self.loose_names if _folder(name) == first]:
                _link(self.folders, self.names, name)
                self.loose_names.remove(name)
        elif kind != "ack":
            self.loose_names.append(effect)

    def _end_sync(self, number: int) -> None:
        assert not self.believed.get(number), "no sync of a thread goes on after one that failed"
        loose, covered = self.loose_data.get(number, []), self.begun.pop(number, 0)
        self.data[number] = bytes(_content(self.data[number], loose[:covered]))
        self.loose_data[number] = loose[covered:]

    def _sync(self, number: int) -> None:
        self.begun.pop(number, None)
        loose, believed = self.loose_data.pop(number, []), self.believed.get(number, [])
        if not believed:
            self.data[number] = bytes(_content(self.data[number], loose))
            return
        cached = bytes(_content(self.data[number], [*believed, *loose]))
        written: set[int] = set()
        durable = bytearray(self.data[number].ljust(len(cached), b"\0")[: len(cached)])
        for place, change in loose:
            if place != "size":
                written |= set(range(place // SECTOR, (place + len(change) - 1) // SECTOR + 1))
        for sector in written:
            durable[sector * SECTOR : (sector + 1) * SECTOR] = cached[sector * SECTOR : (sector + 1) * SECTOR]
        self.data[number] = bytes(durable)
        self.believed[number] = [
            (at, cached[at : at + SECTOR])
            for at in range(0, len(cached), SECTOR)
            if cached[at : at + SECTOR] != bytes(durable[at : at + SECTOR])
        ]

    def states(self, limit: int, rng: random.Random) -> Iterator[DiskState]:
        """Up to `limit` of the states that a cut now could leave; all of them if there are no more."""
        units: list[Effect] = [(False, True)] * len(self.loose_names)
        places = []
        versions_of = {}
        for number in {**self.loose_data, **self.believed}:
            changes = [*self.believed.get(number, []), *self.loose_data.get(number, [])]
            versions_of[number] = versions = _versions(self.data[number], changes)
            places += [(number, key) for key in versions]
            units += [tuple(range(len(choices))) for choices in versions.values()]
        for choice in _choices(units, limit, rng):
            yield self._state(choice, places, versions_of)

    def _state(self, choice: tuple, places: list, versions_of: dict) -> DiskState:
        folders, names = set(self.folders), dict(self.names)
        for taken, name in zip(choice, self.loose_names, strict=False):
            if taken:
                _link(folders, names, name)
        data = {number: self.data[number] for number in names.values()}
        chosen = dict(zip(places, choice[len(self.loose_names) :], strict=True))
        for number, versions in versions_of.items():
            if number in data:
                data[number] = _assemble(versions, {key: chosen[number, key] for key in versions})
        folders = {path for path in folders if _is_rooted(path, folders)}
        files = {path: data[number] for path, number in names.items() if folder_of(path) in folders}
        return DiskState(folders, files)


def _choices(units: list[Effect], limit: int, rng: random.Random) -> Iterator[tuple]:
    total = 1
    for unit in units:
        total *= len(unit)
        if total > limit:
            break
    if total <= limit:
        yield from itertools.product(*units)
        return
    none, all_of = tuple(unit[0] for unit in units), tuple(unit[-1] for unit in units)
    corners = [none, all_of]
    for i in range(len(units)):
        corners.append((*all_of[:i], units[i][0], *all_of[i + 1 :]))
        corners.append((*none[:i], units[i][-1], *none[i + 1 :]))
    rng.shuffle(corners)
    yield from corners[: limit // 2]
    for _ in range(limit - min(len(corners), limit // 2)):
        yield tuple(map(rng.choice, units))


def _versions(durable: bytes, changes: list[Effect]) -> dict[object, list]:
    """For each sector that changed, its contents in order; under "size" the sizes."""
    sizes, content = [len(durable)], bytearray(durable)
    versions: dict[object, list] = {}
    for place, change in changes:
        before = bytes(content)
        if place == "size":
            sizes.append(change)
            content = content[:change] + bytes(max(0, change - len(content)))
            touched = range(min(len(before), change) // SECTOR, -(-len(before) // SECTOR))
        else:
            content[place : place + len(change)] = change
            touched = range(place // SECTOR, (place + len(change) - 1) // SECTOR + 1)
        for sector in touched:
            old = before[sector * SECTOR : (sector + 1) * SECTOR]
            new = bytes(content[sector * SECTOR : (sector + 1) * SECTOR])
            if new != old:
                versions.setdefault(sector, [old]).append(new)
    versions["size"] = sizes if len(set(sizes)) > 1 else sizes[:1]
    versions["rest"] = [bytes(content)]
    return versions


def _assemble(versions: dict[object, list], chosen: dict[object, int]) -> bytes:
    size = versions["size"][chosen["size"]]
    content = bytearray(versions["rest"][0].ljust(size, b"\0"))
    for key, choices in versions.items():
        if isinstance(key, int):
            part = choices[chosen[key]]
            content[key * SECTOR : key * SECTOR + SECTOR] = part.ljust(min(SECTOR, len(content) - key * SECTOR), b"\0")
    return bytes(content[:size].ljust(size, b"\0"))


def _content(durable: bytes, changes: list[Effect]) -> bytearray:
    content = bytearray(durable)
    for place, change in changes:
        if place == "size":
            content = content[:change] + bytes(max(0, change - len(content)))
        else:
            content[place : place + len(change)] = change
    return content


def _folder(name: Effect) -> str:
    path: str = name[2] if name[0] == "create" else name[1]
    return folder_of(path)


def _link(folders: set[str], names: dict[str, int], name: Effect) -> None:
    if name[0] == "create":
        names[name[2]] = name[1]
    elif name[0] == "unlink":
        names.pop(name[1], None)
    elif name[0] == "rename" and name[1] in names:
        names[name[2]] = names.pop(name[1])
    elif name[0] == "make_folder":
        folders.add(name[1])
    elif name[0] == "remove_folder":
        folders.discard(name[1])


def _is_rooted(path: str, folders: set[str]) -> bool:
    return path == "/" or (path in folders and _is_rooted(folder_of(path), folders))
