"""What is wrong with a Kubernetes manifest, found without a cluster.

    shape       each field is one that the API has there, of its type; those that must be there are: a misspelt
                `readinesProbe` is no error to people's eyes, and none to an API server that only warns
    relations   selectors meet labels, Services and probes ports that are open, mounts volumes, volumes ConfigMaps

It knows of the API (Kubernetes 1.31) what our manifests use: a field that is missing here is one that nobody has looked
up yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import yaml

Object: TypeAlias = dict[str, Any]

# What a field holds: a type of YAML; the values that it may have; a pattern; the name of another shape; a list or a map
# of one of these. An exclamation mark: it must be there.
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
BYTES: Final = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti)?")
AMOUNTS: Final = {"cpu": re.compile(r"\d+m|\d+(\.\d+)?"), "memory": BYTES}
PORT: Final = range(1, 65536)
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "ObjectMeta": {"name": NAME, "labels": {}, "annotations": {}, "namespace": NAME},
    "ConfigMap": {"metadata!": "ObjectMeta", "data": {}},
    "Service": {"metadata!": "ObjectMeta", "spec!": "ServiceSpec"},
    "ServiceSpec": {
        "type": {"ClusterIP", "NodePort", "LoadBalancer"},
        "clusterIP": {"None"},
        "selector!": {},
        "publishNotReadyAddresses": bool,
        "ports!": ["ServicePort"],
    },
    "ServicePort": {"name!": NAME, "port!": PORT, "targetPort": PORT, "nodePort": range(30000, 32768)},
    "PersistentVolumeClaim": {"metadata!": "ObjectMeta", "spec!": "ClaimSpec"},
    "ClaimSpec": {
        "accessModes!": [{"ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany"}],
        "resources!": "ClaimResources",
        "storageClassName": NAME,
    },
    "ClaimResources": {"requests!": "ClaimRequests"},
    "ClaimRequests": {"storage!": BYTES},
    "Deployment": {"metadata!": "ObjectMeta", "spec!": "DeploymentSpec"},
    "DeploymentSpec": {
        "replicas": int,
        "strategy": "Strategy",
        "selector!": "Selector",
        "template!": "Template",
    },
    "Strategy": {"type!": {"Recreate", "RollingUpdate"}},
    "Selector": {"matchLabels!": {}},
    "Template": {"metadata!": "ObjectMeta", "spec!": "PodSpec"},
    "StatefulSet": {"metadata!": "ObjectMeta", "spec!": "StatefulSetSpec"},
    "StatefulSetSpec": {
        "serviceName!": NAME,
        "replicas": int,
        "podManagementPolicy": {"Parallel", "OrderedReady"},
        "selector!": "Selector",
        "template!": "Template",
        "volumeClaimTemplates": ["ClaimTemplate"],
    },
    "ClaimTemplate": {"metadata!": "ObjectMeta", "spec!": "ClaimSpec"},
    "PodDisruptionBudget": {"metadata!": "ObjectMeta", "spec!": "BudgetSpec"},
    "BudgetSpec": {"maxUnavailable": int, "minAvailable": int, "selector!": "Selector"},
    "PodSpec": {
        "terminationGracePeriodSeconds": int,
        "automountServiceAccountToken": bool,
        "securityContext": "PodSecurity",
        "affinity": "Affinity",
        "containers!": ["Container"],
        "volumes": ["Volume"],
    },
    "PodSecurity": {"runAsNonRoot": bool, "runAsUser": int, "fsGroup": int, "seccompProfile": "Seccomp"},
    "Seccomp": {"type!": {"RuntimeDefault", "Localhost", "Unconfined"}},
    "Affinity": {"podAntiAffinity!": "AntiAffinity"},
    "AntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution!": ["AffinityTerm"]},
    "AffinityTerm": {"labelSelector!": "Selector", "topologyKey!": str},
    "Container": {
        "name!": NAME,
        "image!": str,
        "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
        "command": [str],
        "args": [str],
        "env": ["Variable"],
        "ports": ["ContainerPort"],
        "readinessProbe": "Probe",
        "livenessProbe": "Probe",
        "startupProbe": "Probe",
        "securityContext": "ContainerSecurity",
        "resources": "Resources",
        "volumeMounts": ["Mount"],
    },
    "ContainerSecurity": {
        "allowPrivilegeEscalation": bool,
        "readOnlyRootFilesystem": bool,
        "capabilities": "Capabilities",
    },
    "Capabilities": {"drop!": [{"ALL"}]},
    "Variable": {"name!": str, "value": str, "valueFrom": "VariableSource"},
    "VariableSource": {"fieldRef!": "FieldRef"},
    "FieldRef": {"fieldPath!": {"status.podIP", "metadata.name", "metadata.namespace", "spec.nodeName"}},
    "ContainerPort": {"containerPort!": PORT, "name": re.compile(r"[a-z0-9-]{1,15}")},
    "Probe": {
        "tcpSocket": "PortOf",
        "httpGet": "Get",
        "periodSeconds": int,
        "initialDelaySeconds": int,
        "timeoutSeconds": int,
        "failureThreshold": int,
    },
    "PortOf": {"port!": PORT},
    "Get": {"path!": re.compile("/.*"), "port!": PORT},
    "Resources": {"requests": "Amounts", "limits": "Amounts"},
    "Amounts": AMOUNTS,
    "Mount": {"name!": NAME, "mountPath!": re.compile("/[^:]+"), "readOnly": bool},
    "Volume": {
        "name!": NAME,
        "configMap": "ConfigMapOf",
        "persistentVolumeClaim": "ClaimOf",
        "emptyDir": "EmptyFolder",
    },
    "EmptyFolder": {"sizeLimit": BYTES, "medium": {"", "Memory"}},
    "ConfigMapOf": {"name!": NAME},
    "ClaimOf": {"claimName!": NAME},
}
VERSIONS: Final = {
    "ConfigMap": "v1",
    "Service": "v1",
    "PersistentVolumeClaim": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
}


def problems(text: str) -> list[str]:
    """Each thing that is wrong with the documents of a file, as a sentence."""
    documents: list[Object] = list(yaml.safe_load_all(text))
    found = [problem for document in documents for problem in _document(document)]
    return found or list(_relations(documents))


def _document(document: Object) -> Iterator[str]:
    kind = document.get("kind", "")
    if VERSIONS.get(kind) != document.get("apiVersion"):
        yield f"there is no kind {kind!r} in {document.get('apiVersion')!r}"
        return
    rest = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    yield from _shape(kind, rest, kind)
    if not rest.get("metadata", {}).get("name"):
        yield f"{kind} has no name"


def _shape(where: str, value: Any, wanted: Any) -> Iterator[str]:
    """What a value has else than it should."""
    if isinstance(wanted, str):
        if not isinstance(value, dict):
            yield f"{where} is no {wanted}"
            return
        fields = {field.rstrip("!"): what for field, what in SHAPES[wanted].items()}
        for field in SHAPES[wanted]:
            if field.endswith("!") and field[:-1] not in value:
                yield f"{where} has no {field[:-1]}"
        for field, each in value.items():
            if field not in fields:
                yield f"{where} has {field}, which the API does not know"
            else:
                yield from _shape(f"{where}.{field}", each, fields[field])
    elif isinstance(wanted, list):
        if not isinstance(value, list) or not value:
            yield f"{where} is no list of something"
            return
        for number, each in enumerate(value):
            yield from _shape(f"{where}[{number}]", each, wanted[0])
    elif not _is(value, wanted):
        yield f"{where} cannot be {value!r}"


def _is(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, re.Pattern):
        return not isinstance(value, bool) and wanted.fullmatch(str(value)) is not None
    if isinstance(wanted, dict):  # the API takes texts only: 1 and true without quotes are refused
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    if isinstance(wanted, range):
        return type(value) is int and value in wanted
    return value in wanted if isinstance(wanted, set) else type(value) is wanted


def _relations(documents: list[Object]) -> Iterator[str]:
    """What does not fit together among documents that are well by themselves."""
    named = {(each["kind"], each["metadata"]["name"]): each for each in documents}
    if len(named) != len(documents):
        yield "two documents have one kind and name"
    sets = [each for each in documents if each["kind"] in ("Deployment", "StatefulSet")]
    for each in sets:
        yield from _pods(each, named)
    for each in documents:
        where = f"{each['kind']} {each['metadata']['name']}"
        if each["kind"] == "Service":
            pods = [pod["spec"]["template"] for pod in sets if _meets(each["spec"]["selector"], pod)]
            ports = {port for pod in pods for port in _open_ports(pod["spec"]["containers"])}
            for port in each["spec"]["ports"]:
                if port.get("targetPort", port["port"]) not in ports:
                    yield f"{where}: port {port['name']} leads to none that a container has"
                if "nodePort" in port and each["spec"].get("type") != "NodePort":
                    yield f"{where}: a nodePort without type NodePort"
        elif each["kind"] == "PodDisruptionBudget" and not any(
            _meets(each["spec"]["selector"]["matchLabels"], pod) for pod in sets
        ):
            yield f"{where} meets no pods"


def _pods(each: Object, named: dict[tuple[str, str], Object]) -> Iterator[str]:
    """Of a Deployment or a StatefulSet."""
    where, spec = f"{each['kind']} {each['metadata']['name']}", each["spec"]
    pod = spec["template"]["spec"]
    if not _meets(spec["selector"]["matchLabels"], each):
        yield f"{where}: its selector does not meet its pods"
    if "serviceName" in spec and ("Service", spec["serviceName"]) not in named:
        yield f"{where}: there is no Service {spec['serviceName']}"
    for volume in pod.get("volumes", []):
        if "emptyDir" in volume:
            continue
        wanted = (
            ("ConfigMap", volume["configMap"]["name"])
            if "configMap" in volume
            else ("PersistentVolumeClaim", volume.get("persistentVolumeClaim", {}).get("claimName"))
        )
        if wanted not in named:
            yield f"{where}: volume {volume['name']} is of the {wanted[0]} {wanted[1]}, which is not there"
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    mounted = {mount["name"] for one in pod["containers"] for mount in one.get("volumeMounts", [])}
    for name in sorted(volumes ^ mounted):
        yield f"{where}: volume {name} is " + ("not mounted" if name in volumes else "not there")
    names = [port["name"] for one in pod["containers"] for port in one.get("ports", []) if "name" in port]
    for name in {name for name in names if names.count(name) > 1}:
        yield f"{where}: two ports have the name {name}"
    for one in pod["containers"]:
        for kind in ("readinessProbe", "livenessProbe", "startupProbe"):
            probe = one.get(kind, {})
            asked = [probe[how]["port"] for how in ("tcpSocket", "httpGet") if how in probe]
            if kind in one and len(asked) != 1:
                yield f"{where}: {kind} of {one['name']} asks in no way, or in two"
            if not set(asked) <= _open_ports([one]):
                yield f"{where}: {kind} of {one['name']} asks a port that it does not have"


def _meets(selector: dict[str, str], pods: Object) -> bool:
    labels: dict[str, str] = pods["spec"]["template"]["metadata"].get("labels", {})
    return selector.items() <= labels.items()


def _open_ports(containers: list[Object]) -> set[int]:
    return {port["containerPort"] for one in containers for port in one.get("ports", [])}
