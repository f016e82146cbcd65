"""The brokers of a stream that are online: their new offsets, while the queues of absent brokers keep their places.

An absent broker has lost nothing. Its queues end for now at their read position, and the rows of the other brokers are
read as usual. Each trigger looks for the broker again, but the search takes at most a tenth of the time: a connection
without an answer costs a second. Data counts as lost only when a broker says so.

A topic that no name server knows any more may be deleted, its brokers may be away, or the name server may have just
started. So the topic's brokers are asked: if the master of one has no such topic, it was deleted. This ends a stream
that may lose nothing. Otherwise the stream waits for the topic, and the log says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from sparrowmq.client.cluster.blocking_network import Outages
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import Bounds, BrokerTopic, Offsets, broker_topic, known_incarnations, lose
from sparrowmq.spark.source.query_offsets import OffsetClient, is_no_topic
from sparrowmq.spark.worker import may_pass

_MAX_SEARCH_SHARE: Final = 0.1
_MIN_PAUSE_S: Final = 1.0
_DELETED_ADVICE: Final = (
    "To wait until the topic is made again, and to read the other topics meanwhile, set failOnDataLoss=false"
)


class Presence:
    """The brokers that are away, between the triggers of one stream."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._outages = Outages(monotonic)
        self._due_s: dict[str, float] = {}
        self._topics_behind: set[str] = set()

    def bounds(self, offset_client: OffsetClient, read: Offsets) -> dict[MessageQueue, Bounds]:
        """Return the bounds of the queues whose brokers are there.

        Raises: as `OffsetClient.queues`; RemoteError, a broker refuses for good; RowsLost, a topic was deleted, and the
        options want to know.
        """
        routed, routeless = offset_client.queues(read)
        queues_without_route = frozenset(routeless)
        now_s = self._monotonic()
        asked_queues = [
            queue for queue in (*routed, *queues_without_route) if self._due_s.get(queue.broker_name, 0.0) <= now_s
        ]
        present: dict[MessageQueue, Bounds] = {}
        absent: dict[str, Exception] = {}
        behind: dict[str, object] = {}
        answers = offset_client.reachable_bounds(asked_queues, read)
        deleted = _deleted_topics(offset_client, answers, read, queues_without_route)
        for queue, answer in answers.items():
            if broker_topic(queue) in deleted or (isinstance(answer, Bounds) and answer.incarnation == 0):
                if queue in read:
                    behind[_topic_label(queue)] = "the broker has no such topic: it was deleted"
            elif isinstance(answer, Bounds):
                if read.get(queue, 0) > answer.end and (
                    queue in queues_without_route or not offset_client.has_master(queue.broker_name)
                ):
                    behind[_topic_label(queue)] = (
                        f"{queue} was read to {read[queue]}, what answers ends at {answer.end}"
                    )
                elif _is_of_a_slave(offset_client, queue, answer, read):
                    behind[_topic_label(queue)] = "its slave knows another topic of the name"
                else:
                    present[queue] = answer
            elif isinstance(answer, RemoteError):
                if not may_pass(answer) and answer.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise answer
                behind[_topic_label(queue)] = answer
            else:
                absent[queue.broker_name] = answer
        self._note_absent(absent, {queue.broker_name for queue in asked_queues}, read, self._monotonic() - now_s)
        self._note_behind(behind)
        return present

    @property
    def absent(self) -> frozenset[str]:
        return frozenset(self._due_s)

    def retry_now(self) -> None:
        self._due_s.clear()

    def _note_absent(
        self, absent: Mapping[str, Exception], brokers: Collection[str], read: Offsets, spent_s: float
    ) -> None:
        for broker in brokers:
            if broker not in absent:
                self._due_s.pop(broker, None)
                self._outages.end(f"broker {broker}")
        queue_counts = Counter(queue.broker_name for queue in read) if absent else {}
        for broker, error in absent.items():
            pause_s = max(_MIN_PAUSE_S, spent_s / _MAX_SEARCH_SHARE)
            self._due_s[broker] = self._monotonic() + pause_s
            consequence = f"its queues ({queue_counts.get(broker, 0)}) are held where they were read to"
            self._outages.begin(f"broker {broker}", error, f"{consequence}, the others are read")

    def _note_behind(self, behind: Mapping[str, object]) -> None:
        for topic in self._topics_behind - behind.keys():
            self._outages.end(topic)
        for topic, reason in behind.items():
            self._outages.begin(topic, reason, "its queues are held where they were read to")
        self._topics_behind = set(behind)


def _deleted_topics(
    offset_client: OffsetClient,
    answers: Mapping[MessageQueue, object],
    read: Offsets,
    queues_without_route: Collection[MessageQueue],
) -> set[BrokerTopic]:
    """The topics that were read, and that the masters of their brokers do not have now. Raises: RowsLost."""
    deleted: set[BrokerTopic] = set()
    unknown: dict[BrokerTopic, MessageQueue] = {}
    for queue, answer in answers.items():
        if queue not in read or not offset_client.has_master(queue.broker_name):
            continue
        incarnation = answer.incarnation if isinstance(answer, Bounds) else None
        if incarnation == 0 or is_no_topic(answer):
            deleted.add(broker_topic(queue))
        elif queue in queues_without_route and isinstance(answer, Bounds) and incarnation is None:
            unknown[broker_topic(queue)] = queue
    deleted |= offset_client.deleted_topics(unknown)
    if deleted and offset_client.fails_on_loss:
        topic, broker = min(deleted)
        problem = f"topic {topic} was deleted on {broker}. What was not read of it is gone"
        lose(problem, fail=True, advice=_DELETED_ADVICE)
    return deleted


def _is_of_a_slave(offset_client: OffsetClient, queue: MessageQueue, answer: Bounds, read: Offsets) -> bool:
    """Whether an answer is about another topic of the name, and comes from a slave, which may be behind."""
    incarnation = known_incarnations(read).get(broker_topic(queue), 0)
    is_another = incarnation > 0 and answer.incarnation not in (None, incarnation)
    return is_another and not offset_client.has_master(queue.broker_name)


def _topic_label(queue: MessageQueue) -> str:
    return f"topic {queue.topic} on {queue.broker_name}"
