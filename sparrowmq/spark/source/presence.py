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
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets, Part, incarnations_of, lose, part_of
from sparrowmq.spark.source.query_offsets import Plan, is_no_topic
from sparrowmq.spark.worker import may_pass

_PART_SPENT_ON_LOOKING: Final = 0.1
_LEAST_PAUSE_S: Final = 1.0
_DELETED_ADVICE: Final = (
    "To wait until the topic is made again, and to read the other topics meanwhile, set failOnDataLoss=false"
)


class Presence:
    """The brokers that are away, between the triggers of one stream."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._outages = Outages(monotonic)
        self._due_s: dict[str, float] = {}
        self._behind: set[str] = set()

    def bounds(self, plan: Plan, begun: Offsets) -> dict[MessageQueue, Bounds]:
        """Return the bounds of the queues whose brokers are there.

        Raises:
            NoRoute, ConfigError, NetworkError: as `Plan.queues`.
            RemoteError: a broker refuses for good.
            RowsLost: a topic was deleted, and the options want to know.
        """
        routed, without_route = plan.queues(begun)
        unrouted = frozenset(without_route)
        now_s = self._monotonic()
        asked = [queue for queue in (*routed, *unrouted) if self._due_s.get(queue.broker_name, 0.0) <= now_s]
        found: dict[MessageQueue, Bounds] = {}
        absent: dict[str, Exception] = {}
        behind: dict[str, object] = {}
        answers = plan.bounds_of_those_there(asked, begun)
        deleted = _deleted(plan, answers, begun, unrouted)
        for queue, held in answers.items():
            if part_of(queue) in deleted or (isinstance(held, Bounds) and held.incarnation == 0):
                if queue in begun:
                    behind[_part(queue)] = "the broker has no such topic: it was deleted"
            elif isinstance(held, Bounds):
                if begun.get(queue, 0) > held.end and (queue in unrouted or not plan.has_master(queue.broker_name)):
                    behind[_part(queue)] = f"{queue} was read to {begun[queue]}, what answers ends at {held.end}"
                elif _is_of_a_slave(plan, queue, held, begun):
                    behind[_part(queue)] = "its slave knows another topic of the name"
                else:
                    found[queue] = held
            elif isinstance(held, RemoteError):
                behind[_part(queue)] = _passing(held)
            else:
                absent[queue.broker_name] = held
        self._note_absent(absent, {queue.broker_name for queue in asked}, begun, self._monotonic() - now_s)
        self._note_behind(behind)
        return found

    @property
    def absent(self) -> frozenset[str]:
        """The brokers that did not answer when they were last asked."""
        return frozenset(self._due_s)

    def look_again(self) -> None:
        """Try all absent brokers at once the next time."""
        self._due_s.clear()

    def _note_absent(
        self, absent: Mapping[str, Exception], asked: Collection[str], begun: Offsets, spent_s: float
    ) -> None:
        for broker in asked:
            if broker not in absent:
                self._due_s.pop(broker, None)
                self._outages.end(f"broker {broker}")
        held = Counter(queue.broker_name for queue in begun) if absent else {}
        for broker, why in absent.items():
            pause_s = max(_LEAST_PAUSE_S, spent_s / _PART_SPENT_ON_LOOKING)
            self._due_s[broker] = self._monotonic() + pause_s
            meanwhile = f"its queues ({held.get(broker, 0)}) are held where they were read to"
            self._outages.begin(f"broker {broker}", why, f"{meanwhile}, the others are read")

    def _note_behind(self, behind: Mapping[str, object]) -> None:
        for part in self._behind - behind.keys():
            self._outages.end(part)
        for part, why in behind.items():
            self._outages.begin(part, why, "its queues are held where they were read to")
        self._behind = set(behind)


def _deleted(
    plan: Plan,
    answers: Mapping[MessageQueue, object],
    begun: Offsets,
    unrouted: Collection[MessageQueue],
) -> set[Part]:
    """The topics that were read, and that the masters of their brokers do not have now. Raises: RowsLost."""
    gone: set[Part] = set()
    unknown: dict[Part, MessageQueue] = {}
    for queue, held in answers.items():
        if queue not in begun or not plan.has_master(queue.broker_name):
            continue
        incarnation = held.incarnation if isinstance(held, Bounds) else None
        if incarnation == 0 or is_no_topic(held):
            gone.add(part_of(queue))
        elif queue in unrouted and isinstance(held, Bounds) and incarnation is None:
            unknown[part_of(queue)] = queue
    gone |= plan.deleted(unknown)
    if gone and plan.fails_on_loss:
        topic, broker = min(gone)
        what = f"topic {topic} was deleted on {broker}. What was not read of it is gone"
        lose(what, fail=True, advice=_DELETED_ADVICE)
    return gone


def _is_of_a_slave(plan: Plan, queue: MessageQueue, held: Bounds, begun: Offsets) -> bool:
    """Whether an answer is about another topic of the name, and comes from a slave, which may be behind."""
    read = incarnations_of(begun).get(part_of(queue), 0)
    is_another = read > 0 and held.incarnation not in (None, read)
    return is_another and not plan.has_master(queue.broker_name)


def _part(queue: MessageQueue) -> str:
    return f"topic {queue.topic} on {queue.broker_name}"


def _passing(refusal: RemoteError) -> RemoteError:
    """A refusal that may pass. Raises: the refusal, if it will not."""
    if may_pass(refusal) or refusal.code == ResponseCode.TOPIC_NOT_EXIST:
        return refusal
    raise refusal
