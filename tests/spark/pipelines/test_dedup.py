"""sparrowmq.spark.pipelines.dedup: a topic without its repeats."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.spark.pipelines import dedup
from tests.spark.pipelines.killing import forget_last_commit

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


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


@pytest.mark.guards("Repeats.without: kept = first")
def test_a_message_passes_once_within_a_batch_between_batches_and_after_a_crash(topic, drop, tmp_path):
    send(topic, 1, 2, 2, 3)
    report = drop()
    assert (report.read, report.written) == (4, 3)
    send(topic, 3, 4)
    assert drop().written == 1
    forget_last_commit(tmp_path / "state")
    send(topic, 1, 5)
    assert drop().written == 1
    assert passed(topic) == ["id-1", "id-2", "id-3", "id-4", "id-5"]


def test_repeats_are_what_has_the_same_key_by_any_expression(topic, drop):
    send(topic, 1, 11, 2)
    assert drop(by="get_json_object(cast(body as string), '$.n')").written == 2
    assert len(passed(topic)) == 2


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"by": "nothing"}, "by='nothing' cannot be understood"),
        ({"window": "soon"}, "write 90s, 12h or 7d"),
        ({"window": "0"}, "no repeat would go"),
        ({"window": "-1d"}, "no repeat would go"),
    ],
)
def test_wrong_arguments_are_told(topic, drop, given, complaint):
    send(topic, 1)
    with pytest.raises(ConfigError, match=complaint):
        drop(**given)
