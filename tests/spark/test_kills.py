"""A driver with its workers is killed again and again: what the sink promises holds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.test_with_spark import Topic, folder, namesrv, numbers

__all__ = ["folder", "namesrv"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(580)]

KILLS, ROWS = 4, 100_000
PROGRAM = """
import sys
from sparrowmq.spark.register import session
namesrv, topic, copy, checkpoint, guarantee = sys.argv[1:]
spark = session("local[2]", {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"})
options = {"nameServer": namesrv, "topic": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "5000"}
rows = spark.readStream.format("rocketmq").options(**options).load().select("body")
given = {"nameServer": namesrv, "topic": copy, "deliveryGuarantee": guarantee}
given |= {"brokerName": "broker-0"} if guarantee == "exactly_once" else {}
writing = rows.writeStream.format("rocketmq").options(**given).option("checkpointLocation", checkpoint)
writing.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.parametrize("guarantee", ["exactly_once", "idempotent"])
def test_kills_of_the_driver_lose_and_double_nothing(spark, namesrv, tmp_path, guarantee):
    topic, copy = Topic(spark, namesrv), Topic(spark, namesrv)
    topic.send(0, ROWS)
    program, checkpoint = tmp_path / "program.py", tmp_path / "checkpoint"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), namesrv, topic.name, copy.name, str(checkpoint), guarantee]
    chance = random.Random(guarantee)
    for _ in range(KILLS):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as driver:
            wait_for_another_batch(checkpoint, driver)
            time.sleep(chance.uniform(0, 2))
            os.killpg(driver.pid, signal.SIGKILL)
    subprocess.run(command, check=True, timeout=300)
    copy.wait_for(ROWS)
    rows = copy.read()
    if guarantee == "idempotent":
        rows = rows.dropDuplicates(["msgId"])
    assert numbers(rows) == list(range(ROWS))


def wait_for_another_batch(checkpoint: Path, driver: subprocess.Popen[bytes]) -> None:
    before, deadline = len(list(checkpoint.glob("offsets/[0-9]*"))), time.monotonic() + 200
    while len(list(checkpoint.glob("offsets/[0-9]*"))) <= before and driver.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
