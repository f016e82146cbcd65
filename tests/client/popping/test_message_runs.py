from sparrowmq.client.consuming.delivered_message import (
    mark_spent,
    restore_settles,
    runs_of,
    spent_by_receipt,
    take_settles,
    unspent_of,
    with_receipt,
)
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.protocol.messages.message import MessageQueue
from tests.client.consuming.test_received import stored

QUEUE = MessageQueue("t", "broker-a", 1)


def messages(*offsets: int, receipt: object = "receipt", namespace: str = "") -> list[ReceivedMessage]:
    made = with_receipt(ReceivedMessage, [stored() for _ in offsets], QUEUE, receipt, None, namespace)
    for message, offset in zip(made, offsets, strict=True):
        message.offset = offset
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


def test_acknowledged_messages_are_counted_by_their_receipts_in_turn():
    some = messages(5, 6, 8, receipt="a") + messages(9, receipt="b") + messages(7, receipt="a")
    mark_spent(some, True)
    mark_spent([some[1]], False)
    assert spent_by_receipt(some) == [("a", 2), ("b", 1), ("a", 1)]
    assert spent_by_receipt([]) == spent_by_receipt([some[1]]) == []


def test_nothing_settles_messages_while_they_are_being_acknowledged():
    done, failed = some = messages(5, 6)
    settled: list[object] = []
    for message in some:
        message._settle = lambda message, outcome: settled.append(message)
    settles = take_settles(some)
    done.ack()
    assert settled == [] and not done.is_unsettled
    mark_spent([done], True)
    restore_settles(some, settles)
    done.ack()
    failed.ack()
    assert settled == [failed]
