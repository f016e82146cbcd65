from datetime import datetime

import pytest

from sparrowmq.admin.groups import GroupLag, QueueLag
from sparrowmq.console.actions import ResetEffect, position_of, skip_text
from sparrowmq.protocol.messages.message import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(3)]


def test_a_dry_run_counts_repeated_and_skipped_messages():
    lags = (QueueLag(queue, 100, at, None) for queue, at in zip(QUEUES, (10, 50), strict=False))
    effect = ResetEffect.from_offsets(GroupLag("g", tuple(lags), 0), dict(zip(QUEUES, (4, 100, 70), strict=True)))
    assert effect == ResetEffect(again=6, skipped=50), "a queue that was never read counts nothing"
    assert effect.text("g", "t") == ("Group g would receive 6 messages of t again, and would skip 50 waiting messages.")


def test_positions_are_ends_times_and_offsets():
    assert position_of("earliest", "") == "earliest" and position_of("latest", "x") == "latest"
    assert position_of("offset", "12") == 12
    assert position_of("time", "2026-11-20 08:00") == datetime(2026, 11, 20, 8).astimezone()


@pytest.mark.parametrize(
    ("kind", "text"), [("time", "yesterday"), ("time", ""), ("offset", "-1"), ("offset", ""), ("offset", "²")]
)
def test_an_invalid_position_is_an_error(kind, text):
    with pytest.raises(ValueError, match="write"):
        position_of(kind, text)


def test_skipping_names_the_messages_that_are_never_handled():
    queues = [QueueLag(MessageQueue(topic, "b", 0), 10, at, None) for topic, at in (("a", 4), ("b", 0))]
    assert skip_text(GroupLag("g", tuple(queues), 0.0), "a") == "Group g will never receive 6 messages of a."
