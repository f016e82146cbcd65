"""The query that is killed: `python -m tests.spark.kills.driver CHECKPOINT MASTER SOURCE-OPTIONS SINK-OPTIONS`."""

from __future__ import annotations

import json
import sys

from sparrowmq.spark.register import session

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # to start, which is what they mostly do here
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.sql.shuffle.partitions": "2",
    # What the rig kills is not the query's fault.
    "spark.task.maxFailures": "100",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.excludeOnFailure.enabled": "false",
}


def main(checkpoint: str, master: str, source: str, sink: str) -> None:
    spark = session(master, SETTINGS | {"spark.local.dir": f"{checkpoint}.local"})
    rows = spark.readStream.format("rocketmq").options(**json.loads(source)).load().select("body")
    writing = rows.writeStream.format("rocketmq").options(**json.loads(sink))
    writing.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
