"""Who has a store open: one broker, whatever becomes of its lock file.

root/lock       byte 0 is locked, as Java locks it; whoever deletes the file makes room for a second lock
root            the folder itself is locked too, and it cannot be deleted while it holds a store
the log         likewise: two stores may not share one, though `storePathCommitLog` can say so
"""

from __future__ import annotations

import os

from sparrowmq.errors import StoreLocked
from sparrowmq.store.layout import Layout
from sparrowmq.store.vfs import File, Vfs


class StoreLock:
    """The locks of one store, taken until `close`.

    Attributes:
        file: the lock file.

    Raises:
        StoreLocked: somebody has the store open, or another store with the same log.
    """

    def __init__(self, vfs: Vfs, layout: Layout) -> None:
        self._vfs = vfs
        self._folders: list[File] = []
        file = vfs.lock(layout.lock)
        if file is None:
            raise StoreLocked(layout.root)
        self.file = file
        # Of one folder that has two names, the second lock would wait for the first.
        for folder in {os.path.realpath(path): path for path in (layout.root, layout.commit_log)}.values():
            held = vfs.lock_folder(folder)
            if held is None:
                self.close()
                raise StoreLocked(folder)
            self._folders.append(held)

    def close(self) -> None:
        """Give them back; twice is harmless."""
        for each in (*self._folders, self.file):
            self._vfs.close(each)
