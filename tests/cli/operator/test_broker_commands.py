"""`sparrowmq broker`, as an operator runs it."""

import json

import pytest
from click.testing import CliRunner

import sparrowmq.sync
from sparrowmq.cli.main import main
from sparrowmq.errors import NoRoute, SendFailed
from sparrowmq.testing.background import BackgroundCluster
from sparrowmq.version import VERSION


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        with sparrowmq.sync.connect(cluster.namesrv) as mq:
            mq.admin.create_topic("Orders")
            for _ in range(3):
                mq.send("Orders", b"x")
        yield cluster


@pytest.fixture
def run(cluster):
    def run(*words, code=0):
        done = CliRunner().invoke(main, ["broker", *words, "-n", cluster.namesrv], prog_name="sparrowmq")
        assert done.exit_code == code, done.output
        return done

    return run


def test_brokers_are_listed_with_what_they_run_and_take(run, cluster):
    (row,) = json.loads(run("list", "-o", "json").stdout)
    address = cluster.cluster.brokers[0].address
    assert (row["broker"], row["id"], row["address"]) == ("broker-0", 0, address)
    assert (
        (row["version"], row["protocol"]) == (VERSION, "V4_9_8")
        and float(row["in_s"]) >= 0
        and row["disk_used"].endswith("%")
    )
    assert "broker-0" in run("list").stdout


def test_settings_are_shown_and_changed_while_it_runs(run, cluster):
    rows = {row["key"]: row["value"] for row in json.loads(run("config", "broker-0", "-o", "json").stdout)}
    assert rows["brokerName"] == "broker-0"
    assert "changed fileReservedTime of broker broker-0" in run("set", "broker-0", "fileReservedTime=71").stdout
    address = cluster.cluster.brokers[0].address
    assert run("config", address, "fileReservedTime").stdout.split()[-2:] == ["fileReservedTime", "71"]
    assert "has no setting nonsense" in run("config", "broker-0", "nonsense", code=1).output
    assert "is not KEY=VALUE" in run("set", "broker-0", "fileReservedTime", code=2).output
    assert "fileReservedTime" in run("set", "broker-0", "fileReservedTime=never", code=1).output
    assert "there is no broker 'absent'" in run("config", "absent", code=1).output


def test_what_a_broker_counts_is_shown(run):
    rows = {row["figure"]: row["value"] for row in json.loads(run("stats", "broker-0", "-o", "json").stdout)}
    assert int(rows["msgPutTotalTodayNow"]) >= 3


def test_a_drained_broker_gets_nothing_more_and_is_consumed_empty(run, cluster):
    with sparrowmq.sync.connect(cluster.namesrv) as mq:
        with mq.subscribe("Orders", group="slow", start="earliest") as orders:
            next(iter(orders)).ack()
        mq.send("Orders", b"one more")
    said = run("drain", "broker-0", "--wait", "0.1", "-o", "json", code=1)
    (row,) = json.loads(said.stdout)
    assert row["group"] == "slow" and row["behind"] > 0
    with sparrowmq.sync.connect(cluster.namesrv) as mq, pytest.raises((NoRoute, SendFailed)):
        mq.send("Orders", b"nobody finds it", timeout_s=1)
    with sparrowmq.sync.connect(cluster.namesrv) as mq:
        mq.admin.reset("slow", "Orders", "latest")
    assert "producers do not find broker broker-0 any more" in run("drain", "broker-0", "--wait", "20").stdout
    assert "producers find broker broker-0 again" in run("undrain", "broker-0").stdout
    with sparrowmq.sync.connect(cluster.namesrv) as mq:
        mq.send("Orders", b"here")
    run("set", "broker-0", "brokerPermission=4")
    assert "still takes no messages: brokerPermission = 4" in run("undrain", "broker-0", code=1).stderr
    run("set", "broker-0", "brokerPermission=6")
    assert "there is no broker 'absent'" in run("drain", "absent", code=1).output


def test_without_a_command_it_is_mqbroker():
    runner = CliRunner()
    run = ["broker", "-p"], ["broker", "run", "-p"]
    shown = [runner.invoke(main, words, prog_name="sparrowmq").stdout for words in run]
    assert shown[0] == shown[1] and "listenPort=10911" in shown[0]
    wrong = runner.invoke(main, ["broker", "--set", "listenPort=x"], prog_name="sparrowmq")
    assert wrong.exit_code == 2 and wrong.stderr.startswith("broker: ")
