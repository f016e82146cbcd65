"""What examples/monitoring and docs/operate/metrics.md name is really served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, visit

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples" / "monitoring"
NAME = re.compile(r"\b(?:rocketmq|sparrowmq|process)_[a-z_0-9]+\b")
PARTS = re.compile("_(bucket|count|sum)$")
# Prometheus's own, and what tells series apart.
LABELS = re.compile(r"\{[^{}]*\}|by \([^)]*\)|on \([^)]*\)")


@pytest.fixture
async def served(tmp_path) -> set[str]:
    """Every metric of a master, a slave and a name server."""
    names: set[str] = set()
    of_slave: dict[str, Any] = {"role": BrokerRole.SLAVE, "broker_id": 1}
    for folder, settings in (("master", ON), ("slave", ON | of_slave)):
        async with Cluster(tmp_path / folder, **settings, namesrv_settings=ON) as cluster:
            for address in (cluster.brokers[0].metrics_address, cluster._namesrv.metrics_address):
                names |= served_in((await visit(address, "/metrics"))[1])
            names |= served_in(
                (await visit(cluster.brokers[0].metrics_address, "/metrics?compat=exporter"))[1]
            )
    return names


def served_in(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def named_in(expression: str) -> set[str]:
    return {PARTS.sub("", name) for name in NAME.findall(LABELS.sub("", expression))}


async def test_every_alert_is_about_metrics_that_are_served(served):
    (group,) = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "annotations"} and rule["annotations"]["description"]
        assert named_in(rule["expr"]) <= served, rule["alert"]


async def test_every_panel_is_about_metrics_that_are_served(served):
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            assert named_in(target["expr"]) and named_in(target["expr"]) <= served, panel["title"]


async def test_every_metric_that_the_page_promises_is_served(served):
    text = (ROOT / "docs" / "operate" / "metrics.md").read_text()
    of_servers, _, others = text.partition(
        "## Streams of Spark"
    )  # those are served by whoever runs the stream
    text = of_servers + others[others.index("\n## ") :]
    rows = [line for line in text.splitlines() if line.startswith("| `") and "| no" not in line]
    promised = {
        name for row in rows for name in re.findall(r"`((?:rocketmq|sparrowmq|process)_[a-z_]+)`", row)
    }
    promised = {
        name for name in promised if not name.startswith("sparrowmq_console_")
    }  # tests/console/test_console_metrics.py
    assert len(promised) > 40 and promised <= served, promised - served


def test_prometheus_is_told_of_the_rules():
    read = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert read["rule_files"] == ["rules.yml"]
    assert [job["job_name"] for job in read["scrape_configs"]] == ["rocketmq", "rocketmq-namesrv"]
