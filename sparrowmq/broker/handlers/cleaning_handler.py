"""Cleaning on demand: CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC (316), DELETE_EXPIRED_COMMITLOG (329).

The store also cleans by itself, on its own schedule. These requests are for an operator who needs the disk space now.
The answer means that cleaning has begun. Source: AdminBrokerProcessor and DefaultMessageStore, Java 4.9.8.
Unlike Java, a queue whose messages are all deleted keeps its offsets: its next message does not get offset 0 again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final

from sparrowmq.broker.handlers.handler import Handler
from sparrowmq.loop.slices import Steps, in_slices
from sparrowmq.protocol.names import OP_HALF_TOPIC, STATE_TOPIC
from sparrowmq.protocol.requests.admin_headers import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
)
from sparrowmq.remoting.handler import handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.store.retention import Cleaning

log = logging.getLogger(__name__)

_WITHOUT_CONFIG: Final = frozenset({OP_HALF_TOPIC, STATE_TOPIC})


class CleaningHandler(Handler):
    @handles(CleanExpiredConsumeQueue)
    def queues(self, header: CleanExpiredConsumeQueue, body: bytes, peer: Peer) -> None:
        """Remove the entries of queues and index whose messages are no longer in the log."""
        log.info("queues forget what is gone, as %s asks", peer.address)
        self._store.clean(Cleaning.QUEUES)

    @handles(DeleteExpiredCommitLog)
    def files(self, header: DeleteExpiredCommitLog, body: bytes, peer: Peer) -> None:
        """Delete the log files that are past their retention time."""
        log.info("files that are old enough go now, as %s asks", peer.address)
        self._store.clean(Cleaning.FILES)

    @handles(CleanUnusedTopic)
    def topics(self, header: CleanUnusedTopic, body: bytes, peer: Peer) -> Awaitable[None] | None:
        """Delete the queues of topics that no longer exist."""
        return in_slices(self._cleaning(peer))

    def _cleaning(self, peer: Peer) -> Steps[None]:
        for topic in self._store.queues.topics():
            if topic not in _WITHOUT_CONFIG and self._topics.get(topic) is None:
                log.info("the queues of topic %s are deleted, as %s asks: it is not there", topic, peer.address)
                self._topics.delete(topic)
                yield from self._store.deletion.begin(topic)
            yield
