"""The pod of deploy/kubernetes/one-pod.yaml, run here: its containers' own commands and settings, as one machine."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import sparrowmq
from tests.interop.apache import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFEST = (DEPLOY / "kubernetes" / "one-pod.yaml").read_text()
PORTS = ("9876", "10909", "10911", "10912", "5557", "5558")  # 10912 is for slaves: the next port of 10911
LIMIT_S = 30.0
METRICS_KEY = "metricsPromExporterPort"
FILES = "mappedFileSizeCommitLog=1m\nmaxHashSlotNum=5000\nmaxIndexNum=20000\n"  # 1.7 GB otherwise
# Only the folder $0 can be written, as with readOnlyRootFilesystem and two volumes.
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind / && exec "$@"'


def documents(text=MANIFEST):
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@dataclass
class Pod:
    """The pod as it runs here.

    Attributes:
        ports: of this machine, by those of the manifest.
        processes: of the containers, by name.
        containers: as the manifest has them, with the ports of this machine.
    """

    ports: dict[str, str]
    containers: dict[str, Any]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self.ports['9876']}"

    def probe(self, container: str, kind: str) -> tuple[int, str]:
        """Ask as a kubelet does; 0 is no answer in time."""
        probe = self.containers[container][kind]
        url = f"http://127.0.0.1:{probe['httpGet']['port']}{probe['httpGet']['path']}"
        try:
            with urllib.request.urlopen(url, timeout=probe["timeoutSeconds"]) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def until(self, container: str, kind: str, status: int) -> str:
        """Ask until that is the answer; returns its text."""
        deadline = time.monotonic() + LIMIT_S
        while (found := self.probe(container, kind))[0] != status:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found[1]


def started(folder: Path, stack: ExitStack, prefix: Sequence[str] = ()) -> Pod:
    """Start the pod with ports and folders of this machine; `prefix` comes before each command."""
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: ports[found[0]], MANIFEST)
    text = text.replace("/etc/sparrowmq", f"{folder}/settings").replace("/var/lib/sparrowmq", f"{folder}/store")
    found = documents(text)
    for name in ("settings", "store", "tmp"):
        (folder / name).mkdir()
    for name, content in found["ConfigMap"]["data"].items():
        # The image has ports of its own; here another program may have them.
        port = ports["9876" if name.startswith("namesrv") else "10911"]
        metrics = "" if METRICS_KEY in content else f"{METRICS_KEY}={ports['5557']}\n"
        small = "" if name.startswith("namesrv") else FILES
        (folder / "settings" / name).write_text(f"{content}\nlistenPort={port}\n{metrics}{small}")
    containers = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    pod = Pod(ports, {each["name"]: each for each in containers})
    for each in containers:
        pod.processes[each["name"]] = run(each["command"], folder / each["name"], stack, prefix)
    return pod


@pytest.fixture
def pod(tmp_path) -> Iterator[Pod]:
    with ExitStack() as stack:
        yield started(tmp_path, stack)


def run(command: list[str], log: Path, stack: ExitStack, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start a container's command, and return when it serves."""
    words = [word.replace("$(POD_IP)", "127.0.0.1") for word in command]
    program = Path(sys.executable).with_name(words[0])
    output = stack.enter_context(log.open("wb"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "NAMESRV"))}
    process = subprocess.Popen(
        [*prefix, str(program), *words[1:]],
        stdout=output,
        stderr=output,
        env=environment | {"TMPDIR": str(log.parent / "tmp")},
    )
    stack.callback(process.wait, LIMIT_S)
    stack.callback(process.terminate)
    stack.callback(process.send_signal, signal.SIGCONT)
    deadline = time.monotonic() + LIMIT_S
    while b"boot success" not in log.read_bytes():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    return process


@pytest.mark.covers("S-K8S-01")
async def test_a_program_in_the_cluster_sends_and_consumes(pod):
    async with sparrowmq.connect(pod.namesrv) as mq:
        sent = await mq.send("orders", b"one")
        async with mq.subscribe("orders", group="billing", start="earliest") as consumer:
            async for message in consumer:
                async with message.process():
                    assert (message.body, message.msg_id) == (b"one", sent.msg_id)
                break


@pytest.mark.covers("S-K8S-01")
def test_the_service_leads_to_ports_that_the_containers_have():
    found = documents()
    containers = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    open_ports = {port["containerPort"] for container in containers for port in container["ports"]}
    assert open_ports == set(map(int, PORTS)) - {10912}
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} <= open_ports
    assert {port["nodePort"] for port in found["Service"]["spec"]["ports"] if "nodePort" in port} == {32000}
    assert found["Service"]["spec"]["selector"] == found["Deployment"]["spec"]["template"]["metadata"]["labels"]


@pytest.mark.covers("S-K8S-01")
def test_the_image_is_made_of_files_that_are_here():
    recipe = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) ", recipe, re.MULTILINE)
    assert copied
    assert all((DEPLOY.parent / name).exists() for name in copied)
    uid = documents()["Deployment"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {uid}" in recipe


@pytest.mark.covers("S-K8S-01")
def test_a_broker_that_cannot_work_is_not_ready_and_is_not_restarted_for_that(pod):
    for name in pod.containers:
        assert pod.until(name, "readinessProbe", 200).startswith("ok")
        assert pod.probe(name, "livenessProbe") == (200, "ok\n")
    namesrv = pod.processes["namesrv"]
    namesrv.terminate()
    assert namesrv.wait(LIMIT_S) == 0
    assert "unregistered" in pod.until("broker", "readinessProbe", 503)
    assert pod.probe("broker", "livenessProbe") == (200, "ok\n")


def test_a_process_that_hangs_is_found_by_its_liveness_probe(pod):
    for name, process in pod.processes.items():
        pod.containers[name]["livenessProbe"]["timeoutSeconds"] = 1
        process.send_signal(signal.SIGSTOP)
        assert pod.until(name, "livenessProbe", 0)
        process.send_signal(signal.SIGCONT)
        assert pod.until(name, "livenessProbe", 200) == "ok\n"


@pytest.fixture
def read_only(tmp_path) -> list[str]:
    """A prefix of commands that may write below `tmp_path` alone."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, str(tmp_path)]
    try:
        other = subprocess.run([*unshare, "touch", f"{tmp_path}-other"], capture_output=True, check=False)
    except OSError:
        pytest.skip("needs mount namespaces")
    if b"Read-only file system" not in other.stderr:
        pytest.skip("needs mount namespaces")
    return unshare


async def test_the_servers_write_to_their_volumes_alone(tmp_path, read_only):
    with ExitStack() as stack:
        pod = started(tmp_path, stack, read_only)
        async with sparrowmq.connect(pod.namesrv, tls=TRUSTING) as mq:
            assert (await mq.send("orders", b"one")).offset == 0
        pod.until("broker", "readinessProbe", 200)


# Without a certificate a server makes one in the folder of temporary files, at the first encrypted connection.
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE
