"""sparrowmq.spark.commands.pipeline_commands: mirror, dedup and dlq-replay as commands."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from sparrowmq.client import blocking_client as sync
from sparrowmq.spark.commands.pipeline_commands import pipeline
from sparrowmq.testing.background import BackgroundCluster

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """The name server of another cluster."""
    with BackgroundCluster(tmp_path_factory.mktemp("far")) as cluster:
        yield cluster.namesrv


@pytest.mark.slow
def test_mirror_ends_with_one_line_of_json(topic, far, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send(0, 5)
    args = ["mirror", topic.name, "-n", topic.options["nameServer"], "--to", far, "--to-topic", "renamed"]
    args += ["--state", str(tmp_path / "state"), "--once"]
    planned = CliRunner().invoke(pipeline, [*args, "--dry-run"])
    assert "5 messages in 4 queues would be copied" in planned.stderr
    assert not (tmp_path / "state").exists()
    done = CliRunner().invoke(pipeline, args)
    assert json.loads(done.stdout)["written"] == 5
    assert "made topic renamed with 4 queues" in done.stderr


@pytest.mark.parametrize("command", ["mirror", "dedup"])
@pytest.mark.parametrize("wish", ["--once", "--dry-run"])
def test_a_command_that_finds_no_topic_fails(command, wish, topic, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    to = ["--to", "127.0.0.1:9"] if command == "mirror" else ["all"]
    args = [command, "lk-.*,flights", *to, "-n", topic.options["nameServer"], "--state", str(tmp_path / "s")]
    done = CliRunner().invoke(pipeline, [*args, wish])
    assert done.exit_code == 1 and "matches lk-.*,flights; correct it" in done.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_dedup_ends_with_one_line_of_json(topic, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send(0, 4)
    args = ["dedup", topic.name, "one", "-n", topic.options["nameServer"], "--state", str(tmp_path / "s")]
    report = json.loads(CliRunner().invoke(pipeline, [*args, "--once", "--by", "topic"]).stdout)
    assert (report["read"], report["written"]) == (4, 1)


def test_dlq_replay_ends_with_one_line_of_json(namesrv, tmp_path):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("%DLQ%billing", queues=1)
        mq.send("%DLQ%billing", b"1")
    args = ["dlq-replay", "billing", "-n", namesrv, "--journal", str(tmp_path / "journal"), "--rate", "1000"]
    done = CliRunner().invoke(pipeline, args)
    report = json.loads(done.stdout)
    assert (report["read"], report["written"], report["errors"]) == (1, 1, 0)
    assert report["offsets"]["%DLQ%billing"]["broker-0"] == {"0": 1}
