"""Small state that survives restarts: changes are saved a little later, in a thread.

    change ── touch ── dirty ── (chores, every few seconds) ── snapshot.save in a thread ── clean

The event loop builds the JSON value, so the thread saves the state of one moment. Offsets are too many for that: the
thread reads them, too. `ReservedSpace` keeps disk space for the files. Other state is in queues of the broker's own
topics, which a start reads with `records_from`.

Topics, groups, offsets, users and request modes are tables of one kind. A table takes its content from the log if it is
`replayed`, else from its file, and raises BadStore if neither the file nor one of its copies can be read. It notes each
change at once in its `ChangeLog`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from sparrowmq.broker.change_log import ChangeLog
from sparrowmq.broker.part import Chore, Part
from sparrowmq.core import snapshot
from sparrowmq.core.safe_text import write_problem
from sparrowmq.core.snapshot import SPARE
from sparrowmq.errors import BadStore, RemoteError
from sparrowmq.metrics.condition_kinds import STATE_NOT_SAVED
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.wire import json
from sparrowmq.store.message_store import MessageStore

T = TypeVar("T")
log = logging.getLogger(__name__)
_ENTRIES_PER_READ: Final = 512
_BYTES_PER_READ: Final = 4 << 20
MIN_RESERVED_BYTES: Final = 4 << 20
RESERVE_PERIOD_S: Final = 10.0


def saved_content(path: Path, kind: type[T], decode: Callable[[bytes, type[T]], T]) -> T | None:
    """Return the content of a broker's file, or of a copy; None if it was never saved. Raises: BadStore."""
    return snapshot.load(path, kind, decode=decode, report=log.warning)


class SavedFile:
    """One JSON file in the store's `config` folder, which is dirty while the state in memory is newer.

    `content` builds the value, which must not change afterwards; `encode` encodes it, in the thread. What its
    `change_log` has as safely as promised, the file may lack.
    """

    def __init__(
        self,
        path: Path,
        content: Callable[[], object],
        encode: Callable[[object], bytes] = json.dumps,
        is_secret: bool = False,
        change_log: ChangeLog | None = None,
    ) -> None:
        self.path = path
        self._content = content
        self._encode = encode
        self._is_secret = is_secret
        self._change_log = change_log or ChangeLog()
        self.problem = ""
        self._change_count = 0
        # Invariant: saved <= changes. If they are equal, the file has the state of memory.
        self._saved_changes = 0
        self._save_lock = asyncio.Lock()

    @property
    def dirty(self) -> bool:
        return self._saved_changes < self._change_count

    def part(self, name: str, period_s: float) -> Part:
        return Part(
            chores=(Chore(f"save {name}", period_s, self.save),),
            saves=(self.save,),
            probes=((STATE_NOT_SAVED, lambda: self.problem),),
        )

    def touch(self) -> None:
        self._change_count += 1

    async def save(self) -> None:
        """Save the content if it has changed; after a failure the file stays dirty. Raises: OSError."""
        async with self._save_lock:
            if self.dirty:
                change_count = self._change_count
                try:
                    await asyncio.to_thread(
                        snapshot.save, self.path, self._content(), encode=self._encode, is_secret=self._is_secret
                    )
                except OSError as error:
                    self.problem = f"{self.path} cannot be written ({write_problem(error)})"
                    raise
                self._saved_changes, self.problem = change_count, ""

    async def confirm(self, done_text: str) -> None:
        """Return when the change of a request is safe in the log, so that the request can be answered. The file is
        saved too.

        Raises: RemoteError, neither the log nor the file has the change, or the log not as safely as promised. It stays
        in effect, and is saved as soon as possible.
        """
        problem = await self._try_to_save()
        if await self._change_log.wait_until_safe(done_text) or problem is None:
            return
        reason = f"{self.path} could not be written ({write_problem(problem)})"
        remark = (
            f"{done_text} and in effect, but not saved: {reason}. It is tried again every few seconds: "
            "free some space, or fix what is wrong; if the broker ends before that, the change is lost"
        )
        raise RemoteError(ResponseCode.SYSTEM_ERROR, remark) from problem

    async def _try_to_save(self) -> OSError | None:
        try:
            await self.save()
        except OSError as error:
            log.warning("%s could not be written (%s); it is tried again", self.path, write_problem(error))
            return error
        return None


def records_from(store: MessageStore, topic: str, queue_id: int, offset: int) -> Iterator[memoryview]:
    """Yield the records of a queue up to its end, or none if there is no such queue. Raises: BadStore."""
    queue = store.queues.get(topic, queue_id)
    if queue is None:
        return
    offset = max(offset, queue.min_offset)
    while offset < queue.max_offset:
        read = store.read(topic, queue_id, offset, _ENTRIES_PER_READ, _BYTES_PER_READ)
        if read.next_offset <= offset:
            raise BadStore(f"{topic}[{queue_id}] cannot be read at offset {offset}")
        for view in read.views:
            yield from record.walk(view)
        offset = read.next_offset


class ReservedSpace:
    """Reserved disk space beside the files of one folder, so that they can be saved while messages fill the disk.

        there is space     config/spare takes 4 MiB, plus the size of two copies of the JSON files beside it
        the disk is full   each file that is saved takes the space it needs from `spare` (snapshot.py)
        space again        `spare` is created again

    The log does not use that space: it allocates whole files, usually of 1 GiB.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def part(self) -> Part:
        """Reserve the space now. Returns a part that checks it every 10 s."""
        self.reserve()
        return Part(chores=(Chore("keep spare room", RESERVE_PERIOD_S, self.reserve),))

    def reserve(self) -> None:
        """Reserve the space if it is missing or too small, and the disk has twice as much free. Otherwise wait."""
        path, needed_bytes = self._folder / SPARE, self._needed_bytes()
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size >= needed_bytes:
                return
        self._folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize >= 2 * needed_bytes:
            _allocate(path, needed_bytes)

    def _needed_bytes(self) -> int:
        """The bytes to reserve. Each file counts twice: a new one replaces the old one only when it is complete."""
        files = self._folder.glob("*.json") if self._folder.exists() else ()
        return MIN_RESERVED_BYTES + 2 * sum(file.stat().st_size for file in files)


def _allocate(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.write(bytes(size))
        except OSError:
            path.unlink(missing_ok=True)
