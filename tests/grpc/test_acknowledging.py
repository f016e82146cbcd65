"""The calls of consumers that have a message."""

import asyncio
import gc

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.ack_methods import MAX_INVISIBLE_MS, AckMethods
from sparrowmq.grpc.client_settings import set_ms
from sparrowmq.grpc.clients import Client
from sparrowmq.grpc.renewals import Renewals
from sparrowmq.grpc.wire_types import message_class
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack
from sparrowmq.protocol.requests.pop_headers import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeReply
from sparrowmq.testing import ManualClock
from tests.grpc.scripted import ScriptedBrokers, caller, failing, named


class Acks:
    def __init__(self):
        self.clock = ManualClock()
        self.brokers = ScriptedBrokers()
        self.renewals = Renewals(self.clock)
        self.calls = AckMethods(self.renewals, self.clock)

    def handle(self, age_ms=0, kind=Kind.NORMAL):
        return ReceiptHandle(1, self.clock.now_ms() - age_ms, 15_000, 3, kind, "broker-b", 2, 7, 1337)

    def hold(self, handle, send):
        """Let a message be renewed."""
        client = Client("c", send=send, brokers=self.brokers)
        self.renewals.add(client, "orders", "g", str(handle), handle.visible_ms)

    async def ack(self, *handles):
        request = message_class("AckMessageRequest")(topic=named("orders"), group=named("g"))
        for number, handle in enumerate(handles):
            request.entries.add(message_id=f"m{number}", receipt_handle=str(handle))
        return await self.calls.ack(caller(self.brokers), request)

    async def forward(self, handle, brokers=None):
        request = message_class("ForwardMessageToDeadLetterQueueRequest")(
            topic=named("orders"), group=named("g"), receipt_handle=str(handle), message_id="01AB"
        )
        return await self.calls.forward_to_dlq(caller(brokers or self.brokers), request)

    async def change(self, handle, seconds):
        request = message_class("ChangeInvisibleDurationRequest")(
            topic=named("orders"), group=named("g"), receipt_handle=str(handle)
        )
        set_ms(request.invisible_duration, seconds * 1000)
        return await self.calls.change_invisible(caller(self.brokers), request)


async def test_ack_goes_to_the_broker_of_its_handle():
    acks = Acks()
    answer = await acks.ack(acks.handle())
    assert (answer.status.code, answer.entries[0].message_id) == (20000, "m0")
    assert acks.brokers.asked == [("broker-b", AckMessage("g", "orders", 2, str(acks.handle()), 7), b"")]


async def test_message_of_a_retry_topic_is_acknowledged_there():
    acks = Acks()
    await acks.ack(acks.handle(kind=Kind.RETRY_V2))
    assert acks.brokers.asked[0][1].topic == "%RETRY%g+orders"


async def test_each_entry_has_its_own_status():
    acks = Acks()
    answer = await acks.ack(acks.handle(), acks.handle(age_ms=15_001), "nonsense")
    assert answer.status.code == 30000
    assert [entry.status.code for entry in answer.entries] == [20000, 40013, 40013]
    assert len(acks.brokers.asked) == 1


@pytest.mark.parametrize(("code", "status"), [(208, 40013), (1, 50001), (17, 40402)])
async def test_ack_that_the_broker_refuses_is_no_success(code, status):
    acks = Acks()
    acks.brokers.answers[AckMessage] = failing(code, "forged")
    assert (await acks.ack(acks.handle())).status.code == status


async def test_ack_without_an_entry_is_refused():
    with pytest.raises(RemoteError) as caught:
        await Acks().ack()
    assert caught.value.code == 40000


async def test_ack_of_very_many_entries_is_refused():
    acks = Acks()
    with pytest.raises(RemoteError) as caught:
        await acks.ack(*[acks.handle()] * 1001)
    assert caught.value.code == 41300
    assert not acks.brokers.asked


