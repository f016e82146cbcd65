from datetime import timedelta

import pytest

from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.retry import Reject, Retry, reject_reason
from sparrowmq.errors import ConfigError


def test_each_retry_has_its_delay_and_the_last_one_is_repeated():
    rules = Retry("1s", 2.5, timedelta(minutes=1), times=5, never=ValueError)
    assert [rules.delay_s(failures) for failures in range(5)] == [1, 2.5, 60, 60, 60]
    assert (rules.times, rules.never) == (5, (ValueError,))
    assert repr(rules) == "Retry(1, 2.5, 60, times=5, never=['ValueError'])"


@pytest.mark.parametrize("delay", ["100ms", 0.1, timedelta(milliseconds=100)])
def test_a_delay_is_a_text_a_time_or_seconds(delay):
    assert Retry(delay).delays_s == (0.1,)


def test_without_delays_the_broker_chooses():
    assert Retry(times=0).delay_s(0) is None


@pytest.mark.parametrize(
    ("delays", "named", "words"),
    [
        ((), {}, r"give delays, as Retry\("),
        ((3, [1, 10, 60]), {}, r"\[1, 10, 60\] is not the delay of a retry; give durations"),
        (("soon",), {}, "'soon' is not the delay"),
        ((0,), {}, "0 is not the delay"),
        ((float("nan"),), {}, "nan is not the delay"),
        ((True,), {}, "True is not the delay"),
        (("41d",), {}, "'41d' is not the delay"),
        ((1, 2), {"times": 1}, "times=1 leaves out some of 2 delays"),
        ((1,), {"times": -1}, "times=-1"),
        ((1,), {"never": "ValueError"}, "never='ValueError': give classes"),
        ((1,), {"never": [5]}, "give classes"),
        ((1,), {"never": KeyboardInterrupt}, "give classes"),
    ],
)
def test_wrong_rules_are_refused(delays, named, words):
    with pytest.raises(ConfigError, match=words):
        Retry(*delays, **named)


class Wordless(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


def test_a_reason_is_text_whatever_the_error_holds():
    rules = Retry("1s", never=Exception)
    assert reject_reason(Reject("\udcff"), 0, None) == "\\udcff"
    assert reject_reason(ValueError("\udcff"), 0, rules) == "ValueError: \\udcff"
    assert reject_reason(Wordless(), 0, rules) == "Wordless: <exception str() failed>"


@pytest.mark.parametrize(
    ("settings", "failures", "fate"),
    [
        ({}, 0, (False, "try 1 of 17; it comes again in about 10s")),
        ({}, 2, (False, "try 3 of 17; it comes again in about 1m")),
        ({}, 16, (True, "try 17 of 17; it goes to the dead-letter queue")),
        ({"max_reconsume_times": 0}, 0, (True, "try 1 of 1; it goes to the dead-letter queue")),
        ({"retry": Retry("1s", 2.5)}, 1, (False, "try 2 of 3; it comes again in 2.5s")),
        ({"retry": Retry(times=1)}, 0, (False, "try 1 of 2; it comes again in about 10s")),
        ({"retry": Retry("1s")}, 1, (True, "try 2 of 2; it goes to the dead-letter queue")),
        ({"ordered": True}, 4, (False, "try 5, without a limit; it comes again in 1s, and its queue waits")),
        (
            {"ordered": True, "suspend_s": 99, "max_reconsume_times": 3},
            0,
            (False, "try 1 of 4; it comes again in 30s, and its queue waits"),
        ),
        ({"broadcast": True}, 0, (False, "try 1 of 1; it is dropped: broadcast messages are not retried")),
    ],
)
def test_fate_of_a_failed_message_has_its_try_the_limit_and_the_next_delivery(settings, failures, fate):
    assert ConsumerSettings("g", **settings).rules.fate(failures, is_rejected=False) == fate


def test_rejected_message_goes_to_the_dead_letter_queue():
    fate = ConsumerSettings("g").rules.fate(0, is_rejected=True)
    assert fate == (True, "try 1 of 17; it goes to the dead-letter queue")
