"""The messages of an answer to a pop, and their receipts."""

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.pop_headers import PopMessageReply
from sparrowmq.remoting.handler import Reply
from tests.client.popping.answers import ACK, POP, POPPED_MS, fields, popped, rec

HANDLE = f"5 {POPPED_MS} 30000 2 0 broker-a 1 7"


@pytest.mark.parametrize("topic", ["t", "%RETRY%g_t"])
async def test_messages_of_one_queue_share_a_receipt_and_differ_in_their_offsets(peer, popping, topic):
    peer.script(POP, popped(rec(7, topic=topic), rec(9, topic=topic), rec(9, topic=topic, queue_id=2)))
    first, second, other = await popping.pop()
    assert first._receipt is second._receipt is not other._receipt
    assert (first._handle.queue_offset, second._handle.queue_offset) == (7, 9)
    assert [each.queue for each in (first, other)] == [MessageQueue(topic, "broker-a", 1 + n) for n in (0, 1)]


@pytest.mark.parametrize("counts", ["2,1", "1,1", "3", "3,0", None])
async def test_messages_have_the_receipt_of_their_queue_whatever_the_broker_counts(peer, popping, counts):
    header = PopMessageReply(POPPED_MS, 30_000, 2, 0, "0 1 5;0 2 9", most_msg_nums=512, queue_counts=counts)
    peer.script(POP, Reply(0, header, body=rec(7) + rec(8) + rec(9, queue_id=2)))
    first, second, other = await popping.pop()
    assert [each._handle_text for each in (first, other)] == [HANDLE, f"9 {POPPED_MS} 30000 2 0 broker-a 2 9"]
    assert first._receipt is second._receipt is not other._receipt


async def test_a_message_of_a_retry_topic_keeps_its_own_handle_if_the_broker_counts(peer, popping):
    handle = f"4 {POPPED_MS} 20000 2 1 broker-a 1 4"
    header = PopMessageReply(POPPED_MS, 30_000, 2, 0, "1 1 4;0 1 5", most_msg_nums=512, queue_counts="1,1")
    body = rec(4, properties=f"POP_CK\x01{handle}\x02") + rec(7)
    peer.script(POP, Reply(0, header, body=body))
    assert [each._handle_text for each in await popping.pop()] == [handle, HANDLE]


async def test_a_handle_in_the_record_wins_and_names_the_retry_topic(peer, popping):
    handle = f"3 {POPPED_MS} 20000 2 1 broker-a 0 4 99"
    peer.script(POP, popped(rec(7, properties=f"POP_CK\x01{handle}\x02")))
    (message,) = await popping.pop()
    assert message._handle_text == handle
    assert message._remaining_s == 20
    assert message.queue == MessageQueue("%RETRY%g_t", "broker-a", 0)
    await popping.pops.ack([message])
    assert fields(peer, ACK) == [
        {"consumerGroup": "g", "topic": "%RETRY%g_t", "queueId": "0", "extraInfo": handle, "offset": "4"}
    ]


@pytest.mark.parametrize("text", ["x", HANDLE.replace("broker-a", "b"), HANDLE.replace(" 0 broker-a", " 1 b")])
async def test_a_handle_that_a_producer_put_into_a_message_is_not_used(peer, popping, text):
    forged = text.replace(str(POPPED_MS), str(POPPED_MS - 1))
    peer.script(POP, popped(rec(7, properties=f"POP_CK\x01{forged}\x02"), rec(9)))
    messages = await popping.pop()
    assert [each._handle_text for each in messages] == [HANDLE, HANDLE.replace(" 7", " 9")]


async def test_an_orderly_pop_counts_former_deliveries(peer, popping):
    peer.script(POP, popped(rec(7), rec(8), counts="0 1 1;0 qo1%8 4"))
    messages = await popping.pop(attempt_id="try-1")
    assert [each.reconsume_times for each in messages] == [1, 4]
    asked = fields(peer, POP)[0]
    assert (asked["order"], asked["attemptId"]) == ("true", "try-1")


async def test_a_damaged_answer_is_the_brokers_fault(peer, popping):
    peer.script(POP, popped(rec(7), counts="nonsense"))
    with pytest.raises(RemoteProtocolError, match="broker-a answered a pop wrongly"):
        await popping.pop()
