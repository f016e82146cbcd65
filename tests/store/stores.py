"""Small stores in a folder of their own, and messages for them.

At the end of a test each store that it left is closed (one that was left by a crash is recovered first) and
verified, so every test of the store ends in `sparrowmq.store.care.check`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from sparrowmq.errors import DiskFull
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.half_record import Commit, Destination, Half
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties, Terms, render
from sparrowmq.store.care.check import verify
from sparrowmq.store.log import flush
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import Read
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, Vfs

HOST = hosts.pack("127.0.0.1:10911")


def let_go(store: MessageStore) -> None:
    """Close the files of a store without a last write, as the end of its process does."""
    store._log.close()
    store.queues.files.close()
    store._ends.close()
    if store._index is not None:
        store._index.close()
    if store._lock is not None:
        store._lock.close()


class Stores:
    """Opens the stores of one test, and remembers them.

    Attributes:
        settings: what `open` takes when it is told nothing else: 4 KiB for a log file, 16 entries for a queue file.
    """

    def __init__(self, folder: Path) -> None:
        self.settings = StoreSettings(
            folder / "store",
            commit_log_file_size=4096,
            consume_queue_file_entries=16,
            index_slots=128,
            index_entries=64,
            store_host=HOST,
        )
        self._open: list[MessageStore] = []
        self._left: dict[str, StoreSettings] = {}

    def open(
        self,
        *,
        vfs: Vfs | None = None,
        clock: Clock | None = None,
        cut_at: int | None = None,
        **changes: Any,
    ) -> MessageStore:
        """A store with `settings`, but for `changes`."""
        settings = replace(self.settings, **changes)
        return self._note(MessageStore.open(settings, vfs=vfs, clock=clock, cut_at=cut_at))

    def open_to_read(self, **changes: Any) -> MessageStore:
        return self._note(MessageStore.open_to_read(replace(self.settings, **changes)))

    def open_full(self, vfs: Vfs) -> MessageStore:
        """A store that is opened as after a start without room, if there is no room."""
        try:
            return self.open(vfs=vfs)
        except DiskFull as full:
            return self._note(MessageStore.open_full(self.settings, full, vfs=vfs))

    def _note(self, store: MessageStore) -> MessageStore:
        self._open.append(store)
        self._left[store.settings.layout.root] = store.settings
        return store

    def crash(self, store: MessageStore) -> None:
        """As a process ends that is killed when it has just written to the log: the queues learn nothing more."""
        store._log.write_out()
        let_go(store)
        self._open.remove(store)

    def leave_damaged(self) -> None:
        """Do not verify: the test shows that a damaged store is refused, and leaves it so."""
        self._left.clear()

    def check(self) -> None:
        """Close and verify all."""
        for store in self._open:
            store.close()
        for settings in self._left.values():
            if Path(settings.layout.abort).exists():
                MessageStore.open(settings).close()
            violations = list(verify(settings))
            assert not violations, "\n".join(violations)


class Where(NamedTuple):
    """What the store says of a message that it took, to be compared."""

    offset: int
    queue_offset: int
    end: int
    store_timestamp_ms: int


def where(placed: Placed) -> Where:
    """A place to compare."""
    return Where(placed.offset, placed.queue_offset, placed.end, placed.store_timestamp_ms)


def message(
    body: bytes = b"body", topic: str = "Orders", queue_id: int = 0, *, sys_flag: int = 0, **words: str
) -> Entry:
    """A message as the broker gives it to the store; `words`: tag, key, unique_key."""
    names = {"key": "KEYS", "tag": "TAGS", "unique_key": "UNIQ_KEY"}
    properties = Properties(render({names[word]: value for word, value in words.items()}))
    return Entry(topic, queue_id, body, properties, 1, HOST, sys_flag=sys_flag)


def put(store: MessageStore, body: bytes = b"body", topic: str = "Orders", queue_id: int = 0, **words: str) -> Where:
    """Append a message; `words` as for `message`."""
    return where(store.append(message(body, topic, queue_id, sys_flag=0, **words))[0])


def put_batch(store: MessageStore, *entries: Entry) -> list[Where]:
    """Append a batch."""
    return list(map(where, store.append(*entries)))


def committed(store: MessageStore, body: bytes = b"half", **words: str) -> tuple[Placed, Where]:
    """Store a half message, and commit it beside a record in the topic Ops: the places of both records."""
    entry = message(body, "Halves", 0, sys_flag=0, **words)
    [placed] = store.append(entry)
    raw = store.copy_at(placed.offset, placed.size)
    assert raw is not None
    commit = Commit(Half(raw), Destination("Orders", 1, "g", Terms(entry.properties)))
    return placed, where(store.append(commit, message(b"op", "Ops"))[1])


async def safe(store: MessageStore, end: int, wants_safety: bool = True) -> int:
    """How far the log is on disk, once it is as safe up to `end` as an answer demands."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def told(error: BaseException | None) -> None:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(store.flushed.value)

    store.durability(wants_safety).when(end, told)
    return await future


def messages(read: Read) -> list[StoredMessage]:
    """The messages that were read."""
    return [record.decode(each) for view in read.views for each in record.walk(view)]


def bodies(store: MessageStore, topic: str = "Orders", queue_id: int = 0) -> list[bytes]:
    """The bodies of all messages of a queue, from its first one on."""
    queue = store.queues.get(topic, queue_id)
    offset, end = (queue.min_offset, queue.max_offset) if queue else (0, 0)
    found: list[bytes] = []
    while offset < end:
        read = store.read(topic, queue_id, offset, 32)
        found += [bytes(each.body) for each in messages(read)]
        offset = read.next_offset
    return found


def copy_cut(store: MessageStore, into: Path, keep: int | None = None) -> None:
    """Copy what a disk holds of a store, up to an offset of the log, as a kill or power cut leaves it."""
    store.publish()
    store.flush()
    end = store.end if keep is None else keep
    shutil.copytree(store.settings.layout.root, into, ignore=shutil.ignore_patterns("lock"))
    for file in (into / "commitlog").iterdir():
        begin = int(file.name)
        with file.open("r+b") as log:
            size = file.stat().st_size
            log.seek(max(0, min(end - begin, size)))
            log.write(bytes(max(0, size - max(0, end - begin))))
    flush.lower_mark(Disk(), str(into / "abort"), end)  # the last sync did not come


def descriptors() -> int:
    """The number of open descriptors of this process; 0 where the system does not tell it."""
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
