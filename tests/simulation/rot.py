"""Bits that flip on a disk: at most one of the cluster is wrong at a time, so a sound copy of it exists.

A bit of the log flips only where another member has the same bytes on disk. It is there until a repair has written the
right byte, or the file is gone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from tests.simulation.disk import SECTOR, Inode, SimDisk
from tests.simulation.files import ROOT

LOG: Final = f"{ROOT}/store/commitlog/"
QUEUES: Final = f"{ROOT}/store/consumequeue/"
_NEAR: Final = 8 * SECTOR  # about a flipped bit, everything is on disk


@dataclass(frozen=True)
class Rot:
    """A byte that is wrong."""

    member: int
    disk: SimDisk
    path: str
    at: int
    wrong: int

    @property
    def is_there(self) -> bool:
        inode = self.disk.names.get(self.path)
        return inode is not None and self.at < len(inode.data) and inode.data[self.at] == self.wrong


def flip(disks: dict[int, SimDisk], member: int, rng: random.Random) -> Rot | None:
    """Flip a bit of a member's log that another member has, too; None if there is none."""
    disk = disks[member]
    twins = [other for number, other in disks.items() if number != member]
    files = [path for path in sorted(disk.names) if path.startswith(LOG) and disk.names[path] is not None]
    if not files or not twins:
        return None
    # Half of the time near the end of the log, where more depends on it.
    path = files[-1] if rng.random() < 0.5 else rng.choice(files)
    inode, twin = disk.names[path], rng.choice(twins).names.get(path)
    if inode is None or twin is None:
        return None
    used = min(len(inode.data.rstrip(b"\0")), len(twin.data.rstrip(b"\0")))
    if used < 2 * _NEAR:
        return None
    at = rng.randrange(_NEAR, used - _NEAR)
    same = slice(at - _NEAR, at + _NEAR)
    if inode.data[same] != twin.data[same] or not (_is_on_disk(inode, same) and _is_on_disk(twin, same)):
        return None
    inode.data[at] ^= 1 << rng.randrange(8)
    return Rot(member, disk, path, at, inode.data[at])


def flip_in_queue(disk: SimDisk, rng: random.Random) -> str | None:
    """Flip a bit of a queue's entries on disk, and return the path of the file; None if there are none."""
    files = [path for path in sorted(disk.names) if path.startswith(QUEUES) and disk.names[path] is not None]
    path = rng.choice(files) if files else ""
    inode = disk.names.get(path)
    used = len(inode.data.rstrip(b"\0")) if inode is not None else 0
    if inode is None or not used:
        return None
    at = rng.randrange(used)
    if not _is_on_disk(inode, slice(at, at + 1)):
        return None
    inode.data[at] ^= 1 << rng.randrange(8)
    return path


def _is_on_disk(inode: Inode, part: slice) -> bool:
    sectors = range(part.start // SECTOR, part.stop // SECTOR + 1)
    return not any(sector in inode.loose or sector in inode.lost for sector in sectors)
