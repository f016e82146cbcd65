from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.kernel.messages import deliver, mark_spent, runs_of, unspent_of
from sparrowmq.protocol.messages.message import MessageQueue
from tests.client.consuming.test_received import message_at

QUEUE = MessageQueue("t", "broker-a", 1)


def messages(*offsets: int, receipt: object = "receipt", namespace: str = "") -> list[ReceivedMessage]:
    made = [message_at(offset) for offset in offsets]
    deliver(made, QUEUE, None, None, namespace, receipt)
    return made


def test_messages_share_a_receipt_and_are_not_spent():
    first, second = messages(5, 6, namespace="shop")
    assert first._receipt is second._receipt == "receipt"
    assert (first._namespace, first.queue, first._is_spent) == ("shop", QUEUE, False)


def test_messages_that_were_not_acknowledged_are_found():
    first, second, third = all_of_them = messages(5, 6, 7)
    mark_spent(all_of_them, True)
    mark_spent([second], False)
    assert unspent_of(all_of_them) == [second]
    assert first._is_spent and third._is_spent


def test_messages_of_a_run_share_a_receipt_and_follow_each_other():
    assert runs_of([]) == []
    assert runs_of(messages(5, 6, 7)) == [(0, 3)]
    assert runs_of(messages(0, 1, receipt=None)) == [(0, 2)]
    assert runs_of(messages(5, 7, 8)) == [(0, 1), (1, 3)]
    assert runs_of(messages(6, 5)) == [(0, 1), (1, 2)]
    assert runs_of(messages(5) + messages(6, receipt="other")) == [(0, 1), (1, 2)]
