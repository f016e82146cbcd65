"""A trial of a store's disk, before a member becomes the master: whether it takes what a master writes next."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from sparrowmq.store.vfs import Vfs

NAME: Final = "trial"
LEAST_BYTES: Final = 1 << 20  # for the small files of a start


def probe_writes(vfs: Vfs, folders: Iterable[str], log_folder: str, room_bytes: int) -> None:
    """Create, sync and delete a file in each folder. Blocks: call it in a thread.

    Args:
        room_bytes: the room that the log needs for its next file; 0 if it has that file.
    Raises:
        DiskFull: there is no room.
        OSError: a folder cannot be written, or a sync fails.
    """
    sizes = dict.fromkeys(folders, LEAST_BYTES)
    sizes[log_folder] = max(LEAST_BYTES, room_bytes)
    for folder, size in sizes.items():
        _probe(vfs, folder, size)


def _probe(vfs: Vfs, folder: str, size: int) -> None:
    path = os.path.join(folder, NAME)
    vfs.make_folder(folder)
    if vfs.exists(path):
        vfs.unlink(path)
    file = vfs.create(path, size, allocate=True)
    try:
        vfs.write(file, 0, b"\0")
        vfs.sync(file)
        vfs.sync_folder(folder)
    finally:
        vfs.close(file)
        vfs.unlink(path)