async def test_change_answers_the_new_handle():
    acks = Acks()
    acks.brokers.answers[ChangeInvisibleTime] = lambda ask: ChangeInvisibleTimeReply(2000, ask.invisible_time, 4)
    answer = await acks.change(acks.handle(), 20)
    assert answer.receipt_handle == "7 2000 20000 4 0 broker-b 2 7 1337"
    whole = "7 1 2 3 0 broker-b 2 7 1337"
    acks.brokers.answers[ChangeInvisibleTime] = lambda ask: ChangeInvisibleTimeReply(9, 9, 9, whole)
    assert (await acks.change(acks.handle(), 20)).receipt_handle == whole


@pytest.mark.parametrize("seconds", [0, 1])
async def test_change_may_be_shorter_than_a_receive(seconds):
    """A push consumer of 5.x lets a message come again after a second at first."""
    acks = Acks()
    acks.brokers.answers[ChangeInvisibleTime] = lambda ask: ChangeInvisibleTimeReply(2000, ask.invisible_time, 4)
    answer = await acks.change(acks.handle(), seconds)
    assert ReceiptHandle.parse(answer.receipt_handle).invisible_ms == seconds * 1000


@pytest.mark.parametrize("seconds", [-1, 12 * 3600 + 1])
async def test_change_has_bounds(seconds):
    acks = Acks()
    with pytest.raises(RemoteError) as caught:
        await acks.change(acks.handle(), seconds)
    assert caught.value.code == 40011


async def test_renewed_message_is_acknowledged_by_its_latest_handle():
    acks = Acks()
    first = acks.handle()

    async def send(raw):
        pass

    async def renew(brokers, topic, group, text, invisible_ms):
        return str(first._replace(queue_offset=8))

    acks.hold(first, send)
    await acks.renewals.renew_due(renew)
    await acks.ack(first)
    assert acks.brokers.asked[0][1].offset == 8


async def test_dead_message_is_copied_and_then_acknowledged():
    acks = Acks()
    answer = await acks.forward(acks.handle())
    assert answer.status.code == 20000
    (_, back, _), (_, ack, _) = acks.brokers.asked
    assert isinstance(back, ConsumerSendMsgBack) and isinstance(ack, AckMessage)
    assert (back.offset, back.delay_level, back.origin_msg_id, back.max_reconsume_times) == (
        1337,
        -1,
        "01AB",
        0,
    )


async def test_dead_message_that_cannot_be_copied_stays():
    acks = Acks()
    acks.brokers.answers[ConsumerSendMsgBack] = failing(1)
    with pytest.raises(RemoteError):
        await acks.calls.move_to_dlq(acks.brokers, "orders", "g", str(acks.handle()), "01AB")
    assert len(acks.brokers.asked) == 1


async def test_dead_message_that_cannot_be_acknowledged_is_copied_once():
    acks = Acks()
    move_to_dlq = ("orders", "g", str(acks.handle()), "01AB")
    acks.brokers.answers[AckMessage] = failing(1)
    for _ in range(2):
        with pytest.raises(RemoteError):
            await acks.calls.move_to_dlq(acks.brokers, *move_to_dlq)
    acks.brokers.answers.clear()
    await acks.calls.move_to_dlq(acks.brokers, *move_to_dlq)
    kinds = [type(ask) for _, ask, _ in acks.brokers.asked]
    assert kinds == [ConsumerSendMsgBack, AckMessage, AckMessage, AckMessage]


def asked(acks):
    return [type(ask) for _, ask, _ in acks.brokers.asked]


async def test_requests_that_overlap_make_one_dead_letter():
    acks = Acks()
    acks.brokers.lets_go = asyncio.Event()
    requests = [asyncio.ensure_future(acks.forward(acks.handle())) for _ in range(2)]
    await asyncio.sleep(0)
    acks.brokers.lets_go.set()
    assert [answer.status.code for answer in await asyncio.gather(*requests)] == [20000, 20000]
    assert asked(acks) == [ConsumerSendMsgBack, AckMessage]


