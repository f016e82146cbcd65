import time

import pytest

from sparrowmq.cli.mqadmin import group_subcommands as running
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ConsumerRunning, ProcessQueueState
from sparrowmq.protocol.requests.offset_bodies import ConsumeStats, QueueProgress
from sparrowmq.protocol.subscription import Subscription

QUEUE = MessageQueue("T", "b", 0)
PUSH = {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CONSUMER_START_TIMESTAMP": "1"}


def member(*topics: str, state: ProcessQueueState | None = None, **properties: str) -> ConsumerRunning:
    table = {QUEUE: state} if state is not None else {}
    return ConsumerRunning({**PUSH, **properties}, [Subscription.build(each) for each in topics], table)


def test_members_agree_if_they_subscribe_the_same() -> None:
    assert running.have_same_subscription({"a": member("T"), "b": member("T")})
    assert not running.have_same_subscription({"a": member("T"), "b": member("U")})
    assert not running.have_same_subscription({"a": member()})


def test_young_members_and_those_that_pull_by_themselves_are_not_judged() -> None:
    now = str(round(time.time() * 1000))
    assert running.have_same_subscription({"a": member("T", PROP_CONSUMER_START_TIMESTAMP=now), "b": member("U")})
    assert running.have_same_subscription({"a": member("T", PROP_CONSUME_TYPE="CONSUME_ACTIVELY"), "b": member("U")})


@pytest.mark.parametrize(
    ("state", "orderly", "words"),
    [
        (ProcessQueueState(cached_msg_count=1, last_consume_timestamp=1), "false", "maybe blocked"),
        (ProcessQueueState(cached_msg_count=0, last_consume_timestamp=1), "false", None),
        (ProcessQueueState(locked=False, last_lock_timestamp=1), "true", "can't lock for a while"),
        (
            ProcessQueueState(locked=True, dropped=True, try_unlock_times=2),
            "true",
            "unlock 2 times, still failed",
        ),
        (ProcessQueueState(locked=True), "true", None),
    ],
)
def test_a_queue_that_stands_still_is_complained_of(state, orderly, words) -> None:
    said = list(running.complaints("a", member("T", state=state, PROP_CONSUMEORDERLY=orderly)))
    assert [words in each for each in said] == ([True] if words else [])


def test_of_each_topic_the_sum_and_the_longest_queue_are_told() -> None:
    stats = ConsumeStats(0.0, {MessageQueue("T", "b", n): QueueProgress(10, at) for n, at in enumerate((4, 9))})
    assert list(running._lags_by_topic(stats)) == [("T", 7, 6)]


@pytest.mark.parametrize("client_id", ["../../x", "/etc/x", "a\0b", "..", ".", ""])
def test_the_report_of_a_client_is_a_file_in_the_folder(tmp_path, client_id) -> None:
    assert running._write_report(tmp_path / "now", client_id, "text").parent.resolve() == tmp_path / "now"
    assert [each.read_text() for each in (tmp_path / "now").iterdir()] == ["text"]
