"""Popped messages without tries left: when the last one's time is over, the message moves to %DLQ%group.

A message is given 1 + retryMaxTimes times. The tries that its record counts from before count too.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.broker.groups import Groups
from sparrowmq.broker.later import retry_rules
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.pop.pop_queue import Cell, PopQueue
from sparrowmq.broker.redirect import again
from sparrowmq.broker.topics import Topics
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import InvalidMessage, RemoteError, StoreError
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.names import RETRY
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

_GIVES_UP: Final = -1  # the delay level of a message that comes no more
_RECORD_BYTES: Final = 4 << 20


class PopDeadLetters:
    """Moves messages to the dead-letter queues of their groups."""

    def __init__(self, store: MessageStore, writer: Writer, topics: Topics, groups: Groups) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._groups = groups

    def bury(self, queue: PopQueue, offset: int, cell: Cell) -> bool:
        """Move a message whose time is over, if it has no tries left. Returns whether it was moved."""
        most = self._most_retries(queue.group)
        # Records of other topics count no tries from before.
        if cell.attempt <= most and not queue.topic.startswith(RETRY):
            return False
        message = self._message(queue, offset)
        if message is None or message.reconsume_times + cell.attempt <= most:
            return False
        back = retry_rules.send_back(message, queue.group, _GIVES_UP, most)
        try:
            topic = self._topics.ensure_dlq(queue.group)
            tries = message.reconsume_times + cell.attempt
            self._writer.put(again(message, topic.topic_name, 0, back.properties, tries))
        except (StoreError, InvalidMessage, RemoteError) as error:
            log.warning("a dead letter of group %s cannot be stored, so it comes again: %s", queue.group, error)
            return False
        log.warning(
            "message %s is a dead letter of group %s after %d tries",
            shown(message.message_id),
            queue.group,
            tries,
        )
        return True

    def _most_retries(self, group: str) -> int:
        known = self._groups.get(group)
        return known.retry_max_times if known is not None else 16

    def _message(self, queue: PopQueue, offset: int) -> StoredMessage | None:
        found = self._store.read(queue.topic, queue.queue_id, offset, 1, _RECORD_BYTES)
        if not found.count:
            return None
        message = record.decode(found.views[0])
        return message if message.queue_offset == offset else None
