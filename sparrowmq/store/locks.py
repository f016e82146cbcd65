"""The locks of a store: only one broker can open it, even if its lock file is deleted.

root/lock       byte 0 is locked, as Java locks it; if the file is deleted, a second broker could lock a new one
root            the folder itself is locked too, and it cannot be deleted while a store is in it
the log         the folder of the log is locked: two stores may not share one, as `storePathCommitLog` could say
"""

from __future__ import annotations

import os

from sparrowmq.errors import StoreLocked
from sparrowmq.store.layout import Layout
from sparrowmq.store.vfs import File, Vfs, lock_holder


class StoreLock:
    """The locks of one store, held until `close`.

    Attributes:
        file: the lock file.

    Raises:
        StoreLocked: a broker has this store open, or another store with the same log.
    """

    def __init__(self, vfs: Vfs, layout: Layout) -> None:
        self._vfs = vfs
        self._folders: list[File] = []
        file = vfs.lock(layout.lock)
        if file is None:
            raise StoreLocked(layout.root, lock_holder(layout.lock))
        self.file = file
        # If both paths name the same folder, its second lock would conflict with the first.
        for folder in {os.path.realpath(path): path for path in (layout.root, layout.commit_log)}.values():
            held = vfs.lock_folder(folder)
            if held is None:
                self.close()
                raise StoreLocked(folder)
            self._folders.append(held)

    def close(self) -> None:
        """Release the locks. Calling it twice is harmless."""
        for each in (*self._folders, self.file):
            self._vfs.close(each)
