"""What examples/monitoring and docs/operate/metrics.md name is really served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.metrics.figures import Figures
from sparrowmq.spark.lakehouse.lake_status import declare
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, visit
from tools.metrics_page import metrics_page

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples" / "monitoring"
OF_TLS = {"sparrowmq_certificate_end_timestamp_seconds"}
OF_MEMBERS = {"sparrowmq_member_problem"}  # of a group that elects its master
NAME = re.compile(r"\b(?:rocketmq|sparrowmq|process)_[a-z_0-9]+\b")
PARTS = re.compile("_(bucket|count|sum)$")
# Prometheus's own, and what tells series apart.
LABELS = re.compile(r"\{[^{}]*\}|by \([^)]*\)|on \([^)]*\)")


@pytest.fixture
async def pages(tmp_path) -> dict[str, set[str]]:
    """Every metric of two masters, one of them with accounts, a slave and a name server, by path."""
    names: dict[str, set[str]] = {"/metrics": set(), "/metrics?compat=exporter": set()}
    of_slave: dict[str, Any] = {"role": BrokerRole.SLAVE, "broker_id": 1}
    accounts = tmp_path / "accounts.yml"
    accounts.write_text("globalWhiteRemoteAddresses: [127.0.0.1]")
    guarded: dict[str, Any] = {"acl": True, "acl_file": accounts}
    for folder, settings in (("master", ON), ("guarded", ON | guarded), ("slave", ON | of_slave)):
        async with Cluster(tmp_path / folder, **settings, namesrv_settings=ON) as cluster:
            for path, found in names.items():
                found |= served_in((await visit(cluster.brokers[0].metrics_address, path))[1])
            names["/metrics"] |= served_in((await visit(cluster._namesrv.metrics_address, "/metrics"))[1])
    return names


@pytest.fixture
def served(pages: dict[str, set[str]]) -> set[str]:
    return pages["/metrics"] | pages["/metrics?compat=exporter"] | of_lakes()


def of_lakes() -> set[str]:
    """Every metric of a lake."""
    figures, lake = Figures(), SimpleNamespace(tables={})
    declare(figures, cast(Any, lake))
    return {figure.name for figure in figures}


def served_in(text: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def named_in(expression: str) -> set[str]:
    return {PARTS.sub("", name) for name in NAME.findall(LABELS.sub("", expression))}


async def test_every_alert_is_about_metrics_that_are_served(served):
    (group,) = yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"} and rule["annotations"]["description"]
        assert named_in(rule["expr"]) <= served, rule["alert"]


async def test_every_panel_is_about_metrics_that_are_served(served):
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for expression in [target["expr"] for target in panel["targets"]]:
            of_prometheus = expression.startswith(("ALERTS{", "up{"))
            assert bool(named_in(expression)) != of_prometheus, panel["title"]
            assert named_in(expression) <= served | OF_TLS, panel["title"]


async def test_every_metric_that_the_page_promises_is_served(served):
    rows = [
        line
        for line in (ROOT / "docs" / "operate" / "metrics.md").read_text().splitlines()
        if line.startswith("| `") and "| no" not in line
    ]
    promised = {name for row in rows for name in re.findall(r"`((?:rocketmq|sparrowmq)_[a-z_]+)`", row)}
    others = ("sparrowmq_spark_", "sparrowmq_pipeline_", *OF_MEMBERS)
    here = {name for name in promised if not name.startswith(others)}
    assert len(here) > 20 and here <= served, here - served


async def test_the_page_of_all_metrics_has_every_metric_that_is_served(pages):
    of_servers, _, _ = metrics_page().partition("## Console")
    listed = set(re.findall(r"^\| `(\w+)`", of_servers, re.MULTILINE))
    served = {name for name in pages["/metrics"] if not name.startswith("process_")}
    assert listed - OF_MEMBERS == served


def test_prometheus_is_told_of_the_rules():
    read = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert read["rule_files"] == ["rules.yml"]
    assert [job["job_name"] for job in read["scrape_configs"]] == ["rocketmq", "rocketmq-namesrv"]
