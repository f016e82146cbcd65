"""What the README shows, run as it stands there; tests/spark/test_programs.py runs what it shows of Spark."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sparrowmq.client import sync
from sparrowmq.testing.background import BackgroundCluster

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CLIENT, BLOCKING, SPARK, TEST = BLOCKS


def run(tmp_path: Path, *command: str) -> str:
    ran = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def cluster(tmp_path):
    with BackgroundCluster(tmp_path / "store") as cluster:
        yield cluster


def at(cluster, program: str) -> str:
    assert "127.0.0.1:9876" in program
    return program.replace("127.0.0.1:9876", cluster.namesrv)


def test_the_client(tmp_path, cluster):
    assert run(tmp_path, "-c", at(cluster, CLIENT)).endswith("{'amount': 5}\n")


def test_the_client_without_async(tmp_path, cluster):
    run(tmp_path, "-c", at(cluster, BLOCKING))
    with (
        sync.connect(cluster.namesrv) as mq,
        mq.subscribe("orders", group="g", start="earliest") as orders,
    ):
        assert next(iter(orders)).body == b"hello"


def test_the_test_of_a_user(tmp_path):
    (tmp_path / "test_orders.py").write_text(TEST)
    plugin = ("-p", "no:sparrowmq", "-p", "sparrowmq.testing.plugin")
    assert "1 passed" in run(tmp_path, "-m", "pytest", *plugin, "-c", os.devnull, "test_orders.py")


def test_commands_are_those_that_the_package_installs():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    block = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)[0]
    assert {line.split()[0] for line in block.splitlines() if line} <= set(scripts)


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
