import pytest
from msgspec.structs import replace

from sparrowmq.broker.delayed import retry_rules
from sparrowmq.protocol.messages.message import StoredMessage

MESSAGE = StoredMessage(
    topic="Orders",
    queue_id=1,
    queue_offset=5,
    physical_offset=4096,
    store_size=200,
    body_crc=0,
    flag=0,
    sys_flag=0,
    born_timestamp_ms=1,
    born_host="127.0.0.1:1000",
    store_timestamp_ms=2,
    store_host="127.0.0.1:10911",
    reconsume_times=0,
    prepared_offset=0,
    body=b"body",
    properties={"UNIQ_KEY": "AB", "TAGS": "paid"},
)


def tried(times, **properties):
    """The message as it lies in the log after some tries."""
    fields = {name: getattr(MESSAGE, name) for name in MESSAGE.__struct_fields__}
    fields |= {"reconsume_times": times, "properties": MESSAGE.properties | properties}
    return StoredMessage(**fields)


def test_a_policy_s_pause_takes_the_place_of_the_level_and_of_older_times():
    old = {
        "DELAY": "4",
        "TIMER_DELAY_MS": "1",
        "TIMER_DELIVER_MS": "2",
        "TIMER_OUT_MS": "3",
        "TIMER_DEQUEUE_MS": "4",
    }
    back = retry_rules.send_back(tried(1, **old), "billing", 0, 16, 2500)
    assert (back.topic, back.reconsume_times) == ("%RETRY%billing", 2)
    assert back.properties.get("TIMER_DELAY_MS") == "2500"
    assert [back.properties.get(name) for name in old if name != "TIMER_DELAY_MS"] == [None] * 4


@pytest.mark.parametrize(("level", "times"), [(5, 1), (-1, 1), (0, 16)])
def test_a_policy_does_not_count_where_the_client_decides_or_no_try_is_left(level, times):
    back = retry_rules.send_back(tried(times), "billing", level, 16, 2500)
    assert back.properties.get("TIMER_DELAY_MS") is None
    assert back.properties.get("DELAY") == ("5" if level == 5 else None)


@pytest.mark.covers("S-RETRY-03")
@pytest.mark.covers("S-RETRY-05")
def test_a_first_failure_waits_ten_seconds_in_the_retry_topic():
    back = retry_rules.send_back(MESSAGE, "billing", 0, 16)
    assert (back.topic, back.reconsume_times, back.is_dead) == ("%RETRY%billing", 1, False)
    assert back.properties.get("DELAY") == "3"
    assert back.properties.get("RETRY_TOPIC") == "Orders"
    assert back.properties.get("ORIGIN_MESSAGE_ID") == MESSAGE.offset_id
    assert back.properties.get("UNIQ_KEY") == "AB"


@pytest.mark.covers("S-RETRY-01")
@pytest.mark.parametrize("times", range(16))
def test_each_try_waits_one_level_longer(times):
    assert retry_rules.send_back(tried(times), "g", 0, 16).properties.get("DELAY") == str(3 + times)


def test_first_failure_ignores_the_topic_that_its_producer_claims():
    back = retry_rules.send_back(tried(0, RETRY_TOPIC="payments", ORIGIN_MESSAGE_ID="F00"), "g", 0, 16)
    assert back.properties.get("RETRY_TOPIC") == "Orders"
    assert back.properties.get("ORIGIN_MESSAGE_ID") == MESSAGE.offset_id


def test_later_failures_keep_where_the_message_came_from():
    origin = {"RETRY_TOPIC": "First", "ORIGIN_MESSAGE_ID": "F00"}
    message = replace(tried(2, **origin, DELAY="4"), topic="%RETRY%g")
    back = retry_rules.send_back(message, "g", 0, 16)
    assert (back.properties.get("RETRY_TOPIC"), back.properties.get("ORIGIN_MESSAGE_ID")) == ("First", "F00")
    assert back.properties.get("DELAY") == "5"


def test_a_consumer_may_choose_the_level():
    assert retry_rules.send_back(tried(4), "g", 1, 16).properties.get("DELAY") == "1"


@pytest.mark.covers("S-CONS-20")
@pytest.mark.covers("S-RETRY-06")
@pytest.mark.parametrize(
    ("times", "level", "most", "dead"),
    [
        (15, 0, 16, False),
        (16, 0, 16, True),
        (17, 0, 16, True),
        (0, -1, 16, True),
        (0, 0, 0, True),
        (2, 3, 3, False),
    ],
)
def test_a_message_dies_after_the_last_try_or_when_asked(times, level, most, dead):
    back = retry_rules.send_back(tried(times, DELAY="9"), "g", level, most)
    assert back.is_dead is dead
    assert back.topic == ("%DLQ%g" if dead else "%RETRY%g")
    assert back.reconsume_times == times + 1
    assert (back.properties.get("DELAY") is None) is dead


@pytest.mark.parametrize(
    ("times", "asked", "group_max", "exhausted"),
    [
        (None, None, 16, False),
        (15, None, 16, False),
        (16, None, 16, True),
        (3, 3, 16, True),
        (16, 20, 16, False),
        (0, 0, 16, True),
    ],
)
def test_a_message_sent_to_a_retry_topic_dies_when_its_tries_are_used_up(times, asked, group_max, exhausted):
    assert retry_rules.is_exhausted(times, asked, group_max) is exhausted
