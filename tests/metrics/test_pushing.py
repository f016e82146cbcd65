"""Metrics are sent by themselves where that is wanted, and can be."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.metrics.metrics_settings import MetricsSettings
from sparrowmq.metrics.page import Page
from sparrowmq.metrics.pushing import push_to
from sparrowmq.testing import Cluster
from sparrowmq.testing.clock import ManualClock
from tests.metrics.receiver import receiving


async def page() -> Page:
    return Page({}, most=1)


def test_nothing_is_sent_unless_it_is_said_where_to() -> None:
    assert push_to(MetricsSettings(), {}, page, ManualClock()) is None


def test_who_lacks_the_exporter_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sparrowmq.metrics.otlp", None)
    settings = MetricsSettings(metrics_otlp="http://127.0.0.1:4318/v1/metrics")
    with pytest.raises(ConfigError, match=r"pip install 'sparrowmq\[otlp\]'"):
        push_to(settings, {}, page, ManualClock())


async def test_broker_and_name_server_send_theirs_without_a_port_of_their_own(tmp_path: Path) -> None:
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
