"""What pytest users get, tried as they would: in a folder of their own, with a pytest of its own."""

import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from sparrowmq.testing.background import BackgroundCluster

ROOT = Path(__file__).parents[2]
PACKAGES = ("sparrowmq", "pyspark_rocketmq", "pytest_sparrowmq")
PLUGIN = ("-ppytest_asyncio.plugin", "-pno:sparrowmq", "-ppytest_sparrowmq", "-pno:cacheprovider")

ASYNC = """
async def test_a_message_comes_back(rocketmq, rocketmq_topic):
    sent = await rocketmq.send(rocketmq_topic, b"hello")
    async with rocketmq.subscribe(rocketmq_topic, group="readers", start="earliest") as consumer:
        async for message in consumer:
            assert (message.body, message.msg_id) == (b"hello", sent.msg_id)
            message.ack()
            break
"""
BLOCKING = """
def test_a_message_comes_back(rocketmq_sync, rocketmq_topic):
    rocketmq_sync.send(rocketmq_topic, b"hello")
    with rocketmq_sync.subscribe(rocketmq_topic, group="readers", start="earliest") as consumer:
        message = next(iter(consumer))
        assert message.body == b"hello"
        message.ack()
"""
HANDLER = """
import sparrowmq

mq = sparrowmq.connect("127.0.0.1:1")

@mq.handler("orders", group="billing")
def bill(order: dict) -> None:
    assert order

def test_billing():
    bill({"id": "o-1"})
"""
SERVER = """
servers = set()

def test_one(rocketmq_server):
    servers.add(rocketmq_server.namesrv)

def test_two(rocketmq_server):
    servers.add(rocketmq_server.namesrv)
    assert len(servers) == 1
    print("NAMESRV", *servers)
"""
TOPICS = """
import pytest
from sparrowmq.protocol.names import check_topic

seen = set()

@pytest.mark.parametrize("word", ["plain", "with blanks / and * others", "x" * 200])
def test_topic(rocketmq_topic, word):
    assert check_topic(rocketmq_topic) not in seen
    seen.add(rocketmq_topic)
"""
REWRITTEN = """
import sys

def test_a_client(rocketmq_sync):
    hooked = [name for name, module in sys.modules.items() if "Rewriting" in str(getattr(module, "__loader__", ""))]
    print("REWRITTEN", *(name for name in hooked if "rocketmq" in name or "sparrowmq" in name))
"""


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """To load all installed plugins takes 0.2 s of CPU time in each run."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, source: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess(*PLUGIN, *arguments, timeout=60)


def test_an_async_test_gets_a_client(pytester):
    run(pytester, ASYNC, "-o", "asyncio_mode=auto").assert_outcomes(passed=1)


def test_an_async_test_with_a_mark_needs_no_mode(pytester):
    marked = "import pytest\npytestmark = pytest.mark.asyncio\n" + ASYNC
    run(pytester, marked, "-o", "asyncio_mode=strict").assert_outcomes(passed=1)


def test_a_blocking_test_gets_a_client(pytester):
    run(pytester, BLOCKING).assert_outcomes(passed=1)


def test_session_ends_without_a_warning_of_handlers_that_its_tests_call(pytester):
    ran = run(pytester, HANDLER)
    ran.assert_outcomes(passed=1)
    assert "never served" not in ran.stderr.str()


def test_all_tests_of_a_run_share_one_cluster(pytester):
    run(pytester, SERVER).assert_outcomes(passed=2)


def test_the_same_tests_run_against_a_cluster_elsewhere(pytester, tmp_path):
    with BackgroundCluster(tmp_path) as cluster:
        result = run(pytester, SERVER, "-s", "--rocketmq-addr", cluster.namesrv)
        result.stdout.fnmatch_lines([f"*NAMESRV {cluster.namesrv}*"])
    result.assert_outcomes(passed=2)


def test_every_test_has_a_topic_of_its_own(pytester):
    run(pytester, TOPICS).assert_outcomes(passed=3)


def test_importing_the_plugin_loads_nothing_of_the_package():
    program = "import pytest, sys\nimport pytest_sparrowmq\nprint(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {name for name in loaded.stdout.split() if "sparrowmq" in name} == {"pytest_sparrowmq"}


def test_no_assertion_of_the_package_is_rewritten(pytester, monkeypatch):
    """pytest finds the plugin, and the packages of its distribution, in the records of an installed wheel."""
    wheel = pytester.mkdir("sparrowmq-0.dist-info")
    (wheel / "METADATA").write_text("Metadata-Version: 2.1\nName: sparrowmq\nVersion: 0\n")
    (wheel / "entry_points.txt").write_text(distribution("sparrowmq").read_text("entry_points.txt") or "")
    (wheel / "RECORD").write_text("".join(f"{name}/__init__.py,,\n" for name in PACKAGES))
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.setenv("PYTHONPATH", f"{pytester.path}{os.pathsep}{ROOT}")
    pytester.makepyfile(REWRITTEN)
    result = pytester.runpytest_subprocess("-s", "-pno:cacheprovider", timeout=60)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*REWRITTEN pytest_sparrowmq"])


def test_the_option_is_listed_in_the_help(pytester):
    result = pytester.runpytest_subprocess(*PLUGIN, "--help", timeout=60)
    result.stdout.fnmatch_lines(["*--rocketmq-addr*HOST:PORT*"])


@pytest.mark.parametrize("source", [ASYNC, BLOCKING], ids=["async", "blocking"])
def test_a_cluster_that_is_not_there_costs_each_test_one_sentence(pytester, source):
    result = run(pytester, source, "-o", "asyncio_mode=auto", "-q", "--rocketmq-addr", "127.0.0.1:9")
    result.assert_outcomes(errors=1)
    sentence = "--rocketmq-addr 127.0.0.1:9: cannot ask name server 127.0.0.1:9 (Connection refused); start one with"
    assert sum(line.startswith(sentence) for line in result.outlines) == 1
    assert len([line for line in result.outlines if line]) <= 8, result.outlines
