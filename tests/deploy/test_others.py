"""What else is in deploy/: the master with its slave, the compose file's commands, the systemd units.

All run with the extra `server` alone, as docs/operate/containers.md tells readers to install it.
"""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import sparrowmq
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.settings.settings import build
from tests.environments import python_with, variables
from tests.interop.apache import free_ports
from tests.interop.wire import SEND, Wire, send_fields

DEPLOY = Path(__file__).parents[2] / "deploy"
LIMIT_S = 30.0
PUT_KV_CONFIG = 100


def python() -> Path:
    return python_with("server")


def command_of(name: str) -> Path:
    return python().with_name(name)


# Kubernetes ---------------------------------------------------------------------------------------------------------


def named(kind: str) -> dict[str, Any]:
    text = (DEPLOY / "kubernetes" / "master-and-slave.yaml").read_text()
    return {each["metadata"]["name"]: each for each in yaml.safe_load_all(text) if each["kind"] == kind}


def container(name: str) -> dict[str, Any]:
    [found] = named("StatefulSet")[name]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def start(words: list[str], log: Path, stack: ExitStack, **environment: str) -> None:
    """Start a container's command as it stands in its manifest, and return when it serves."""
    output = stack.enter_context(log.open("wb"))
    ours = {name: value for name, value in variables(python()).items() if not name.startswith("JAVA")}
    process = subprocess.Popen(words, stdout=output, stderr=output, env=ours | environment)
    stack.callback(process.wait, LIMIT_S)
    stack.callback(process.terminate)
    deadline = time.monotonic() + LIMIT_S
    while b"boot success" not in log.read_bytes():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.slow
async def test_the_pods_of_a_broker_are_a_master_and_its_slave(tmp_path):
    names, *pods = free_ports(5)
    file = tmp_path / "broker.conf"
    text = named("ConfigMap")["sparrowmq-broker-a"]["data"]["broker.conf"]
    file.write_text(re.sub(r"namesrvAddr=.*", f"namesrvAddr=127.0.0.1:{names}", text) + "mappedFileSizeCommitLog=1m\n")
    with ExitStack() as stack:
        [command] = [container("sparrowmq-namesrv")["command"]]
        words = [str(command_of(command[0])), "--set", "bindAddress=127.0.0.1"]
        start([*words, "--set", f"listenPort={names}"], tmp_path / "namesrv.log", stack)
        broker = container("broker-a")
        script = broker["args"][0].replace("/etc/sparrowmq/broker.conf", str(file))
        for number in range(2):
            start(
                [*broker["command"], script],
                tmp_path / f"broker-{number}.log",
                stack,
                POD_NAME=f"broker-a-{number}",
                POD_IP="127.0.0.1",
                RMQ_BROKER_listenPort=str(pods[2 * number]),
                RMQ_BROKER_haListenPort=str(pods[2 * number + 1]),
                RMQ_BROKER_fastListenPort="off",
                RMQ_BROKER_metricsPromExporterPort="0",
                RMQ_BROKER_storePathRootDir=str(tmp_path / f"store-{number}"),
            )
        async with sparrowmq.connect(f"127.0.0.1:{names}") as mq:
            [place] = await mq.admin.brokers()
            assert place.addresses == {number: f"127.0.0.1:{pods[2 * number]}" for number in range(2)}
            await mq.admin.create_topic("orders", queues=1)
            deadline = time.monotonic() + LIMIT_S
            while (await mq.send("orders", b"one")).status is not sparrowmq.SendStatus.OK:
                assert time.monotonic() < deadline, "no slave ever had a message"


