"""Each alert of examples/monitoring fires in its state and not in a healthy one: promtool runs the rules."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "examples" / "monitoring"
PROMTOOL: Final = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs Prometheus (Debian: apt install prometheus)")
RULES: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule for rule in yaml.safe_load((MONITORING / "rules.yml").read_text())["groups"][0]["rules"]
}
PERIOD_S: Final = 10
BROKER: Final = 'cluster="c", node_type="broker", node_id="a", role="master"'
NAMESRV: Final = 'node_type="namesrv", job="rocketmq-namesrv", instance="n"'
SENDS: Final = f'rocketmq_rpc_latency_milliseconds_count{{{BROKER}, request_code="send_message_v2", response_code='
BUCKET: Final = f'rocketmq_rpc_latency_milliseconds_bucket{{{BROKER}, request_code="send_message_v2", le='
LATE: Final = 'sparrowmq_loop_lag_seconds_bucket{job="rocketmq", instance="b", le='
NODE: Final = {"cluster": "c", "node_id": "a"}
LABELS: Final = NODE | {"node_type": "broker", "role": "master"}


class Case(NamedTuple):
    """The series that make an alert fire, the same without that state, and the labels of the alert."""

    fires: Mapping[str, str]
    calm: Mapping[str, str]
    labels: Mapping[str, str]
    after_s: int = 60


def condition(severity: str, name: str) -> Case:
    series = f'sparrowmq_condition{{{BROKER}, condition="{name}", severity="{severity}"}}'
    return Case({series: "1x9500"}, {series: "1x2 stale"}, LABELS | {"condition": name, "severity": severity})


def of_name_server(severity: str, name: str) -> Case:
    told = {"condition": name, "severity": severity}
    series = f'sparrowmq_condition{{{NAMESRV}, condition="{name}", severity="{severity}"}}'
    return Case({series: "1x400"}, {series: "1x2 stale"}, NAMESRV_LABELS | told)


def at(value: str, *, labels: str = BROKER) -> str:
    return f"{value}{{{labels}}}"


def quantile(prefix: str, low: str, high: str, labels: Mapping[str, str]) -> Case:
    """Ten values a step below the bound `high`, and all or none of them below `low`."""
    ends = {f'{prefix}"{high}"}}': "0+10x400", f'{prefix}"+Inf"}}': "0+10x400"}
    few, all_of_them = {f'{prefix}"{low}"}}': "0x400"}, {f'{prefix}"{low}"}}': "0+10x400"}
    return Case(few | ends, all_of_them | ends, labels, 700)


GROUP_LAG = at("rocketmq_consumer_lag_messages", labels=BROKER + ', consumer_group="g", is_system="false"')
MEMBERS = at("rocketmq_consumer_connections", labels=BROKER + ', consumer_group="g"')
OUT = at("rocketmq_messages_out_total", labels=BROKER + ', consumer_group="g", topic="t", is_system="false"')
AGE = at(
    "rocketmq_consumer_lag_latency_milliseconds",
    labels=BROKER + ', consumer_group="g", topic="t", is_system="false"',
)
DEAD = at("rocketmq_send_to_dlq_messages_total", labels=BROKER + ', consumer_group="g", is_system="false"')
FOLDER = at("sparrowmq_disk_used_ratio", labels=NAMESRV + ', files="kv", folder="/kv"')
OF_BROKER = at("sparrowmq_disk_used_ratio", labels=BROKER + ', instance="b", files="index", folder="/i"')
TIME = at("sparrowmq_time_seconds", labels='job="rocketmq", instance="b"')
STARTED = at("process_start_time_seconds", labels='job="rocketmq", instance="b"')
FLUSH = at("rocketmq_storage_flush_behind_bytes")
PORT = BROKER + ', instance="b"'
CONNECTIONS = at("sparrowmq_connections", labels=PORT)
OPEN = {at("sparrowmq_connections_limit", labels=PORT): "100x400"}
NAMESRV_LABELS: Final = {"node_type": "namesrv", "job": "rocketmq-namesrv", "instance": "n"}

LAKE = 'sparrowmq_lake_{}{{node_type="spark", instance="l", topic="t"}}'
LAKE_LABELS = {"node_type": "spark", "instance": "l", "topic": "t"}
LAKE_READY = 'sparrowmq_lake_ready{node_type="spark", instance="l"}'

CASES: Final[Mapping[str, Sequence[Case]]] = {
    "BrokerDown": [
        Case(
            {'up{job="rocketmq", instance="b"}': "0x400"},
            {'up{job="rocketmq", instance="b"}': "1x400"},
            {"job": "rocketmq", "instance": "b"},
        )
    ],
    "NameServerDown": [
        Case(
            {'up{job="rocketmq-namesrv", instance="n"}': "0x400"},
            {'up{job="rocketmq-namesrv", instance="n"}': "1x400"},
            {"job": "rocketmq-namesrv", "instance": "n"},
        )
    ],
    "BrokerCondition": [
        *(condition("critical", name) for name in ("store_failed", "log_damaged", "certificate")),
        of_name_server("critical", "certificate"),
    ],
    "BrokerWarning": [
        *(condition("warning", name) for name in ("disk_nearly_full", "slave_gone", "drained")),
        condition("warning", "slave_gone")._replace(after_s=25 * 3600),
        *(of_name_server("warning", name) for name in ("denials", "audit_not_written")),
    ],
    "KeepsRestarting": [
        Case(
            {STARTED: "1x20 2x20 3x20 4x200"},
            {STARTED: "1x20 2x300"},
            {"job": "rocketmq", "instance": "b"},
            700,
        )
    ],
    "RequestsFail": [
        Case(
            {f'{SENDS}"success"}}': "0+100x400", f'{SENDS}"service_not_available"}}': "0+5x400"},
            {f'{SENDS}"success"}}': "0+100x400", f'{SENDS}"message_illegal"}}': "0+5x400"},
            NODE | {"role": "master"},
            120,
        ),
        # At one send a second, a sync of the slave's disk that takes long is no failure of the broker.
        Case(
            {f'{SENDS}"success"}}': "0+10x400", f'{SENDS}"flush_slave_timeout"}}': "0x5 1 2 3x400"},
            {f'{SENDS}"success"}}': "0+10x400", f'{SENDS}"flush_slave_timeout"}}': "0x7 1x400"},
            NODE | {"role": "master"},
            125,
        ),
    ],
    "DeadLetters": [
        Case({DEAD: "0x10 1x400"}, {DEAD: "7x400"}, {"cluster": "c", "consumer_group": "g"}, 3000),
    ],
    "ConsumersFallBehind": [
        Case(
            {AGE: "700000x400"},
            {AGE: "500000x400"},
            {"cluster": "c", "consumer_group": "g", "topic": "t"},
            400,
        )
    ],
    "GroupWithoutMembers": [
        Case(
            {GROUP_LAG: "5x400"},
            {GROUP_LAG: "5x400", MEMBERS: "1x400"},
            {"cluster": "c", "consumer_group": "g"},
            700,
        ),
        # A stream of Spark reads without a member, until it stops.
        Case(
            {GROUP_LAG: "5x400", OUT: "0+3x30 93x6 stale"},
            {GROUP_LAG: "5x400", OUT: "0+3x400"},
            {"cluster": "c", "consumer_group": "g"},
            1300,
        ),
    ],
    "SendsAreSlow": [quantile(BUCKET, "300", "1000", NODE)],
    "DiskIsSlow": [Case({FLUSH: "70000000x400"}, {FLUSH: "60000000x400"}, LABELS, 90)],
    "LoopIsLate": [quantile(LATE, "0.1", "1", {"instance": "b"})],
    "ClockIsOff": [
        Case(
            {TIME: f"{sign}100+10x400"},
            {TIME: f"{sign}50+10x400"},
            {"job": "rocketmq", "instance": "b"},
            90,
        )
        for sign in ("", "-")
    ],
    "ConnectionsNearLimit": [
        Case(OPEN | {CONNECTIONS: "91x400"}, OPEN | {CONNECTIONS: "89x400"}, LABELS | {"instance": "b"})
    ],
    "NameServerDiskFull": [
        Case({FOLDER: "0.91x400"}, {FOLDER: "0.89x400", OF_BROKER: "1x400"}, {"instance": "n", "folder": "/kv"})
    ],
    "LakeTableWaits": [
        Case(
            {LAKE.format("waiting"): "1x400"},
            {LAKE.format("waiting"): "0x400", LAKE.format("failing"): "1x400"},
            LAKE_LABELS,
            90,
        )
    ],
    "LakeTableFails": [
        Case(
            {LAKE.format("failing"): "1x400", LAKE.format("waiting"): "0x400"},
            {LAKE.format("failing"): "1x400", LAKE.format("waiting"): "1x400"},
            LAKE_LABELS,
            700,
        )
    ],
    "LakeIsNotFresh": [
        Case(
            {LAKE.format("freshness_seconds"): "601x400"},
            {LAKE.format("freshness_seconds"): "599x400"},
            LAKE_LABELS,
            400,
        )
    ],
    "LakeIsNotReady": [
        Case({LAKE_READY: "0x400"}, {LAKE_READY: "1x400"}, {"instance": "l", "node_type": "spark"}, 400)
    ],
}


def period_of(case: Case) -> int:
    """The seconds between two evaluations: a day in steps of ten seconds takes twenty seconds of CPU time.

    Four minutes are the longest: Prometheus forgets a value after five.
    """
    return PERIOD_S if case.after_s < 3600 else 24 * PERIOD_S


def filled(text: str, labels: Mapping[str, str]) -> str:
    """A text with the values of labels, as Prometheus writes it."""
    chosen = re.sub(
        r"\{\{ if \$labels\.(\w+) \}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}",
        lambda found: found[2] if labels.get(found[1]) else found[3],
        text,
    )
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], chosen)


def as_promtool(alert: str, case: Case) -> list[dict[str, Any]]:
    """The two tests of a case as promtool reads them."""
    labels = dict(case.labels) | RULES[alert]["labels"]
    texts = {name: filled(text, labels) for name, text in RULES[alert]["annotations"].items()}
    expected = [{"exp_labels": labels, "exp_annotations": texts}]
    return [
        {
            "interval": f"{period_of(case)}s",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [{"eval_time": f"{case.after_s}s", "alertname": alert, "exp_alerts": alerts}],
        }
        for series, alerts in ((case.fires, expected), (case.calm, []))
    ]


def test_every_alert_has_a_case():
    assert CASES.keys() == RULES.keys()


@pytest.mark.slow
@needs_promtool
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_in_its_state_and_only_then(tmp_path, alert):
    for period_s, cases in groupby(sorted(CASES[alert], key=period_of), key=period_of):
        content = {
            "rule_files": [str(MONITORING / "rules.yml")],
            "evaluation_interval": f"{period_s}s",
            "tests": [test for case in cases for test in as_promtool(alert, case)],
        }
        file = tmp_path / f"cases-{period_s}.yml"
        file.write_text(yaml.safe_dump(content))
        done = subprocess.run([str(PROMTOOL), "test", "rules", file], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_prometheus_accepts_the_configuration():
    done = subprocess.run(
        [str(PROMTOOL), "check", "config", MONITORING / "prometheus.yml"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_leads_to_its_section_with_the_same_severity():
    page = (ROOT / "docs" / "operate" / "alerts.md").read_text()
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}
    assert list(sections) == list(RULES)
    for alert, rule in RULES.items():
        severity, link = rule["labels"]["severity"], rule["annotations"]["runbook_url"]
        assert severity in ("critical", "warning") and rule["annotations"]["description"], alert
        assert f"Severity: {severity}." in sections[alert] and "**What to do:**" in sections[alert], alert
        file, _, anchor = link.partition("#")
        assert (ROOT / file).is_file() and anchor in (alert.lower(), "{{ $labels.condition }}"), alert


def test_critical_alerts_and_those_of_conditions_fire_within_a_minute():
    """A state is seen by the next reading, then by the next evaluation, and has to last for `for`."""
    intervals = yaml.safe_load((MONITORING / "prometheus.yml").read_text())["global"]
    seen_s = sum(seconds(intervals[name]) for name in ("scrape_interval", "evaluation_interval"))
    for alert, rule in RULES.items():
        if alert == "RequestsFail" or (rule["labels"]["severity"] == "warning" and alert != "BrokerWarning"):
            continue
        wait_s = seconds(rule.get("for", "0s"))
        evaluation_s = seconds(intervals["evaluation_interval"])
        assert seen_s + -(-wait_s // evaluation_s) * evaluation_s <= 60, alert


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]
