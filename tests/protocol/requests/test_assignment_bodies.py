"""Bodies of assignments: what Java's client 5.4.0 sends and Apache's broker 5.4.0 answers."""

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import (
    POP,
    Assignment,
    AssignmentQuery,
    Assignments,
    RequestMode,
    RequestModeTable,
)


def test_a_question_of_java_is_read() -> None:
    sent = b'{"clientId":"ip@1","consumerGroup":"g","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}'
    assert AssignmentQuery.decode(sent) == AssignmentQuery("T", "g", "ip@1", "AVG", "CLUSTERING")


def test_answers_are_those_of_apache() -> None:
    queue = MessageQueue("T", "broker-a", -1)
    assert Assignments([Assignment(queue, POP)]).encode() == (
        b'{"messageQueueAssignments":[{"messageQueue":{"brokerName":"broker-a","queueId":-1,"topic":"T"},"mode":"POP"}]}'
    )
    assert Assignments().encode() == b"{}"
    table = RequestModeTable({"T": {"g": RequestMode("T", "g", POP, 3)}})
    saved = b'{"messageRequestModeMap":{"T":{"g":{"consumerGroup":"g","mode":"POP","popShareQueueNum":3,"topic":"T"}}}}'
    assert table.encode() == saved
    assert RequestModeTable.decode(saved) == table