def test_what_the_manifest_names_is_in_it():
    claims, services = named("ConfigMap"), named("Service")
    for name, each in named("StatefulSet").items():
        spec, pod = each["spec"], each["spec"]["template"]
        assert spec["serviceName"] in services
        labels = pod["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels == services[spec["serviceName"]]["spec"]["selector"]
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        maps = [volume["configMap"]["name"] for volume in pod["spec"]["volumes"] if "configMap" in volume]
        assert maps and set(maps) <= claims.keys()
        mounts = {mount["name"] for mount in container(name)["volumeMounts"]}
        assert mounts == volumes | {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    ports = {port["containerPort"] for port in container("broker-a")["ports"]}
    assert {port["port"] for port in services["broker-a"]["spec"]["ports"]} <= ports
    [budget] = named("PodDisruptionBudget").values()
    assert budget["spec"]["selector"] == named("StatefulSet")["broker-a"]["spec"]["selector"]


# Compose ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("service", "cls"), [("namesrv", NamesrvSettings), ("broker", BrokerSettings)])
def test_the_commands_of_the_compose_file_have_settings_that_count(service, cls):
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    words = [word.replace("${SPARROWMQ_HOST:-127.0.0.1}", "10.0.0.1") for word in found["services"][service]["command"]]
    given = dict(value.split("=", 1) for option, value in itertools.pairwise(words) if option == "--set")
    _, report = build(cls, given, "compose.yaml")
    assert given and not report.unknown and not report.without_effect
    done = subprocess.run([command_of(words[0]), *words[1:], "-p"], capture_output=True, text=True, check=True)
    assert all(f"{key}={value}" in done.stdout for key, value in given.items())
    volumes = {volume.partition(":")[0] for volume in found["services"][service]["volumes"]}
    assert volumes <= found["volumes"].keys()


def test_the_compose_file_waits_until_servers_can_do_their_work():
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for each in found.values():
        given = dict(word.split("=", 1) for word in each["command"] if "=" in word)
        assert given["metricsExporterType"] == "PROM"
        assert each["healthcheck"]["test"] == [
            "CMD",
            "python",
            "-m",
            "sparrowmq.metrics.probe",
            "--ready",
            "5557",
        ]
        assert given.get("metricsPromExporterPort", "5557") == "5557"
    assert found["broker"]["depends_on"] == {"namesrv": {"condition": "service_healthy"}}


# systemd ------------------------------------------------------------------------------------------------------------


UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_a_command_that_is_there_and_reloads_it(unit, tmp_path):
    text = unit.read_text()
    [command] = re.findall(r"^ExecStart=/opt/sparrowmq/bin/(\S+) -c /etc/sparrowmq/\S+$", text, re.MULTILINE)
    assert command_of(command).exists()
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text
    assert {"Type=notify", "WatchdogSec=60"} <= set(text.splitlines())
    if (verify := shutil.which("systemd-analyze")) is None:
        return  # It is the check of those who have systemd; the rest holds everywhere.
    here = tmp_path / unit.name
    here.write_text(text.replace("/opt/sparrowmq/bin", str(python().parent)).replace("User=sparrowmq", "User=root"))
    done = subprocess.run(
        [verify, "verify", "--man=no", "--recursive-errors=no", here],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_is_exposed_to_little(unit):
    done = subprocess.run(
        [needed("systemd-analyze"), "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]


def needed(program: str) -> str:
    if (found := shutil.which(program)) is None:
        pytest.skip(f"needs {program}")
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
async def test_a_server_works_within_the_limits_of_its_unit(unit, tmp_path):
    """Its system calls are those that the unit allows, it needs no memory that is written and run, and of all folders
    it writes to those of the unit alone.
    """
    strace, analyze = needed("strace"), needed("systemd-analyze")
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    assert settings["MemoryDenyWriteExecute"] == "true"
    [port, names] = free_ports(2)
    server = settings["ExecStart"].split()[0].rpartition("/")[2]
    words = [f"--set=listenPort={port}", f"--set=kvConfigPath={tmp_path}/kv.json"]
    if server == "mqbroker":
        more = {"storePathRootDir": tmp_path / "store", "brokerName": "broker-a", "fastListenPort": "off"}
        more |= {"metricsExporterType": "PROM", "metricsPromExporterPort": names, "haListenPort": "off"}
        more |= {"mappedFileSizeCommitLog": "1m", "maxHashSlotNum": 5000, "maxIndexNum": 20000}
        words = [f"--set={key}={value}" for key, value in ({"listenPort": port} | more).items()]
    calls = tmp_path / "calls"
    with ExitStack() as stack:
        start(
            [strace, "-D", "-f", "-q", "-o", str(calls), str(command_of(server)), *words],
            tmp_path / "log",
            stack,
            HOME="/nowhere",
            PYTHONDONTWRITEBYTECODE="1",  # the package may be run for the first time
        )
        with Wire(port) as wire:
            if server == "mqbroker":
                assert wire.ask(SEND, send_fields("TBW102"), b"one").code == 0
            else:
                assert wire.ask(PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"}).code == 0
    deadline = time.monotonic() + LIMIT_S
    while not (lines := calls.read_text().splitlines()) or "+++ exited with 0 +++" not in lines[-1]:
        assert time.monotonic() < deadline, lines[-1:]
    used = set(re.findall(r"^\d+ +(\w+)\(", "\n".join(lines), re.MULTILINE))
    assert "openat" in used and used <= allowed(analyze, unit.read_text())
    assert not [line for line in lines if re.search(r"PROT_WRITE\|PROT_EXEC|mprotect\(.*PROT_EXEC", line)]
    written = {
        found[1] for line in lines if (found := re.search(r'openat?\(\w+, "([^"]+)", \S*O_(?:WRONLY|RDWR)', line))
    }
    assert written and all(path.startswith((str(tmp_path), "/dev/null")) for path in written), written


def allowed(analyze: str, text: str) -> set[str]:
    """The system calls that a unit allows."""

    def names(group: str) -> set[str]:
        shown = subprocess.run([analyze, "syscall-filter", group], capture_output=True, text=True, check=True)
        words = re.findall(r"^ {4}([@\w-]+)$", shown.stdout, re.MULTILINE)
        return {name for word in words for name in (names(word) if word.startswith("@") else {word})}

    found: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", text, re.MULTILINE):
        groups = line.removeprefix("~").split()
        each = {name for group in groups for name in names(group)}
        found = found - each if line.startswith("~") else found | each
    return found


def test_the_page_installs_the_extra_of_these_tests():
    page = (DEPLOY.parent / "docs" / "operate" / "containers.md").read_text()
    assert '&& /opt/sparrowmq/bin/pip install ".[server]"\n' in page


async def test_the_files_of_settings_that_the_page_writes_make_a_cluster(tmp_path):
    page = (DEPLOY.parent / "docs" / "operate" / "containers.md").read_text()
    files = dict(re.findall(r"cat > /etc/sparrowmq/(\w+)\.conf <<END\n(.*?)END\n", page, re.DOTALL))
    names, port = free_ports(2)
    with ExitStack() as stack:
        for server, others in (
            ("namesrv", ""),
            ("broker", "mappedFileSizeCommitLog=1m\nfastListenPort=off\n"),
        ):
            paths = re.findall(r"=(/\S+)", files[server])
            assert paths and all(path.startswith("/var/lib/sparrowmq/") for path in paths), "StateDirectory"
            file = tmp_path / f"{server}.conf"
            text = files[server].replace("/var/lib/sparrowmq", str(tmp_path)).replace(":9876", f":{names}")
            file.write_text(text + others + f"listenPort={names if server == 'namesrv' else port}\n")
            start(
                [str(command_of(f"mq{server}")), "-c", str(file)],
                tmp_path / f"{server}.log",
                stack,
                HOME="/nowhere",
                PYTHONDONTWRITEBYTECODE="1",  # the package may be run for the first time
            )
        async with sparrowmq.connect(f"127.0.0.1:{names}") as mq:
            [place] = await mq.admin.brokers()
            assert place.name == "broker-a" and place.master == f"127.0.0.1:{port}"
        with Wire(names) as wire:
            reply = wire.ask(PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"})
        assert reply.code == 0, reply.remark
