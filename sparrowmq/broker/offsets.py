"""How far each group has consumed each queue.

An offset is that of the NEXT message to consume. Commits come with nearly every pull, so they only change a dict;
the file `consumerOffset.json` follows every few seconds (see saved_state.py):

    {"offsetTable": {"topic@group": {"0": 12, "1": 7}}}

Names cannot hold "@". Java 4.9 writes the queue ids without quotes; both are read.
Source: ConsumerOffsetManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from sparrowmq.broker.saved_state import SavedFile, saved_content
from sparrowmq.protocol.requests.bodies import ConsumerOffsets
from sparrowmq.protocol.wire import json

log = logging.getLogger(__name__)

QueueOffsets = dict[int, int]


class Offsets:
    """The committed offsets of all groups.

    Raises:
        BadStore: the file at `path` cannot be read, nor its copies.
    """

    def __init__(self, path: Path) -> None:
        self._table: dict[str, dict[str, QueueOffsets]] = _load(path)
        # There may be very many, so the fast encoder writes them.
        self.file = SavedFile(path, lambda: {"offsetTable": self._by_key()}, msgspec.json.encode)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember that the group goes on at `offset`. A lower offset than before is taken too: resets need it."""
        topics = self._table.get(group)
        if topics is None:
            topics = self._table[group] = {}
        queues = topics.get(topic)
        if queues is None:
            queues = topics[topic] = {}
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self.file.touch()

    def clamp(self, end_of: Callable[[str, int], int]) -> None:
        """Let no group go on behind the end of a queue.

        A power cut may take messages that were consumed already; those stored in their place would be passed over.
        """
        for group, topics in self._table.items():
            for topic, queues in topics.items():
                for queue_id, offset in queues.items():
                    if offset > (end := end_of(topic, queue_id)):
                        log.warning(
                            "group %s had consumed %s/%d up to %d, which ends at %d now; it goes on there",
                            *(group, topic, queue_id, offset, end),
                        )
                        queues[queue_id] = end
                        self.file.touch()

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group goes on; None if it never committed this queue."""
        return self._table.get(group, {}).get(topic, {}).get(queue_id)

    def of_group(self, group: str, topic: str) -> Mapping[int, int]:
        """The group's offsets of a topic, by queue id."""
        return self._table.get(group, {}).get(topic, {})

    def all(self) -> list[tuple[str, str, QueueOffsets]]:
        """Every group, with each topic that it has offsets of."""
        return [
            (group, topic, queues)
            for group, topics in self._table.items()
            for topic, queues in topics.items()
        ]

    def topics_of(self, group: str) -> set[str]:
        """What the group has consumed."""
        return set(self._table.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """Who has consumed the topic."""
        return {group for group, topics in self._table.items() if topic in topics}

    def clone(self, source: str, target: str, topic: str) -> None:
        """Let one group go on where another is."""
        for queue_id, offset in self.of_group(source, topic).items():
            self.commit(target, topic, queue_id, offset)

    def delete_group(self, group: str) -> None:
        if self._table.pop(group, None) is not None:
            self.file.touch()

    def delete_topic(self, topic: str) -> None:
        for topics in self._table.values():
            if topics.pop(topic, None) is not None:
                self.file.touch()

    def follow(self, told: ConsumerOffsets) -> None:
        """Be as the master says, on its slave."""
        table = _by_group(told)
        if table != self._table:
            self._table = table
            self.file.touch()

    def content(self) -> ConsumerOffsets:
        """What the file holds, and what GET_ALL_CONSUMER_OFFSET answers."""
        return ConsumerOffsets(self._by_key())

    def _by_key(self) -> dict[str, QueueOffsets]:
        return {
            f"{topic}@{group}": dict(queues)
            for group, topics in self._table.items()
            for topic, queues in topics.items()
        }


def _load(path: Path) -> dict[str, dict[str, QueueOffsets]]:
    return _by_group(saved_content(path, ConsumerOffsets, json.decode) or ConsumerOffsets())


def _by_group(saved: ConsumerOffsets) -> dict[str, dict[str, QueueOffsets]]:
    table: dict[str, dict[str, QueueOffsets]] = {}
    for key, queues in saved.offset_table.items():
        topic, _, group = key.partition("@")
        table.setdefault(group, {})[topic] = queues
    return table
