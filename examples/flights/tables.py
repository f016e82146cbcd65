"""Spark reads the flights while they come in: every one into a table, and the delays of each hour back to a topic.

    flights ──> parse JSON ─────────────────────────────────────> flights_table      (append)
            └─> by origin and hour: how many, how late ──┬──────> updates, by batch  (update)
                                                         └──────> topic `delays`
                updates ──> the latest of each origin and hour ─> statistics_table

A micro-batch that is done again after a failure overwrites its own folder of updates; its messages are sent again, with
the same batch number.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.stages import Stage, Stages
from sparrowmq.errors import SparrowError

FLIGHT = """sequence int, scheduled timestamp, departed timestamp, origin string, dest string, carrier string,
flight int, tailnum string, aircraft string, dep_delay_min int, arr_delay_min int, distance_miles int"""
LATE_MIN = 15

# A trigger costs about a second whatever it reads, so there should not be many.
MOST_PER_TRIGGER = 60_000
PARTITIONS = 2
STALL_S = 180.0  # a slow machine needs a minute for the first micro-batch
LOOK_S = 0.2
LINES_OF_ERROR = 30


@dataclass(frozen=True, slots=True)
class Places:
    """The topics and folders of the demo."""

    namesrv: str
    flights_topic: str
    delays_topic: str
    flights_table: Path
    statistics_table: Path
    work: Path

    @property
    def updates(self) -> Path:
        return self.work / "updates"

    def checkpoint(self, name: str) -> str:
        return str(self.work / "checkpoints" / name)


def make_tables(spark: SparkSession, places: Places, stages: Stages) -> None:
    """Run both queries until they have processed as many flights as `stages` say, then make the table of statistics.

    Raises:
        SparrowError: a query failed, or makes no progress.
    """
    try:
        flights = read_flights(spark, places)
        queries = [
            Followed(partial(flights_query, flights, places), stages.table),
            Followed(partial(statistics_query, flights, places), stages.statistics),
        ]
        follow(queries)
        for each in queries:
            each.query.stop()
        keep_latest(spark, places)
    except PySparkException as error:
        # Now, because the text comes from the JVM, which is about to end.
        raise SparrowError(without_java(str(error))) from None
    except (Py4JError, ConnectionError) as error:
        raise SparrowError(f"Spark's Java has ended ({error}); see {places.work / 'spark.log'}") from None


def read_flights(spark: SparkSession, places: Places) -> DataFrame:
    """The topic as a stream of flights, with the place of each message."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameServer", places.namesrv)
        .option("topic", places.flights_topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MOST_PER_TRIGGER)
        .option("maxPartitions", PARTITIONS)
        .option("columns", "body,queueId,queueOffset,msgId,storeTimestamp")
        .option("bodyType", "string")
        .load()
    )
    parsed = messages.withColumn("parsed", f.from_json("body", FLIGHT))
    return parsed.select("parsed.*", "queueId", "queueOffset", "msgId", "storeTimestamp")


def flights_query(flights: DataFrame, places: Places) -> StreamingQuery:
    """Every flight to the table."""
    return (
        flights.writeStream.queryName("flights")
        .format("parquet")
        .option("path", str(places.flights_table))
        .option("checkpointLocation", places.checkpoint("flights"))
        .start()
    )


def statistics_query(flights: DataFrame, places: Places) -> StreamingQuery:
    """The delays of each origin and hour, whenever they change."""

    def publish(rows: DataFrame, batch: int) -> None:
        rows.persist()
        rows.write.mode("overwrite").parquet(str(places.updates / f"batch={batch}"))
        send(rows.withColumn("batch", f.lit(batch)), places)
        rows.unpersist()

    return (
        statistics(flights)
        .writeStream.queryName("statistics")
        .outputMode("update")
        .option("checkpointLocation", places.checkpoint("statistics"))
        .foreachBatch(publish)
        .start()
    )


