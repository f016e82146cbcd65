"""sparrowmq.spark.ordering: rows of one key are in one task, in order."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as f

from sparrowmq.spark.ordering import in_order


def test_rows_of_a_key_are_in_one_task_and_in_order(spark):
    table = spark.range(0, 200, numPartitions=5).select(
        (f.col("id") % 7).cast("string").alias("customer"), (200 - f.col("id")).alias("at")
    )
    assert len(tasks(table)["3"]) == 5
    for customer, found in tasks(in_order(table, "at", key="customer")).items():
        (times,) = found.values()
        assert times == sorted(times) and len(times) == sum(n % 7 == int(customer) for n in range(200))


def tasks(table):
    """By customer, and by the task that would send them: the times, in the order of their rows."""
    found: dict[str, dict[int, list[int]]] = {}
    for row in table.withColumn("task", f.spark_partition_id()).collect():
        found.setdefault(row.customer, {}).setdefault(row.task, []).append(row["at"])
    return found
