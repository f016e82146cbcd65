"""sparrowmq.spark.pipelines.dedup: a topic without its repeats."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.spark.pipelines import dedup
from tests.spark.pipelines.killing import forget_last_commit, kill_at_work
from tests.spark.test_with_spark import Topic

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def drop(topic, tmp_path):
    def drop(**given):
        return dedup(
            topic.name,
            f"{topic.name}-once",
            name_server=topic.options["nameServer"],
            state=tmp_path / "state",
            once=True,
            spark=topic.spark,
            say=lambda _: None,
            **given,
        )

    return drop


def send(topic, *ids):
    before = sum(topic.ends().values())
    topic._send([BatchPart(b'{"n":%d}' % (number % 10), b"UNIQ_KEY\x01id-%d\x02" % number) for number in ids])
    topic.wait_for(before + len(ids))


def passed(topic):
    return sorted(row.msgId for row in topic.read(topic=f"{topic.name}-once").collect())


@pytest.mark.slow
def test_a_message_passes_once_within_a_batch_between_batches_and_after_faults(topic, drop, tmp_path):
    send(topic, 1, 2, 2, 3)
    report = drop()
    assert (report.read, report.written) == (4, 3)
    send(topic, 3, 4)
    assert drop().written == 1
    forget_last_commit(tmp_path / "state")
    send(topic, 1, 5)
    assert drop().written == 1
    for path in tmp_path.rglob("last.json*"):  # a fault of the disk takes the keys of the last batch
        path.write_bytes(b"")
    send(topic, 5, 6)
    assert drop().written == 1
    assert passed(topic) == ["id-1", "id-2", "id-3", "id-4", "id-5", "id-6"]


@pytest.mark.slow
def test_the_window_counts_the_times_at_which_messages_were_stored(topic, drop):
    send(topic, 1)
    time.sleep(2.1)
    send(topic, 1)  # a backlog: both are in one batch
    assert drop(window="2s").written == 2
    assert drop(window="2s").read == 0
    send(topic, 1)
    assert drop(window="1h").written == 0


@pytest.mark.slow
def test_repeats_are_what_has_the_same_key_by_any_expression(topic, drop):
    send(topic, 1, 11, 2)
    assert drop(by="get_json_object(cast(body as string), '$.n')").written == 2
    assert len(passed(topic)) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_topics_of_a_pattern_are_copied_without_repeats_and_new_ones_are_found(topic, tmp_path):
    def run():
        where = {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}
        return dedup(f"{topic.name}(-.*)?", "{topic}-once", state=tmp_path / "state", once=True, **where).written

    send(topic, 1, 2, 2)
    assert run() == 2
    other = Topic(topic.spark, topic.options["nameServer"])
    other.name = other.options["topic"] = f"{topic.name}-b"
    send(other, 2, 3)
    send(topic, 3, 4)
    assert run() == 2  # a key is looked for in all topics
    assert len(passed(topic)) + len(passed(other)) == 4
    assert run() == 0


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"by": "concat(msgId, rand())"}, "is no property of a message"),
        ({"by": "concat(msgId, current_date())"}, "is no property of a message"),
        ({"by": "row_number() over (order by msgId)"}, "is no property of a message"),
        ({"by": "count(*)"}, "is no property of a message"),
        ({"by": "'msgId'"}, "is no property of a message"),
        ({"by": "nothing"}, "by='nothing' cannot be understood"),
        ({"window": "soon"}, "write 90s, 12h or 7d"),
        ({"window": "0"}, "no repeat would be dropped"),
        ({"window": "-1d"}, "no repeat would be dropped"),
    ],
)
def test_wrong_arguments_are_told(topic, drop, given, complaint):
    send(topic, 1)
    with pytest.raises(ConfigError, match=complaint):
        drop(**given)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_kills_of_the_driver_lose_and_double_nothing(topic, tmp_path):
    """Each message is sent twice; of half of them the repeat comes in a later batch, or in another run."""
    kills, more = int(os.environ.get("SPARROWMQ_KILLS", "5")), 10_000
    name_server = topic.options["nameServer"]
    command = [sys.executable, "-m", "sparrowmq", "pipeline", "dedup", topic.name, f"{topic.name}-once"]
    command += ["--once", "-n", name_server, "--state", str(tmp_path / "state")]
    command += ["-o", "maxOffsetsPerTrigger=4000"]
    chance = random.Random(10)
    for kill in range(kills):
        news = range(kill * more, (kill + 1) * more)
        send(topic, *(number for new in news for number in (new, max(0, new - chance.choice((0, more))))))
        kill_at_work(command, tmp_path / "state", tmp_path / "log", chance.uniform(0, 1.5))
    command[-1] = "maxOffsetsPerTrigger=100000"
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert passed(topic) == sorted(f"id-{number}" for number in range(kills * more))
