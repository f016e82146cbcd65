"""docs/start/from-*.md: our programs run with the client alone, and those of other clients at least compile."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq.testing.background import BackgroundCluster
from tests.environments import python_with, variables
from tests.interop.clients import require_cpp

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "docs" / "start"
ROCKETMQ, AIOKAFKA, CELERY = (f"from-{name}.md" for name in ("rocketmq-clients", "aiokafka", "celery"))
PAGES = (ROCKETMQ, AIOKAFKA, CELERY)
OURS = "127.0.0.1:9876"
LIMIT_S = 60.0
TAB = re.compile(r'^=== "([^"]+)"\n\n((?:    .*\n|\n)+)', re.MULTILINE)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


def programs(page: str, tab: str | None = None) -> list[str]:
    """The Python programs of a page, or of those of its tabs that have this label."""
    tabs = TAB.findall((FOLDER / page).read_text())
    return [
        program
        for label, content in tabs
        if tab is None or label == tab
        for program in PYTHON.findall(textwrap.dedent(content))
    ]


class Program:
    """A program of a page in a process of its own, which talks to a broker of the test."""

    def __init__(self, path: Path, code: str, namesrv: str, python: Path | None = None) -> None:
        python = python or python_with()
        assert OURS in code
        path.write_text(code.replace(OURS, namesrv))
        self._said = path.with_suffix(".said")
        environment = variables(python, PYTHONUNBUFFERED="1", HOME=str(path.parent))
        with self._said.open("w") as said:
            self.process = subprocess.Popen([python, str(path)], stdout=said, stderr=subprocess.STDOUT, env=environment)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._said.read_text()

    def ended(self) -> str:
        """What it printed, when it has ended by itself and well."""
        assert self.process.wait(LIMIT_S) == 0, self.said()
        return self.said()

    def wait_for(self, lines: Sequence[str]) -> None:
        """Return once it has printed all of these lines, in any order."""
        deadline = time.monotonic() + LIMIT_S
        while not set(lines) <= set(self.said().splitlines()):
            assert time.monotonic() < deadline, f"it only said:\n{self.said()}"
            time.sleep(0.02)


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[str]:
    """A cluster that has no messages yet."""
    with BackgroundCluster(tmp_path / "store") as cluster:
        yield cluster.namesrv


@pytest.mark.parametrize("page", PAGES)
def test_every_program_of_a_page_compiles(page):
    found = programs(page)
    assert len(found) == len(PYTHON.findall((FOLDER / page).read_text())) > 1
    for program in found:
        ast.parse(program)


@pytest.mark.parametrize(
    ("page", "tab"), [(ROCKETMQ, "SparrowMQ"), (ROCKETMQ, "SparrowMQ without async"), (AIOKAFKA, "SparrowMQ")]
)
def test_our_program_bills_both_orders_the_second_after_a_retry(page, tab, namesrv, tmp_path):
    (code,) = programs(page, tab)
    with Program(tmp_path / "program.py", code, namesrv) as program:
        assert program.ended().split("\n") == ["billed order 1", "billed order 2", ""]


def test_our_worker_mails_what_our_shop_sends(namesrv, tmp_path):
    worker, shop = programs(CELERY, "SparrowMQ")
    with Program(tmp_path / "tasks.py", worker, namesrv) as tasks:
        with Program(tmp_path / "shop.py", shop, namesrv) as sender:
            assert sender.ended() == ""
        tasks.wait_for([f"mailed {name}@example.com" for name in ("ann", "bob", "eve")])
        tasks.process.terminate()
        assert tasks.ended().count("mailed ") == 3


def test_the_program_of_the_cpp_client_bills_both_orders(namesrv, tmp_path):
    require_cpp()
    (code,) = programs(ROCKETMQ, "rocketmq 0.4.4 (C++)")
    with Program(tmp_path / "program.py", code, namesrv, Path(sys.executable)) as program:
        program.wait_for(["billed order 1", "billed order 2"])


@pytest.mark.parametrize("page", PAGES)
def test_every_method_of_our_client_that_a_page_names_exists(page):
    text = (FOLDER / page).read_text()
    named = set(re.findall(r"\bmq\.([a-z_]+)", text))
    assert len(named) > 3
    known = {*dir(sparrowmq.Client), *dir(sparrowmq.sync.SyncClient)}
    assert named <= known
