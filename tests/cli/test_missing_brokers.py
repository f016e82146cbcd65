"""Commands that only read, while one broker of two is frozen, and after it died: real processes."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import sparrowmq.sync
from sparrowmq.cli.main import main
from sparrowmq.cli.mqadmin import main as mqadmin_main
from tests.interop.servers import OurBroker, OurNamesrv

pytestmark = pytest.mark.slow

TIMEOUT_S = 2
LOOKS = (
    ("group", "list"),
    ("group", "show", "billing"),
    ("group", "lag", "billing"),
    ("group", "lag", "billing", "orders"),
    ("group", "members", "billing"),
    ("topic", "show", "orders"),
    ("message", "find", "orders", "--key", "k"),
    ("message", "find", "orders", "--since", "1h"),
    ("broker", "list"),
)
MQADMIN_LOOKS = (
    "clusterList",
    "clusterList -m",
    "topicList -c",
    "topicStatus -t orders",
    "statsAll -t orders",
    "consumerProgress",
    "consumerProgress -g billing",
    "brokerStatus -c DefaultCluster",
    "getBrokerConfig -c DefaultCluster",
    "haStatus -c DefaultCluster",
    "getConsumerConfig -g billing",
    "queryMsgByKey -t orders -k k",
    "printMsg -t orders",
)
MQADMIN_CHANGES = (
    "cloneGroupOffset -s billing -d other -t orders",
    "resetOffsetByTime -g billing -t orders -s now",
    "exportMetadata -c DefaultCluster -f {folder}",
)


class Pair:
    """A name server and the brokers broker-a and broker-b, which both have the topic orders and the group billing."""

    def __init__(self, namesrv: OurNamesrv, brokers: dict[str, OurBroker]) -> None:
        self.namesrv = namesrv
        self.brokers = brokers

    def run(self, *words: str, timeout_s: float = TIMEOUT_S) -> Result:
        given = [*words, "-n", self.namesrv.address, "--timeout", f"{timeout_s:g}"]
        return CliRunner().invoke(main, given, prog_name="sparrowmq", catch_exceptions=False)

    def signal(self, name: str, number: signal.Signals) -> None:
        process = self.brokers[name].process
        assert process is not None
        process.send_signal(number)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(name, signal.SIGCONT)


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    with OurNamesrv() as namesrv:
        brokers = {
            name: OurBroker(namesrv.address, folder / name, {"brokerName": name}) for name in ("broker-a", "broker-b")
        }
        with brokers["broker-a"], brokers["broker-b"]:
            found = Pair(namesrv, brokers)
            assert found.run("topic", "create", "orders", "--queues", "2", timeout_s=30).exit_code == 0
            assert found.run("group", "create", "billing", timeout_s=30).exit_code == 0
            with sparrowmq.sync.connect(namesrv.address) as client:
                for queue in client.queues("orders"):
                    client.send("orders", b"paid", keys="k", queue=queue)
            reset = ("group", "reset", "billing", "orders", "earliest", "--yes")
            assert found.run(*reset, timeout_s=30).exit_code == 0
            yield found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("pair")) as found:
        yield found


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_question_is_answered_without_the_frozen_broker(both: Pair, words: tuple[str, ...]) -> None:
    whole = both.run(*words, timeout_s=30)
    assert whole.exit_code in (0, 1) and "lacks broker" not in whole.stderr, whole.output
    with both.frozen("broker-b"):
        began = time.monotonic()
        part = both.run(*words)
        took_s = time.monotonic() - began
    assert part.exit_code == 1
    assert "the answer lacks broker broker-b" in part.stderr and "did not answer" in part.stderr
    assert part.stderr.count("\n") == 1, part.stderr
    assert part.stdout.strip(), "broker-a answered"
    assert took_s < 2 * TIMEOUT_S, "the frozen broker is waited for once"


@pytest.fixture
def mqadmin(both: Pair, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[int, str, str]]:
    """Run `mqadmin` with the time limit of these tests; returns its status, stdout and stderr."""
    monkeypatch.setattr("sparrowmq.cli.mqadmin.main.TIMEOUT_S", TIMEOUT_S / 4)

    def run(line: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        code = mqadmin_main.run([*line.split(), "-n", both.namesrv.address], out, err)
        return code, out.getvalue(), err.getvalue()

    assert run("updateTopic -c DefaultCluster -t %RETRY%billing -r 1 -w 1")[0] == 0  # a member makes it
    return run


@pytest.mark.parametrize("line", MQADMIN_LOOKS)
def test_mqadmin_prints_what_the_other_broker_has_and_names_the_frozen_one_once(both, mqadmin, line) -> None:
    assert mqadmin(line)[::2] == (0, "")
    with both.frozen("broker-b"):
        began = time.monotonic()
        code, out, err = mqadmin(line)
        took_s = time.monotonic() - began
    frozen = both.brokers["broker-b"].address
    assert code == 1 and out.count("\n") > 1, (out, err)
    assert err.count("\n") == 1 and f"<{frozen}> timeout" in err
    assert took_s < 2 * TIMEOUT_S, "the frozen broker is waited for once"


@pytest.mark.parametrize("line", MQADMIN_CHANGES)
def test_mqadmin_changes_and_exports_fail_without_the_frozen_broker(both, mqadmin, line, tmp_path) -> None:
    with both.frozen("broker-b"):
        code, out, err = mqadmin(line.format(folder=tmp_path))
    assert code == 1 and out == "" and "timeout" in err and not list(tmp_path.iterdir())


def test_topics_are_listed_without_the_frozen_broker(both: Pair) -> None:
    with both.frozen("broker-a"):
        found = both.run("topic", "list")
    assert (found.exit_code, found.stdout, found.stderr) == (0, "orders\n", "")


def test_a_change_does_not_go_on_without_the_frozen_broker(both: Pair) -> None:
    with both.frozen("broker-b"):
        changed = both.run("topic", "change", "orders", "--queues", "3")
    assert changed.exit_code == 1 and "failed at broker-b" in changed.stderr


def shell(command: str) -> str:
    return subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout


def test_doctor_says_that_a_frozen_broker_hangs_and_its_remedy_helps(both: Pair) -> None:
    with both.frozen("broker-b"):
        found = both.run("doctor", "--topic", "orders", "--group", "billing")
        health = both.run("cluster", "health")
        assert found.exit_code == 1 and "broker broker-b (master)" in found.output and " hangs" in found.output
        assert "brokerIP1" not in found.output
        remedy = re.search(r"`(kill -CONT) PID`", found.output)
        assert remedy is not None
        assert (health.exit_code, health.stdout) == (1, "degraded\n") and "hangs" in health.stderr
        process = both.brokers["broker-b"].process
        find, look = re.search(r"`(ss -[^`]+)`", found.output), re.search(r"`(ps -[^`]+) PID`", found.output)
        assert process is not None and find is not None and look is not None
        assert f"pid={process.pid}," in shell(find[1])
        assert re.search(r"^T", shell(f"{look[1]} {process.pid}"), re.MULTILINE)
        subprocess.run([*remedy[1].split(), str(process.pid)], check=True)
        # For a while the broker says that it stood still.
        assert "hangs" not in both.run("cluster", "health", timeout_s=30).stderr


def test_a_cluster_of_which_every_broker_hangs_is_down(both: Pair) -> None:
    with both.frozen("broker-a"), both.frozen("broker-b"):
        health = both.run("cluster", "health")
    assert (health.exit_code, health.stdout) == (1, "down\n")
    told = json.loads(both.run("cluster", "health", "-o", "json", timeout_s=30).stdout)
    assert told["health"] in ("healthy", "degraded") and isinstance(told["wrong"], list)
    assert CliRunner().invoke(main, ["cluster", "health", "-n", "127.0.0.1:9"]).stdout == "down\n"


def test_a_frozen_name_server_does_not_blind_and_is_named(both: Pair) -> None:
    with OurNamesrv() as other:
        assert other.process is not None
        other.process.send_signal(signal.SIGSTOP)
        try:
            servers = f"{other.address};{both.namesrv.address}"
            words = ["doctor", "-n", servers, "--timeout", str(TIMEOUT_S)]
            found = CliRunner().invoke(main, words, prog_name="sparrowmq")
        finally:
            other.process.send_signal(signal.SIGCONT)
    assert found.exit_code == 1 and f"name server {other.address} does not answer" in found.output
    assert "kill -CONT" in found.output


def test_a_broker_that_died_is_named_until_it_is_back_or_forgotten(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        assert both.run("cluster", "health", timeout_s=30).stdout == "healthy\n"
        dead = both.brokers["broker-b"]
        dead.kill()
        eventually(lambda: "died" in both.run("doctor", timeout_s=30).output)
        found = both.run("doctor", "--topic", "orders", timeout_s=30)
        assert found.exit_code == 1 and "its queues and messages of orders are missing" in found.output
        assert "`sparrowmq broker forget broker-b`" in found.output
        health = both.run("cluster", "health", timeout_s=30)
        assert (health.exit_code, health.stdout) == (1, "degraded\n") and "broker-b" in health.stderr
        for words in LOOKS:
            part = both.run(*words, timeout_s=30)
            assert part.exit_code == 1 and "the answer lacks broker broker-b" in part.stderr, (
                words,
                part.output,
            )
        again = OurBroker(both.namesrv.address, dead.store, {"brokerName": "broker-b"})
        with again:
            assert both.run("cluster", "health", timeout_s=30).stdout == "healthy\n"
            assert both.run("topic", "show", "orders", timeout_s=30).exit_code == 0
            again.kill()
            eventually(lambda: "died" in both.run("doctor", timeout_s=30).output)
            assert both.run("broker", "forget", "broker-a", timeout_s=30).exit_code == 1, "it is registered"
            assert both.run("broker", "forget", "broker-b", timeout_s=30).exit_code == 0
            assert both.run("cluster", "health", timeout_s=30).stdout == "healthy\n"
            expected = both.run("doctor", "--expect", "broker-b", timeout_s=30)
            assert expected.exit_code == 1 and "broker broker-b is not registered" in expected.output


def test_a_change_names_the_broker_that_died_and_is_made_there_when_it_is_back(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        dead = both.brokers["broker-b"]
        dead.kill()
        eventually(lambda: "died" in both.run("doctor", timeout_s=30).output)
        changes = [("topic", "create", "late"), ("group", "create", "late")]
        for words in (*changes, ("topic", "change", "orders", "--queues", "9")):
            part = both.run(*words, timeout_s=30)
            assert part.exit_code == 1 and part.stdout.endswith("at broker-a\n"), part.output
            assert "broker broker-b is as before: it died" in part.stderr, part.output
        assert both.run("topic", "change", "late", "--queues", "9", timeout_s=30).exit_code == 0
        assert both.run("topic", "delete", "late", "--yes", timeout_s=30).exit_code == 0
        both.run(*changes[0], timeout_s=30)
        with OurBroker(both.namesrv.address, dead.store, {"brokerName": "broker-b"}):
            for words in changes:
                there = both.run(*words, timeout_s=30)
                assert there.exit_code == 1 and "is there already" in there.stderr
                done = both.run(*words, "--exist-ok", timeout_s=30)
                assert done.exit_code == 0 and "broker-a, broker-b" in done.stdout, done.output


def test_a_broker_that_was_stopped_is_not_missed(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        both.brokers["broker-b"].stop()
        assert both.run("cluster", "health", timeout_s=30).stdout == "healthy\n"
        assert both.run("topic", "show", "orders", timeout_s=30).exit_code == 0


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)
