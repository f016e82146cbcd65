"""RocketMQ topics as Spark tables: the data source, its planning, and ready pipelines."""
