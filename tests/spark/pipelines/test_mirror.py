"""sparrowmq.spark.pipelines.mirror: topics of one cluster, kept in another."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice

import pytest

pytest.importorskip("pyspark")


from pyspark.errors import StreamingQueryException

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import mirror
from sparrowmq.spark.pipelines.running.folders import lock_folder
from sparrowmq.spark.source.partition_ranges import RowsLost
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.pipelines.killing import forget_last_commit, kill_at_work
from tests.spark.test_with_spark import Topic

pytestmark = pytest.mark.timeout(600)

SAME = ("queueId", "msgId", "bornTimestamp", "tags", "keys", "body", "flag")


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """The name server of another cluster."""
    with BackgroundCluster(tmp_path_factory.mktemp("far")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def copy(topic, far, tmp_path):
    def copy(state="state", **given):
        where = {"name_server": topic.options["nameServer"], "to": far, "spark": topic.spark}
        where |= {"topic": topic.name}
        return mirror(state=tmp_path / state, once=True, say=lambda _: None, **(where | given))

    return copy


def first(consumer, number):
    """Receive and acknowledge so many messages."""
    with consumer:
        got = list(islice(consumer, number))
        for message in got:
            message.ack()
    return got


def rows_of(topic, **options):
    """In the order of each queue."""
    rows = topic.read(**options).collect()
    return sorted(rows, key=lambda row: (row.queueId, row.queueOffset))


@pytest.mark.slow
def test_copies_are_as_their_originals_and_come_once_after_a_crash(topic, copy, far, tmp_path):
    topic.send(0, 300, TAGS="paid", KEYS="a b", region="eu")
    first = copy(options={"maxoffsetspertrigger": "100"})
    assert (first.read, first.written, first.errors) == (300, 300, 0)
    forget_last_commit(tmp_path / "state")
    topic.send(300, 20)
    again = copy()
    assert again.written == 20
    originals, copies = rows_of(topic), rows_of(topic, nameServer=far)
    assert [[row[name] for name in SAME] for row in copies] == [[row[name] for name in SAME] for row in originals]
    assert sum(row.properties.get("region") == "eu" for row in copies) == 300


@pytest.mark.slow
def test_a_start_that_died_before_its_first_plan_has_settled_where_the_mirror_begins(topic, copy, tmp_path):
    topic.send(0, 20)
    assert copy(options={"startingOffsets": "latest"}).written == 0
    (tmp_path / "state" / "checkpoint" / "offsets" / "0").write_bytes(b"")
    topic.send(20, 5)
    assert copy(options={"startingOffsets": "latest"}).written == 5


@pytest.mark.slow
def test_a_damaged_plan_of_copied_messages_is_made_again_and_doubles_nothing(topic, copy, far, tmp_path):
    topic.send(0, 40)
    assert copy(options={"maxOffsetsPerTrigger": "20"}).written == 40
    forget_last_commit(tmp_path / "state")
    (tmp_path / "state" / "checkpoint" / "offsets" / "1").write_bytes(b"")
    topic.send(40, 5)
    assert copy().written == 5
    assert len(rows_of(topic, nameServer=far)) == 45


@pytest.mark.slow
def test_a_topic_that_was_made_again_is_copied_from_its_first_message(topic, copy, far):
    topic.send(0, 100)
    assert copy().written == 100
    with sync.connect(topic.options["nameServer"]) as mq:
        mq.admin.delete_topic(topic.name)
        mq.admin.create_topic(topic.name, queues=4)
    topic.send(0, 300)
    with pytest.raises(StreamingQueryException, match="was deleted and made again"):
        copy()
    lenient = {"failOnDataLoss": "false"}
    assert (copy(options=lenient).written, copy().written) == (300, 0)
    bodies = sorted(int(row.body) for row in topic.read(nameServer=far).collect())
    assert bodies == sorted([*range(100), *range(300)])


@pytest.mark.slow
def test_a_target_that_was_made_again_ends_the_mirror_and_copies_go_on_where_asked(topic, copy, far):
    topic.send(0, 100)
    assert copy().written == 100
    with sync.connect(far) as mq:
        mq.admin.delete_topic(topic.name)
    with pytest.raises(RowsLost, match=r"the target, was deleted and made again.* name another state folder"):
        copy()
    topic.send(100, 20)
    lenient = {"failOnDataLoss": "false"}
    assert (copy(options=lenient).written, copy().written) == (20, 0)


@pytest.mark.slow
def test_a_group_goes_on_in_the_other_cluster(topic, copy, far):
    topic.send(0, 100)
    with sync.connect(topic.options["nameServer"]) as mq:
        mq.admin.create_group("moves")
        mq.admin.reset("moves", topic.name, to="latest")
    topic.send(100, 20)
    copy(groups="mov.*")
    with sync.connect(far) as mq:
        assert mq.admin.lag("moves", topic.name).lag == 20
        got = [int(message.body) for message in first(mq.subscribe(topic.name, group="moves"), 20)]
    assert sorted(got) == list(range(100, 120))


@pytest.mark.slow
def test_a_batch_is_found_again_behind_all_that_others_wrote_to_its_queues(topic, copy, far, tmp_path):
    topic.send(0, 100)
    assert copy().written == 100
    others = Topic(topic.spark, far)
    others.name = others.options["topic"] = topic.name
    others.send(100, 40_000)
    forget_last_commit(tmp_path / "state")
    again = copy()
    assert (again.read, again.written) == (100, 0)


@pytest.mark.slow
def test_a_mirror_in_the_other_direction_copies_nothing_back(topic, copy, far, tmp_path):
    topic.send(0, 10)
    copy()
    back = mirror(
        topic.name,
        name_server=far,
        to=topic.options["nameServer"],
        state=tmp_path / "back",
        once=True,
        spark=topic.spark,
        say=lambda _: None,
    )
    assert (back.read, back.written) == (10, 0)
    assert len(rows_of(topic)) == 10


def test_two_runs_of_one_mirror_refuse_each_other(topic, copy, tmp_path):
    topic.send(0, 1)
    with lock_folder(tmp_path / "state"), pytest.raises(ConfigError, match="another run is at work"):
        copy()


def test_another_mirror_does_not_take_its_state(topic, copy, tmp_path):
    topic.send(0, 1)
    with pytest.raises(ConfigError, match="copied into themselves"):
        copy(to=topic.options["nameServer"])
    assert copy().written == 1
    with pytest.raises(ConfigError, match="was begun with to_topic"):
        copy(to_topic="another")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_kills_of_the_driver_lose_double_and_reorder_nothing(topic, far, tmp_path):
    kills, more = 5, 20_000
    command = [sys.executable, "-m", "sparrowmq", "pipeline", "mirror", topic.name, "--once", "--to", far]
    command += ["-n", topic.options["nameServer"], "--state", str(tmp_path / "state")]
    command += ["-o", "maxOffsetsPerTrigger=4000"]
    chance = random.Random(10)
    for kill in range(kills):
        topic.send(kill * more, more)
        kill_at_work(command, tmp_path / "state", tmp_path / "log", chance.uniform(0, 1.5))
    command[-1] = "maxOffsetsPerTrigger=100000"
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    originals, copies = rows_of(topic), rows_of(topic, nameServer=far)
    assert len(originals) == kills * more
    assert [row.msgId for row in copies] == [row.msgId for row in originals]
