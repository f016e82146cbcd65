"""sparrowmq.spark.pipelines.running.span: rows that stay the same however a topic grows."""

import json
import time

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.running.span import (
    ends_before,
    offsets_by_topic,
    since_until,
    span_of,
    stream_options_from,
)
from sparrowmq.spark.source.partition_ranges import Offsets, RowsLost

pytestmark = pytest.mark.timeout(240)


@pytest.mark.slow
def test_a_span_is_what_a_topic_held(topic):
    topic.send(0, 20)
    span = span_of(topic.options)
    topic.send(20, 5)
    assert span.rows == 20
    given = span.batch_options({**topic.options, "startingTimestamp": "1", "endingOffsets": "latest"})
    assert set(given) == {"nameServer", "topic", "startingOffsets", "endingOffsets"}
    assert json.loads(given["endingOffsets"]) == offsets_by_topic(span.end)
    assert topic.read(**given).count() == 20


def test_a_time_behind_everything_is_an_empty_span(topic):
    topic.send(0, 3)
    assert span_of(topic.options | since_until("2100-01-01", None)).rows == 0
    assert span_of(topic.options | since_until(None, "2100-01-01")).rows == 3
    with pytest.raises(ConfigError, match="startingOffsetsByTimestampStrategy=latest"):
        span_of({**topic.options, "startingTimestamp": "4102444800000"})


def test_the_ends_before_a_time_are_those_of_the_messages_stored_before_it(topic):
    topic.send(0, 3)
    ends = span_of(topic.options).end
    given = {**topic.options, "startingOffsets": "latest", "endingOffsets": "earliest"}
    assert ends_before(given, 4102444800000) == ends
    assert ends_before(given, 1) == dict.fromkeys(ends, 0)


def test_a_stream_goes_on_behind_offsets_and_reads_new_queues_and_a_topic_made_again_from_their_begin(topic):
    topic.send(0, 20)
    given = {**topic.options, "startingOffsets": "latest"}
    ends = span_of(topic.options).end
    assert starts_of(stream_options_from(ends, given)) == dict(ends)
    (first, *_), life = sorted(ends), ends.incarnations
    without = Offsets({queue: end for queue, end in ends.items() if queue != first}, life)
    assert starts_of(stream_options_from(without, given)) == {**ends, first: 0}
    earlier = Offsets(dict.fromkeys(ends, 1), {part: known - 1 for part, known in life.items()})
    with pytest.raises(RowsLost, match="was deleted and made again"):
        stream_options_from(earlier, given)
    assert starts_of(stream_options_from(earlier, {**given, "failOnDataLoss": "false"})) == dict.fromkeys(ends, 0)


def test_a_stream_does_not_go_on_without_a_queue_that_it_has_read(topic):
    topic.send(0, 20)
    ends = span_of(topic.options).end
    with sync.connect(topic.options["nameServer"]) as mq:
        mq.admin.change_topic(topic.name, queues=len(ends) - 1, hide_unread=True)
    deadline = time.monotonic() + 60
    while len(topic.ends()) == len(ends):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(ConfigError, match=r"fewer queues now\..* by updateTopic"):
        stream_options_from(ends, topic.options)
    again = Offsets(ends, {part: known - 1 for part, known in ends.incarnations.items()})
    given = {**topic.options, "failOnDataLoss": "false"}
    assert starts_of(stream_options_from(again, given)).keys() == ends.keys() - {max(ends)}


def starts_of(given):
    topics = json.loads(given["startingOffsets"])
    return {
        MessageQueue(topic, broker, int(queue)): offset
        for topic, brokers in topics.items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    }
