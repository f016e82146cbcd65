"""What the driver gives a task: which rows it reads, and where their brokers are.

The addresses travel along, so that a task asks no name server: it reads while none answers, and begins at once. When
they are wrong by then, because a broker has moved, the task finds out as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from sparrowmq.client.cluster.blocking import BlockingNetwork
from sparrowmq.client.cluster.route import Addresses
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.source.ranges import Range, share


@dataclass(frozen=True, slots=True)
class Task:
    """Ranges in the order of their queues; the addresses are by broker name."""

    ranges: tuple[Range, ...]
    brokers: Mapping[str, Addresses]


def tasks(network: BlockingNetwork, ranges: Iterable[Range], options: SourceOptions) -> list[InputPartition]:
    """The tasks of a batch, as Spark hands them to its workers."""
    return [
        InputPartition(Task(some, network.addresses_of({each.queue.broker_name for each in some})))
        for some in share(ranges, options.min_partitions, options.max_partitions)
    ]


def ranges_of(network: BlockingNetwork, partition: InputPartition | None) -> tuple[Range, ...]:
    """What to read for a partition, in the worker.

    Of a query without partitions Spark has one read whose value is None, and 4.1 gives no partition at all.
    """
    task: Task | None = partition.value if partition else None
    if task is None:
        return ()
    network.learn(task.brokers)
    return task.ranges
