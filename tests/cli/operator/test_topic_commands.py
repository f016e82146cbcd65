import json

import pytest
from click.testing import CliRunner

from sparrowmq.cli.topic import topic
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture
def run(tmp_path):
    with BackgroundCluster(tmp_path) as cluster:
        yield lambda verb, *args, **kwargs: CliRunner().invoke(topic, [verb, *args, "-n", cluster.namesrv], **kwargs)


@pytest.mark.covers("S-ADM-01")
def test_a_topic_is_created_changed_shown_and_deleted(run):
    created = run("create", "orders", "-q", "2")
    assert (created.exit_code, created.output) == (0, "created topic orders at broker-0\n")
    assert run("list").output == "orders\n"
    assert run("change", "orders", "--write-queues", "1", "--perm", "r").output.startswith("changed topic orders")
    shown = run("show", "orders").output.splitlines()
    assert [line.split() for line in shown] == [
        ["BROKER", "READ", "QUEUES", "WRITE", "QUEUES", "PERM", "ORDERED", "TYPE"],
        ["broker-0", "2", "1", "r", "no", "NORMAL"],
        [],
        ["BROKER", "QUEUE", "MIN", "OFFSET", "MAX", "OFFSET", "LAST", "STORED"],
        ["broker-0", "0", "0", "0", "-"],
        ["broker-0", "1", "0", "0", "-"],
    ]
    assert run("delete", "orders", "--yes").output == "deleted topic orders at broker-0\n"
    assert run("list").output == ""
    assert "TBW102" in run("list", "--all").output.splitlines()


def test_a_topic_has_a_type_that_a_change_of_queues_leaves(run):
    assert run("create", "steps", "--type", "FIFO").exit_code == 0
    assert run("change", "steps", "--queues", "16").exit_code == 0
    assert run("show", "steps").output.splitlines()[1].split()[-1] == "FIFO"
    assert run("change", "steps", "--type", "MIXED").exit_code == 0
    row = run("show", "steps").output.splitlines()[1].split()
    assert row == ["broker-0", "16", "16", "rw", "no", "MIXED"]
    refused = run("create", "other", "--type", "fifo")
    assert refused.exit_code == 2 and "'NORMAL', 'FIFO'" in refused.stderr


def test_an_ordered_topic_is_shown_as_such_and_not_widened(run):
    assert run("create", "steps", "-q", "2", "--ordered").output == "created topic steps at broker-0\n"
    assert run("show", "steps").output.splitlines()[1].split() == [
        "broker-0",
        "2",
        "2",
        "rw",
        "yes",
        "NORMAL",
    ]
    refused = run("change", "steps", "--queues", "4")
    assert refused.exit_code == 2 and "would move its keys" in refused.stderr


def test_nothing_is_deleted_without_a_yes(run):
    run("create", "orders")
    refused = run("delete", "orders", input="n\n")
    assert refused.exit_code == 1 and "with all its messages?" in refused.output
    assert run("list").output == "orders\n"
    assert run("delete", "orders", input="y\n").exit_code == 0


def test_errors_say_what_to_do_on_stderr(run):
    run("create", "orders")
    for verb, args, status, text in [
        ("show", ["missing"], 1, "no route for topic 'missing'"),
        ("create", ["orders"], 1, "orders is there already, at broker-0; change it, or take another name"),
        ("create", ["no topic"], 2, "illegal characters"),
        ("create", ["t", "-q", "0"], 2, "--queues"),
        ("change", ["orders"], 2, "nothing is to be changed"),
        ("delete", ["orders", "--yes", "--cluster", "nowhere"], 1, "no cluster 'nowhere'"),
    ]:
        result = run(verb, *args)
        assert (result.exit_code, result.stdout) == (status, "") and text in result.stderr, result.output


def test_programs_are_told_what_was_done_as_one_object(run):
    told = json.loads(run("create", "told", "-o", "json").stdout)
    assert told == {"topic": "told", "done": "created", "brokers": ["broker-0"]}
    assert json.loads(run("delete", "told", "-o", "json", input="y\n").stdout)["done"] == "deleted"
