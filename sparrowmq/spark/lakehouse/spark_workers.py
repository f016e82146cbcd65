"""Does the parts of a round in Spark's workers, in one job: a job costs Spark some 0.1 s, however many topics it has.

If the job fails as a whole, as when a worker was killed for its memory, each topic gets a job of its own, so that only
the topic fails that caused it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparrowmq.spark.lakehouse.batch_parts import Part, Written, write_all
from sparrowmq.spark.source.partition_ranges import packed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_A_CORE: Final = 2
_PART_ROWS: Final = 500  # the cost of a part without rows, in rows


class SparkWorkers:
    """The workers of a session."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self.tasks = _TASKS_A_CORE * self._context.defaultParallelism

    def __call__(self, parts: Sequence[Part]) -> list[Written]:
        """Do parts. Raises: PySparkException, Py4JError, Spark itself has ended."""
        try:
            return self._do(parts)
        except (PySparkException, Py4JError):
            if self._context._jsc is None or self._context._jsc.sc().isStopped():
                raise
        return [written for some in by_topic(parts) for written in self._do_alone(some)]

    def _do_alone(self, parts: Sequence[Part]) -> list[Written]:
        try:
            return self._do(parts)
        except (PySparkException, Py4JError) as error:
            return [Written(parts[0].topic, error=str(error))]

    def _do(self, parts: Sequence[Part]) -> list[Written]:
        tasks = packed(parts, self.tasks, lambda part: part.rows + _PART_ROWS)
        if not tasks:
            return []
        return list(self._context.parallelize(tasks, len(tasks)).flatMap(write_all).collect())


def by_topic(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts of each topic."""
    found: dict[str, list[Part]] = {}
    for part in parts:
        found.setdefault(part.topic, []).append(part)
    yield from found.values()
