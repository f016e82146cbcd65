"""Every program in examples/ runs as its first lines say, and does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.client import blocking_client as sync
from sparrowmq.testing.background import BackgroundCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
TRIED = {
    "asynchronous",
    "one_way",
    "ordered_globally",
    "batch",
    "broadcast",
    "pop",
    "pull",
    "concurrently",
    "send",
    "consume",
    "ordered",
    "delayed",
    "at_a_time",
    "filtered",
    "operate",
    *("spark_table", "spark_windows", "spark_join", "spark_state"),  # in tests/spark/test_programs.py
    "test_orders",
    "request",
    "transaction",
    "trace",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("store"), trace_topic_enabled=True) as cluster:
        yield cluster


def run(cluster, name: str, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        env=dict(os.environ, NAMESRV_ADDR=cluster.namesrv),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_example_is_tried():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == TRIED


PRINTED = {
    "asynchronous": r"100 stored, 0 failed",
    "one_way": r"100 lines came",
    "ordered_globally": r"50 entries, each behind the one before",
    "batch": r"100 stored, in \d queues\nnone of these was sent: message 1 of those to send: the body has 5120000 .*",
    "broadcast": r"\n".join(f"cache-{number} has heard: bread is 3.20 now" for number in range(3)),
    "pop": r"received picture 0 and picture 1\nhandled \['picture 0', .*'picture 4'\] and last picture 0",
    "pull": r"20 in the last hour\n\['another'\] since",
    "concurrently": r"40 jobs done, at most 10 at once",
}


@pytest.mark.covers("S-DOC-01")
@pytest.mark.parametrize("name", PRINTED)
def test_it_prints_what_it_did(cluster, name):
    assert re.fullmatch(PRINTED[name] + r"\n", run(cluster, name))


def test_the_list_has_a_line_for_each():
    rows = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \| .+ \|$", (EXAMPLES / "README.md").read_text(), re.M)
    assert sorted(rows) == sorted(TRIED)


@pytest.mark.covers("S-DOC-01")
def test_send(cluster):
    out = run(cluster, "send")
    assert re.search(r"offset 0 as [0-9A-F]{32}\nstored 1000\nstored 2 in a batch", out)


def test_consume(cluster):
    with sync.connect(cluster.namesrv) as mq:
        for number in range(10):
            mq.send("inbox", f"body {number}".encode(), tag="t", keys=["k"])
    lines = run(cluster, "consume", "inbox", "10").splitlines()
    assert len(lines) == 10
    assert all(re.fullmatch(r"\d \d+ t \['k'\] body \d", line) for line in lines)
    assert len({line.split()[-1] for line in lines}) == 10


@pytest.mark.covers("S-DOC-01")
def test_ordered(cluster):
    assert run(cluster, "ordered") == "20 orders, each in order: created paid packed shipped\n"


@pytest.mark.covers("S-DOC-01")
def test_filtered(tmp_path):
    with BackgroundCluster(tmp_path, property_filter=True) as cluster:
        assert sorted(run(cluster, "filtered").splitlines()) == ["o-2 of 200", "o-vip of 1"]


def test_operate(cluster):
    assert run(cluster, "operate") == "set at broker-0\n1 behind\nto be billed ['i-1']\n"


def test_at_a_time(cluster):
    found = re.fullmatch(r"'wake up' came (\d+) ms after its moment\n", run(cluster, "at_a_time"))
    assert found


@pytest.mark.covers("S-DOC-01")
def test_delayed(cluster):
    found = re.fullmatch(r"'wake up' came after ([\d.]+) s\n", run(cluster, "delayed"))
    assert found
    assert float(found[1]) >= 1.0


def test_request(cluster):
    assert run(cluster, "request") == "EURUSD 1.0842\nGBPUSD 1.2644\nUSDJPY 154.31\n"


def test_trace(cluster):
    sent, handled = run(cluster, "trace").splitlines()
    assert re.fullmatch(r"shop sent it to parcels at 127\.0\.0\.1:\d+ in \d+ ms", sent)
    assert re.fullmatch(r"carriers handled it in \d+ ms", handled)


def test_the_tests_of_a_user():
    plugin = ("-p", "no:sparrowmq", "-p", "pytest_sparrowmq", "-p", "no:cacheprovider")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-c", os.devnull, "test_orders.py"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout
    assert "2 passed" in ran.stdout


@pytest.mark.covers("S-DOC-01")
def test_transaction(cluster):
    lines = run(cluster, "transaction").splitlines()
    assert lines[0] == "rolled back, as the account is empty"
    assert sorted(lines[1:]) == ["paid", "paid, as the check says"]
