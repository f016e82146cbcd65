"""The calls of consumers that want messages."""

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc import receive_methods
from sparrowmq.grpc.ack_methods import AckMethods
from sparrowmq.grpc.brokers import endpoints_of
from sparrowmq.grpc.client_settings import ms_of, set_ms
from sparrowmq.grpc.clients import SETTINGS_WAIT_S, Clients
from sparrowmq.grpc.message_out import message_of
from sparrowmq.grpc.receive_methods import ReceiveMethods
from sparrowmq.grpc.renewals import Renewals
from sparrowmq.grpc.telemetry import MAX_SETTINGS_BYTES
from sparrowmq.grpc.wire_types import ClientType, FilterType, message_class
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack
from sparrowmq.protocol.requests.pop_headers import AckMessage, PopMessage
from sparrowmq.remoting.log_limit import LINES
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.testing import ManualClock
from tests.grpc.popped_records import a_record, reply
from tests.grpc.scripted import ScriptedBrokers, caller, failing, named


class Consumers:
    def __init__(self, is_fifo=False, **group):
        clock = ManualClock()
        self.brokers = ScriptedBrokers(**group)
        self.clients = Clients(clock, self.brokers.client_left)
        self.renewals = Renewals(clock)
        acks = AckMethods(self.renewals, clock)
        self.receiving = ReceiveMethods(self.clients, self.renewals, acks, clock)
        self.clock = clock
        settings = message_class("Settings")(client_type=ClientType.SIMPLE_CONSUMER)
        settings.subscription.group.name = "g"
        settings.subscription.fifo = is_fifo
        self.clients.configure(self.clients.note_seen("c1"), settings, self.brokers)

    def find(self, *records):
        now_ms = self.clock.now_ms()
        header = reply(now_ms, start_offset_info="0 2 5", msg_offset_info="0 2 5,6,7")
        self.brokers.answers[PopMessage] = lambda ask: Response(0, header, None, b"".join(records), 0)

    async def receive(self, time_left_s=None, queue_id=-1, **fields):
        request = message_class("ReceiveMessageRequest")(group=named("g"), batch_size=4, **fields)
        request.message_queue.topic.name = "orders"
        request.message_queue.id = queue_id
        request.message_queue.broker.name = "broker-a"
        if not fields.get("invisible_duration") and not fields.get("auto_renew"):
            set_ms(request.invisible_duration, 15_000)
        got: list[Any] = []

        async def send(*several):
            got.extend(message_class("ReceiveMessageResponse").FromString(raw) for raw in several)

        await self.receiving.receive(caller(self.brokers, time_left_s=time_left_s), request, send)
        return got

    async def code(self, **fields):
        with pytest.raises(RemoteError) as caught:
            await self.receive(**fields)
        return caught.value.code

    def pop(self):
        return next(ask for _, ask, _ in self.brokers.asked if isinstance(ask, PopMessage))


def duration(milliseconds):
    made = message_class("ReceiveMessageRequest")().invisible_duration
    set_ms(made, milliseconds)
    return made


async def test_messages_follow_their_status_and_the_time_ends_them():
    consumers = Consumers()
    consumers.find(a_record(5, UNIQ_KEY="A"), a_record(6, UNIQ_KEY="B"))
    status, first, second, end = await consumers.receive()
    assert status.status.code == 20000
    assert [each.message.system_properties.message_id for each in (first, second)] == ["A", "B"]
    system = first.message.system_properties
    assert system.receipt_handle == f"5 {consumers.clock.now_ms()} 15000 3 0 broker-a 2 5 1337"
    assert (system.delivery_attempt, ms_of(system.invisible_duration)) == (1, 15_000)
    assert ms_of(end.delivery_timestamp) == consumers.clock.now_ms()
    ask = consumers.pop()
    assert (ask.consumer_group, ask.topic, ask.queue_id, ask.max_msg_nums) == ("g", "orders", -1, 4)
    assert (ask.exp, ask.exp_type, ask.order, ask.attempt_id) == ("*", "TAG", False, None)
    assert len(consumers.renewals) == 0


@pytest.mark.parametrize("code", [208, 210, 19])
async def test_receive_without_a_message_says_so(code):
    consumers = Consumers()
    consumers.brokers.answers[PopMessage] = failing(code)
    assert await consumers.code() == 40401


