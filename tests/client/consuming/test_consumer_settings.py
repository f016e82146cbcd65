from datetime import datetime

import pytest

from sparrowmq.client.consuming.consumer_settings import (
    FOR_EVER,
    ConsumerSettings,
    FlowLimits,
    PullSettings,
    consume_from_where,
    subscription,
    subscriptions,
)
from sparrowmq.errors import ConfigError, InvalidMessage, InvalidName
from sparrowmq.protocol.allocation import averagely, strategy_of
from sparrowmq.protocol.subscription import SQL92


@pytest.mark.covers("S-CONS-02", "S-CONS-06", "S-CONS-09", "S-CONS-10")
def test_what_java_takes_is_taken():
    usual = ConsumerSettings("g")
    assert consume_from_where(usual.start) == "CONSUME_FROM_LAST_OFFSET" and strategy_of(usual.strategy) is averagely
    assert usual.pull_batch == 256
    assert (usual.flow.messages, usual.flow.size_bytes, usual.flow.span) == (1000, 100 << 20, 2000)


@pytest.mark.covers("S-CONS-20")
@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({}, 16),
        ({"ordered": True}, FOR_EVER),
        ({"max_reconsume_times": 3}, 3),
        ({"max_reconsume_times": 0}, 0),
        ({"ordered": True, "max_reconsume_times": 3}, 3),
        ({"max_reconsume_times": -1}, 16),
    ],
)
def test_failures_have_a_limit(options, times):
    assert ConsumerSettings("g", **options).reconsume_times == times


@pytest.mark.covers("S-CONS-02")
def test_a_time_to_begin_at_is_told_to_brokers():
    assert consume_from_where("earliest") == "CONSUME_FROM_FIRST_OFFSET"
    assert consume_from_where(datetime(2026, 1, 1)) == "CONSUME_FROM_TIMESTAMP"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch must be a whole number, from 1 to 1024"),
        ({"batch": 1025}, "1 to 1024"),
        ({"batch": 1.5}, "1 to 1024"),
        ({"batch": True}, "1 to 1024"),
        ({"concurrency": 0}, "from 1 to 10000"),
        ({"pull_batch": 0}, "from 1 to 2147483647"),
        ({"pull_batch": 1 << 31}, "from 1 to 2147483647"),
        ({"max_reconsume_times": 2**40}, "from -1 to 2147483647"),
        ({"max_reconsume_times": "3"}, "from -1 to 2147483647"),
        ({"handler_timeout_s": 0}, "None for no limit"),
        ({"handler_timeout_s": float("nan")}, "handler_timeout_s=nan: give seconds above 0, or None"),
        ({"handler_timeout_s": "5"}, "None for no limit"),
        ({"grace_s": None}, "grace_s=None: give seconds from 0 on"),
        ({"grace_s": -1}, "grace_s=-1: give seconds from 0 on"),
        ({"suspend_s": None}, "suspend_s=None: give seconds above 0"),
        ({"flow": None}, "flow=None: give FlowLimits, or leave it out"),
        ({"offset_folder": "text"}, "offset_folder='text': give a pathlib.Path"),
        ({"start": datetime.min}, "cannot be counted"),
        ({"ordered": "no"}, "ordered='no': give True or False"),
        ({"broadcast": None}, "broadcast=None: give True or False"),
        ({"strategy": lambda queues: queues}, "takes other arguments"),
        ({"start": "newest"}, "'latest', 'new', 'earliest' or a datetime"),
    ],
)
def test_a_wrong_setting_says_what_is_right(options, words):
    with pytest.raises(ConfigError, match=words):
        ConsumerSettings("g", **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auto_commit_s": 0}, "auto_commit_s=0: give seconds above 0, or None"),
        ({"pull_batch": 1.5}, "pull_batch must be a whole number"),
        ({"offset_folder": "text"}, "offset_folder='text': give a pathlib.Path"),
        ({"start": 5}, "start=5 is unknown"),
        ({"broadcast": "no"}, "broadcast='no': give True or False"),
    ],
)
def test_a_wrong_setting_of_a_reader_says_what_is_right(options, words):
    with pytest.raises(ConfigError, match=words):
        PullSettings("g", **options)


@pytest.mark.parametrize("name", ["messages", "size_bytes", "span"])
@pytest.mark.parametrize("limit", [0, -1, None, 1.5])
def test_limits_that_let_nothing_come_are_refused(name, limit):
    with pytest.raises(ConfigError, match=f"{name} must be a whole number, at least 1"):
        FlowLimits(**{name: limit})


def test_no_grace_at_all_is_one():
    assert ConsumerSettings("g", grace_s=0).grace_s == 0


def test_a_group_needs_a_name():
    with pytest.raises(InvalidName):
        ConsumerSettings("a b")


def test_topics_come_alone_in_a_row_or_with_their_tags():
    assert subscriptions("t", None, None, 5) == {"t": subscription("t", None, None, 5)}
    assert subscriptions(["t", "u"], "a", None, 5)["u"].tags == {"a"}
    both = subscriptions({"t": "a || b", "u": "*"}, None, None, 5)
    assert both["t"].tags == {"a", "b"} and both["u"].codes == frozenset()
    assert subscriptions("t", None, "a > 5", 5)["t"].kind == SQL92


def test_contradicting_filters_are_refused():
    with pytest.raises(ConfigError, match="not both"):
        subscriptions("t", "a", "a > 5", 5)
    with pytest.raises(ConfigError, match="leave out"):
        subscriptions({"t": "*"}, "a", None, 5)
    with pytest.raises(InvalidMessage, match="has no tag"):
        subscriptions("t", "||", None, 5)
    with pytest.raises(InvalidMessage, match=r"write 'a \|\| b' for"):
        subscriptions({"t": "a && b"}, None, None, 5)
    for empty in ("", " "):
        with pytest.raises(ConfigError, match="is not a condition; leave it out"):
            subscriptions("t", None, empty, 5)
    with pytest.raises(InvalidName):
        subscriptions("a b", None, None, 5)
