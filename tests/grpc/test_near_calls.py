"""The calls whose broker is in the same process."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import ConnectionClosed, NoRoute, RemoteError
from sparrowmq.grpc.clients import Client, Clients
from sparrowmq.grpc.local_calls import LocalCalls, ack_response, send_response
from sparrowmq.grpc.renewals import Renewals
from sparrowmq.grpc.send_methods import TransactionId
from sparrowmq.grpc.statuses import status
from sparrowmq.grpc.wire_types import Encoding, MessageType, message_class
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import SendMessageReply
from sparrowmq.protocol.requests.pop_headers import AckMessage
from sparrowmq.protocol.wire.header import NoFields
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import OFFSET_ID, ScriptedBrokers, caller, named, outgoing


class Near:
    """A broker that keeps each request with the function that gets its answer."""

    name = "broker-a"

    def __init__(self):
        self.asked = []
        self.queues = 4

    def topic_config(self, name):
        if name != "orders":
            raise NoRoute(name, None)
        return TopicConfig("orders")

    def count_writable_queues(self, config):
        return self.queues

    def ask_soon(self, request, body, answered, *, accepted_codes=()):
        self.asked.append((request, body, answered))

    def answer(self, at=0, code=0, error=None, **reply):
        """Answer a send."""
        request, _, answered = self.asked[at]
        header = SendMessageReply(OFFSET_ID, 0, 41, **reply) if request.Reply is SendMessageReply else NoFields()
        answered(*((None, error) if error else (Response(code, header, "why", b"", 0), None)))


def raw_send(*messages):
    return message_class("SendMessageRequest")(messages=messages).SerializeToString()


class Port:
    def __init__(self):
        self.clock = ManualClock()
        self.local_broker = Near()
        self.renewals = Renewals(self.clock)
        self.brokers = ScriptedBrokers()
        self.brokers.local_broker = self.local_broker
        self.clients = Clients(self.clock, self.brokers.client_left)
        turns = itertools.count()
        self.calls = LocalCalls(self.clients, self.renewals, self.clock, lambda: next(turns))
        self.results = []

    def told(self, pending):
        pending.told = lambda raw, error: self.results.append(error or raw)

    def send(self, *messages):
        self.told(self.calls.send(caller(self.brokers), raw_send(*messages)))

    def sent(self):
        return message_class("SendMessageResponse").FromString(self.results[-1])

    def ack(self, *handles):
        request = message_class("AckMessageRequest")(topic=named("orders"), group=named("g"))
        for number, handle in enumerate(handles):
            request.entries.add(message_id=f"m{number}", receipt_handle=str(handle))
        return self.calls.ack(caller(self.brokers), request.SerializeToString())

    def acked(self, pending, **answer):
        self.told(pending)
        self.local_broker.answer(**answer)
        return message_class("AckMessageResponse").FromString(self.results[-1])

    def handle(self, age_ms=0, broker="broker-a"):
        popped_ms = self.clock.now_ms() - age_ms
        return ReceiptHandle(1, popped_ms, 15_000, 3, Kind.RETRY_V2, broker, 2, 7, 1337)


def test_messages_go_to_queues_in_turn_and_those_of_a_group_to_one():
    port = Port()
    for _ in range(5):
        port.send(outgoing())
    assert [ask.queue_id for ask, *_ in port.local_broker.asked] == [0, 1, 2, 3, 0]
    for _ in range(5):
        port.send(outgoing(message_group="g1"))
    assert len({ask.queue_id for ask, *_ in port.local_broker.asked[5:]}) == 1


def test_a_stored_message_is_answered_by_its_place():
    port = Port()
    port.send(outgoing(message_id="A"))
    assert not port.results
    port.local_broker.answer()
    [entry] = port.sent().entries
    assert (port.sent().status.code, entry.message_id, entry.offset) == (20000, "A", 41)


def test_messages_of_one_call_are_answered_together():
    port = Port()
    port.send(outgoing(message_id="A"), outgoing(message_id="B"))
    port.local_broker.answer(1, error=ConnectionClosed("broker-a"))
    assert not port.results
    port.local_broker.answer(0, recall_handle="r")
    assert [(entry.message_id, entry.status.code) for entry in port.sent().entries] == [
        ("A", 20000),
        ("B", 50002),
    ]
    assert port.sent().entries[0].recall_handle == "r"
    assert port.sent().status.code == 30000


def test_a_message_that_no_slave_has_is_answered_so():
    port = Port()
    port.send(outgoing())
    port.local_broker.answer(code=11)
    assert (port.sent().status.code, port.sent().entries[0].offset) == (50002, 41)


def test_a_half_message_gets_a_transaction_id():
    port = Port()
    port.send(outgoing(message_type=MessageType.TRANSACTION))
    port.local_broker.answer()
    made = TransactionId.parse(port.sent().entries[0].transaction_id)
    assert (made.broker_name, made.state_offset, made.log_offset) == ("broker-a", 41, 1337)
    assert "orders" in port.clients.note_seen("c1").half_topics


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], 40016),
        ([outgoing(body=b"")], 41302),
        ([outgoing()] * 1001, 41300),
    ],
)
def test_messages_that_break_a_rule_are_refused(messages, code):
    port = Port()
    with pytest.raises(RemoteError) as caught:
        port.send(*messages)
    assert caught.value.code == code
    assert not port.local_broker.asked


def test_packed_bodies_are_left_to_the_coroutine_and_its_thread():
    port = Port()
    packed = outgoing(body_encoding=Encoding.GZIP)
    assert port.calls.send(caller(port.brokers), raw_send(outgoing(), packed)) is None
    assert not port.local_broker.asked


@pytest.mark.parametrize("topic", ["Other", "orders"])
def test_the_coroutine_says_what_is_wrong_with_a_topic_to_those_who_may_know(topic):
    port = Port()
    port.local_broker.queues = 0
    assert port.calls.send(caller(port.brokers), raw_send(outgoing(topic))) is None
    assert not port.local_broker.asked


def test_an_unexpected_error_ends_the_call():
    port = Port()
    port.send(outgoing())
    port.local_broker.answer(error=ZeroDivisionError())
    assert isinstance(port.results[0], ZeroDivisionError)


def test_an_acknowledgement_goes_to_the_topic_of_its_handle():
    port = Port()
    text = str(port.handle())
    got = port.acked(port.ack(port.handle()))
    assert port.local_broker.asked[0][0] == AckMessage("g", "%RETRY%g+orders", 2, text, 7)
    [entry] = got.entries
    assert (got.status.code, entry.message_id, entry.receipt_handle) == (20000, "m0", text)


def test_an_acknowledgement_that_the_broker_refuses_has_its_status():
    port = Port()
    got = port.acked(port.ack(port.handle()), error=RemoteError(208, "unknown handle"))
    assert (got.status.code, got.entries[0].status.message) == (40013, "unknown handle")


def test_other_acknowledgements_are_left_to_the_coroutine():
    port = Port()
    assert port.ack() is port.ack(port.handle(), port.handle()) is port.ack("no handle") is None
    assert port.ack(port.handle(age_ms=15_001)) is port.ack(port.handle(broker="broker-b")) is None
    port.renewals.add(Client("c1"), "orders", "g", str(port.handle()), port.handle().visible_ms)
    assert port.ack(port.handle()) is None
    port.brokers.local_broker = None
    assert port.ack(port.handle(age_ms=1)) is None
    assert port.calls.send(caller(port.brokers), raw_send()) is None
    assert not port.local_broker.asked


@given(st.text(min_size=1, max_size=300), st.integers(0, 2**62))
def test_the_answer_to_a_send_has_the_bytes_of_protobuf(message_id, offset):
    entry = message_class("SendResultEntry")(status=status(), message_id=message_id, offset=offset)
    made = message_class("SendMessageResponse")(status=status(), entries=[entry])
    assert send_response(message_id, offset) == made.SerializeToString()


@given(st.text(max_size=300), st.text(min_size=1, max_size=300))
def test_the_answer_to_an_acknowledgement_has_the_bytes_of_protobuf(message_id, text):
    entry = message_class("AckMessageResultEntry")(status=status(), message_id=message_id, receipt_handle=text)
    made = message_class("AckMessageResponse")(status=status(), entries=[entry])
    assert ack_response(message_id, text) == made.SerializeToString()
