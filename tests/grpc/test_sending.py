"""The calls of producers."""

import asyncio
import gzip
import itertools

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc import send_methods
from sparrowmq.grpc.clients import Clients
from sparrowmq.grpc.send_methods import SendMethods, TransactionId
from sparrowmq.grpc.wire_types import SERVER_CHECK, Encoding, MessageType, Resolution, message_class
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests import headers
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import OFFSET_ID, ScriptedBrokers, caller, failing, ignored, named, outgoing, route


class Producers:
    def __init__(self, topic_type=None):
        clock = ManualClock()
        self.brokers = ScriptedBrokers(topic_type)
        self.clients = Clients(clock, self.brokers.client_left)
        self.clients.stream_began(self.clients.note_seen("c1"), ignored)
        turns = itertools.count()
        self.sending = SendMethods(self.clients, clock, lambda: next(turns))

    async def send(self, *messages):
        return await self.sending.send(caller(self.brokers), message_class("SendMessageRequest")(messages=messages))

    async def refused(self, *messages):
        with pytest.raises(RemoteError) as caught:
            await self.send(*messages)
        return caught.value.code


async def test_messages_go_to_queues_in_turn():
    port = Producers()
    for _ in range(8):
        answer = await port.send(outgoing())
        assert answer.status.code == 20000
    places = [(broker, request.queue_id) for broker, request, _ in port.brokers.asked]
    assert places == [(broker, number) for broker in ("broker-a", "broker-b") for number in range(4)]
    assert port.brokers.asked[0][2] == b"hello"


async def test_message_group_stays_in_its_queue():
    port = Producers("FIFO")
    for _ in range(3):
        await port.send(outgoing(message_group="g1"))
    assert len({(broker, request.queue_id) for broker, request, _ in port.brokers.asked}) == 1


async def test_each_message_of_a_call_has_its_own_result():
    port = Producers()
    results = iter([None, failing(1, "broken")])

    def answer(request):
        make = next(results)
        return make(request) if make else headers.SendMessageReply(OFFSET_ID, 0, 41, recall_handle="r")

    port.brokers.answers[headers.SendMessageV2] = answer
    got = await port.send(outgoing(message_id="A"), outgoing(message_id="B"))
    assert got.status.code == 30000
    assert [(entry.message_id, entry.status.code) for entry in got.entries] == [("A", 20000), ("B", 50001)]
    assert (got.entries[0].offset, got.entries[0].recall_handle, got.entries[0].transaction_id) == (
        41,
        "r",
        "",
    )
    assert len({broker for broker, _, _ in port.brokers.asked}) == 1


async def test_message_that_no_slave_has_is_answered_so():
    port = Producers()
    reply = headers.SendMessageReply(OFFSET_ID, 0, 1)
    port.brokers.answers[headers.SendMessageV2] = lambda request: Response(11, reply, "no slave", b"", 0)
    got = await port.send(outgoing())
    assert (got.status.code, got.entries[0].offset) == (50002, 1)


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], 40016),
        ([outgoing(), outgoing(topic="bills")], 40016),
        ([outgoing(topic="bills")], None),
        ([outgoing(topic="a b")], 40002),
        ([outgoing(message_group="g")], 40014),
    ],
)
async def test_call_that_is_wrong_is_refused(messages, code):
    port = Producers("NORMAL")
    if code is None:
        with pytest.raises(Exception, match="bills"):
            await port.send(*messages)
    else:
        assert await port.refused(*messages) == code
    assert port.brokers.asked == []


async def test_topic_without_a_type_takes_a_message_with_a_priority():
    assert (await Producers().send(outgoing(priority=1))).status.code == 20000


async def test_topic_that_takes_no_messages_is_forbidden():
    port = Producers()
    port.brokers.known = route("broker-a", perm=Perm.READ)
    assert await port.refused(outgoing()) == 40300


