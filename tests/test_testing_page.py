"""docs/start/testing.md: with the extra `testing` alone, each of its tests passes in a pytest of its own."""

import os
import re
from pathlib import Path

import pytest

import pytest_sparrowmq
from sparrowmq.testing.background import BackgroundCluster
from tests.environments import python_with
from tests.test_readme import run

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[1] / "docs" / "start" / "testing.md").read_text(encoding="utf-8")
TESTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def pytest_in(folder: Path, *options: str) -> str:
    return run(python_with("testing"), folder, "-m", "pytest", "-c", os.devnull, *options, "test_orders.py")


def name(program: str) -> str:
    found: list[str] = re.findall(r"def (test_\w+)", program)
    return found[0]


@pytest.mark.parametrize("program", TESTS, ids=name)
def test_a_test_of_the_page_passes(program, tmp_path):
    (tmp_path / "test_orders.py").write_text(program)
    assert "1 passed" in pytest_in(tmp_path)


def test_a_test_passes_against_a_cluster_that_is_named_on_the_command_line(tmp_path):
    [option] = re.findall(r"^pytest (--rocketmq-addr) 10\.0\.0\.1:9876$", PAGE, re.MULTILINE)
    (tmp_path / "test_orders.py").write_text(TESTS[1])
    with BackgroundCluster(tmp_path / "store") as cluster:
        assert "1 passed" in pytest_in(tmp_path, option, cluster.namesrv)


def test_the_page_names_every_fixture_and_option_of_the_plugin():
    source = Path(pytest_sparrowmq.__file__).read_text(encoding="utf-8")
    fixtures = re.findall(r"fixture[^\n]*\n(?:async )?def (\w+)", source)
    assert set(re.findall(r"^\| `(rocketmq\w*)` \|", PAGE, re.MULTILINE)) == set(fixtures)
    for option in re.findall(r'"(--[a-z-]+)"', source):
        assert f"pytest {option} " in PAGE
