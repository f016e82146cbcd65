"""The README: its programs run with the extras that it names, its commands, links and figures exist.

tests/spark/test_programs.py runs its Spark program.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from sparrowmq.testing.background import BackgroundCluster
from tests.environments import python_with, variables

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLIENT, TEST, SPARK = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def run(python: Path, folder: Path, *words: str) -> str:
    """Return the output of a Python's program, which has to end well."""
    ran = subprocess.run(
        [python, *words], cwd=folder, env=variables(python), capture_output=True, text=True, timeout=280
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


def test_the_client_sends_and_consumes(tmp_path, cluster):
    assert run(python_with(), tmp_path, "-c", at(cluster, CLIENT)) == "{'amount': 5}\n"


def test_the_client_is_among_the_first_25_lines():
    assert README[: README.index(CLIENT) + len(CLIENT)].count("\n") < 25


def test_the_first_link_comes_after_at_most_350_words():
    before = re.split(r"(?<!!)\[[^\]]*\]\(", README)[0]
    assert len(before.split()) <= 350


def test_the_test_of_a_user_passes(tmp_path):
    (tmp_path / "test_orders.py").write_text(TEST)
    assert "1 passed" in run(python_with("testing"), tmp_path, "-m", "pytest", "-c", os.devnull, "test_orders.py")


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_figures_are_those_of_the_benchmarks():
    results = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    figures = set(re.findall(r"\b\d{1,3}(?:,\d{3})+\b", README)) - {"336,776", "9,000", "2,000"}
    assert figures and sorted(each for each in figures if each not in results) == []