async def test_message_with_another_tag_is_acknowledged_and_not_delivered():
    consumers = Consumers()
    consumers.find(a_record(5, TAGS="BB"), a_record(6, TAGS="Aa"))
    wanted = message_class("FilterExpression")(type=FilterType.TAG, expression="Aa")
    _, first, _ = await consumers.receive(filter_expression=wanted)
    assert first.message.system_properties.tag == "Aa"
    assert [ask.offset for _, ask, _ in consumers.brokers.asked if isinstance(ask, AckMessage)] == [5]


async def test_message_that_failed_too_often_is_dead():
    consumers = Consumers(retry_max_times=2)
    consumers.find(a_record(5, reconsume_times=3), a_record(6, reconsume_times=2))
    _, first, _ = await consumers.receive()
    assert first.message.system_properties.delivery_attempt == 3
    assert [type(ask) for _, ask, _ in consumers.brokers.asked] == [
        PopMessage,
        ConsumerSendMsgBack,
        AckMessage,
    ]


@pytest.mark.parametrize(("is_fifo", "got"), [(True, ["C"]), (False, ["B", "C"])])
async def test_ordered_group_gets_no_message_behind_one_that_cannot_be_buried(is_fifo, got):
    consumers = Consumers(is_fifo=is_fifo, retry_max_times=2)
    groups = {"A": "stuck", "B": "stuck", "C": "free"}
    times = {"A": 3, "B": 0, "C": 0}
    consumers.find(
        *(
            a_record(5 + number, reconsume_times=times[name], UNIQ_KEY=name, __SHARDINGKEY=group)
            for number, (name, group) in enumerate(groups.items())
        )
    )
    consumers.brokers.answers[ConsumerSendMsgBack] = failing(1)
    _, *messages, _ = await consumers.receive()
    assert [each.message.system_properties.message_id for each in messages] == got


@pytest.mark.parametrize(("is_fifo", "got"), [(False, ["B", "C", "D"]), (True, ["B", "D"])])
async def test_message_that_cannot_be_unpacked_delays_no_other(is_fifo, got):
    consumers = Consumers(is_fifo)
    damaged = a_record(5, sys_flag=SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4, __SHARDINGKEY="stuck")
    others = [("B", "free"), ("C", "stuck"), ("D", "free")]
    rows = [a_record(6 + at, UNIQ_KEY=key, __SHARDINGKEY=group) for at, (key, group) in enumerate(others)]
    header = reply(consumers.clock.now_ms(), start_offset_info="0 2 5", msg_offset_info="0 2 5,6,7,8")
    body = b"".join([damaged, *rows])
    consumers.brokers.answers[PopMessage] = lambda ask: Response(0, header, None, body, 0)
    answers = await consumers.receive()
    assert [each.message.system_properties.message_id for each in answers[1:-1]] == got
    assert {type(ask) for _, ask, _ in consumers.brokers.asked} == {PopMessage}


async def test_bodies_are_unpacked_while_the_loop_goes_on(monkeypatch):
    threads = []

    def noted(stored, *others):
        threads.append((stored.sys_flag, threading.current_thread() is threading.main_thread()))
        return message_of(stored, *others)

    monkeypatch.setattr(receive_methods, "message_of", noted)
    consumers = Consumers()
    lz4, zlib = SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSED
    consumers.find(*(a_record(5 + at, sys_flag=flag) for at, flag in enumerate((lz4, zlib, 0))))
    await consumers.receive()
    assert threads == [(lz4, False)]


async def test_damaged_messages_that_come_again_and_again_are_logged_a_few_times_a_minute(caplog):
    consumers = Consumers()
    flag = SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4
    consumers.find(*(a_record(5 + at, sys_flag=flag) for at in range(LINES + 5)))
    assert await consumers.code() == 40401
    assert len([each for each in caplog.records if "stays in group" in each.getMessage()]) == LINES


async def test_receive_of_nothing_but_a_damaged_message_says_that_there_is_none():
    consumers = Consumers()
    consumers.find(a_record(5, sys_flag=SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4))
    assert await consumers.code() == 40401


