import json
import time

import pytest
from click.testing import CliRunner

import sparrowmq.sync
from sparrowmq.cli.diagnostics import connection
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    path = tmp_path_factory.mktemp("connections")
    with BackgroundCluster(path, brokers=2) as started, sparrowmq.sync.connect(started.namesrv) as mq:
        mq.admin.create_topic("orders", queues=1)
        mq.admin.create_group("billing")
        mq.admin.create_group("idle")
        with mq.subscribe("orders", lambda _: None, group="billing") as consumer:
            while len(consumer.queues) < 2:
                time.sleep(0.05)
            yield started


@pytest.fixture(scope="module")
def client_id(live):
    """The id of the only client."""
    (found,) = json.loads(run(live, "--group", "billing", "-o", "json").output)
    return found["client"]


def run(live, *args):
    return CliRunner().invoke(connection, ["list", *args, "-n", live.namesrv])


def test_people_see_each_client_with_its_connections(live, client_id):
    shown = run(live)
    assert shown.exit_code == 0, shown.output
    head, producer, line = shown.output.splitlines()
    assert head.split() == ["ROLE", "GROUP", "CLIENT", "LANGUAGE", "VERSION", "CONNECTIONS"]
    assert producer.split()[:3] == ["producer", "CLIENT_INNER_PRODUCER", client_id]
    assert line.split()[:4] == ["consumer", "billing", client_id, "PYTHON"]
    assert "broker-0=127.0.0.1:" in line and "broker-1=127.0.0.1:" in line


def test_programs_find_the_connection_of_each_broker(live):
    (found,) = json.loads(run(live, "--group", "billing", "-o", "json").output)
    assert set(found["connections"]) == {"broker-0", "broker-1"}


def test_one_group_is_shown_alone(live):
    assert len(run(live, "--group", "billing").output.splitlines()) == 2
    assert len(run(live, "--group", "idle").output.splitlines()) == 1


def test_a_missing_broker_is_named_and_the_status_says_so(live):
    live.run(live.cluster.brokers[1]._server.stop())
    shown = run(live, "--timeout", "2")
    assert shown.exit_code == 1 and "the answer lacks broker broker-1: " in shown.stderr and "billing" in shown.output
