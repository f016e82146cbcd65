"""Numbers of partitions, as `kafkaCompat` shows them: unique among the queues of a topic, on whichever brokers.

    orders   broker-a 0..3, broker-b 0..3   ->   partitions 0..3, 4..7
    later    broker-a 4                     ->   partition 8: the others keep their numbers

A stream keeps the numbers in its checkpoint, as runs of queues in the order of their numbers, because brokers come and
go: {"orders":[["broker-a",0,4],["broker-b",0,4],["broker-a",4,1]]}. The sink's column `partition` has the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from sparrowmq.protocol.messages.message import MessageQueue

Numbers: TypeAlias = Mapping[MessageQueue, int]
Runs: TypeAlias = dict[str, list[list[str | int]]]  # by topic: broker, first queue, count


def numbered(known: Numbers, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return the known numbers, and the next ones for the other queues, by broker and queue."""
    found, ends = dict(known), dict[str, int]()
    for queue, number in known.items():
        ends[queue.topic] = max(ends.get(queue.topic, 0), number + 1)
    for queue in sorted(set(queues) - known.keys()):
        found[queue] = ends.get(queue.topic, 0)
        ends[queue.topic] = found[queue] + 1
    return found


def to_runs(numbers: Numbers) -> Runs:
    """Return the form of checkpoints, the same for each order of the mapping."""
    runs: Runs = {}
    last: MessageQueue | None = None
    for queue in sorted(numbers, key=lambda queue: (queue.topic, numbers[queue])):
        of_topic = runs.setdefault(queue.topic, [])
        if last is not None and queue == MessageQueue(last.topic, last.broker_name, last.queue_id + 1):
            of_topic[-1][2] = int(of_topic[-1][2]) + 1
        else:
            of_topic.append([queue.broker_name, queue.queue_id, 1])
        last = queue
    return runs


def from_runs(runs: Mapping[str, Iterable[tuple[str, int, int]]]) -> dict[MessageQueue, int]:
    """Return the numbers in a checkpoint."""
    numbers: dict[MessageQueue, int] = {}
    for topic, of_topic in runs.items():
        queues = (
            MessageQueue(topic, broker, first + place) for broker, first, count in of_topic for place in range(count)
        )
        numbers |= {queue: number for number, queue in enumerate(queues)}
    return numbers
