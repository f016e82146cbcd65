"""sparrowmq.spark.pipelines.target_topics: the topics that a pipeline writes to."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError, NoRoute, SendFailed
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines import target_topics as topics


def test_only_topics_that_are_not_there_are_made(namesrv):
    options = topics.sink_options(None, namesrv)
    assert topics.create_topics(options, {"new": 3, "newer": 1}, None) == ["new", "newer"]
    assert topics.create_topics(options, {"new": 5, "newest": 1}, None) == ["newest"]
    assert [queue.queue_id for queue in topics.writable_queues(options, ["new"])] == [0, 1, 2]


def test_what_takes_no_messages_is_told(namesrv):
    options = topics.sink_options(None, namesrv)
    with pytest.raises(NoRoute, match="nothing-here"):
        topics.writable_queues(options, ["nothing-here"])
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("closed", perm="r")
    with pytest.raises(SendFailed, match="check its permission"):
        topics.writable_queues(options, ["closed"])


def test_an_option_that_copies_have_no_use_for_is_refused():
    with pytest.raises(ConfigError, match="option onError has no meaning for copies"):
        topics.sink_options({"onError": "skip"}, "near:1")


def test_an_option_that_chooses_what_is_read_is_refused():
    with pytest.raises(ConfigError, match="option tags says what is read"):
        topics.sink_options({"tags": "paid"}, "near:1")


def test_the_widest_broker_says_how_wide_a_topic_is():
    queues = [MessageQueue("t", broker, number) for broker, width in (("a", 2), ("b", 4)) for number in range(width)]
    assert topics.queues_per_broker(queues) == {"t": 4}
