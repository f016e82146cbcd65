"""sparrowmq.spark.lakehouse: many topics kept as tables."""