async def test_accounts_share_no_result():
    acks, stranger = Acks(), ScriptedBrokers()
    stranger.account, stranger.lets_go = "stranger", asyncio.Event()
    stranger.answers[ConsumerSendMsgBack] = failing(16, "denied")
    forged = asyncio.ensure_future(acks.forward(acks.handle(), stranger))
    await asyncio.sleep(0)
    mine = asyncio.ensure_future(acks.forward(acks.handle()))
    await asyncio.sleep(0)
    stranger.lets_go.set()
    assert (await mine).status.code == 20000
    with pytest.raises(RemoteError):
        await forged
    assert asked(acks) == [ConsumerSendMsgBack, AckMessage]


async def test_refused_request_whose_client_does_not_wait_logs_no_traceback():
    acks, told = Acks(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    acks.brokers.lets_go = asyncio.Event()
    acks.brokers.answers[ConsumerSendMsgBack] = failing(16, "denied")
    gone = asyncio.ensure_future(acks.forward(acks.handle()))
    while not acks.brokers.asked:
        await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    acks.brokers.lets_go.set()
    for _ in range(5):
        await asyncio.sleep(0)
    del gone
    gc.collect()
    assert told == []


async def test_request_whose_client_does_not_wait_makes_no_second_dead_letter():
    acks = Acks()
    acks.brokers.lets_go = asyncio.Event()
    first = asyncio.ensure_future(acks.forward(acks.handle()))
    await asyncio.sleep(0)
    first.cancel()
    again = asyncio.ensure_future(acks.forward(acks.handle()))
    await asyncio.sleep(0)
    acks.brokers.lets_go.set()
    assert (await again).status.code == 20000
    assert first.cancelled()
    assert asked(acks) == [ConsumerSendMsgBack, AckMessage]


async def test_request_that_comes_again_makes_no_second_dead_letter_until_the_message_is_visible():
    acks = Acks()
    for _ in range(2):
        assert (await acks.forward(acks.handle(age_ms=5000))).status.code == 20000
    assert asked(acks) == [ConsumerSendMsgBack, AckMessage]
    await acks.clock.advance(11)
    await acks.forward(acks.handle())  # the message was delivered again
    assert asked(acks) == 2 * [ConsumerSendMsgBack, AckMessage]


async def test_renewed_message_is_one_dead_letter_by_either_handle():
    acks = Acks()
    first = acks.handle()

    async def send(raw):
        pass

    async def renew(brokers, topic, group, text, invisible_ms):
        return str(first._replace(start_offset=7, revive_queue=1))

    acks.hold(first, send)
    await acks.renewals.renew_due(renew)
    for _ in range(2):
        assert (await acks.forward(first)).status.code == 20000
    assert asked(acks) == [ConsumerSendMsgBack, AckMessage]


async def test_ack_that_failed_is_sent_again_with_the_latest_handle():
    acks = Acks()
    first = acks.handle()

    async def send(raw):
        pass

    async def renew(brokers, topic, group, text, invisible_ms):
        return str(first._replace(queue_offset=8))

    acks.hold(first, send)
    await acks.renewals.renew_due(renew)
    acks.brokers.answers[AckMessage] = failing(2, "busy")
    assert (await acks.ack(first)).status.code != 20000
    acks.brokers.answers.clear()
    assert (await acks.ack(first)).status.code == 20000
    assert [ask.offset for _, ask, _ in acks.brokers.asked] == [8, 8]


async def test_handles_that_a_client_invents_are_not_kept():
    acks = Acks()
    far = acks.handle()._replace(invisible_ms=10**15)
    acks.brokers.answers[ConsumerSendMsgBack] = failing(16, "denied")
    for offset in range(10):
        with pytest.raises(RemoteError):
            await acks.forward(far._replace(queue_offset=offset))
    assert acks.calls._dead_letters == {}
    del acks.brokers.answers[ConsumerSendMsgBack]
    await acks.forward(far)
    await acks.clock.advance(MAX_INVISIBLE_MS / 1000 + 1)
    await acks.forward(acks.handle()._replace(queue_offset=1))
    assert len(acks.calls._dead_letters) == 1
