"""sparrowmq.spark.pipelines.dead_letter_replay: what a group could not handle comes to it again."""

from __future__ import annotations

import json
import subprocess
import time
from itertools import count

import pytest

pytest.importorskip("pyspark")


from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError, InvalidMessage, NetworkError
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.spark.pipelines import dlq_replay
from sparrowmq.testing.background import BackgroundCluster

DEADLINE_S = 20
AT_ONCE = {"fetchOffset.numRetries": "0"}
_names = count()


@pytest.fixture
def mq(namesrv):
    with sync.connect(namesrv) as mq:
        yield mq


@pytest.fixture
def group(mq):
    """The name of a group of which nobody is on line."""
    name = f"billing-{next(_names)}"
    mq.admin.create_group(name)
    return name


@pytest.fixture
def dead(mq, group):
    """Makes dead letters of the group."""

    def dead(bodies, **given):
        mq.admin.create_topic(dlq_topic(group), queues=1, exist_ok=True)
        for body in bodies:
            mq.send(dlq_topic(group), body, **given)
        deadline = time.monotonic() + DEADLINE_S
        while len(mq.admin.dead_letters(group)) < len(bodies):
            assert time.monotonic() < deadline

    return dead


@pytest.fixture
def replay(namesrv, group, tmp_path):
    def replay(name_server=namesrv, **given):
        return dlq_replay(group, name_server=name_server, journal=tmp_path / "journal", **given)

    return replay


def handled(mq, group, number):
    with mq.subscribe("orders", group=group) as orders:
        return sorted(message.body for _, message in zip(range(number), orders, strict=False))


def journal(tmp_path):
    return [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]


def test_each_dead_letter_is_sent_once_however_often_it_is_replayed(mq, group, dead, replay, tmp_path):
    mq.send("orders", b"for all groups")
    dead([b"1", b"2", b"3"])
    first = replay()
    assert (first.read, first.written, first.errors) == (3, 3, 0)
    assert [line["outcome"] for line in journal(tmp_path)] == ["sent"] * 3
    again = replay()
    assert (again.read, again.written) == (0, 0)
    assert handled(mq, group, 4) == [b"1", b"2", b"3", b"for all groups"]


def test_only_what_was_asked_for_is_sent_and_the_journal_has_a_line_for_each(mq, dead, replay, tmp_path):
    dead([b"1"], tag="paid", properties={"region": "eu"})
    dead([b"1", b"2"][1:], tag="paid", properties={"region": "us"})
    dead([b"1", b"2", b"3"][2:], tag="sent", properties={"region": "eu"})
    report = replay(tags="paid", where="region = 'eu'")
    assert (report.read, report.written) == (3, 1)
    assert [line["outcome"] for line in journal(tmp_path)] == ["sent", "passed over", "passed over"]
    with pytest.raises(InvalidMessage, match=r"write 'paid \|\| sent' for"):
        replay(tags="paid|sent")


