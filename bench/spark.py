"""How many rows a second does Spark read from a topic?

    ./run bench spark [--quick] [--rows 2000000] [--peers ours,apache-4.9.7]

Messages of 100 bytes with keys, a tag, an id and a property, in 4 queues of one broker, read by local[2] on the machine
that the broker runs on: all columns to nowhere, and five (keys, body, queue, offset, time) to nowhere and to Parquet;
then all and the five again from the files of the broker's log, cut for two tasks.
Each query runs three times to warm up, as long as Java's compiler is at work, and then five times.

Bound: a row costs a Python worker 0.5 us to pull and decode (bench columns), our broker next to nothing, and Spark
takes 1.3 to 1.45 million rows/s of such batches from two workers. So two cores give about a million rows/s; for
Parquet the JVM's writer is the limit. Kafka 3.9.1 with Spark's own JVM source, five columns, 4 partitions, the same
kind of machine: 1.1 million rows/s to nowhere, 0.68 to 0.82 million to Parquet.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from bench.results import Measure, keep_section, table
from bench.rounds import names
from bench.servers import OURS, TOPIC, Peer, serving_all
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.spark.options import SinkOptions, parse
from sparrowmq.spark.register import session
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.source.query_offsets import bounds_of
from sparrowmq.spark.worker import connect

QUESTION: Final = __doc__.splitlines()[0]
WARM_UPS: Final = 3
ROUNDS: Final = 5
SHOWN_LIMIT_S: Final = 120
FIVE_COLUMNS: Final = "keys,body,queueId,queueOffset,storeTimestamp"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}

Figures = dict[tuple[str, ...], dict[str, list[dict[str, Any]]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--peers", type=names, default=(OURS,), help="brokers to read from: a,b,c")
    parser.add_argument("--quick", action="store_true", help="100,000 rows; shown and not kept")
    options = parser.parse_args()
    rows = min(options.rows, 100_000) if options.quick else options.rows
    figures: Figures = defaultdict(lambda: defaultdict(list))
    with serving_all(options.peers) as peers, tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        spark = session("local[2]", SETTINGS | {"spark.local.dir": folder})
        for peer in peers:
            start = time.perf_counter()
            fill(peer, rows)
            figures["(sent by one Python process)",][peer.name].append({"rate": rows / (time.perf_counter() - start)})
            for case, query in queries(spark, peer, folder).items():
                measure(case, query, rows, figures, peer)
        spark.stop()
    text = table(["query"], figures, [Measure("rows/s", lambda f: f["rate"])])
    if options.quick:
        print(text)
    else:
        keep_section("spark", QUESTION, f"{text}\n\n{ROUNDS} rounds over {rows:,} rows, after {WARM_UPS} to warm up.")


def fill(peer: Peer, rows: int) -> None:
    """Send the messages, and return when all of them can be read."""
    options = parse(SinkOptions, {"nameServer": peer.namesrv})
    with connect(options) as network:
        sender = Sender(network, options)
        for number in range(rows):
            text = b"KEYS\x01order-%d\x02TAGS\x01paid\x02UNIQ_KEY\x010A00000100002A9F%016X\x02region\x01eu\x02"
            sender.put(TOPIC, BatchPart(b"x" * 100, text % (number, number)))
        sender.finish()
        deadline = time.monotonic() + SHOWN_LIMIT_S
        while sum(held.end for held in bounds_of(network, network.route(TOPIC).readable).values()) < rows:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{peer.name} does not show all messages")
            time.sleep(0.1)


def queries(spark: SparkSession, peer: Peer, folder: str) -> dict[str, Callable[[], object]]:
    """What is measured, by its name."""
    topic = spark.read.format("rocketmq").option("nameServer", peer.namesrv).option("topic", TOPIC)
    everything, five = topic.load(), topic.option("columns", FIVE_COLUMNS).load()
    files = spark.read.format("rocketmq").option("topic", TOPIC).option("minPartitions", "2")
    stored, stored_five = (
        files.load(str(peer.store)),
        files.option("columns", FIVE_COLUMNS).load(str(peer.store)),
    )
    parquet = str(Path(folder, peer.name))
    return {
        "all columns to nowhere": lambda: to_nowhere(everything),
        "five columns to nowhere": lambda: to_nowhere(five),
        "five columns to Parquet": lambda: five.write.mode("overwrite").parquet(parquet),
        "all columns from log files": lambda: to_nowhere(stored),
        "five columns from log files": lambda: to_nowhere(stored_five),
    }


def to_nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def measure(case: str, query: Callable[[], object], rows: int, figures: Figures, peer: Peer) -> None:
    for _warm_up in range(WARM_UPS):
        query()
    for _round in range(ROUNDS):
        start = time.perf_counter()
        query()
        rate = rows / (time.perf_counter() - start)
        figures[case,][peer.name].append({"rate": rate})
        print(f"spark {case} {peer.name} {rate:,.0f} rows/s", flush=True)


if __name__ == "__main__":
    main()
