import json

import pytest
from click.testing import CliRunner

from sparrowmq.admin.brokers import Standing
from sparrowmq.cli import cluster as cluster_module
from sparrowmq.cli.cluster import cluster
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture
def run(tmp_path):
    with BackgroundCluster(tmp_path) as live:
        yield lambda *args: CliRunner().invoke(cluster, [*args, "-n", live.namesrv])


def test_people_see_a_line_for_each_broker_without_columns_that_nobody_fills(run):
    shown = run()
    assert shown.exit_code == 0, shown.output
    head, line = shown.output.splitlines()
    assert head.split()[:5] == ["CLUSTER", "BROKER", "ID", "ADDRESS", "ROLE"]
    assert "EPOCH" not in head and "PROBLEM" not in head
    assert line.split()[:3] == ["DefaultCluster", "broker-0", "0"] and "master" in line


def test_programs_get_all_of_it(run):
    (found,) = json.loads(run("-o", "json").output)
    assert (found["broker"], found["role"], found["epoch"], found["problem"]) == (
        "broker-0",
        "master",
        None,
        None,
    )
    head, line = run("-o", "csv").output.splitlines()
    assert head.startswith(
        "cluster,broker,id,address,role,member,epoch,in_sync,log_epoch,log_end,behind_bytes,behind_messages,behind_s"
    )
    assert line.startswith("DefaultCluster,broker-0,0,")


def test_members_that_may_not_follow_a_new_master_are_in_parentheses_and_not_told_to_programs(monkeypatch):
    new = Standing("c", "b", 0, "h:1", inherited=(1, 3))
    for is_people, shown in ((True, "(1,3)"), (False, None)):
        monkeypatch.setattr(cluster_module, "is_for_people", lambda is_people=is_people: is_people)
        assert cluster_module._row(new)[cluster_module._HEADS.index("IN SYNC")] == shown


def test_a_cluster_that_is_not_there_is_an_error(run):
    result = run("--cluster", "nowhere")
    assert result.exit_code == 1 and "no cluster 'nowhere'" in result.stderr


def test_orders_to_a_broker_that_is_no_member_are_refused(run):
    result = run("transfer", "-b", "broker-0")
    assert result.exit_code == 1 and "enableControllerMode is not set" in result.stderr
    result = run("elect", "-b", "broker-0", "--member", "1")
    assert result.exit_code == 1 and "no broker that answers has this brokerId" in result.stderr


def test_messages_are_given_up_only_after_a_question(run):
    result = run("elect", "-b", "broker-0", "--member", "1", "--force")
    assert result.exit_code == 1 and "Messages that the new master lacks are lost to consumers" in result.output
    result = run("elect", "-b", "broker-0", "--member", "1", "--force", "--yes")
    assert "no broker that answers" in result.stderr