@pytest.mark.parametrize("orderly", [False, True])
async def test_client_whose_settings_do_not_come_again_gets_messages(orderly):
    """Python's client sends them only every five minutes, also if the port has begun again."""
    consumers = Consumers(consume_message_orderly=orderly)
    consumers.clients.remove("c1")
    consumers.find(a_record(5))
    waiting = asyncio.create_task(consumers.receive())
    await consumers.clock.advance(SETTINGS_WAIT_S)
    assert len(await waiting) == 3
    assert consumers.pop().order == orderly
    client = consumers.clients.with_settings("c1")
    assert (client.group, client.client_type) == ("g", ClientType.SIMPLE_CONSUMER)
    consumers.clients.remove("c1")
    large = message_class("FilterExpression")(type=FilterType.TAG, expression="t" * MAX_SETTINGS_BYTES)
    waiting = asyncio.create_task(consumers.code(filter_expression=large))
    await consumers.clock.advance(SETTINGS_WAIT_S)
    assert await waiting == 41300


async def test_message_is_renewed_if_its_consumer_asks_so():
    consumers = Consumers()
    consumers.find(a_record(5))
    await consumers.receive(auto_renew=True)
    assert consumers.pop().invisible_time == 60_000
    assert len(consumers.renewals) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"invisible_duration": duration(9_999)}, 40011),
        ({"invisible_duration": duration(43_200_001)}, 40011),
        ({"filter_expression": message_class("FilterExpression")(type=FilterType.SQL, expression=" ")}, 40010),
        ({"filter_expression": message_class("FilterExpression")(type=FilterType.TAG, expression="||")}, 40010),
    ],
)
async def test_wrong_receive_has_its_code(fields, code):
    consumers = Consumers()
    assert await consumers.code(**fields) == code
    assert consumers.brokers.asked == []


@pytest.mark.parametrize(
    ("wish_ms", "left_s", "poll_ms"),
    [(None, None, 20_000), (7000, None, 7000), (60_000, None, 20_000), (10_000, 4, 3500), (10_000, 0.1, 0)],
)
async def test_receive_waits_as_long_as_its_caller(wish_ms, left_s, poll_ms):
    consumers = Consumers()
    consumers.find(a_record(5))
    fields = {} if wish_ms is None else {"long_polling_timeout": duration(wish_ms)}
    await consumers.receive(time_left_s=left_s, **fields)
    assert consumers.pop().poll_time == poll_ms


async def test_push_consumer_of_an_ordered_group_pops_in_order_from_one_queue():
    consumers = Consumers(is_fifo=True)
    consumers.find(a_record(5))
    await consumers.receive(attempt_id="a1", queue_id=3, auto_renew=True)
    assert (consumers.pop().order, consumers.pop().attempt_id, consumers.pop().queue_id) == (True, "a1", 3)


@pytest.mark.parametrize("is_fifo", [False, True])
async def test_receive_from_one_queue_gets_messages_of_all(is_fifo):
    consumers = Consumers(is_fifo)
    consumers.find(a_record(5))
    await consumers.receive(queue_id=3)
    assert consumers.pop().queue_id == -1


async def test_other_calls_of_a_client_go_between_its_receives():
    consumers = Consumers()
    consumers.find(a_record(5))
    begun = [0]
    async with asyncio.TaskGroup() as receives:
        for _ in range(4):
            receives.create_task(consumers.receive())
        while begun[-1] < 4:
            await asyncio.sleep(0)
            begun.append(len(consumers.brokers.asked))
    assert max(after - before for before, after in pairwise(begun)) == 1


@pytest.mark.parametrize(("is_orderly", "ids"), [(False, [-1, -1]), (True, [0, 1, 2, 3, 0, 1, 2, 3])])
async def test_assignment_is_a_broker_or_each_queue_of_an_ordered_group(is_orderly, ids):
    consumers = Consumers(consume_message_orderly=is_orderly)
    request = message_class("QueryAssignmentRequest")(topic=named("orders"), group=named("g"))
    answer = await consumers.receiving.assignment(caller(consumers.brokers), request, endpoints_of("127.0.0.1:1"))
    assert [each.message_queue.id for each in answer.assignments] == ids
    assert {each.message_queue.permission for each in answer.assignments} == {2}
    # As Apache's proxy: clients of Java before 5.2.0 refuse a list with PRIORITY.
    assert not any(each.message_queue.accept_message_types for each in answer.assignments)