def test_a_run_that_was_killed_is_gone_on_with(dead, replay, tmp_path):
    dead([b"1", b"2", b"3"])
    replay()
    whole = (tmp_path / "journal").read_text().splitlines(keepends=True)
    (tmp_path / "journal").write_text(whole[0] + whole[1][:20])
    assert replay().written == 2
    assert [line["offset"] for line in journal(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_journal_of_a_topic_that_was_made_again_is_refused(mq, group, dead, replay, tmp_path, again):
    dead([b"1", b"2"])
    replay()
    before = (tmp_path / "journal").read_text()
    mq.admin.delete_topic(dlq_topic(group))
    dead([b"new %d" % number for number in range(again)])
    with pytest.raises(ConfigError, match="was deleted and made again; name another journal"):
        replay()
    assert (tmp_path / "journal").read_text() == before
    (tmp_path / "journal").rename(tmp_path / "other")
    assert replay().written == again


def test_groups_with_one_journal_do_not_silence_each_other(mq, namesrv, tmp_path):
    for name in ("one", "two"):
        mq.admin.create_group(name)
        mq.admin.create_topic(dlq_topic(name), queues=1)
        for number in range(3):
            mq.send(dlq_topic(name), b"%d" % number)

    def replay(name):
        return dlq_replay(name, name_server=namesrv, journal=tmp_path / "journal").written

    assert [replay(name) for name in ("one", "two", "one", "two")] == [3, 3, 0, 0]
    assert [line["topic"] for line in journal(tmp_path)] == ["%DLQ%one"] * 3 + ["%DLQ%two"] * 3


def test_a_journal_that_does_not_name_its_topic_is_refused_with_a_command_that_mends_it(dead, replay, tmp_path):
    dead([b"1", b"2"])
    assert replay().written == 2
    lines = [{name: each for name, each in line.items() if name != "topic"} for line in journal(tmp_path)]
    (tmp_path / "journal").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ConfigError, match="do not say whose dead letters") as told:
        replay()
    command = str(told.value).partition("say so: ")[2].rpartition("; else")[0]
    subprocess.run(command, shell=True, check=True)
    assert replay().written == 0


def test_two_runs_do_not_write_one_journal(dead, replay, tmp_path):
    dead([b"1", b"2"])
    refused: list[str] = []

    def meanwhile(_pause_s: float) -> None:
        with pytest.raises(ConfigError) as told:
            replay()
        refused.append(str(told.value))

    assert replay(rate=1, sleep=meanwhile).written == 2
    assert refused == [f"another run is at work in {tmp_path / 'journal'}; wait for its end, or stop it"]
    assert [line["outcome"] for line in journal(tmp_path)] == ["sent"] * 2


def test_brokers_that_are_away_are_no_lack_of_dead_letters(dead, replay, namesrv, tmp_path):
    dead([b"1"])
    replay()
    with BackgroundCluster(tmp_path / "empty", brokers=0) as cluster:
        with pytest.raises(NetworkError, match="knows a broker now"):
            dlq_replay("other", name_server=cluster.namesrv, journal=tmp_path / "j", options=AT_ONCE)
        assert not (tmp_path / "j").exists()
    with BackgroundCluster(tmp_path / "far") as cluster, pytest.raises(NetworkError, match="broker is away"):
        replay(name_server=cluster.namesrv)


def test_a_rate_is_kept(dead, replay):
    dead([b"1", b"2", b"3"])
    pauses: list[float] = []
    replay(rate=0.01, sleep=pauses.append)
    assert [round(pause_s / 100) for pause_s in pauses] == [
        1,
        2,
    ]  # the pauses take no time here, and so add up


def test_a_dry_run_counts_and_sends_nothing(dead, replay, tmp_path):
    dead([b"1", b"2"])
    report = replay(dry_run=True)
    assert (report.read, report.written) == (2, 2)
    assert not (tmp_path / "journal").exists()
    assert replay().written == 2


def test_a_group_without_dead_letters_has_nothing_to_send_and_that_is_told(replay, group):
    said: list[str] = []
    report = replay(say=said.append)
    assert (report.read, report.written) == (0, 0)
    assert said == [f"group {group} has no dead letters: there is no topic %DLQ%{group}; check the name of the group"]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"where": "region ="}, "cannot be understood"),
        ({"rate": 0}, "more than 0"),
        ({"since": "yesterday"}, "startingTimestamp='yesterday'"),
    ],
)
def test_wrong_arguments_are_told(replay, given, complaint, tmp_path):
    with pytest.raises(ConfigError, match=complaint):
        replay(**given)
    assert not (tmp_path / "journal").exists()


def test_a_file_that_is_no_journal_is_left_alone(dead, replay, tmp_path):
    dead([b"1"])
    (tmp_path / "journal").write_text("some other file\n")
    with pytest.raises(ConfigError, match="is no journal"):
        replay()
    assert (tmp_path / "journal").read_text() == "some other file\n"


def test_without_servers_it_says_so(group, tmp_path):
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1:1"):
        dlq_replay(group, name_server="127.0.0.1:1", journal=tmp_path / "j", options=AT_ONCE)
