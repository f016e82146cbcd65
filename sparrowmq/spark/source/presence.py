"""The brokers of a stream that are online: their new offsets, while the queues of absent brokers keep their places.

An absent broker has lost nothing. Its queues end for now at their read position, and the rows of the other brokers are
read as usual. Each trigger looks for the broker again, but the search takes at most a tenth of the time: a connection
without an answer costs a second. Data counts as lost only when a broker says so.

A topic that no name server knows any more may be deleted, its brokers may be away, or the name server may have just
started. These cases look the same, so the stream waits for the topic, and the log says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from sparrowmq.client.cluster.outages import Outages
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.refusals import may_pass
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets
from sparrowmq.spark.source.query_offsets import Plan

_PART_SPENT_ON_LOOKING: Final = 0.1
_LEAST_PAUSE_S: Final = 1.0


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
        """
        routed, without_route = plan.queues(begun)
        unrouted = frozenset(without_route)
        now_s = self._monotonic()
        asked = [queue for queue in (*routed, *unrouted) if self._due_s.get(queue.broker_name, 0.0) <= now_s]
        found: dict[MessageQueue, Bounds] = {}
        absent: dict[str, Exception] = {}
        behind: dict[str, object] = {}
        for queue, held in plan.bounds_of_those_there(asked, begun).items():
            if isinstance(held, Bounds):
                if begun.get(queue, 0) > held.end and (
                    queue in unrouted or not plan.has_master(queue.broker_name)
                ):
                    behind[_part(queue)] = (
                        f"{queue} was read to {begun[queue]}, what answers ends at {held.end}"
                    )
                else:
                    found[queue] = held
            elif isinstance(held, RemoteError):
                behind[_part(queue)] = _passing(held)
            else:
                absent[queue.broker_name] = held
        self._note_absent(absent, {queue.broker_name for queue in asked}, begun, self._monotonic() - now_s)
        self._note_behind(behind)
        return found

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


def _part(queue: MessageQueue) -> str:
    return f"topic {queue.topic} on {queue.broker_name}"


def _passing(refusal: RemoteError) -> RemoteError:
    """A refusal that may pass. Raises: the refusal, if it will not."""
    if may_pass(refusal) or refusal.code == ResponseCode.TOPIC_NOT_EXIST:
        return refusal
    raise refusal
