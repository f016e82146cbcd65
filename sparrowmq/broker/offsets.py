"""The committed offset of each group in each queue.

An offset is that of the NEXT message to consume. Nearly every pull commits one, so a commit only changes a dict, and
notes that the log lacks it (`unlogged`).
The file `consumerOffset.json` is saved every few seconds (see saved_state.py):

    {"offsetTable": {"topic@group": {"0": 12, "1": 7}}}

Names cannot contain "@". Java 4.9 writes the queue ids without quotes; both forms can be read.
Source: ConsumerOffsetManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from sparrowmq.broker.change_log import UNLOGGED, Change, ChangeLog, split_numbers
from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.requests.bodies import JournalMark
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets
from sparrowmq.protocol.wire import json
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

QueueOffsets = dict[int, int]
OffsetTable = dict[str, dict[str, QueueOffsets]]  # by group and topic


class Offsets:
    """The committed offsets of all groups.

    `unlogged` has the group, topic and queue of each offset that the log lacks, the oldest first.
    """

    def __init__(self, path: Path, replayed: OffsetTable | None = None, change_log: ChangeLog = UNLOGGED) -> None:
        self.unlogged: dict[tuple[str, str, int], None] = {}
        self._change_log = change_log
        self.on_move: Callable[[str, str, int, int], object] | None = None
        self.table: OffsetTable = _load(path) if replayed is None else replayed
        self.file = SavedFile(path, self.mark, self._encode, change_log=change_log)

    def mark(self) -> JournalMark | None:
        return self._change_log.mark()

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that the group goes on at `offset`. A lower offset than before is accepted too: resets need it."""
        topics = self.table.get(group)
        if topics is None:
            topics = self.table[group] = {}
        queues = topics.get(topic)
        if queues is None:
            queues = topics[topic] = {}
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.unlogged[group, topic, queue_id] = None
            self.file.touch()
            if self.on_move is not None:
                self.on_move(group, topic, queue_id, offset)

    def clamp(self, end_of: Callable[[str, int], int]) -> None:
        """Lower each offset that is after the end of its queue to that end.

        After a power cut that lost messages, the group would skip the new messages in their place.
        """
        for group, topics in self.table.items():
            for topic, queues in topics.items():
                for queue_id, offset in queues.items():
                    if offset > (end := end_of(topic, queue_id)):
                        log.warning(
                            "group %s had consumed %s/%d up to %d, but the queue ends at %d; the group continues there",
                            *(group, topic, queue_id, offset, end),
                        )
                        queues[queue_id] = end
                        self.unlogged[group, topic, queue_id] = None
                        self.file.touch()

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.table.get(group, {}).get(topic, {}).get(queue_id)

    def of_group(self, group: str, topic: str) -> Mapping[int, int]:
        return self.table.get(group, {}).get(topic, {})

    def all(self) -> list[tuple[str, str, QueueOffsets]]:
        return [(group, topic, queues) for group, topics in self.table.items() for topic, queues in topics.items()]

    def take_changes(self, max_queues: int | None = None) -> Iterator[Change]:
        """Yield the offsets that the log lacks, the oldest of them for at most so many queues."""
        keys = list(islice(self.unlogged, max_queues))
        for key in keys:
            del self.unlogged[key]
        yield from self._changes(sorted(keys))

    def snapshot(self) -> Iterator[Change]:
        return self._changes(self.keys())

    def _changes(self, keys: Iterable[tuple[str, str, int]]) -> Iterator[Change]:
        """Yield the present offsets of queues. They may be deleted meanwhile."""
        rows = ((f"{topic}@{group}", queue_id, self.query(group, topic, queue_id)) for group, topic, queue_id in keys)
        for piece in split_numbers(rows, self._change_log.max_record_bytes):
            yield Change(offsets=piece)

    def keys(self) -> Iterator[tuple[str, str, int]]:
        """Yield the group, topic and queue of each offset. Offsets may change meanwhile."""
        for group in list(self.table):
            for topic in list(self.table.get(group, ())):
                for queue_id in list(self.of_group(group, topic)):
                    yield group, topic, queue_id

    def topics_of(self, group: str) -> list[str]:
        return list(self.table.get(group, ()))

    def groups_of(self, topic: str) -> Steps[list[str]]:
        groups = []
        for group in list(self.table):
            if topic in self.table.get(group, ()):
                groups.append(group)
            yield
        return groups

    def cloning(self, source: str, target: str, topic: str) -> Steps[None]:
        for queue_id in list(self.of_group(source, topic)):
            offset = self.query(source, topic, queue_id)
            if offset is not None:
                self.commit(target, topic, queue_id, offset)
            yield

    def delete_group(self, group: str) -> dict[str, QueueOffsets]:
        """Delete the group's offsets. Returns them by topic: to free hundreds of thousands at once takes long."""
        topics = self.table.pop(group, None)
        if topics is None:
            return {}
        self._change_log.note(Change(no_offsets=group))
        self.file.touch()
        return topics

    def delete_topic(self, topic: str) -> list[QueueOffsets]:
        deleted = [topics.pop(topic) for topics in self.table.values() if topic in topics]
        if deleted:
            self.file.touch()
        return deleted

    def follow(self, masters: ConsumerOffsets) -> None:
        table = _table_of_saved(masters)
        if table != self.table:
            self.replace(table)

    def replace(self, table: OffsetTable) -> None:
        """Have the offsets of this table, which the caller may change further."""
        self.table = table
        self.file.touch()

    def rows(self) -> Iterator[tuple[str, QueueOffsets]]:
        """Yield the offsets by queue id with their "topic@group". Copy them before another step."""
        for group, topics in list(self.table.items()):
            for topic, queues in list(topics.items()):
                yield f"{topic}@{group}", queues

    def _encode(self, mark: object) -> bytes:
        """Return the content of the file, in a thread: it may be large. Offsets may be newer than the mark."""
        rows = (msgspec.json.encode(key) + b":" + msgspec.json.encode(queues) for key, queues in self.rows())
        journal = b"" if mark is None else b',"journal":' + msgspec.json.encode(mark)
        return b'{"offsetTable":{' + b",".join(rows) + b"}" + journal + b"}"


def is_young(store: MessageStore, topic: str, queue_id: int, young_bytes: int) -> bool:
    """Return whether a queue has its first message, at most so many bytes before the log's end, or does not exist.

    A group that never consumed it begins there, if it pulls or pops. Source: initPopOffsetByCheckMsgInMem, Java 5.4.
    """
    queue = store.queues.get(topic, queue_id)
    if queue is None or queue.max_offset == 0:
        return True  # Unlike Java: a message that arrives between two queries is not skipped.
    first_entry = queue.entry(0)
    return first_entry is not None and store.end - first_entry.offset <= young_bytes


def _load(path: Path) -> OffsetTable:
    return _table_of_saved(saved_content(path, ConsumerOffsets, json.decode) or ConsumerOffsets())


def _table_of_saved(saved: ConsumerOffsets) -> OffsetTable:
    table: OffsetTable = {}
    for key, queues in saved.offset_table.items():
        topic, _, group = key.partition("@")
        table.setdefault(group, {})[topic] = queues
    return table
