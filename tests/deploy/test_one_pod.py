"""The pod of deploy/kubernetes/one-pod.yaml, run here: its containers' own commands and settings, as one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

import sparrowmq
from tests.interop.apache import free_ports

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFEST = (DEPLOY / "kubernetes" / "one-pod.yaml").read_text()
PORTS = ("9876", "10909", "10911")
LIMIT_S = 30.0


def documents(text=MANIFEST):
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


@pytest.fixture
def pod(tmp_path) -> Iterator[str]:
    """The pod with ports and folders of this machine; gives the name server's address."""
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    text = re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: ports[found[0]], MANIFEST)
    text = text.replace("/etc/sparrowmq", f"{tmp_path}/settings").replace(
        "/var/lib/sparrowmq", f"{tmp_path}/store"
    )
    found = documents(text)
    (tmp_path / "settings").mkdir()
    (tmp_path / "store").mkdir()
    for name, content in found["ConfigMap"]["data"].items():
        # What a container listens on is the image's default; here another program may have it.
        port = ports["9876" if name.startswith("namesrv") else "10911"]
        (tmp_path / "settings" / name).write_text(f"{content}\nlistenPort={port}\n")
    with ExitStack() as stack:
        for container in found["Deployment"]["spec"]["template"]["spec"]["containers"]:
            run(container["command"], tmp_path / container["name"], stack)
        yield f"127.0.0.1:{ports['9876']}"


def run(command: list[str], log: Path, stack: ExitStack) -> None:
    """Start a container's command, and return when it serves."""
    words = [word.replace("$(POD_IP)", "127.0.0.1") for word in command]
    program = Path(sys.executable).with_name(words[0])
    output = stack.enter_context(log.open("wb"))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "NAMESRV"))
    }
    process = subprocess.Popen([program, *words[1:]], stdout=output, stderr=output, env=environment)
    stack.callback(process.wait, LIMIT_S)
    stack.callback(process.terminate)
    deadline = time.monotonic() + LIMIT_S
    while b"boot success" not in log.read_bytes():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.covers("S-K8S-01", breaks="settings_sources.sources: from_file = []")
async def test_a_program_in_the_cluster_sends_and_consumes(pod):
    async with sparrowmq.connect(pod) as mq:
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
    assert open_ports == set(map(int, PORTS))
    assert {port["targetPort"] for port in found["Service"]["spec"]["ports"]} <= open_ports
    assert {port["nodePort"] for port in found["Service"]["spec"]["ports"] if "nodePort" in port} == {32000}
    assert (
        found["Service"]["spec"]["selector"] == found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    )


@pytest.mark.covers("S-K8S-01")
def test_the_image_is_made_of_files_that_are_here():
    recipe = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(\S+) ", recipe, re.MULTILINE)
    assert copied
    assert all((DEPLOY.parent / name).exists() for name in copied)
    uid = documents()["Deployment"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"USER {uid}" in recipe
