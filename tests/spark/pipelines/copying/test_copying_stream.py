"""sparrowmq.spark.pipelines.copying.copying_stream: from which topics to which."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.copying.copying_stream import Target, routed


def test_topics_keep_their_names_or_get_another():
    assert routed("a,b", "near:1", Target("far:1")).names == {"a": "a", "b": "b"}
    assert routed("a", "near:1", Target("near:1", "b"), {"tags": "x"}).names == {"a": "b"}


@pytest.mark.parametrize(
    ("topics", "to", "to_topic", "complaint"),
    [
        ("a", "near:1", None, "copied into themselves"),
        ("a,b", "far:1", "c", "to_topic renames one topic"),
        ("a", "far", None, "nameServer='far'"),
    ],
)
def test_a_way_that_leads_nowhere_is_refused(topics, to, to_topic, complaint):
    with pytest.raises(ConfigError, match=complaint):
        routed(topics, "near:1;x:1", Target(to, to_topic))


def test_a_stream_is_not_told_where_it_ends():
    with pytest.raises(ConfigError, match="and not a stream; leave them out"):
        routed("a", "near:1", Target("far:1"), {"endingtimestamp": "1000"})


def test_topics_are_made_as_wide_and_queues_paired(namesrv):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("wide", queues=3)
    route = routed("wide", namesrv, Target(namesrv, "wide-too"))
    said: list[str] = []
    route.make(None, said.append)
    assert said == ["made topic wide-too with 3 queues on each broker"]
    assert route.targets({}) == {
        MessageQueue("wide", "broker-0", number): MessageQueue("wide-too", "broker-0", number)
        for number in range(3)
    }
