"""The shell completes names of the cluster that the line names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.cli.terminal import contexts
from sparrowmq.cli.terminal.contexts import Context, Contexts
from sparrowmq.testing.background import BackgroundCluster
from tests.interop.apache import free_ports


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BackgroundCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        for topic in ("orders", "orders-eu", "payments"):
            made = CliRunner().invoke(main, ["topic", "create", topic, "-n", cluster.namesrv])
            assert made.exit_code == 0, made.output
        yield cluster.namesrv


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("SPARROWMQ_CONTEXTS", str(tmp_path / "contexts.json"))


def completed(line: str, incomplete: str = "") -> list[str]:
    found = ShellComplete(main, {}, "sparrowmq", "_X").get_completions(line.split(), incomplete)
    return [each.value for each in found]


def test_topics_groups_and_brokers_are_completed(namesrv: str) -> None:
    assert completed(f"topic show -n {namesrv}", "or") == ["orders", "orders-eu"]
    assert completed(f"message tail -n {namesrv}", "pay") == ["payments"]
    assert completed(f"broker config -n {namesrv}", "bro") == ["broker-0"]
    assert completed(f"topic create -n {namesrv} --cluster") == ["DefaultCluster"]


def test_the_context_in_use_says_where_to_ask(namesrv: str) -> None:
    contexts.save(Contexts("here", {"here": Context(namesrv), "there": Context("127.0.0.1:1")}))
    assert completed("topic show", "pay") == ["payments"]
    assert completed("topic show --context there", "pay") == []
    assert completed("topic list --context", "t") == ["there"]


def test_no_server_completes_nothing_and_soon() -> None:
    (port,) = free_ports(1)
    begin = time.monotonic()
    assert completed(f"topic show -n 127.0.0.1:{port}", "or") == []
    assert completed("topic show", "or") == []
    assert time.monotonic() - begin < 30