def statistics(flights: DataFrame) -> DataFrame:
    """Count the flights and cancellations of each hour, and the delays of the others."""
    delay = f.col("dep_delay_min")
    late = f.when(delay.isNotNull(), (delay > LATE_MIN).cast("double"))
    return flights.groupBy("origin", f.date_trunc("hour", "scheduled").alias("hour")).agg(
        f.count("*").alias("flights"),
        f.count_if(delay.isNull()).alias("cancelled"),
        f.mean(delay).alias("mean_dep_delay_min"),
        f.max(delay).alias("max_dep_delay_min"),
        f.mean(late).alias("late_share"),
    )


def send(rows: DataFrame, places: Places) -> None:
    """Statistics as messages: JSON, the origin as tag, origin and hour as key."""
    body = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
    key = f.concat_ws("-", "origin", f.date_format("hour", "yyyyMMdd'T'HH"))
    messages = rows.select(body.alias("body"), f.col("origin").alias("tags"), key.alias("keys"))
    (
        messages.write.format("rocketmq")
        .mode("append")
        .option("nameServer", places.namesrv)
        .option("topic", places.delays_topic)
        .save()
    )


def keep_latest(spark: SparkSession, places: Places) -> None:
    """The last update of each origin and hour becomes its row of the table."""
    updates = spark.read.parquet(str(places.updates))
    others = [name for name in updates.columns if name not in ("origin", "hour")]
    latest: Column = f.max_by(f.struct(*others), "batch").alias("latest")
    rows = updates.groupBy("origin", "hour").agg(latest).select("origin", "hour", "latest.*")
    rows.orderBy("origin", "hour").coalesce(1).write.parquet(str(places.statistics_table))


def without_java(text: str) -> str:
    """An error of Spark's without the frames of Java: its own words, and the Python traceback of a worker."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:LINES_OF_ERROR])


# Watching queries ---------------------------------------------------------------------------------------------------


class Followed:
    """A query on its way to its stage's total.

    It may be started again from its checkpoint before its first batch: on a busy machine Spark may give up on its
    Python workers, for which it waits 10 s.
    """

    def __init__(self, start: Callable[[], StreamingQuery], stage: Stage, restarts: int = 2) -> None:
        self._start = start
        self._restarts = restarts
        self.stage = stage
        self.query = start()
        stage.begin()

    @property
    def is_done(self) -> bool:
        return self.stage.done >= (self.stage.total or 0)

    def look(self) -> None:
        """Wait a moment, then see how far it is. Raises: what ended the query."""
        try:
            ended = self.query.awaitTermination(LOOK_S)  # type: ignore[arg-type] # Spark takes fractions too
        except PySparkException:
            if self.stage.done or not self._restarts:
                raise
            self._restarts -= 1
            self.query = self._start()
            return
        if ended:
            raise SparrowError(f"the query {self.query.name!r} was stopped before it had read everything")
        self.stage.reach(processed(self.query))

    def __str__(self) -> str:
        stage, message = self.stage, self.query.status["message"]
        return f"query {self.query.name!r} has read {stage.done} of {stage.total} messages ({message})"


def follow(queries: Sequence[Followed], stall_s: float = STALL_S) -> None:
    """Return when every query is done. Raises: what ended one; SparrowError, none made progress for so long."""
    moved = time.monotonic()
    while waiting := [each for each in queries if not each.is_done]:
        before = sum(each.stage.done for each in waiting)
        for each in waiting:
            each.look()
        if sum(each.stage.done for each in waiting) > before:
            moved = time.monotonic()
        elif time.monotonic() - moved > stall_s:
            raise SparrowError(f"no progress since {stall_s:g} s: {'; '.join(map(str, waiting))}")


def processed(query: StreamingQuery) -> int:
    """Count the messages of finished micro-batches; the queues are read from offset 0."""
    progress = query.lastProgress
    end = progress and json.loads(progress.json)["sources"][0]["endOffset"]
    if not end:
        return 0
    brokers = (queues for topic in end["topics"].values() for queues in topic.values())
    return sum(offset for queues in brokers for offset in queues.values())
