"""Spark itself reads a topic slowly, and retention removes rows before it comes to them."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

GAP = re.compile(r"offsets (\d+) to (\d+) of (\S+) are gone")
# A process of its own: workers warn on the standard error that Java began with.
PROGRAM = """
import json, os, shutil, sys
from pathlib import Path
from sparrowmq.spark.java import spark_environment
from sparrowmq.spark.register import session
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.conftest import SETTINGS
from tests.spark.pipelines.expiring import SMALL_FILES, expire
from tests.spark.test_with_spark import Topic, run

folder, why, read = Path(sys.argv[1]), "", {}
os.environ.update(spark_environment())
spark = session("local[2]", SETTINGS | {"spark.sql.warehouse.dir": str(folder / "warehouse")})
with BackgroundCluster(folder / "store", **SMALL_FILES) as cluster:
    topic = Topic(spark, cluster.namesrv)
    topic.send(0, 20)
    run(topic.stream(), folder / "lenient", read)
    shutil.copytree(folder / "lenient", folder / "strict")
    topic.send(20, 180)
    expire(cluster, topic)
    topic.send(200, 45)
    limit = {"maxOffsetsPerTrigger": "20"}
    try:
        run(topic.stream(**limit), folder / "strict", {})
    except Exception as error:
        why = str(error)
    run(topic.stream(failOnDataLoss="false", **limit), folder / "lenient", read)
print(json.dumps([why, list(read.values())]))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_removed_rows_end_a_strict_stream_and_are_told_once_by_another(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    why, batches = json.loads(done.stdout.splitlines()[-1])
    strict = GAP.findall(why)
    assert "RowsLost" in why and "fileReservedTime" in why and len(set(strict)) == 1
    assert [row for batch in batches for row in sorted(batch)] == [*range(20), *range(200, 245)]
    assert max(map(len, batches)) <= 21 and len(batches) <= 5, "no batch is spent on a gap alone"
    told = [gap for line in done.stderr.splitlines() if "data lost: " in line for gap in GAP.findall(line)]
    assert len({queue for _, _, queue in told}) == len(told)
    assert sum(int(last) + 1 - int(first) for first, last, _ in told) == 180
    assert set(strict) <= set(told)
