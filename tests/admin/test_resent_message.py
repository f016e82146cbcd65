"""Each kind of record that left a log: what is sent of it, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.admin.resend import LeftOut, Resent, resent
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.properties import parse, render
from sparrowmq.protocol.names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    STAGED_TOPIC,
    STATE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
)
from tests.records import encoded

LEVELS = DelayLevels.parse("1s 1m 1h")
TO_ORDERS = {"REAL_TOPIC": "orders", "REAL_QID": "3"}


def stored(topic: str = "orders", properties: dict[str, str] | None = None, **fields: Any) -> StoredMessage:
    text = render({"UNIQ_KEY": "U1"} | (properties or {})).encode()
    return record.decode(encoded(topic, properties=text, **fields))


def sent(message: StoredMessage) -> Resent:
    found = resent(message)
    assert isinstance(found, Resent), found
    return found


def properties(message: Resent, now_ms: int = 0, *, has_timers: bool = True) -> dict[str, str]:
    return parse(message.packed(now_ms, LEVELS, has_timers=has_timers).properties)


@pytest.mark.parametrize(
    ("topic", "found", "sys_flag", "why"),
    [
        (HALF_TOPIC, TO_ORDERS, 0, LeftOut.HALF),
        (OP_HALF_TOPIC, {}, 0, LeftOut.HALF),
        (CHECK_MAX_TIME_TOPIC, TO_ORDERS, 0, LeftOut.HALF),
        ("orders", {}, SysFlag.ROLLBACK, LeftOut.HALF),
        (TIMER_TOPIC, TO_ORDERS | {"TIMER_DEL_UNIQKEY": "orders+U1"}, 0, LeftOut.RECALL),
        (STATE_TOPIC, {}, 0, LeftOut.OWN),
        (STAGED_TOPIC, {}, 0, LeftOut.OWN),
        (TRACE_TOPIC, {}, 0, LeftOut.OWN),
        ("rmq_sys_REVIVE_LOG_Cluster", {}, 0, LeftOut.OWN),
        (SCHEDULE_TOPIC, {}, 0, LeftOut.OWN),
        (SCHEDULE_TOPIC, {"REAL_TOPIC": STAGED_TOPIC}, 0, LeftOut.OWN),
        ("orders", {}, SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP, LeftOut.PACKED),
        ("DefaultCluster_REPLY_TOPIC", {}, 0, LeftOut.ANSWER),
        ("orders", {"REPLY_TO_CLIENT": "c@1"}, 0, LeftOut.REQUEST),
    ],
)
def test_these_records_are_not_sent(topic: str, found: dict[str, str], sys_flag: int, why: LeftOut) -> None:
    assert resent(stored(topic, found, sys_flag=sys_flag)) is why


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing", "%DLQ%billing", "shop%orders"])
def test_these_are_sent_to_the_queue_where_they_were(topic: str) -> None:
    message = sent(stored(topic, queue_id=2))
    assert (message.topic, message.queue_id, message.unique_id) == (topic, 2, "U1")


def test_only_what_the_producer_gave_is_kept() -> None:
    own = {"TAGS": "A", "KEYS": "k", "colour": "red", "__SHARDINGKEY": "s", "RETRY_TOPIC": "orders"}
    of_broker = {
        "CLUSTER": "C",
        "WAIT": "false",
        "TRAN_MSG": "true",
        "1ST_POP_TIME": "1",
        "DELAY": "3",
    } | TO_ORDERS
    message = sent(stored(properties=own | of_broker, sys_flag=SysFlag.COMMIT | SysFlag.COMPRESSED, flag=7))
    assert properties(message) == own | {"UNIQ_KEY": "U1"}
    packed = message.packed(0, LEVELS, has_timers=True)
    assert (packed.sys_flag, packed.flag, packed.body) == (SysFlag.COMPRESSED, 7, b"body")
    assert message.is_committed and packed.max_reconsume_times is None


def test_what_waited_keeps_its_time_or_comes_at_once() -> None:
    by_level = sent(stored(SCHEDULE_TOPIC, TO_ORDERS | {"DELAY": "2"}, queue_id=1, store_timestamp_ms=1000))
    by_time = sent(stored(TIMER_TOPIC, TO_ORDERS | {"TIMER_OUT_MS": "61000", "TIMER_DELAY_MS": "5"}))
    for message in (by_level, by_time):
        assert (message.topic, message.queue_id) == ("orders", 3)
        assert message.topics == ("orders", SCHEDULE_TOPIC, TIMER_TOPIC)
        assert properties(message, 60_999) == {"UNIQ_KEY": "U1", "TIMER_DELIVER_MS": "61000"}
        assert properties(message, 60_999, has_timers=False) == {"UNIQ_KEY": "U1", "DELAY": "1"}
        assert properties(message, 50_000, has_timers=False)["DELAY"] == "2", "never too early"
        for has_timers in (True, False):
            assert properties(message, 61_000, has_timers=has_timers) == {"UNIQ_KEY": "U1"}


def test_a_message_without_an_id_gets_the_one_of_its_place() -> None:
    bare = record.decode(encoded("orders", physical_offset=77))
    assert properties(sent(bare))["UNIQ_KEY"] == bare.offset_id


def test_it_is_recognised_where_it_waits_and_among_later_tries_and_dead_letters() -> None:
    message = sent(stored("%RETRY%billing", reconsume_times=2))
    waiting = {"REAL_TOPIC": "%RETRY%billing"}
    assert message.is_in(stored("%RETRY%billing", reconsume_times=2))
    assert message.is_in(stored(SCHEDULE_TOPIC, waiting, reconsume_times=3))
    assert message.is_in(stored("%DLQ%billing", reconsume_times=4))
    assert not message.is_in(stored("%RETRY%billing", reconsume_times=1))
    assert not message.is_in(stored("%RETRY%other", reconsume_times=2))
    assert not message.is_in(stored("%RETRY%billing", reconsume_times=2, body=b"another"))
    assert not message.is_in(stored("%RETRY%billing", {"UNIQ_KEY": "U2"}, reconsume_times=2))
    packed = message.packed(0, LEVELS, has_timers=True)
    assert (packed.reconsume_times, packed.max_reconsume_times) == (2, 3)
