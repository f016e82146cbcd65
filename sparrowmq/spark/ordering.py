"""Order across the tasks of a write.

The sink sends the rows of one sharding key to one queue, and those of one task in the task's order. Tasks run side by
side and know nothing of each other: where rows of one key are in two tasks, each task's are in order, and the two are
mixed. A sink written in Python cannot tell Spark how to share rows out; so do it before the write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_order(table: DataFrame, *by: str, key: str = "shardingKey") -> DataFrame:
    """The same rows, those of one key in one task and there in the order of the columns `by`.

        in_order(orders.withColumn("shardingKey", col("customer")), "orderedAt").drop("customer", "orderedAt").write...

    The sink refuses columns that it has no use for: drop those that were only for this. For batches; a stream cannot be
    sorted, so write it with `foreachBatch`.
    """
    return table.repartition(key).sortWithinPartitions(key, *by)
