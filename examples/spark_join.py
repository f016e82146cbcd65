"""Joins two topics: each order with its payment, if that comes within ten minutes.

NAMESRV_ADDR=127.0.0.1:9876 python examples/spark_join.py
"""

import os
import tempfile

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import sparrowmq.spark
from sparrowmq import sync

name_server = os.environ["NAMESRV_ADDR"]

with sync.connect(name_server) as mq:
    for number in range(5):
        mq.send("joined-orders", f"book {number}".encode(), keys=[f"o-{number}"])
    for number in (3, 1):
        mq.send("joined-payments", b"%d EUR" % (10 * number), keys=[f"o-{number}"])

spark = sparrowmq.spark.session("local[2]")
spark.conf.set("spark.sql.shuffle.partitions", 2)  # of 200 by default, as many as there are processors


def stream(topic: str, *names: str) -> DataFrame:
    """The messages of a topic: the order's id, the body, and when it was sent."""
    rows = spark.readStream.format("rocketmq").options(
        nameServer=name_server, topic=topic, startingOffsets="earliest", bodyType="string"
    )
    return rows.load().select("keys", "body", "bornTimestamp").toDF(*names)


orders = stream("joined-orders", "id", "goods", "ordered").withWatermark("ordered", "10 minutes")
payments = stream("joined-payments", "order", "amount", "paid").withWatermark("paid", "10 minutes")
paid_in_time = "id = order AND paid BETWEEN ordered - INTERVAL 1 MINUTE AND ordered + INTERVAL 10 MINUTES"
folder = tempfile.mkdtemp()
query = (
    orders.join(payments, f.expr(paid_in_time))
    .writeStream.format("parquet")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{folder}/paid")
)
query.awaitTermination()

for row in spark.read.parquet(f"{folder}/paid").orderBy("id").collect():
    print(row.id, row.goods, row.amount)
spark.stop()
