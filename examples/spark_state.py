"""Keeps a state for each key over all batches: the balance of each account, from its deposits and withdrawals.

NAMESRV_ADDR=127.0.0.1:9876 python examples/spark_state.py
"""

import os
import tempfile
from collections.abc import Iterator

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

import sparrowmq.spark
from sparrowmq import sync

name_server = os.environ["NAMESRV_ADDR"]


class Balance(StatefulProcessor):
    """Adds amounts up, and keeps the sum in Spark's state store, which the checkpoint has, too."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._sum = handle.getValueState("sum", "total bigint")

    def handleInputRows(self, key: tuple[str], rows: Iterator[Row], timer_values: TimerValues) -> Iterator[Row]:
        (total,) = self._sum.get() or (0,)  # None for a new account
        total += sum(row.amount for row in rows)
        self._sum.update((total,))
        yield Row(account=key[0], total=total)

    def close(self) -> None:
        pass


with sync.connect(name_server) as mq:
    for account, amount in (("ann", 100), ("bob", 50), ("ann", -30)):
        mq.send("bookings", b"%d" % amount, keys=[account], fifo=account)

spark = sparrowmq.spark.session("local[2]")
spark.conf.set("spark.sql.shuffle.partitions", 2)  # of 200 by default, as many as there are processors
spark.conf.set(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)
folder = tempfile.mkdtemp()


def book() -> None:
    """Process what has come since the last run."""
    bookings = spark.readStream.format("rocketmq").options(
        nameServer=name_server, topic="bookings", startingOffsets="earliest", bodyType="string"
    )
    rows = bookings.load().select(f.col("keys").alias("account"), f.col("body").cast("bigint").alias("amount"))
    balances = rows.groupBy("account").transformWithState(
        Balance(), "account string, total bigint", outputMode="Update", timeMode="None"
    )
    query = (
        balances.writeStream.foreachBatch(show)
        .outputMode("update")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def show(batch: DataFrame, number: int) -> None:
    print({row.account: row.total for row in batch.orderBy("account").collect()})


book()
with sync.connect(name_server) as mq:
    mq.send("bookings", b"7", keys=["bob"], fifo="bob")
book()  # as after a restart: the balances are there
spark.stop()
