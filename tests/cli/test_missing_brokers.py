"""Commands that only read, while one broker of two is frozen, and after it died: real processes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparrowmq.cli.main import main
from tests.interop.servers import OurBroker, OurNamesrv

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
            name: OurBroker(namesrv.address, folder / name, {"brokerName": name})
            for name in ("broker-a", "broker-b")
        }
        with brokers["broker-a"], brokers["broker-b"]:
            found = Pair(namesrv, brokers)
            assert found.run("topic", "create", "orders", "--queues", "2", timeout_s=30).exit_code == 0
            assert found.run("group", "create", "billing", timeout_s=30).exit_code == 0
            for number in range(4):
                sent = found.run("message", "send", "orders", str(number), "--key", "k", timeout_s=30)
                assert sent.exit_code == 0, sent.output
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


def test_a_change_does_not_go_on_without_the_frozen_broker(both: Pair) -> None:
    with both.frozen("broker-b"):
        changed = both.run("topic", "change", "orders", "--queues", "3")
    assert changed.exit_code == 1 and "failed at broker-b" in changed.stderr
