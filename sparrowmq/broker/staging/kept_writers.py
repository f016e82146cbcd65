"""Writers in the log: each of its files gets the state of all writers, before retention can delete the file before it.

    open  part  commit  done  ...    kept  kept  open  part  commit  done  ...    kept  kept  ...
    └──── a file of the log ────┘    └──────────── the next file ─────────┘

A writer's own records may be deleted while it is still remembered. A member that never led has no stagedBatches.json,
and that of a member that led long ago is old. Such a member reads "kept" records: each has the whole state of one
writer at its own place in the log, but for what is staged and undecided. So a reader takes all records in their order:
a "kept" record replaces what the reader knew before, and later records change that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from sparrowmq.broker.staging.writers import Author, SavedAuthor, Source
from sparrowmq.errors import DiskFull, InvalidMessage
from sparrowmq.loop.slices import Steps, to_end
from sparrowmq.protocol.messages.entry import Placed
from sparrowmq.store.message_store import MessageStore

_GROWTH: Final = 4  # the log grows by this many times the room of all writers before they are written again


class KeptWriters:
    """Writes the state of writers to the log.

    Args:
        append: stores such a record. Raises: as `MessageStore.append`.
    """

    def __init__(
        self, store: MessageStore, writers: Mapping[str, Author], append: Callable[[Source, bytes], Placed]
    ) -> None:
        self._store = store
        self._writers = writers
        self._append = append
        self._bytes = 0  # of the records that were written last

    async def keep(self) -> None:
        """Write the writers that the last file of the log lacks, if that is due. A full disk puts them off."""
        lacking = self._lacking()
        if lacking:
            with suppress(DiskFull):
                await to_end(self._keeping(lacking))

    def _lacking(self) -> list[str]:
        end, settings = self._store.end, self._store.settings
        oldest = min((each.kept_at for each in self._writers.values()), default=end)
        if oldest >= self._store.begin and end - oldest <= _GROWTH * self._bytes:
            return []
        last_file = end - end % settings.commit_log_file_size
        return [name for name, each in self._writers.items() if each.kept_at < last_file]

    def _keeping(self, names: list[str]) -> Steps[None]:
        self._bytes = 0
        for name in names:
            author = self._writers.get(name)
            if author is not None:
                self._keep(name, author)
            yield

    def _keep(self, name: str, author: Author) -> None:
        source = Source(name, author.runs[-1], author.last_batch, author.owner)
        try:
            placed = self._append(source, msgspec.json.encode(saved(author)))
        except InvalidMessage:  # the log's files are too small for it
            author.kept_at = self._store.end
        else:
            author.kept_at = placed.offset
            self._bytes += placed.size


def saved(author: Author) -> SavedAuthor:
    """The state of a writer without what it has staged."""
    return SavedAuthor(
        list(author.runs),
        author.last_batch,
        author.used_ms,
        author.others,
        author.owner,
        author.plan,
        author.kept_at,
    )


def take_saved(author: Author, state: SavedAuthor) -> None:
    """Give a writer a saved state."""
    author.runs, author.last_batch, author.used_ms = state.runs, state.last_batch, state.used_ms
    author.others, author.owner, author.plan = state.others, state.owner, state.plan
    author.kept_at = state.kept_at
