"""How quickly does Spark move topics, beside Kafka with Spark's own source and sink?

    ./run bench spark_kafka [--quick] [--rows 3000000] [--cases write,read] [--fill-cache 22]

Bodies of 100 bytes that Spark makes itself, in 4 queues or partitions of one broker on the same machine; local[2], all
in one session, each case by turns, after rounds to warm up. Kafka's broker is 3.9.1 with 1 GB of heap, its source and
sink are those of Spark 4.2.0.

write       the sink; then a stream over all that it wrote in five rounds, which ends when it has caught up
            (AvailableNow, 500,000 rows a batch, to nowhere), and what half of 30 small batches (2,000 rows) take less
            than
read        all of our columns, and five of them, beside five of Kafka's (key, value, partition, offset, timestamp);
            five to Parquet; from the files of our log, which Kafka's source cannot read

Bound: as in `bench spark` and `bench spark_sink`. Kafka's source gives rows to the JVM without another process; ours
decodes in two Python workers beside it, so both have the same two cores to share.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from bench.kafka import KafkaBroker
from bench.page_cache import PageCache, add_option
from bench.results import keep_section
from bench.rounds import names
from bench.servers import OURS, TOPIC, Peer, serving_all
from bench.spark import FIVE_COLUMNS, SETTINGS, to_nowhere
from bench.spark_sink import stored
from sparrowmq.spark.register import session
from tests.interop.kits import spark_kafka_jars

QUESTION: Final = __doc__.splitlines()[0]
KAFKA: Final = "Kafka"
CASES: Final = ("write", "read")
MILLION: Final = 1_000_000
WARM_UPS: Final = 2
ROUNDS: Final = 3
SMALL_BATCH: Final = 2000
SMALL_BATCHES: Final = 30

Figures = dict[str, dict[str, list[float]]]
Ways = dict[str, Callable[[], float]]  # by peer: does it once, and gives the figure


class Topics:
    """The topic of each broker, as Spark reads and writes it."""

    def __init__(self, spark: SparkSession, peer: Peer, kafka: KafkaBroker, folder: Path, cache: PageCache) -> None:
        self.spark, self.peer, self.folder, self.cache = spark, peer, folder, cache
        ours = {"nameServer": peer.namesrv, "topic": TOPIC}
        self.reading = {OURS: ours, KAFKA: {"kafka.bootstrap.servers": kafka.address, "subscribe": TOPIC}}
        self.writing = {OURS: ours, KAFKA: {"kafka.bootstrap.servers": kafka.address, "topic": TOPIC}}

    def rows(self, name: str, **options: str) -> DataFrame:
        return self.spark.read.format(form(name)).options(**self.reading[name], **options).load()

    def stream(self, name: str, rows_per_batch: int) -> DataFrame:
        given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows_per_batch)}
        given |= {"columns": FIVE_COLUMNS} if name == OURS else {}
        return self.spark.readStream.format(form(name)).options(**self.reading[name], **given).load()

    def write(self, name: str, rows: int) -> float:
        """Rows a second."""
        column = "body" if name == OURS else "value"
        made = self.spark.range(0, rows, 1, 2).selectExpr(f"lpad(cast(id as string), 100, 'x') as {column}")
        self.cache.fill()
        return rows / timed(lambda: made.write.format(form(name)).options(**self.writing[name]).mode("append").save())

    def catch_up(self, name: str, rows_per_batch: int, batches: int | None = None) -> list[dict[str, Any]]:
        """What Spark says of each batch of a stream that reads all there is, or so many batches."""
        with tempfile.TemporaryDirectory(dir=self.folder) as checkpoint:
            stream = self.stream(name, rows_per_batch).writeStream.format("noop")
            stream = stream.option("checkpointLocation", checkpoint)
            query = stream.trigger(
                **{"availableNow": True} if batches is None else {"processingTime": "0 seconds"}
            ).start()
            while batches is not None and len(query.recentProgress) < batches:
                time.sleep(0.05)
            if batches is None:
                query.awaitTermination()
            query.stop()
            return [dict(each) for each in query.recentProgress]


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rows", type=int, default=3 * MILLION)
    parser.add_argument("--cases", type=names, default=CASES, help="write,read: each can be measured by itself")
    add_option(parser)
    parser.add_argument("--quick", action="store_true", help="100,000 rows; shown and not kept")
    options = parser.parse_args()
    cache = PageCache(options.fill_cache)
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder, serving_all((OURS,)) as (peer,):
        jars = {"spark.jars": ",".join(map(str, sorted(spark_kafka_jars().glob("*.jar"))))}
        spark = session("local[2]", SETTINGS | jars | {"spark.local.dir": folder})
        with KafkaBroker() as kafka:
            topics = Topics(spark, peer, kafka, Path(folder), cache)
            rows = 100_000 if options.quick else options.rows
            for case in options.cases:
                figures: Figures = defaultdict(lambda: defaultdict(list))
                {"write": measure_writing, "read": measure_reading}[case](topics, rows, figures)
                keep(case, rows, figures, is_quick=options.quick)
        spark.stop()


def measure_writing(topics: Topics, rows: int, figures: Figures) -> None:
    """The sink, which fills the topics; then streams over them."""
    writing: Ways = {name: partial(topics.write, name, rows) for name in (OURS, KAFKA)}
    by_turns("sink, rows/s", writing, figures, ROUNDS, WARM_UPS)
    total = (WARM_UPS + ROUNDS) * rows
    wait_until_shown(topics.peer, total)
    every: Ways = {name: partial(all_rows_a_second, topics, name, total) for name in (OURS, KAFKA)}
    by_turns("AvailableNow, rows/s", every, figures, rounds=2, warm_ups=1)
    small: Ways = {name: partial(small_batch_ms, topics, name) for name in (OURS, KAFKA)}
    by_turns("small batch, ms (less is better)", small, figures, rounds=2, warm_ups=0)


def measure_reading(topics: Topics, rows: int, figures: Figures) -> None:
    """Batch queries over all rows."""
    missing = rows - stored(topics.peer)
    if missing > 0:
        for name in (OURS, KAFKA):
            topics.write(name, missing)
        wait_until_shown(topics.peer, rows)
    total = stored(topics.peer)
    five = topics.rows(KAFKA).select("key", "value", "partition", "offset", "timestamp")
    ours, ours_five = topics.rows(OURS), topics.rows(OURS, columns=FIVE_COLUMNS)
    stored_log = topics.spark.read.format("rocketmq").options(topic=TOPIC, minPartitions="2")
    files, files_five = (
        stored_log.load(str(topics.peer.store)),
        stored_log.option("columns", FIVE_COLUMNS).load(str(topics.peer.store)),
    )
    folder = topics.folder

    def to_parquet(rows: DataFrame, name: str) -> Callable[[], object]:
        return lambda: rows.write.mode("overwrite").parquet(str(folder / name))

    def rate(query: Callable[[], object]) -> Callable[[], float]:
        return lambda: total / timed(query)

    cases: dict[str, Ways] = {
        "all columns of ours, five of Kafka's": {
            OURS: rate(lambda: to_nowhere(ours)), KAFKA: rate(lambda: to_nowhere(five))
        },
        "five columns": {OURS: rate(lambda: to_nowhere(ours_five)), KAFKA: rate(lambda: to_nowhere(five))},
        "five columns to Parquet": {
            OURS: rate(to_parquet(ours_five, OURS)), KAFKA: rate(to_parquet(five, KAFKA))
        },
        "all columns from log files": {OURS: rate(lambda: to_nowhere(files))},
        "five columns from log files": {OURS: rate(lambda: to_nowhere(files_five))},
    }  # fmt: skip
    for case, ways in cases.items():
        by_turns(f"{case}, rows/s", ways, figures, ROUNDS, WARM_UPS)


def by_turns(case: str, ways: Ways, figures: Figures, rounds: int, warm_ups: int) -> None:
    for turn in range(warm_ups + rounds):
        for name, way in ways.items():
            figure = way()
            if turn >= warm_ups or rounds == 0:
                figures[case][name].append(figure)
            print(f"spark_kafka {case} {name} {figure:,.0f}", flush=True)


def all_rows_a_second(topics: Topics, name: str, rows: int) -> float:
    return rows / timed(lambda: topics.catch_up(name, rows_per_batch=500_000))


def small_batch_ms(topics: Topics, name: str) -> float:
    """What half of the small batches take less than, but for the first ones."""
    said = topics.catch_up(name, SMALL_BATCH, SMALL_BATCHES)
    return float(median(each["durationMs"]["triggerExecution"] for each in said[5:]))


def wait_until_shown(peer: Peer, rows: int) -> None:
    while stored(peer) < rows:
        time.sleep(0.1)


def timed(what: Callable[[], object]) -> float:
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def form(name: str) -> str:
    return "rocketmq" if name == OURS else "kafka"


def keep(case: str, rows: int, figures: Figures, *, is_quick: bool) -> None:
    lines = ["| case | ours | Kafka | ratio |", "| --- | --- | --- | --- |"]
    for what, found in figures.items():
        ours, theirs = found[OURS], found.get(KAFKA)
        ratio = f"{median(ours) / median(theirs):.2f}" if theirs else ""
        lines.append(f"| {what} | {spread(ours)} | {spread(theirs) if theirs else ''} | {ratio} |")
    text = "\n".join([*lines, "", f"{rows:,} rows; medians, and the least and the most."])
    if is_quick:
        print(text)
    else:
        keep_section(f"spark_kafka_{case}", f"{QUESTION.removesuffix('?')} ({case})?", text)


def spread(values: list[float]) -> str:
    return f"{median(values):,.0f} ({min(values):,.0f}..{max(values):,.0f})"


if __name__ == "__main__":
    main()
