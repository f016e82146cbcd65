"""`sparrowmq cluster restart`, `upgrade` and `decommission`, with a broker as a real process."""

import sys

import pytest
from click.testing import CliRunner

import sparrowmq.sync
from sparrowmq.cli.main import main
from sparrowmq.version import VERSION

QUICK = ("--settle", "0.2", "--wait", "60", "--yes")


@pytest.fixture
def run(namesrv):
    def run(*words, code=0):
        line = ["cluster", *words, "-n", namesrv.address]
        done = CliRunner().invoke(main, line, prog_name="sparrowmq")
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture
def broker(start, namesrv, broker_args):
    return start(*broker_args, "-n", namesrv.address).ready()


@pytest.mark.slow
def test_a_broker_restarts_itself_as_the_same_process(run, broker):
    said = run("restart", "--dry-run").stdout
    assert "broker-a" in said and "restart" in said and broker.process.poll() is None
    done = run("restart", *QUICK)
    assert "restarted 1 broker\n" in done.stdout
    assert "to continue after an interruption: sparrowmq cluster restart --since" in done.stderr
    assert "boot success" in broker.process.stdout.readline() and broker.process.poll() is None
    assert "nothing was restarted" in run("restart", "--since", "2020-01-01").stdout


@pytest.mark.slow
def test_another_command_may_restart_it_and_its_failure_stops_all(run, broker):
    said = run("restart", *QUICK, "--run", "echo {broker} {id} {address}; exit 3", code=1)
    assert "ended with status 3" in said.stderr
    pid = broker.process.pid
    command = f"{sys.executable} -c 'import os, signal; os.kill({pid}, signal.SIGTERM)'"
    said = run("restart", "--settle", "0.2", "--wait", "2", "--yes", "--run", command, code=1)
    assert "not all is well after 2 s" in said.stderr


@pytest.mark.slow
def test_an_upgrade_looks_at_versions(run, broker):
    assert "nothing was restarted" in run("upgrade").stdout
    said = run("upgrade", "--to", "99.0", *QUICK, code=2)
    assert f"runs {VERSION}" in said.stderr and "version 99.0 is not everywhere" in said.stderr


def test_a_topic_that_only_one_broker_has_makes_a_restart_a_risk(run, broker, namesrv):
    with sparrowmq.sync.connect(namesrv.address) as mq:
        mq.admin.create_topic("orders")
    said = run("restart", code=2)
    assert "no other broker has orders" in said.stderr and "--yes restarts them" in said.stderr
    refused = run("decommission", "broker-a", code=2)
    assert "broker broker-a cannot go: no other broker takes messages of orders" in refused.stderr
    assert "refused" in run("decommission", "broker-a", "--dry-run").stdout


def test_an_empty_broker_may_be_stopped(run, broker):
    said = run("decommission", "broker-a", "--yes", "--settle", "0.2")
    assert "broker broker-a is empty: stop it and its slaves" in said.stdout
    assert "there is no broker 'absent'" in run("decommission", "absent", code=1).stderr
