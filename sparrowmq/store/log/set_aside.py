"""Keep bytes that leave the log in the folder `set-aside`, for an operator to inspect.

set-aside/00000000000000004972-00000000000000005100.damaged      bytes 4972 to 5100, and the reason

damaged   fenced off, or replaced by the bytes of a copy       cut      a torn tail
forked    bytes that a new master does not have

Damaged index files are moved there too, as their name and `.index`. All that they contained is in the log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Final

from sparrowmq.store.layout import Layout
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.vfs import Vfs

log = logging.getLogger(__name__)

_CHUNK: Final = 1 << 20


def set_aside(vfs: Vfs, layout: Layout, commit_log: CommitLog, begin: int, end: int, why: str) -> None:
    """Copy `[begin, end)` of the log to the folder. A copy that exists was saved before a crash. Raises: DiskFull."""
    if begin >= end:
        return
    vfs.make_folder(layout.set_aside)
    path = os.path.join(layout.set_aside, f"{begin:020d}-{end:020d}.{why}")
    if not vfs.exists(path):
        file = vfs.create(path, end - begin, allocate=True)
        for part in commit_log.row.between(begin, end):
            low, high = max(begin, part.begin), min(end, part.end)
            for at in range(low, high, _CHUNK):
                vfs.write(file, at - begin, part.read(at - part.begin, min(_CHUNK, high - at)))
        vfs.sync(file)
        vfs.close(file)
        vfs.sync_folder(layout.set_aside)
        vfs.sync_folder(layout.root)
    log.warning("the log is %s at offset %d; bytes up to %d are kept in %s", why, begin, end, path)


def ranges(vfs: Vfs, layout: Layout, why: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of the log that were set aside for a reason, rising."""
    for name in vfs.list_folder(layout.set_aside):
        place, _, found = name.rpartition(".")
        begin, _, end = place.partition("-")
        if found == why and begin.isdecimal() and end.isdecimal():
            yield int(begin), int(end)
