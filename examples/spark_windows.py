"""Counts the messages of each minute and tag, by their own times, and sends each count to another topic.

NAMESRV_ADDR=127.0.0.1:9876 python examples/spark_windows.py
"""

import json
import os
import tempfile
from datetime import datetime, timedelta

from pyspark.sql import functions as f

import sparrowmq.spark
from sparrowmq import sync

name_server = os.environ["NAMESRV_ADDR"]
noon = datetime(2026, 11, 24, 12)

with sync.connect(name_server) as mq:
    for second in (5, 20, 50, 65, 70, 30, 400):  # 30 comes late, 400 ends the minutes before
        clicked = (noon + timedelta(seconds=second)).isoformat()
        mq.send("clicks", json.dumps({"at": clicked}).encode(), tag="shop" if second % 2 else "home")

spark = sparrowmq.spark.session("local[2]")
spark.conf.set("spark.sql.shuffle.partitions", 2)  # of 200 by default, as many as there are processors
clicks = (
    spark.readStream.format("rocketmq")
    .options(nameServer=name_server, topic="clicks", startingOffsets="earliest", bodyType="string")
    .load()
    .select("tags", f.from_json("body", "at timestamp").getField("at").alias("at"))
)
counts = clicks.withWatermark("at", "2 minutes").groupBy(f.window("at", "1 minute"), "tags").count()
query = (
    counts.selectExpr("to_json(struct(window.start AS minute, tags, count)) AS body", "'clicks-by-minute' AS topic")
    .writeStream.format("rocketmq")
    .options(nameServer=name_server, checkpointLocation=tempfile.mkdtemp())
    .outputMode("append")  # a window is sent once, when no click for it is expected any more
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

sent = spark.read.format("rocketmq").options(nameServer=name_server, topic="clicks-by-minute", bodyType="string")
for line in sorted(json.dumps(json.loads(row.body)) for row in sent.load().collect()):
    print(line)
spark.stop()
