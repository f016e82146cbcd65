"""Small state that survives restarts: what changed is saved a little later, off the event loop.

    change ── touch ── dirty ── (chores, every few seconds) ── snapshot.save in a thread ── clean

The loop builds the JSON value, so that the thread sees one moment; encoding, writing and the two syncs happen in
the thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sparrowmq import snapshot
from sparrowmq.broker.part import Chore, Part
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.wire import json

T = TypeVar("T")

log = logging.getLogger(__name__)


def saved_content(path: Path, kind: type[T], decode: Callable[[bytes, type[T]], T]) -> T | None:
    """What a broker's file holds, None if it was never saved; a copy that makes up for damage is told of in the log.

    Raises:
        BadStore: neither the file nor its copies can be read.
    """
    return snapshot.load(path, kind, decode=decode, tell=log.warning)


class SavedFile:
    """One JSON file under the store's `config` folder and whether it lags behind what is in memory.

    Args:
        content: builds the value to save; nothing in it may change afterwards.
        encode: turns it to bytes, in the thread.
    """

    def __init__(
        self, path: Path, content: Callable[[], object], encode: Callable[[object], bytes] = json.dumps
    ) -> None:
        self.path = path
        self._content = content
        self._encode = encode
        self._changes = 0
        # Invariant: saved <= changes; equal means that the file holds what memory holds.
        self._saved = 0
        self._one_at_a_time = asyncio.Lock()

    @property
    def dirty(self) -> bool:
        return self._saved < self._changes

    def part(self, what: str, period_s: float) -> Part:
        """It is saved in its period if it changed, and when the broker stops."""
        return Part(chores=(Chore(f"save {what}", period_s, self.save),), saves=(self.save,))

    def touch(self) -> None:
        """Say that the content changed."""
        self._changes += 1

    async def save(self) -> None:
        """Save what changed since the last time; returns when it is on disk. A save under way is waited for.

        Raises:
            OSError: it could not be written; it stays dirty and the next call tries again.
        """
        async with self._one_at_a_time:
            if self.dirty:
                changes = self._changes
                await asyncio.to_thread(snapshot.save, self.path, self._content(), encode=self._encode)
                self._saved = changes

    async def confirm(self, done: str) -> None:
        """`save` before a request is answered that changed something.

        Args:
            done: what it has done, in words.
        Raises:
            RemoteError: it could not be written. What was done holds in memory, and is saved as soon as that is
                possible: the topic is in the route already, and perhaps in use, so to undo it would do more harm.
        """
        try:
            await self.save()
        except OSError as error:
            why = f"{self.path} could not be written ({error.strerror or error})"
            log.warning("%s, but %s; it is tried again", done, why)
            remark = (
                f"{done} and in effect, but not saved: {why}. It is tried again every few seconds: "
                "free some space, or mend what is wrong; if the broker ends before that, the change is lost"
            )
            raise RemoteError(ResponseCode.SYSTEM_ERROR, remark) from error
