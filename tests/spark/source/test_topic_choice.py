"""sparrowmq.spark.options, row_reader: which topics and tags a query means."""

import re

import pytest

pytest.importorskip("pyarrow")

from sparrowmq.spark.options import matches_pattern
from sparrowmq.spark.source.row_reader import expression_tags


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("Orders", True),
        ("OrdersOld", False),
        ("%RETRY%Orders", False),
        ("%DLQ%Orders", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
        ("SCHEDULE_TOPIC_XXXX", False),
    ],
)
def test_a_pattern_means_whole_names_and_no_topic_of_rocketmqs_own(topic, expected):
    assert matches_pattern(re.compile("Orders|.*Orders|RMQ.*|SCHEDULE.*"), topic) is expected


def test_tags_are_named_or_all():
    assert expression_tags("*") is None
    found = expression_tags("b || a||b")
    assert found is not None and found.to_pylist() == ["a", "b"]
