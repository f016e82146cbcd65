"""`sparrowmq topic scale` and `topic move`, as an operator runs them."""

import json

import pytest
from click.testing import CliRunner

import sparrowmq.sync
from sparrowmq.cli.main import main
from sparrowmq.testing.background import BackgroundCluster

QUICK = ("--settle", "0.2", "--wait", "30")


@pytest.fixture
def cluster(tmp_path):
    with BackgroundCluster(tmp_path, brokers=2) as cluster:
        with sparrowmq.sync.connect(cluster.namesrv) as mq:
            mq.admin.create_topic("orders", queues=4)
        yield cluster


@pytest.fixture
def run(cluster):
    def run(*words, code=0):
        done = CliRunner().invoke(main, ["topic", *words, "-n", cluster.namesrv], prog_name="sparrowmq")
        assert done.exit_code == code, done.output
        return done

    return run


def queues(run):
    shares = json.loads(run("show", "orders", "-o", "json").stdout)["brokers"]
    return {(each["broker"], each["read_queues"], each["write_queues"]) for each in shares}


def test_a_topic_gets_fewer_and_more_queues(run):
    row = json.loads(run("scale", "orders", "-q", "2", "--dry-run", "-o", "json").stdout)[0]
    assert (row["broker"], row["read_queues"], row["queues_then"]) == ("broker-0", 4, 2)
    assert queues(run) == {("broker-0", 4, 4), ("broker-1", 4, 4)}
    done = run("scale", "orders", "--queues", "2", *QUICK)
    assert "scaled topic orders at broker-0, broker-1" in done.stdout
    assert "[1] broker-0: 2 write queues" in done.stderr and "[2] broker-1: 2 read queues" in done.stderr
    assert queues(run) == {("broker-0", 2, 2), ("broker-1", 2, 2)}
    run("scale", "orders", "--queues", "6", *QUICK)
    assert queues(run) == {("broker-0", 6, 6), ("broker-1", 6, 6)}


def test_a_topic_moves_to_a_broker_and_unread_messages_stop_that(run, cluster):
    assert "delete topic orders" in run("move", "orders", "--from", "broker-0", "--to", "broker-1", "--dry-run").stdout
    with sparrowmq.sync.connect(cluster.namesrv) as mq:
        for _ in range(8):
            mq.send("orders", b"x")
    move = ("move", "orders", "--from", "broker-0", "--to", "broker-1", "--settle", "0.2")
    assert "without a group 4" in run(*move, "--wait", "0", code=1).stderr
    assert "moved topic orders at broker-1" in run(*move, "--yes").stdout
    assert queues(run) == {("broker-1", 4, 4)}
