"""The pop state of all groups: the queues that steps have made."""

from __future__ import annotations

from collections.abc import Iterator

from sparrowmq.broker.pop.pop_queue import PopQueue
from sparrowmq.broker.pop.pop_steps import AnyStep, Dropped, decoded

Queues = dict[int, PopQueue]


class PopTable:
    """The queues of groups that consume by pop: by topic and group, and then by id."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str], Queues] = {}

    def __iter__(self) -> Iterator[PopQueue]:
        for queues in list(self.groups.values()):
            yield from list(queues.values())

    def get(self, topic: str, group: str, queue_id: int) -> PopQueue | None:
        queues = self.groups.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def apply(self, step: AnyStep) -> PopQueue:
        """Take one step. Returns its queue."""
        queue = self.get(step.topic, step.group, step.queue_id)
        if queue is None:
            queue = PopQueue(step.topic, step.group, step.queue_id, 0)
            self.groups.setdefault((step.topic, step.group), {})[step.queue_id] = queue
        queue.apply(step)
        if isinstance(step, Dropped):
            self._drop(queue)
        return queue

    def apply_all(self, piece: list[bytes]) -> None:
        """Take the steps of one record. Raises: RemoteProtocolError."""
        for step in decoded(piece):
            self.apply(step)

    def drop_topic(self, topic: str) -> None:
        for key in [key for key in self.groups if key[0] == topic]:
            del self.groups[key]

    def drop_group(self, group: str) -> None:
        """Forget a group whose offsets are deleted."""
        for key in [key for key in self.groups if key[1] == group]:
            del self.groups[key]

    def _drop(self, queue: PopQueue) -> None:
        queues = self.groups[queue.topic, queue.group]
        del queues[queue.queue_id]
        if not queues:
            del self.groups[queue.topic, queue.group]
