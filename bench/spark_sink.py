"""How many rows a second does Spark write to a topic, at each level of the sink?

    ./run bench spark_sink [--quick] [--rows 1000000]

Bodies of 100 bytes made by Spark itself in two tasks (local[2]), written to 4 queues of one broker on the same machine,
by turns: at_least_once, idempotent, exactly_once. Two rounds warm up, five are measured.

Bound: a row costs the JVM 1.5 to 2.4 us to make and hand over, a Python worker 0.7 to 1.0 us to become a message, and
the broker, in one thread, 1.3 us to store it, and what the socket takes. So two processors are the bound, and not the
broker: about 400,000 rows/s. Ids of rows cost as much as others. With exactly_once the broker writes each row twice,
once in a record of some hundred rows and once by itself, the second time after the write has ended.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from bench.results import Measure, keep_section, table
from bench.servers import OURS, TOPIC, Peer, serving_all
from bench.spark import SETTINGS
from sparrowmq.spark.options import AT_LEAST_ONCE, EXACTLY_ONCE, IDEMPOTENT, SinkOptions, parse
from sparrowmq.spark.register import session
from sparrowmq.spark.source.query_offsets import bounds_of
from sparrowmq.spark.worker import connect

QUESTION: Final = __doc__.splitlines()[0]
LEVELS: Final = (AT_LEAST_ONCE, IDEMPOTENT, EXACTLY_ONCE)
WARM_UPS: Final = 2
ROUNDS: Final = 5
SHOWN_LIMIT_S: Final = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="50,000 rows; shown and not kept")
    options = parser.parse_args()
    rows = min(options.rows, 50_000) if options.quick else options.rows
    figures: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    with serving_all((OURS,)) as (peer,), tempfile.TemporaryDirectory(prefix="bench-spark-") as folder:
        spark = session("local[2]", SETTINGS | {"spark.local.dir": folder})
        given = made(spark, rows)
        for turn in range(WARM_UPS + ROUNDS):
            for level in LEVELS:
                figure = measure(peer, given, level, rows)
                if turn >= WARM_UPS:
                    figures[level,][peer.name].append(figure)
                print(f"spark sink {level} {figure['rate']:,.0f} rows/s, seen {figure['seen']:,.0f}", flush=True)
        spark.stop()
    measures = [Measure("rows/s", lambda f: f["rate"]), Measure("rows/s until seen", lambda f: f["seen"])]
    text = table(["level"], figures, measures)
    if options.quick:
        print(text)
    else:
        keep_section("spark_sink", QUESTION, f"{text}\n\n{ROUNDS} rounds of {rows:,} rows by turns, after {WARM_UPS}.")


def made(spark: SparkSession, rows: int) -> DataFrame:
    """The rows; Spark makes them anew each time."""
    return spark.range(0, rows, 1, 2).selectExpr("lpad(cast(id as string), 100, 'x') as body")


def measure(peer: Peer, given: DataFrame, level: str, rows: int) -> dict[str, float]:
    """Rows a second until the write ended, and until the last row could be read."""
    options = {"nameServer": peer.namesrv, "topic": TOPIC, "deliveryGuarantee": level}
    if level == EXACTLY_ONCE:
        options["brokerName"] = broker_of(peer)
    before = stored(peer)
    start = time.perf_counter()
    given.write.format("rocketmq").options(**options).mode("append").save()
    ended = time.perf_counter()
    while stored(peer) < before + rows:
        if time.perf_counter() > ended + SHOWN_LIMIT_S:
            raise TimeoutError(f"{peer.name} does not show all messages")
        time.sleep(0.01)
    return {"rate": rows / (ended - start), "seen": rows / (time.perf_counter() - start)}


def stored(peer: Peer) -> int:
    """The messages that can be read."""
    with connect(parse(SinkOptions, {"nameServer": peer.namesrv})) as network:
        return sum(held.end for held in bounds_of(network, network.route(TOPIC).readable).values())


def broker_of(peer: Peer) -> str:
    with connect(parse(SinkOptions, {"nameServer": peer.namesrv})) as network:
        return network.route(TOPIC).writable[0].broker_name


if __name__ == "__main__":
    main()