async def test_half_message_gets_an_id_by_which_it_is_ended():
    port = Producers("TRANSACTION")
    got = await port.send(outgoing(message_type=MessageType.TRANSACTION))
    made = TransactionId.parse(got.entries[0].transaction_id)
    assert made == TransactionId("broker-a", 1, 1337, "01AB")
    assert port.brokers.announced == [(["orders"], None)]
    request = message_class("EndTransactionRequest")(
        topic=named("orders"),
        transaction_id=str(made),
        resolution=Resolution.COMMIT,
        source=SERVER_CHECK,
    )
    answer = await port.sending.end_transaction(caller(port.brokers), request)
    broker, ask, _ = port.brokers.asked[-1]
    assert answer.status.code == 20000
    assert (broker, ask.commit_or_rollback, ask.commit_log_offset, ask.tran_state_table_offset) == (
        "broker-a",
        8,
        1337,
        1,
    )
    assert (ask.producer_group, ask.transaction_id, ask.from_transaction_check) == ("orders", "01AB", True)


@pytest.mark.parametrize(("resolution", "flag"), [(Resolution.ROLLBACK, 12), (Resolution.UNSPECIFIED, 0)])
async def test_transaction_is_rolled_back_or_left(resolution, flag):
    port = Producers()
    text = str(TransactionId("broker-a", 1, 2, "x"))
    request = message_class("EndTransactionRequest")(topic=named("orders"), transaction_id=text, resolution=resolution)
    await port.sending.end_transaction(caller(port.brokers), request)
    assert port.brokers.asked[0][1].commit_or_rollback == flag


async def test_end_of_an_unknown_transaction_is_refused():
    port = Producers()
    port.brokers.answers[headers.EndTransaction] = failing(1, "find prepared message failed")
    text = str(TransactionId("broker-a", 1, 2, "x"))
    for given in (text, "nonsense"):
        request = message_class("EndTransactionRequest")(topic=named("orders"), transaction_id=given, resolution=1)
        with pytest.raises(RemoteError) as caught:
            await port.sending.end_transaction(caller(port.brokers), request)
        assert caught.value.code == 40008


async def test_message_is_recalled_at_its_broker():
    port = Producers()
    port.brokers.answers[headers.RecallMessage] = lambda request: headers.RecallMessageReply("01AB")
    handle = str(RecallHandle("orders", "broker-b", 1000, "01AB"))
    answer = await port.sending.recall(
        caller(port.brokers), message_class("RecallMessageRequest")(topic=named("orders"), recall_handle=handle)
    )
    assert answer.message_id == "01AB"
    assert port.brokers.asked[0][0] == "broker-b"


@pytest.mark.parametrize("handle", ["nonsense", str(RecallHandle("bills", "broker-b", 1000, "01AB"))])
async def test_recall_handle_that_is_broken_or_of_another_topic_is_refused(handle):
    port = Producers()
    with pytest.raises(RemoteError) as caught:
        await port.sending.recall(
            caller(port.brokers), message_class("RecallMessageRequest")(topic=named("orders"), recall_handle=handle)
        )
    assert caught.value.code == 40000
    assert port.brokers.asked == []


async def test_packed_body_is_stored_plain():
    port = Producers()
    await port.send(outgoing(body=gzip.compress(b"hello"), body_encoding=Encoding.GZIP))
    assert port.brokers.asked[0][2] == b"hello"


async def test_packed_bodies_are_refused_while_too_many_wait_for_the_broker(monkeypatch):
    monkeypatch.setattr(send_methods, "MAX_UNPACKED_IN_FLIGHT", 1000)
    port = Producers()
    port.brokers.lets_go = asyncio.Event()
    packed = outgoing(body=gzip.compress(bytes(2000)), body_encoding=Encoding.GZIP)
    waiting = asyncio.create_task(port.send(packed))
    while not port.brokers.asked:
        await asyncio.sleep(0.001)
    assert await port.refused(packed) == 42900
    port.brokers.lets_go.set()
    await waiting
    assert (await port.send(packed)).status.code == 20000
