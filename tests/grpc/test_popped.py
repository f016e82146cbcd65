"""The messages of a pop. The lists are those that Apache 5.4.0 answers."""

import pytest

from sparrowmq.grpc.message_out import PopAnswer, message_of
from sparrowmq.kernel.grpc_messages import field
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.receipt_handle import Kind
from tests.grpc.popped_records import a_record, reply


def popped_messages(header, body):
    answer = PopAnswer(header, body, "broker-a")
    return [answer.message_of(raw) for raw in record.walk(body)]


def test_handle_is_made_from_the_lists_of_the_answer():
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5,6")
    first, second = popped_messages(header, a_record(5) + a_record(6))
    assert str(first.handle) == "4 1000 15000 3 0 broker-a 2 5 1337"
    assert str(second.handle) == "4 1000 15000 3 0 broker-a 2 6 1337"
    assert (first.attempt, first.message.body) == (1, b"hello")


def test_handle_of_a_record_wins():
    handle = "4 900 15000 3 0 broker-a 2 5 1337"
    (found,) = popped_messages(reply(), a_record(5, POP_CK=handle))
    assert str(found.handle) == handle


@pytest.mark.parametrize("text", ["x", "4 900 15000 3 0 elsewhere 2 5 1337", "4 900 15000 3 1 elsewhere 2 5"])
def test_handle_that_a_producer_put_into_a_message_is_not_used(text):
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5,6")
    found = popped_messages(header, a_record(5, POP_CK=text) + a_record(6))
    assert [str(each.handle) for each in found] == [
        "4 1000 15000 3 0 broker-a 2 5 1337",
        "4 1000 15000 3 0 broker-a 2 6 1337",
    ]


def test_message_of_a_retry_topic_has_its_kind_and_attempts():
    header = reply(start_offset_info="1 2 5", msg_offset_info="1 2 5")
    (found,) = popped_messages(header, a_record(5, "%RETRY%g_orders", reconsume_times=2))
    assert (found.handle.kind, found.attempt) == (Kind.RETRY_V1, 3)


def test_attempts_of_an_orderly_pop_are_in_the_answer():
    header = reply(start_offset_info="0 2 5", msg_offset_info="0 2 5", order_count_info="0 2 4")
    (found,) = popped_messages(header, a_record(5))
    assert found.attempt == 5


def plain(header, body, max_attempts=17, tags=frozenset()):
    """The messages that the kernel makes, their handles, and the records from the first one on that is not plain."""
    records = PopAnswer(header, body, "broker-a").plain_records("orders", max_attempts, tags)
    answers = records.take_plain()
    left = []
    handles = records.handles
    while not records.is_at_end:
        left.append(records.take_record())
    return answers, handles, left


PROPERTIES = {"UNIQ_KEY": "01AB", "TAGS": "t", "KEYS": "a b", "own": "\u00e4", "__SHARDINGKEY": "g", "DELAY": "3"}


@pytest.mark.parametrize("properties", [{}, PROPERTIES, {"TRAN_MSG": "True", "_SYS_MSG_PRIORITY_": "2"}])
@pytest.mark.parametrize("sys_flag", [0, SysFlag.COMPRESSED, SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB])
def test_plain_record_becomes_the_same_message_as_by_the_long_way(properties, sys_flag):
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5,6")
    body = a_record(5, sys_flag=sys_flag, **properties) + a_record(6, reconsume_times=2)
    answers, handles, left = plain(header, body)
    found = popped_messages(header, body)
    assert answers == [field(2, message_of(each.message, "orders", each.attempt, each.handle)) for each in found]
    assert (handles, left) == ([str(each.handle) for each in found], [])


@pytest.mark.parametrize(
    "other",
    [
        a_record(6, POP_CK="x"),
        a_record(6, "%RETRY%g_orders"),
        a_record(6, sys_flag=SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4),
        a_record(6, TAGS="u"),
        a_record(6, reconsume_times=3),
        a_record(6).replace(b"hello", b"hullo"),
        a_record(6).replace(b"\0\0\0\2", b"\0\0\0\3", 1),
    ],
    ids=["own handle", "retry topic", "packed", "tag", "attempts", "damaged", "queue"],
)
def test_record_that_is_not_plain_is_left_to_the_long_way(other):
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5,6")
    first, last = a_record(5, TAGS="t"), a_record(7, TAGS="t")
    answers, _, left = plain(header, first + other + last, max_attempts=3, tags=frozenset("t"))
    assert (len(answers), left) == (1, [other, last])


def test_no_record_of_an_answer_with_former_deliveries_is_plain():
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5", order_count_info="0 2 4")
    assert plain(header, a_record(5)) == ([], [], [a_record(5)])


def test_bytes_that_are_no_whole_record_are_left_to_the_long_way():
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5,6")
    answers, _, left = plain(header, a_record(5) + a_record(6)[:-1])
    assert (len(answers), left) == (1, [a_record(6)[:-1]])
