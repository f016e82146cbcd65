"""The Kubernetes manifests have the API's shape, fit together, and hold settings that our servers take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.metrics.metrics_settings import Exporter
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.settings.settings import build
from tests.deploy.manifests import problems

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
TEXTS = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}
SERVERS: dict[str, Any] = {"mqnamesrv": NamesrvSettings, "mqbroker": BrokerSettings}
PROBES = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
# What a pod may fill in behind --set.
TYPED = {"brokerIP1": "10.0.0.1", "brokerId": "1", "brokerRole": "SLAVE"}


@pytest.mark.parametrize("name", TEXTS)
def test_a_manifest_is_what_the_api_takes(name: str):
    assert problems(TEXTS[name]) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("apiVersion: apps/v1", "apiVersion: extensions/v1", "no kind 'StatefulSet' in 'extensions/v1'"),
        ("readinessProbe:", "readinesProbe:", "has readinesProbe, which the API does not know"),
        ("replicas: 2", 'replicas: "2"', "replicas cannot be '2'"),
        ("  serviceName: broker-a\n", "", "spec has no serviceName"),
        ("matchLabels: {app: broker-a}", "matchLabels: {app: a}", "its selector does not meet its pods"),
        ("labels: {app: broker-a}", "labels: {app: 1}", "labels cannot be {'app': 1}"),
        ("memory: 128Mi", "memory: 128MB", "memory cannot be '128MB'"),
        ("httpGet: {path: /readyz, port: 5557}", "tcpSocket: {port: 10912}", ""),
        ("path: /readyz, port: 5557}", "path: /readyz, port: 8080}", "asks a port that it does not have"),
        ("httpGet: {path: /readyz, port: 5557}", "successThreshold: 5", "successThreshold"),
        ("httpGet: {path: /readyz, port: 5557}\n", "initialDelaySeconds: 5\n", "asks in no way"),
        (
            "containerPort: 10911",
            "containerPort: 10911\n              name: metrics",
            "two ports have the name",
        ),
        ("port: 10912}", "port: 10922}", "port slaves leads to none that a container has"),
        ("configMap: {name: sparrowmq-broker-a}", "configMap: {name: b}", "ConfigMap b, which is not there"),
        ("{name: store, mountPath:", "{name: disk, mountPath:", "volume disk is not there"),
        ("  name: broker-a\n", "  name: Broker_A\n", "name cannot be 'Broker_A'"),
        ("accessModes: [ReadWriteOnce]", "accessModes: []", "is no list of something"),
        ("maxUnavailable: 1", "maxUnavailable: 1\n  selektor: 1", "selektor"),
        ("serviceName: broker-a\n", "serviceName: broker-b\n", "there is no Service broker-b"),
    ],
)
def test_a_manifest_with_a_mistake_is_found_out(before: str, after: str, problem: str):
    text = TEXTS["master-and-slave"]
    assert before in text
    found = problems(text.replace(before, after))
    assert any(problem in each for each in found) if problem else found == []


def containers(documents: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each container with its pod."""
    pods = [each["spec"]["template"]["spec"] for each in documents if "template" in each.get("spec", {})]
    return [(pod, one) for pod in pods for one in pod["containers"]]


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_container_is_set_to_counts(name: str):
    documents = list(yaml.safe_load_all(TEXTS[name]))
    maps = {each["metadata"]["name"]: each["data"] for each in documents if each["kind"] == "ConfigMap"}
    used = set()
    for pod, one in containers(documents):
        words = " ".join([*one["command"], *one.get("args", [])])
        [(server, file)] = re.findall(r"\b(mqnamesrv|mqbroker)\b.* -c (\S+)", words)
        [mount] = [each for each in one["volumeMounts"] if Path(file).parent == Path(each["mountPath"])]
        [volume] = [each for each in pod["volumes"] if each["name"] == mount["name"]]
        place = volume["configMap"]["name"], Path(file).name
        used.add(place)
        given = dict(re.findall(r"^(\w+)=(.*)$", maps[place[0]][place[1]], re.MULTILINE))
        settings, report = build(SERVERS[server], given, file)
        assert given and not report.unknown and not report.without_effect
        typed = {key: TYPED[key] for key in re.findall(r"--set (\w+)=", words)}
        assert not build(SERVERS[server], given | typed, "--set")[1].unknown
        open_ports = {each["containerPort"] for each in one["ports"]}
        assert settings.port in open_ports
        asked = {kind: one[kind]["httpGet"] for kind in PROBES}
        assert {kind: each["path"] for kind, each in asked.items()} == PROBES
        assert {each["port"] for each in asked.values()} == {settings.metrics_port} <= open_ports
        assert settings.metrics is Exporter.PROM
        disks = [each["mountPath"] for each in one["volumeMounts"] if each["name"] != mount["name"]]
        kept = given.get("storePathRootDir") or given["kvConfigPath"]
        assert any(Path(kept).is_relative_to(disk) for disk in disks), "what must stay lies on no disk"
    assert used == {(name, file) for name, files in maps.items() for file in files}


@pytest.mark.parametrize("name", TEXTS)
def test_containers_have_no_rights_that_servers_do_not_need(name: str):
    for pod, one in containers(list(yaml.safe_load_all(TEXTS[name]))):
        assert pod["securityContext"]["runAsNonRoot"] is True and not pod["automountServiceAccountToken"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "/tmp" in [each["mountPath"] for each in one["volumeMounts"]]
