"""The three paths of a program's metrics. Brokers, name servers and consoles have tests of their own."""

import asyncio
import platform
import sys
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparrowmq.errors import ConfigError, NetworkError
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_port import MetricsPort
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.remoting.listener import Listener
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from sparrowmq.version import VERSION
from tests.broker.metrics.visits import samples, visit
from tests.metrics.receiver import receiving


@asynccontextmanager
async def serving(figures, **given):
    door = Listener("127.0.0.1", 0)
    door.bind()
    settings = MetricsSettings(metrics_labels=(("zone", "a"),))
    port = MetricsPort(door, settings, figures, {"node_type": "test"}, {}, ManualClock(), **given)
    tasks = [asyncio.create_task(run()) for run in port.tasks.values()]
    while not door.is_open:
        await asyncio.sleep(0)
    yield f"127.0.0.1:{door.port}"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_the_labels_of_the_build_say_what_runs():
    figures = Figures()
    MetricsPort(None, MetricsSettings(), figures, {}, {}, ManualClock())
    [((version, python, is_compiled), value)] = figures.values("sparrowmq_build_info").items()
    assert (version, python, value) == (VERSION, platform.python_version(), 1)
    assert is_compiled in ("true", "false")


async def test_a_program_that_is_not_ready_says_why():
    async def ready():
        raise NetworkError("no name server")

    async with serving(Figures(), ready=ready) as address:
        assert await visit(address, "/readyz") == (503, "no name server\n")
        assert await visit(address, "/healthz") == (200, "ok\n")


async def test_a_program_shows_the_time_of_its_clock():
    async with serving(Figures()) as address:
        (time_s,) = (await samples(address))["sparrowmq_time_seconds"].values()
        assert time_s == pytest.approx(ManualClock().now_ms() / 1000, abs=60)


async def test_figures_are_read_within_their_lookup_and_one_visit_at_a_time():
    found: list[int] = []
    entered = 0

    @asynccontextmanager
    async def lookup():
        nonlocal entered
        assert not found
        entered += 1
        await asyncio.sleep(0.01)
        found.append(entered)
        yield
        found.clear()

    figures = Figures()
    figures.gauge("visits", "so far", lambda: found[0])
    async with serving(figures, lookup=lookup) as address:
        read = await asyncio.gather(*(samples(address, "zone", "node_type") for _ in range(4)))
    assert {each["visits"][("a", "test")] for each in read} == set(range(1, entered + 1))


async def test_the_exporters_figures_have_no_labels_of_ours_but_the_operators():
    own, exporter = Figures(), Figures()
    exporter.gauge("rocketmq_broker_tps", "per second", lambda: 7)
    async with serving(own, exporter=exporter) as address:
        path = "/metrics?compat=exporter"
        assert await samples(address, "zone", "node_type", path=path) == {"rocketmq_broker_tps": {("a",): 7}}


def test_without_a_door_and_a_collector_only_the_loop_is_measured():
    port = MetricsPort(None, MetricsSettings(), Figures(), {}, {}, ManualClock())
    assert list(port.tasks) == ["pauses"]


def test_a_missing_exporter_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sparrowmq.metrics.otlp", None)
    settings = MetricsSettings(metrics_otlp="http://127.0.0.1:4318/v1/metrics")
    with pytest.raises(ConfigError, match=r"pip install 'sparrowmq\[otlp\]'"):
        MetricsPort(None, settings, Figures(), {}, {}, ManualClock())


async def test_broker_and_name_server_send_theirs_without_a_port_of_their_own(tmp_path):
    with receiving() as receiver:
        sent: dict[str, Any] = {"metrics_otlp": receiver.address, "metrics_otlp_ms": 100}
        async with Cluster(tmp_path, **sent, namesrv_settings=sent) as cluster:
            assert cluster.brokers[0].metrics_address == ""
            names: set[str] = set()
            while not {"rocketmq_topic_number", "sparrowmq_namesrv_brokers"} <= names:
                await asyncio.to_thread(receiver.wait_for, len(receiver.requests) + 1)
                names |= {
                    metric.name
                    for _, _, request in receiver.requests
                    for told in request.resource_metrics
                    for scope in told.scope_metrics
                    for metric in scope.metrics
                }
    services = {
        each.value.string_value
        for _, _, request in receiver.requests
        for told in request.resource_metrics
        for each in told.resource.attributes
        if each.key == "service.name"
    }
    assert services == {"sparrowmq-broker", "sparrowmq-namesrv"}
