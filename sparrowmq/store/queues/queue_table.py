"""All consume queues of a store, by topic and queue id, including queues that clients asked for but never wrote to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BadStore
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.store.layout import Layout
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_files import OpenFiles, QueueEnd

log = logging.getLogger(__name__)


class QueueTable:
    """All queues of a store."""

    def __init__(self, files: OpenFiles, layout: Layout, file_entries: int) -> None:
        self.files = files
        # By topic and queue id. Two lookups cost less than one with a pair, which would have to be created.
        self.by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        # Queues that were taken out, and whose files are still there.
        self._detached: dict[str, dict[int, ConsumeQueue]] = {}
        self.on_new: Callable[[ConsumeQueue], object] | None = None  # called with each queue that is created
        # Called with each queue that is deleted, right before its files are.
        self.on_removed: Callable[[ConsumeQueue], object] | None = None
        self.version = 0  # rises when a queue is added or taken out
        self._layout = layout
        self._file_entries = file_entries

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter([queue for queues in self.by_topic.values() for queue in queues.values()])

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        queues = self.by_topic.get(topic)
        return None if queues is None else queues.get(queue_id)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return list(self.by_topic.get(topic, {}).values())

    def topics(self) -> list[str]:
        return list(self.by_topic)

    def ids(self, topic: str) -> list[int]:
        return list(self.by_topic.get(topic, ()))

    def obtain(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; create it if there is none. Raises: InvalidName."""
        queue = self.get(topic, queue_id)
        if queue is None:
            former_queue = self._detached.get(topic, {}).pop(queue_id, None)
            if former_queue is not None:  # its files have the names that the new queue's files will have
                self._remove(former_queue)
            queue = ConsumeQueue(self.files, self._layout, topic, queue_id, self._file_entries)
            self.by_topic.setdefault(topic, {})[queue_id] = queue
            self.version += 1
            if self.on_new is not None:
                self.on_new(queue)
        return queue

    def begin_at(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Let queues begin at these offsets, by topic and queue id, that never had an entry here: their messages were
        deleted before the log came here.
        """
        for topic, by_id in offsets.items():
            for queue_id, offset in by_id.items():
                queue = self.obtain(topic, queue_id)
                if not queue.next_offset:
                    queue.restart(offset)

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.get(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def load(self, dispatched: int | None, writable: bool = True) -> None:
        """Find the queues on disk; `dispatched` as in `ConsumeQueue.load`. Raises: BadStore."""
        for key in self._on_disk():
            self._load(self.obtain(*key), dispatched, writable)

    def restore(
        self, ends: Mapping[tuple[str, int], QueueEnd], dispatched: int | None
    ) -> dict[ConsumeQueue, list[int]]:
        """Restore queues with their known ends, and load others; return the damaged ones as `ConsumeQueue.restore`."""
        damaged = {}
        for key, end in ends.items():
            queue = self.obtain(*key)
            if begins := queue.restore(end):
                damaged[queue] = begins
        for key in self._on_disk():
            if key not in ends:
                self._load(self.obtain(*key), dispatched, writable=True)
        return damaged

    def _load(self, queue: ConsumeQueue, dispatched: int | None, writable: bool) -> None:
        try:
            queue.load(dispatched, writable)
        except OSError as error:
            raise BadStore(
                f"queue {queue.topic}/{queue.queue_id} cannot be read: {error}; delete the folder consumequeue: "
                "it is built again from the log"
            ) from error

    def _on_disk(self) -> Iterator[tuple[str, int]]:
        vfs = self.files.vfs
        for topic in vfs.list_folder(self._layout.consume_queue):
            for name in vfs.list_folder(self._layout.topic(topic)):
                if (queue_id := whole_number(name)) is not None:
                    yield topic, queue_id

    def take_changed(self) -> dict[tuple[str, int], QueueEnd]:
        changed, self.files.changed = self.files.changed, {}
        ends = {}
        for files in changed:
            queue = self.get(files.topic, files.queue_id)
            end = queue.known_end() if queue is files else None
            if end is not None:
                ends[files.topic, files.queue_id] = end
        return ends

    def remove_topic(self, topic: str, new_queues: Collection[ConsumeQueue] = ()) -> None:
        self.detach(topic, new_queues)
        at_once(self.removal_steps(topic))

    def detach(self, topic: str, new_queues: Collection[ConsumeQueue] = ()) -> None:
        """Take the topic's queues, except `new_queues`, out of the table. `removal_steps` deletes their files."""
        queues = self.by_topic.pop(topic, {})
        self.version += 1
        if new_queues:
            self.files.changed.update(dict.fromkeys(new_queues))
            self.by_topic[topic] = {queue.queue_id: queue for queue in new_queues}
            queues = {queue_id: queue for queue_id, queue in queues.items() if queue not in new_queues}
        detached = self._detached.setdefault(topic, queues)
        if detached is not queues:  # an earlier topic of this name has not lost all files yet
            detached.update(queues)

    def removal_steps(self, topic: str) -> Steps[None]:
        """The steps that delete the files of a topic's detached queues."""
        while queues := self._detached.get(topic):
            self._remove(queues.popitem()[1])
            yield
        if self._detached.pop(topic, None) is not None and self.files.vfs.exists(self._layout.topic(topic)):
            self.files.vfs.remove_folder(self._layout.topic(topic))
            self.files.vfs.sync_folder(self._layout.consume_queue)

    def _remove(self, queue: ConsumeQueue) -> None:
        if self.on_removed is not None:
            self.on_removed(queue)
        queue.remove()

    def remove_detached(self) -> None:
        """Delete the files of all queues that were taken out, at once. The next start deletes what stays."""
        for topic in list(self._detached):
            try:
                at_once(self.removal_steps(topic))
            except OSError as error:
                log.warning("files of the deleted topic %s stay until the next start: %s", topic, error)
