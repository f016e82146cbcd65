"""Spark Connect: a client without a JVM of its own reads and writes topics by a server that has the source."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_status", reason="the extra `connect` is not installed")

from sparrowmq.client import blocking_client as sync
from sparrowmq.spark.commands.spark_commands import build_submission
from sparrowmq.testing.background import BackgroundCluster
from tests.interop.apache import free_ports
from tests.interop.child import listens
from tests.spark.conftest import SETTINGS

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_LIMIT_S = 120
PROGRAM = """
import json, sys
import sparrowmq.spark
remote, namesrv, checkpoint = sys.argv[1:]
spark = sparrowmq.spark.session(remote=remote)
options = {"nameServer": namesrv, "topic": "orders"}
orders = spark.read.format("rocketmq").options(**options).load()
pushed = spark.read.format("rocketmq").options(**options, pushdown="true").load()
one_queue = pushed.where("queueId = 0").count()
orders.select("body").write.format("rocketmq").options(nameServer=namesrv, topic="copied").mode("append").save()
options = {"nameServer": namesrv, "topic": "orders", "startingOffsets": "earliest"}
stream = spark.readStream.format("rocketmq").options(**options).load().select("body")
writing = stream.writeStream.format("rocketmq").options(nameServer=namesrv, topic="streamed")
writing = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True)
writing.start().awaitTermination()
print(json.dumps({"orders": orders.count(), "queue 0": one_queue, "kind": type(spark).__module__}))
"""


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    with BackgroundCluster(tmp_path / "store") as cluster:
        yield cluster.namesrv


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """The address of a server."""
    (port,) = free_ports(1)
    with zipfile.ZipFile(tmp_path / "nothing.zip", "w"):  # all is installed where the server runs
        pass
    settings = SETTINGS | {"spark.connect.grpc.binding.port": str(port)}
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    given = ["--class", SERVER, "--master", "local[2]", *confs, "spark-internal"]
    told = build_submission(given, tmp_path / "nothing.zip", sys.executable)
    with open(tmp_path / "server.log", "wb") as log:
        server = subprocess.Popen(
            told.command,
            env=dict(told.environment),
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for(port, server, tmp_path / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not listens("127.0.0.1", port):
        assert server.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def test_a_client_reads_writes_and_streams_topics(namesrv, remote, tmp_path):
    with sync.connect(namesrv) as mq:
        sent = [mq.send("orders", str(number).encode()) for number in range(100)]
        program = [sys.executable, "-c", PROGRAM, remote, namesrv, str(tmp_path / "checkpoint")]
        done = subprocess.run(program, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{done.stderr}\n{(tmp_path / 'server.log').read_text()[-5000:]}"
        said = json.loads(done.stdout.splitlines()[-1])
        assert said["orders"] == 100 and said["kind"] == "pyspark.sql.connect.session"
        assert said["queue 0"] == sum(result.queue.queue_id == 0 for result in sent)
        for topic in ("copied", "streamed"):
            with mq.subscribe(topic, group=f"readers-of-{topic}", start="earliest") as got:
                bodies = sorted(int(message.body) for _, message in zip(range(100), got, strict=False))
            assert bodies == list(range(100))
