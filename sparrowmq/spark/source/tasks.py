"""A task, as the driver plans it: its rows, and the addresses of their brokers.

With the addresses a task needs no name server, and begins at once. If a broker has moved meanwhile, the task asks for
its route.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.client.cluster.routes import Addresses
from sparrowmq.spark.java import CORES
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.source.partition_ranges import FEW_TASKS, Range, share


@dataclass(frozen=True, slots=True)
class Task:
    """Ranges in the order of their queues; the addresses are by broker name."""

    ranges: tuple[Range, ...]
    brokers: Mapping[str, Addresses]


def tasks(network: BlockingNetwork, ranges: Iterable[Range], options: SourceOptions) -> list[InputPartition]:
    """The tasks of a batch, as Spark hands them to its workers."""
    return [
        InputPartition(Task(some, network.addresses_of({each.queue.broker_name for each in some})))
        for some in share(ranges, options.min_partitions, options.max_partitions, at_once(options))
    ]


def at_once(options: SourceOptions, environ: Mapping[str, str] = os.environ) -> int:
    """The number of tasks that Spark runs at once: by the option parallelTasks, or by the session on this machine."""
    return options.parallel_tasks or int(environ.get(CORES, FEW_TASKS))


def ranges_of(network: BlockingNetwork, partition: InputPartition | None) -> tuple[Range, ...]:
    """Return the ranges of a partition, in the worker.

    Of a query without partitions Spark has one read whose value is None, and 4.1 gives no partition at all.
    """
    task: Task | None = partition.value if partition else None
    if task is None:
        return ()
    network.learn(task.brokers)
    return task.ranges
