"""Ready pipelines on a standalone cluster whose workers know nothing of sparrowmq; executors and drivers are killed.

Each pipeline that writes, `audit` and `sql`: the driver is killed while an executor is at work; started again, it ends
with every row there, once, though now an executor is killed at work. The others start no Spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("duckdb")

import duckdb
import psutil

from sparrowmq.client import blocking_client as sync
from sparrowmq.protocol.messages import trace as traces
from sparrowmq.protocol.messages.trace import PubTrace, TracedKind
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.cluster.standalone import RUN_LIMIT_S, START_LIMIT_S, Standalone, standalone
from tests.spark.test_with_spark import Topic

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(590)]

ROWS = 12_000
COUNTING = """
import sys
from sparrowmq.spark import session
spark = session()
rows = spark.read.format("rocketmq").option("nameServer", sys.argv[1]).option("topic", sys.argv[2]).load()
print(rows.repartition(4).rdd.map(lambda row: (row.body, __import__("msgspec").__name__)).distinct().count())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def namesrv(folder: Path) -> Iterator[str]:
    with BackgroundCluster(folder / "store") as cluster:
        yield cluster.namesrv


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Standalone]:
    with standalone(folder) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def orders(namesrv):
    """A topic of numbered bodies; each fifth comes twice."""
    topic = new_topic(namesrv)
    topic.send_bodies([b'{"id":%d}' % (number - number % 5 // 4) for number in range(ROWS)])
    return topic


def new_topic(namesrv: str) -> Topic:
    """One to send to; it is Spark elsewhere that reads it."""
    none_here: Any = None
    return Topic(none_here, namesrv)


NUMBERS = [number - number % 5 // 4 for number in range(ROWS)]


def ends_in_spite_of_kills(cluster: Standalone, *program: str) -> dict:
    """Start it and kill the driver at work; start it again and kill an executor at work; what that run reports."""
    for victim in ("driver", "executor"):
        wait_until(lambda: not cluster.executors(), "executors of the driver before are still there")
        with open(cluster.folder / "out", "w") as out, open(cluster.folder / "driver.log", "w") as log:
            driver = subprocess.Popen(cluster.command(*program), stdout=out, stderr=log, start_new_session=True)
        try:
            killed = kill_at_work(cluster, driver, victim)
            if victim == "executor":
                assert driver.wait(RUN_LIMIT_S) == 0, f"{said(cluster)}\n{cluster.logs()}"
                assert not killed.is_running()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    report: dict = json.loads((cluster.folder / "out").read_text().splitlines()[-1])
    return report


def kill_at_work(cluster: Standalone, driver: subprocess.Popen[bytes], victim: str) -> psutil.Process:
    """Kill the driver, or an executor, when one runs Python, which it does to read a topic."""
    at_work: list[psutil.Process] = []

    def is_at_work() -> bool:
        assert driver.poll() is None, f"it ended before anybody was killed\n{said(cluster)}"
        at_work[:] = filter(runs_python, cluster.executors())
        return bool(at_work)

    wait_until(is_at_work, "no executor is at work")
    found = at_work[0] if victim == "executor" else psutil.Process(driver.pid)
    if victim == "driver":
        os.killpg(driver.pid, signal.SIGKILL)
    else:
        found.kill()
    return found


def wait_until(is_so: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)


def said(cluster: Standalone) -> str:
    return (cluster.folder / "driver.log").read_text()[-8000:]


def runs_python(executor: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("pyspark.daemon" in child.cmdline() for child in executor.children())
    return False


def numbers_of(path, body="id"):
    rows = duckdb.connect().execute(f"select {body} from read_parquet('{path}/**/*.parquet')")
    return sorted(int(row[0]) for row in rows.fetchall())


def bodies_of(topic: str, namesrv: str, count: int) -> list[int]:
    found = []
    with sync.connect(namesrv) as mq, mq.subscribe(topic, group=f"of-{topic}", start="earliest") as got:
        for _, message in zip(range(count), got, strict=False):
            found.append(json.loads(message.body)["id"])
            message.ack()
    return sorted(found)


def test_a_program_and_what_it_imports_run_on_workers_that_have_none_of_it(cluster, namesrv, tmp_path):
    topic = new_topic(namesrv)
    topic.send(0, 300)
    (tmp_path / "count.py").write_text(COUNTING)
    assert cluster.run(str(tmp_path / "count.py"), namesrv, topic.name) == "300\n"


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_table_and_back(cluster, namesrv, orders, tmp_path, kind):
    path, small = tmp_path / "t", "maxOffsetsPerTrigger=2000"
    given = ["--to", str(path), "--format", kind, "--mode", "json", "--once", "-o", small, "-n", namesrv]
    report = ends_in_spite_of_kills(cluster, "pipeline", "table", orders.name, *given)
    assert sum(report["offsets"][orders.name]["broker-0"].values()) == ROWS
    if kind == "parquet":
        assert numbers_of(path) == NUMBERS
        again = f"again-{orders.name}"
        sent = ends_in_spite_of_kills(cluster, "pipeline", "publish", str(path), again, "-n", namesrv)
        assert (sent["read"], sent["errors"]) == (ROWS, 0)
        assert bodies_of(again, namesrv, ROWS) == NUMBERS
    audit = "pipeline", "audit", f"topic:{orders.name}", f"table:{path}", "-n", namesrv
    assert ends_in_spite_of_kills(cluster, *audit)["errors"] == 0


@pytest.mark.parametrize("name", ["mirror", "dedup"])
def test_copies_of_a_topic(cluster, namesrv, orders, tmp_path, name):
    copy, state = f"{name}-{orders.name}", ["--state", str(tmp_path / "state"), "--once", "-n", namesrv]
    if name == "mirror":
        program = [name, orders.name, "--to", namesrv, "--to-topic", copy]
    else:
        by = "get_json_object(cast(body as string), '$.id')"
        program = [name, orders.name, copy, "--by", by]
    ends_in_spite_of_kills(cluster, "pipeline", *program, *state, "-o", "maxOffsetsPerTrigger=2000")
    wanted = NUMBERS if name == "mirror" else sorted(set(NUMBERS))
    assert bodies_of(copy, namesrv, len(wanted)) == wanted
    audited = cluster.run("pipeline", "audit", f"topic:{copy}", "-n", namesrv)
    assert json.loads(audited.splitlines()[-1])["read"] == len(wanted)


def test_an_archive(cluster, namesrv, orders, tmp_path):
    path = tmp_path / "archive"
    given = ["--to", str(path), "-n", namesrv, "-o", "maxOffsetsPerTrigger=2000"]
    ends_in_spite_of_kills(cluster, "pipeline", "archive", orders.name, *given)
    assert numbers_of(path, "json_extract(decode(body), '$.id')") == NUMBERS


def test_a_table_that_is_filled_from_a_backup(cluster, namesrv, folder, orders, tmp_path):
    path = tmp_path / "t"
    late = json.dumps({orders.name: {"broker-0": {str(queue): end for queue, end in orders.ends().items()}}})
    given = ["--to", str(path), "--mode", "json", "--once", "-n", namesrv, "-o", f"startingOffsets={late}"]
    cluster.run("pipeline", "table", orders.name, *given)
    ends_in_spite_of_kills(cluster, "pipeline", "backfill", str(path), "--store", str(folder / "store" / "broker-0"))
    assert numbers_of(path) == NUMBERS


def test_questions(cluster, namesrv, orders):
    question = f"select count(*) n, count(distinct body) ids from `{orders.name}`"
    killed = ["pipeline", "sql", question, "-n", namesrv, "--form", "json"]
    ends_in_spite_of_kills(cluster, *killed)
    rows = (cluster.folder / "out").read_text().splitlines()
    assert json.loads(rows[0]) == {"n": ROWS, "ids": len(set(NUMBERS))}


def test_traces(cluster, namesrv):
    topic = new_topic(namesrv)
    sent = PubTrace(1, "shop", "orders", "id", "paid", None, "127.0.0.1:1", 10, 5, TracedKind.NORMAL, "0A", True)
    topic.send_bodies([traces.encode(sent).encode()] * 3000)
    report = ends_in_spite_of_kills(cluster, "pipeline", "trace", "-n", namesrv, "--topic", topic.name)
    assert (report["read"], report["errors"]) == (3000, 0)


def arguments_without_spark(namesrv: str, tmp_path: Path) -> Sequence[Sequence[str]]:
    journal = str(tmp_path / "journal")
    return [
        ("lag", "nobody", "-n", namesrv),
        ("dlq-replay", "nobody", "-n", namesrv, "--journal", journal),
    ]


def test_what_needs_no_executor_runs_where_it_was_typed(cluster, namesrv, tmp_path):
    with sync.connect(namesrv) as mq:
        mq.admin.create_group("nobody")
    for program in arguments_without_spark(namesrv, tmp_path):
        assert json.loads(cluster.run("pipeline", *program).splitlines()[-1])["errors"] == 0
