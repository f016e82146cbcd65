import time
from datetime import datetime

import pytest
from click.testing import CliRunner

import sparrowmq.sync
from sparrowmq.cli.group import group
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture
def cluster(tmp_path):
    with BackgroundCluster(tmp_path) as started:
        yield started


@pytest.fixture
def run(cluster):
    return lambda verb, *args, **kwargs: CliRunner().invoke(group, [verb, *args, "-n", cluster.namesrv], **kwargs)


@pytest.mark.covers("S-ADM-02")
def test_a_group_is_created_changed_shown_and_deleted(run, cluster):
    created = run("create", "billing", "--max-retries", "3")
    assert (created.exit_code, created.output) == (0, "created group billing at broker-0\n")
    assert run("list").output == "billing\n"
    assert run("show", "billing").output.splitlines()[1].split() == [
        "broker-0",
        "3",
        "1",
        "yes",
        "yes",
        "no",
        "levels",
    ]
    assert run("change", "billing", "--may-not-broadcast").output == "changed group billing at broker-0\n"
    assert run("show", "billing").output.splitlines()[1].split() == [
        "broker-0",
        "3",
        "1",
        "yes",
        "no",
        "no",
        "levels",
    ]
    with sparrowmq.sync.admin(cluster.namesrv) as admin:
        admin.create_topic("orders")
    with sparrowmq.sync.connect(cluster.namesrv) as mq, mq.subscribe("orders", group="billing"):
        deadline = time.monotonic() + 10
        while len(members := run("show", "billing").output.splitlines()[4:]) != 1:
            assert time.monotonic() < deadline, "the member was never shown"
        assert members[0].split()[0] == mq.client_id
        said = [line.split() for line in run("members", "billing").output.splitlines()]
        assert [row[0] for row in said[1:]] == [mq.client_id] * 2
        assert sorted(row[3:6] for row in said[1:]) == [
            ["V4_9_8", "%RETRY%billing", "*"],
            ["V4_9_8", "orders", "*"],
        ]
    assert run("delete", "billing", input="n\n").exit_code == 1
    assert run("delete", "billing", "--yes").output == "deleted group billing at broker-0\n"
    assert run("list").output == ""


def test_a_group_has_pauses_and_an_order_until_they_are_changed(run):
    def shown():
        return run("show", "billing").output.splitlines()[1].split()[5:]

    assert run("create", "billing", "--ordered", "--retry-pauses", "10s 1m 5m").exit_code == 0
    assert shown() == ["yes", "10s", "1m", "5m"]
    run("change", "billing", "--max-retries", "3")
    assert shown() == ["yes", "10s", "1m", "5m"]
    run("change", "billing", "--not-ordered", "--retry-pauses", "5s..2h")
    assert shown() == ["no", "5s..2h"]
    run("change", "billing", "--retry-pauses", "levels")
    assert shown() == ["no", "levels"]
    refused = run("change", "billing", "--retry-pauses", "soon")
    assert refused.exit_code == 2 and "write '10s 1m 5m'" in refused.stderr


def test_lag_is_told_and_a_reset_changes_it(run, cluster):
    run("create", "billing")
    with sparrowmq.sync.connect(cluster.namesrv) as mq:
        mq.admin.create_topic("orders", queues=1)
        for _ in range(3):
            mq.send("orders", b"x")
    rows = run("lag", "billing", "orders").output.splitlines()
    assert rows[1].split() == ["orders", "broker-0", "0", "3", "0", "3", "-", "-", "-"]
    assert rows[2] == "lag: 3 messages; 0.0 messages per second"
    planned = run("reset", "billing", "orders", "latest", "--dry-run")
    assert planned.output.splitlines()[1].split() == ["broker-0", "0", "3"]
    assert run("lag", "billing", "orders").output.splitlines()[1].split()[4] == "0", "a dry run resets nothing"
    for to, offset in (("latest", "3"), ("earliest", "0"), ("2", "2"), ("2020-01-01T00:00", "0")):
        assert run("reset", "billing", "orders", to, input="n\n").exit_code == 1
        moved = run("reset", "billing", "orders", to, "--yes")
        assert moved.exit_code == 0 and moved.output.splitlines()[1].split() == ["broker-0", "0", offset]
    run("reset", "billing", "orders", "2", input="y\n")
    shown = run("lag", "billing").output.splitlines()[1].split()
    assert shown[:6] == ["orders", "broker-0", "0", "3", "2", "1"]
    assert float(shown[7]) < 60 and shown[8] == datetime.now().date().isoformat()
    assert run("lag", "billing").output.splitlines()[-1].startswith("lag: 1 message, ")


def test_errors_say_what_to_do_on_stderr(run):
    run("create", "billing")
    for verb, args, status, text in [
        ("show", ["missing"], 1, "no consumer group 'missing'"),
        ("lag", ["missing"], 1, "no consumer group 'missing'"),
        ("create", ["billing"], 1, "billing is there already"),
        ("change", ["billing"], 2, "nothing is to be changed"),
        ("reset", ["billing", "missing", "latest", "--yes"], 1, "no route for topic 'missing'"),
        ("reset", ["billing", "orders", "yesterday"], 2, "give earliest, latest, a time as"),
        ("reset", ["billing", "orders", "0001-01-01"], 2, "give earliest, latest, a time as"),
        ("reset", ["billing", "orders", "²"], 2, "give earliest, latest, a time as"),
    ]:
        result = run(verb, *args)
        assert (result.exit_code, result.stdout) == (status, "") and text in result.stderr, result.output


@pytest.mark.covers("S-RETRY-08")
def test_dead_letters_are_shown_and_sent_again(run, cluster):
    run("create", "billing", "--max-retries", "0")
    with sparrowmq.sync.connect(cluster.namesrv) as mq:
        mq.admin.create_topic("orders", queues=1)
        sent = mq.send("orders", b"hello")
        with mq.subscribe("orders", group="billing", start="earliest", max_reconsume_times=0) as messages:
            next(iter(messages)).retry()
            deadline = time.monotonic() + 10
            while sent.msg_id not in run("dead-letters", "billing").output:
                assert time.monotonic() < deadline, "it never died"
        row = run("dead-letters", "billing").output.splitlines()[1].split()
        assert row[:5] == [sent.msg_id, "orders", "broker-0", "0", "1"]
        missing = run("dead-letters", "billing", "--resend", "NOBODY")
        assert missing.exit_code == 1 and "no dead letter of group billing is NOBODY" in missing.output
        again = run("dead-letters", "billing", "--resend", "all")
        assert again.output == f"sent {sent.msg_id} to group billing again\n"
        with mq.subscribe("orders", group="billing", start="latest") as messages:
            message = next(iter(messages))
            message.ack()
            assert message.msg_id == sent.msg_id
