"""sparrowmq.spark.pipelines.running.span: rows that stay the same however a topic grows."""

import json

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.span import ends_before, offsets_by_topic, since_until, span_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_span_is_what_a_topic_held(topic):
    topic.send(0, 20)
    span = span_of(topic.options)
    topic.send(20, 5)
    assert span.rows == 20
    given = span.of({**topic.options, "startingTimestamp": "1", "endingOffsets": "latest"})
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
