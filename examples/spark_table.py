"""Reads a topic as a table, and appends a summary to another topic.

NAMESRV_ADDR=127.0.0.1:9876 python examples/spark_table.py [TOPIC]
"""

import os
import sys

from pyspark.sql import SparkSession

from sparrowmq.spark.java import spark_environment

topic = sys.argv[1] if len(sys.argv) > 1 else "orders"
name_server = os.environ["NAMESRV_ADDR"]
os.environ.update(spark_environment())  # finds a Java, and this Python for the workers
spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

messages = (
    spark.read.format("rocketmq")
    .option("nameServer", name_server)
    .option("topic", topic)
    .option("bodyType", "string")
    .load()
)
messages.select("queueId", "queueOffset", "tags", "keys", "body", "storeTimestamp").show(5)

by_tag = messages.groupBy("tags").count()
by_tag.show()
(
    by_tag.selectExpr("to_json(struct(*)) AS body", "tags", f"'{topic}-by-tag' AS topic")
    .write.format("rocketmq")
    .mode("append")
    .option("nameServer", name_server)
    .save()
)
spark.stop()
