from datetime import datetime

import pytest

from sparrowmq.cli.mqadmin import java
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import TopicConfig


def test_a_text_has_javas_hash() -> None:
    assert [java.hash_of(text) for text in ("", "Aa", "BB", "hello", "Größe")] == [
        0,
        2112,
        2112,
        99162322,
        sum(ord(letter) * 31 ** (4 - at) for at, letter in enumerate("Größe")) & 0xFFFFFFFF,
    ]


def test_names_stand_as_a_hash_set_of_java_shows_them() -> None:
    # As Apache's mqadmin 4.9.7 listed the topics of a fresh broker on Java 17.
    listed = [
        *(
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRACE_TOPIC",
            "DefaultCluster_REPLY_TOPIC",
            "AdminTopic",
            "BenchmarkTest",
        ),
        *("Ordered", "OFFSET_MOVED_EVENT", "broker-a", "TBW102", "SELF_TEST_TOPIC", "DefaultCluster"),
    ]
    assert java.in_set_order([*listed[3:], *listed[:3]]) == listed


def test_queues_stand_as_a_hash_map_shows_them() -> None:
    queues = [MessageQueue("AdminTopic", "broker-a", number) for number in range(2)]
    assert [queue.queue_id for queue in java.queues_in_map_order(queues)] == [1, 0]


def test_a_table_grows_before_it_is_full() -> None:
    numbers = list(range(100, 113))
    assert java.in_hash_order(numbers[:12], int) == [
        *numbers[12 - 0 : 12],
        *sorted(numbers[:12], key=lambda n: n % 16),
    ]
    assert java.in_hash_order(numbers, int) == sorted(numbers, key=lambda n: n % 32)


def test_json_for_people_is_that_of_fastjson() -> None:
    value = {"a": {0: "x", 1: "y"}, "b": [], "c": {}, "d": ["p", "q"], "e": [{"f": None}], "g": 1.0, "h": "ü"}
    assert java.pretty_json(value) == (
        '{\n\t"a":{0:"x",1:"y"\n\t},\n\t"b":[],\n\t"c":{},\n\t"d":["p","q"],\n\t"e":[\n\t\t{\n\t\t\t"f":null\n\t\t}\n'
        '\t],\n\t"g":1.0,\n\t"h":"ü"\n}'
    )


def test_times_are_local_and_written_in_three_ways() -> None:
    stamp = round(datetime(2026, 3, 4, 5, 6, 7).timestamp() * 1000) + 89
    assert java.time_text(stamp) == "2026-03-04 05:06:07"
    assert java.time_text_ms(stamp) == "2026-03-04 05:06:07,089"
    assert java.compact_time_text(stamp) == "20260304050607089"
    assert java.parse_time("2026-03-04#05:06:07:089") == stamp == java.parse_time(str(stamp))
    for wrong in ("", "yesterday", "2026-03-04"):
        with pytest.raises(ValueError):
            java.parse_time(wrong)


def test_values_are_described_as_java_does() -> None:
    assert java.topic_text(TopicConfig("T", 2, 3, 5, order=True)) == (
        "TopicConfig [topicName=T, readQueueNums=2, writeQueueNums=3, perm=R-X, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=true]"
    )
    assert java.queue_text(MessageQueue("T", "b", 1)) == "MessageQueue [topic=T, brokerName=b, queueId=1]"
    assert (java.value_text(None), java.value_text(False), java.is_true(" TRUE ")) == ("null", "false", True)
