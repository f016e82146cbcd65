"""Deletion of topics: their queues are gone in one step, and the files of the queues go in slices.

    in one step    the deletion is on disk (queue_ends.py) ── the table of queues has none of them any more
    in slices      the files of one queue after another

So a reader between two slices finds no queue of the topic. A new topic of the same name may begin meanwhile, at offset
0: a queue that is created deletes the files of the old queue in its place first. After a crash the start deletes the
files that are left, because the deletion is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from sparrowmq.errors import DiskFull
from sparrowmq.loop.slices import Steps
from sparrowmq.store.appender import Appender
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.log.flush import Flusher
from sparrowmq.store.queue_builder import QueueBuilder
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_ends import QueueEnds
from sparrowmq.store.queues.queue_table import QueueTable

log = logging.getLogger(__name__)


class Deletion:
    """Deletes topics of one store.

    Args:
        deleted: called when the files of a topic are gone: only a checkpoint makes sure that they stay so.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        dispatch: QueueBuilder,
        ends: QueueEnds,
        appender: Appender,
        flusher: Flusher,
        deleted: Callable[[], object],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._dispatch = dispatch
        self._ends = ends
        self._appender = appender
        self._flusher = flusher
        self._deleted = deleted

    def begin(self, topic: str) -> Steps[None]:
        """Delete the topic's queues now, for all readers. Returns the steps that delete their files.

        Raises: StoreFailed, the deletion cannot be written.
        """
        self._appender.publish()
        return self._take_out(topic, self._log.end, ())

    def steps(self, topic: str, before: int) -> Steps[None]:
        """The steps that delete the queues whose last message is before a log offset. Other queues are of a new topic.

        All of them go in one step; the steps before it only look for them. Raises: as `begin`.
        """
        self._appender.publish()
        looked_at: dict[ConsumeQueue, int] = {}
        young: dict[ConsumeQueue, None] = {}
        for queue in self._queues.of_topic(topic):
            looked_at[queue] = queue.next_offset
            if self._dispatch.last_entry(queue) >= before:
                young[queue] = None
            yield
        self._appender.publish()
        queues = self._queues.of_topic(topic)
        young |= {queue: None for queue in queues if looked_at.get(queue) != queue.next_offset}
        yield from self._take_out(topic, before, young)

    def _take_out(self, topic: str, end: int, young: Collection[ConsumeQueue]) -> Steps[None]:
        self._dispatch.forget(topic, young)
        try:
            self._ends.delete(topic, end)
        except DiskFull as full:
            log.warning("the topic %s may come back after a crash: %s", topic, full)
        except OSError as error:
            raise self._flusher.fail(error) from error
        self._dispatch.deleted[topic] = end
        self._queues.take_out(topic, young)
        return self._rest(topic)

    def _rest(self, topic: str) -> Steps[None]:
        yield from self._queues.removing(topic)
        self._deleted()
