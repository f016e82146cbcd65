"""Writers in the log: each log file gets the state of all writers before retention can delete the previous file.

    open  part  commit  done  ...    kept  kept  open  part  commit  done  ...    kept  kept  ...
    └──── a file of the log ────┘    └──────────── the next file ─────────┘

Retention may delete a writer's own records while the broker still needs its state. A member that never led has no
stagedBatches.json, and a member that led long ago has an old one. So a member reads "kept" records: each has the state
of one writer at this place in the log, without staged batches that are not committed. A reader takes all records in
their order: a "kept" record replaces the state of its writer, and later records change that state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from sparrowmq.broker.staging.writers import NO_OTHERS, Author, SavedAuthor, Source
from sparrowmq.errors import DiskFull, InvalidMessage
from sparrowmq.loop.slices import Steps, to_end
from sparrowmq.protocol.messages.entry import Placed
from sparrowmq.store.message_store import MessageStore

_GROWTH: Final = 4  # write again once the log has grown by this many times the bytes of all kept records


class KeptWriters:
    """Writes the state of writers to the log.

    Args:
        append: stores a "kept" record. Raises: as `MessageStore.append`.
    """

    def __init__(
        self, store: MessageStore, writers: Mapping[str, Author], append: Callable[[Source, bytes], Placed]
    ) -> None:
        self._store = store
        self._writers = writers
        self._append = append
        self._bytes = 0  # of the records that were written last

    async def keep(self) -> None:
        """Write the writers that the last log file lacks, if they are due. On a full disk they wait."""
        lacking = self._lacking()
        if lacking:
            with suppress(DiskFull):
                await to_end(self._keep_all(lacking))

    def _lacking(self) -> list[str]:
        """Return the writers that `keep` has to write now."""
        end, settings = self._store.end, self._store.settings
        oldest = min((each.kept_at for each in self._writers.values()), default=end)
        if oldest >= self._store.begin and end - oldest <= _GROWTH * self._bytes:
            return []
        last_file = end - end % settings.commit_log_file_size
        return [name for name, each in self._writers.items() if each.kept_at < last_file]

    def _keep_all(self, names: list[str]) -> Steps[None]:
        self._bytes = 0
        for name in names:
            author = self._writers.get(name)
            if author is not None:
                self._keep_one(name, author)
            yield

    def _keep_one(self, name: str, author: Author) -> None:
        source = Source(name, author.runs[-1], author.last_batch, author.owner)
        try:
            placed = self._append(source, msgspec.json.encode(saved(author)))
        except InvalidMessage:  # the record is too large for a file of the log
            author.kept_at = self._store.end
        else:
            author.kept_at = placed.offset
            self._bytes += placed.size


def saved(author: Author) -> SavedAuthor:
    """Return the state of a writer without its staged messages."""
    return SavedAuthor(
        list(author.runs),
        author.last_batch,
        author.used_ms,
        msgspec.Raw(author.others or NO_OTHERS),
        author.owner,
        author.plan,
        author.kept_at,
    )


def take_saved(author: Author, state: SavedAuthor) -> None:
    """Replace the state of a writer by a saved one."""
    author.runs, author.last_batch, author.used_ms = state.runs, state.last_batch, state.used_ms
    others = bytes(state.others)  # a copy, because `Raw` is a view of the whole file
    author.others = b"" if others == NO_OTHERS else others
    author.owner, author.plan, author.kept_at = state.owner, state.plan, state.kept_at
