from datetime import datetime

import pytest

from sparrowmq.client.admin.groups import GroupLag, QueueLag
from sparrowmq.console.reset_dialog import Meaning, place_of
from sparrowmq.protocol.messages.message import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(3)]


def test_a_dry_run_counts_what_comes_again_and_what_is_skipped():
    lag = GroupLag(
        "g", tuple(QueueLag(queue, 100, at, None) for queue, at in zip(QUEUES, (10, 50), strict=False)), 0
    )
    meaning = Meaning.of(lag, dict(zip(QUEUES, (4, 100, 70), strict=True)))
    assert meaning == Meaning(again=6, skipped=50), "of a queue it has never read nothing is known"
    assert meaning.text("g", "t") == (
        "Group g would get 6 messages of t again, and would skip 50 that it has not handled."
    )


def test_places_are_ends_times_and_offsets():
    assert place_of("earliest", "") == "earliest" and place_of("latest", "x") == "latest"
    assert place_of("offset", " 12 ") == 12
    assert place_of("time", "2026-11-20 08:00") == datetime(2026, 11, 20, 8).astimezone()


@pytest.mark.parametrize(
    ("kind", "text"), [("time", "yesterday"), ("offset", "-1"), ("offset", ""), ("offset", "²")]
)
def test_what_is_no_place_is_told(kind, text):
    with pytest.raises(ValueError, match="write"):
        place_of(kind, text)
