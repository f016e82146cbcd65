"""The messages of a pop. The lists are those that Apache 5.4.0 answers."""

import pytest

from sparrowmq.grpc.message_out import popped_messages
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from tests.grpc.popped_records import a_record, reply


def test_handle_is_made_from_the_lists_of_the_answer():
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5,6")
    first, second = popped_messages(header, a_record(5) + a_record(6), "broker-a")
    assert first.handle == "4 1000 15000 3 0 broker-a 2 5 1337"
    assert second.handle == "4 1000 15000 3 0 broker-a 2 6 1337"
    assert (first.attempt, first.message.body) == (1, b"hello")


def test_handle_of_a_record_wins():
    handle = "4 900 15000 3 0 broker-a 2 5 1337"
    (found,) = popped_messages(reply(), a_record(5, POP_CK=handle), "broker-a")
    assert found.handle == handle


@pytest.mark.parametrize("text", ["x", "4 900 15000 3 0 elsewhere 2 5 1337", "4 900 15000 3 1 elsewhere 2 5"])
def test_handle_that_a_producer_put_into_a_message_is_not_used(text):
    header = reply(start_offset_info="0 2 4", msg_offset_info="0 2 5,6")
    found = popped_messages(header, a_record(5, POP_CK=text) + a_record(6), "broker-a")
    assert [each.handle for each in found] == [
        "4 1000 15000 3 0 broker-a 2 5 1337",
        "4 1000 15000 3 0 broker-a 2 6 1337",
    ]


def test_message_of_a_retry_topic_has_its_kind_and_attempts():
    header = reply(start_offset_info="1 2 5", msg_offset_info="1 2 5")
    (found,) = popped_messages(header, a_record(5, "%RETRY%g_orders", reconsume_times=2), "broker-a")
    assert (ReceiptHandle.parse(found.handle).kind, found.attempt) == (Kind.RETRY_V1, 3)


def test_attempts_of_an_orderly_pop_are_in_the_answer():
    header = reply(start_offset_info="0 2 5", msg_offset_info="0 2 5", order_count_info="0 2 4")
    (found,) = popped_messages(header, a_record(5), "broker-a")
    assert found.attempt == 5
