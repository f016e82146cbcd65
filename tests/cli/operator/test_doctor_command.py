"""`sparrowmq doctor`, as an operator runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.admin.findings import Finding, Verdict
from sparrowmq.cli.diagnostics import _print_findings
from sparrowmq.cli.main import main
from sparrowmq.testing.background import BackgroundCluster
from tests.auth.asked import ADMIN, SAMPLE
from tests.crash.not_here import skipped_without
from tests.crash.wires import Machine, Wires, demand

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def doctor(cluster, *args):
    return CliRunner().invoke(main, ["doctor", "-n", cluster.namesrv, *args], prog_name="sparrowmq")


def test_a_cluster_that_is_well_ends_with_0(cluster):
    said = doctor(cluster)
    assert said.exit_code == 0 and "0 wrong" in said.output


def test_what_is_wrong_is_told_with_what_mends_it_and_ends_with_1(cluster):
    said = doctor(cluster, "--topic", "missing")
    assert said.exit_code == 1
    assert "WRONG    no broker has topic missing (No route info of this topic)" in said.output
    assert "fix:   create it with `sparrowmq topic create missing`" in said.output
    assert "check:" not in said.output


def test_verbose_shows_how_it_was_looked_at_and_what_is_well(cluster):
    said = doctor(cluster, "-v")
    assert "ok       name server" in said.output and "check: asked" in said.output


def test_a_script_gets_an_object_for_each_finding(cluster):
    said = doctor(cluster, "--output", "json", "--group", "missing")
    found = json.loads(said.output)
    assert said.exit_code == 1 and {each["verdict"] for each in found} >= {"ok", "wrong"}
    assert all(set(each) == {"verdict", "what", "check", "mend", "cause"} for each in found)


def test_an_effect_comes_after_its_cause_without_a_remedy_of_its_own(capsys):
    cause = Finding(Verdict.WRONG, "the disk is full", "asked", "free some space")
    effect = Finding(Verdict.WRONG, "no slave follows", "asked", "start it", cause=cause.what)
    _print_findings([cause, effect], verbose=False)
    assert capsys.readouterr().out.splitlines() == [
        "WRONG    the disk is full",
        "         fix:   free some space",
        "effect   no slave follows",
        "1 wrong, 0 warnings, 1 effects, 0 things are well",
    ]
    _print_findings([effect], verbose=True)
    assert "fix:   start it" in capsys.readouterr().out


def test_without_a_name_server_it_says_so():
    said = CliRunner().invoke(main, ["doctor", "-n", "127.0.0.1:9"], prog_name="sparrowmq")
    assert said.exit_code == 1 and "name server 127.0.0.1:9 does not answer" in said.output


def test_an_account_that_the_broker_refuses_is_wrong_and_the_right_one_helps(tmp_path):
    (tmp_path / "plain_acl.yml").write_text(SAMPLE)
    with BackgroundCluster(tmp_path / "stores", acl=True, acl_file=tmp_path / "plain_acl.yml") as cluster:
        for keys in ([], ["--access-key", ADMIN[0], "--secret-key", "87654321"]):
            said = doctor(cluster, *keys)
            assert said.exit_code == 1 and "refuses the account" in said.output, said.output
            assert "--access-key and --secret-key" in said.output and "brokerIP1" not in said.output
        right = doctor(cluster, "--access-key", ADMIN[0], "--secret-key", ADMIN[1])
        assert right.exit_code == 0, right.output
        assert "warning" in right.output and "no slave is let in" in right.output  # it has no haSecret, a notice


# Where the network is the cause: two machines, each with a network of its own ----------------------------------------


@pytest.fixture
def wires() -> Iterator[Wires]:
    with skipped_without("a network of its own"):
        demand()
    with Wires(seed=5) as wires:
        yield wires


@contextmanager
def running(machine: Machine, *words: str) -> Iterator[str]:
    """A server on a machine; the line by which it says that it is there."""
    command = [sys.executable, "-m", "sparrowmq", *words, "--insecure"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with (
        machine.inside(),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process,
    ):
        assert process.stdout
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()


def examined(wires: Wires, folder: Path, told: str, *settings: str) -> list[dict[str, str]]:
    """The findings of the doctor on another machine, except how full this machine's disk is."""
    server, client = wires.machine(), wires.machine()
    told = told or server.address
    with server.inside():
        subprocess.run(["ip", "addr", "replace", f"{told}/32", "dev", "lo"], check=True)
    namesrv = f"{server.address}:9876"
    small = "mappedFileSizeCommitLog=1m", "maxHashSlotNum=5000", "maxIndexNum=20000"
    of_broker = f"brokerIP1={told}", f"storePathRootDir={folder}", *small, *settings
    sets = [f"--set={each}" for each in of_broker]
    of_namesrv = f"--set=kvConfigPath={folder}/kvConfig.json", "--set=bindAddress=0.0.0.0"
    with (
        running(server, "namesrv", *of_namesrv),
        running(server, "broker", "run", "-n", namesrv, *sets),
        client.inside(),
    ):
        words = ["doctor", "-n", namesrv, "--timeout", "2", "--output", "json"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "sparrowmq", *words]
        said = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    found: list[dict[str, str]] = json.loads(said.stdout)
    return [each for each in found if each["verdict"] != "ok" and "DiskRatio" not in each["check"]]


def test_a_broker_that_tells_the_address_inside_its_container_is_told(wires, tmp_path):
    (found,) = examined(wires, tmp_path, "172.17.0.1")
    assert found["verdict"] == "wrong" and "at 172.17.0.1:10911 cannot be reached" in found["what"]
    assert "inside a container" in found["mend"] and "brokerIP1" in found["mend"]


def test_a_port_that_old_clients_want_and_cannot_reach_is_told(wires, tmp_path):
    (found,) = examined(wires, tmp_path, "", "fastListenPort=10800")
    assert found["verdict"] == "warning" and "old clients cannot send" in found["what"]
    assert ":10909> failed" in found["what"] and "sendMessageWithVIPChannel" in found["mend"]


def test_old_clients_are_not_missed_where_there_are_none(wires, tmp_path):
    assert examined(wires, tmp_path / "off", "", "fastListenPort=off") == []
