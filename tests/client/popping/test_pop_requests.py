import asyncio

import pytest

from sparrowmq.client.consuming.consumer_settings import subscription
from sparrowmq.client.popping import pop_requests as module
from sparrowmq.errors import ConfigError, NetworkError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.pop_headers import (
    BatchAckReply,
    BatchAcks,
    ChangeInvisibleTimeReply,
    PopMessageReply,
)
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until
from tests.client.popping.answers import (
    ACK,
    BATCH,
    CHANGE,
    NOTIFICATION,
    OF_SLAVE,
    POP,
    POPPED_MS,
    fields,
    found,
    popped,
    rec,
)
from tests.client.popping.conftest import PLACE

HANDLE = f"5 {POPPED_MS} 30000 2 0 broker-a 1 7"


async def test_a_pop_asks_any_queue_and_its_messages_have_receipts(peer, popping):
    peer.script(POP, popped(rec(7), rec(9)))
    messages = await popping.pop(hold_s=2.0, init_mode=1)
    asked = fields(peer, POP)[0]
    assert asked.pop("bornTime").isdigit()
    assert asked == {
        "consumerGroup": "g", "topic": "t", "queueId": "-1", "maxMsgNums": "16", "invisibleTime": "30000",
        "pollTime": "2000", "initMode": "1", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    assert [each._handle_text for each in messages] == [HANDLE, HANDLE.replace(" 7", " 9")]
    assert messages[0].queue == MessageQueue("t", "broker-a", 1)
    assert messages[0]._remaining_s == 30


async def test_the_next_pop_goes_on_with_one_that_was_cancelled(peer, popping):
    peer.script(POP, None)
    for count in (1, 2):  # also with one that went on itself
        cancelled = asyncio.create_task(popping.pop())
        await until(lambda: fields(peer, POP))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert len(fields(peer, POP)) == 1, count
    following = asyncio.create_task(popping.pop())
    await asyncio.sleep(0)
    answer = popped(rec(7))
    peer.sessions[0].reply(peer.requests(POP)[0], 0, answer.header, None, answer.body)
    assert [each.offset for each in await following] == [7]
    await asyncio.sleep(0.02)
    assert len(fields(peer, POP)) == 1 and not fields(peer, CHANGE)


@pytest.mark.parametrize("most", [16, 17])
async def test_a_cancelled_pop_that_no_call_goes_on_with_shows_its_messages(peer, popping, most):
    peer.script(POP, None)
    cancelled = asyncio.create_task(popping.pop())
    await until(lambda: fields(peer, POP))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    answer = popped(rec(7))
    if most == 16:  # the answer comes before the next pop
        peer.sessions[0].reply(peer.requests(POP)[0], 0, answer.header, None, answer.body)
        await until(lambda: fields(peer, CHANGE))
        assert await popping.pop(most=most) == []
    else:  # the next pop wants something else
        assert await popping.pop(most=most) == []
        peer.sessions[0].reply(peer.requests(POP)[0], 0, answer.header, None, answer.body)
        await until(lambda: fields(peer, CHANGE))
    assert [each["offset"] for each in fields(peer, CHANGE)] == ["7"]


async def test_a_pop_that_is_cancelled_as_its_answer_comes_shows_its_messages(peer, popping):
    peer.script(POP, popped(rec(7)))
    begin = popping.pops.begin

    async def begin_and_cancel(*wanted):
        asked = await begin(*wanted)
        asked.waiter.add_done_callback(lambda _: waiting.cancel())
        return asked

    popping.pops.begin = begin_and_cancel
    waiting = asyncio.create_task(popping.pop())
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    await until(lambda: fields(peer, CHANGE))


@pytest.mark.parametrize("code", ["PULL_NOT_FOUND", "POLLING_TIMEOUT", "POLLING_FULL", "NO_MESSAGE"])
async def test_nothing_found_is_no_error(peer, popping, code):
    peer.script(POP, Reply(ResponseCode[code]))
    assert await popping.pop() == []


async def test_messages_of_other_tags_are_acknowledged_here(peer, popping):
    peer.script(POP, popped(rec(7, "a"), rec(8, "b")))
    messages = await popping.pop(filter=subscription("t", "a", None, 5))
    assert [each.tag for each in messages] == ["a"]
    await popping.pops.wait_for_acks()
    assert [each["offset"] for each in fields(peer, ACK)] == ["8"]


async def test_a_broker_that_cannot_pop_is_named_with_advice(peer, popping):
    peer.script(POP, Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="request type 200050 not supported"))
    with pytest.raises(ConfigError, match=r"broker-a cannot pop: .* Apache RocketMQ 5"):
        await popping.pop()
    peer.script(NOTIFICATION, Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    with pytest.raises(ConfigError, match="cannot pop"):
        await popping.pops.wait(PLACE, 1.0, is_orderly=False, attempt_id=None)


async def test_waiting_ends_when_a_pop_would_find_a_message(peer, popping):
    peer.script(NOTIFICATION, found())
    assert await popping.pops.wait(PLACE, 7.0, is_orderly=True, attempt_id="try-1")
    asked = fields(peer, NOTIFICATION)[0]
    assert (asked["pollTime"], asked["order"], asked["attemptId"], asked["queueId"]) == (
        "7000",
        "true",
        "try-1",
        "-1",
    )


async def test_acks_of_one_turn_travel_together(peer, popping):
    peer.usual[BATCH] = lambda _: Reply()
    peer.script(POP, popped(rec(7), rec(8)))
    messages = await popping.pop()
    before = len(popping.tasks)
    for each in messages:
        popping.pops.acks.add(each)
    assert len(popping.tasks) == before + 1
    await popping.pops.wait_for_acks()
    (request,) = peer.requests(BATCH)
    body = BatchAcks.decode(request.body)
    assert (body.broker_name, [each.bits for each in body.acks]) == ("broker-a", ["DA=="])
    assert not fields(peer, ACK)
    assert all(each._is_spent for each in messages)


async def test_a_broker_without_batches_gets_single_acks_from_then_on(peer, popping):
    peer.usual[BATCH] = lambda _: Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    for _ in range(2):
        peer.script(POP, popped(rec(7), rec(8)))
        popping.pops.acks.extend(await popping.pop())
        await popping.pops.wait_for_acks()
    assert [each["offset"] for each in fields(peer, ACK)] == ["7", "8"] * 2
    assert len(peer.requests(BATCH)) == 1


async def test_a_batch_that_fails_is_acknowledged_one_by_one(peer, popping):
    peer.usual[BATCH] = lambda _: Reply(ResponseCode.SYSTEM_ERROR)
    peer.script(POP, popped(rec(7), rec(8)))
    popping.pops.acks.extend(await popping.pop())
    await popping.pops.wait_for_acks()
    assert [each["offset"] for each in fields(peer, ACK)] == ["7", "8"]


@pytest.mark.parametrize(
    ("left_out", "batches", "singles"),
    [(0, 2, []), (1, 2, ["7", "8"] * 2), (None, 1, ["7", "8"] * 2)],
)  # fmt: skip
async def test_a_batch_of_which_a_message_may_be_left_out_is_acknowledged_one_by_one_too(
    peer, popping, left_out, batches, singles
):
    peer.usual[BATCH] = lambda _: Reply(header=BatchAckReply(left_out))
    for _ in range(2):
        peer.script(POP, popped(rec(7), rec(8)))
        await popping.pops.ack(await popping.pop())
    assert len(peer.requests(BATCH)) == batches
    assert [each["offset"] for each in fields(peer, ACK)] == singles


async def test_more_messages_are_asked_for_when_the_broker_says_so_until_it_refuses(peer, popping):
    header = PopMessageReply(0, 30_000, 2, 0, "0 1 5", most_msg_nums=256)
    answer = Reply(0, header, body=rec(7))
    refusal = Reply(ResponseCode.INVALID_PARAMETER)
    peer.script(POP, answer, refusal, popped(rec(8)))
    await popping.pop(most=500)
    with pytest.raises(RemoteError):
        await popping.pop(most=500)
    await popping.pop(most=500)
    asked = fields(peer, POP)
    assert [each["maxMsgNums"] for each in asked] == ["32", "256", "32"]
    assert [each.get("wantsCounts") for each in asked] == [None, "true", None]


async def test_acks_are_repeated_after_a_lost_connection(peer, popping):
    peer.script(POP, popped(rec(7), rec(8)))
    messages = await popping.pop()
    peer.script(ACK, None, None)  # no answers: the connection ends first
    waiting = asyncio.create_task(popping.pops.ack(messages))
    await until(lambda: len(fields(peer, ACK)) == 2)
    for session in peer.sessions:
        session.abort()
    await until(lambda: not popping.world.brokers.open_session(peer.address))
    while not waiting.done():
        await popping.world.clock.advance(module.PAUSE_S)
        await asyncio.sleep(0.001)
    await waiting
    assert [each["offset"] for each in fields(peer, ACK)] == ["7", "8"] * 2


async def test_an_ack_that_a_broker_refuses_is_an_error_after_the_others(peer, popping):
    peer.script(POP, popped(rec(7), rec(8)))
    messages = await popping.pop()
    peer.script(ACK, Reply(ResponseCode.NO_MESSAGE, remark="offset is illegal"))
    with pytest.raises(RemoteError, match="offset is illegal"):
        await popping.pops.ack(messages)
    assert [each["offset"] for each in fields(peer, ACK)] == ["7", "8"]
    peer.script(ACK, Reply(ResponseCode.NO_MESSAGE, remark="offset is illegal"))
    popping.pops.acks.add(messages[0])  # is only logged
    await popping.pops.wait_for_acks()


async def test_a_broker_without_a_route_is_an_error_after_some_tries(peer, popping):
    peer.script(POP, popped(rec(7)))
    (message,) = await popping.pop()
    message._renew("", message._handle._replace(broker_name="gone"))
    waiting = asyncio.create_task(popping.pops.ack([message]))
    while not waiting.done():
        await popping.world.clock.advance(module.PAUSE_S)
        await asyncio.sleep(0.001)
    with pytest.raises(NetworkError, match="gone"):
        await waiting
    assert not message._is_spent


async def test_a_slave_where_the_master_was_is_as_good_as_a_broker_that_is_away(peer, popping):
    peer.script(POP, OF_SLAVE)
    with pytest.raises(NetworkError, match="a slave is where its master was"):
        await popping.pop()
    assert popping.world.routes._refresh_requested.is_set()
    peer.script(NOTIFICATION, OF_SLAVE)
    with pytest.raises(NetworkError):
        await popping.pops.wait(PLACE, 1, is_orderly=False, attempt_id=None)
    peer.script(POP, popped(rec(7)))
    (message,) = await popping.pop()
    peer.script(CHANGE, OF_SLAVE)
    with pytest.raises(NetworkError):
        await popping.pops.change_invisible(message, 1)


async def test_acks_wait_until_another_master_is_elected(peer, popping):
    peer.script(POP, popped(rec(7)))
    (message,) = await popping.pop()
    peer.script(ACK, *[OF_SLAVE] * 10)
    clock = popping.world.clock
    waiting, begun = asyncio.create_task(popping.pops.ack([message])), clock.monotonic()
    while not waiting.done():
        await clock.advance(module.PAUSE_S)
        await asyncio.sleep(0.001)
    await waiting
    assert message._is_spent and len(fields(peer, ACK)) == 11
    assert clock.monotonic() - begun < module.MIN_SETTLE_S


async def test_a_change_of_the_invisible_time_renews_the_receipt(peer, popping):
    peer.script(POP, popped(rec(7)))
    (message,) = await popping.pop()
    await popping.pops.change_invisible(message, 1.5)
    asked = fields(peer, CHANGE)[0]
    assert asked == {
        "consumerGroup": "g", "topic": "t", "queueId": "1", "extraInfo": HANDLE, "offset": "7", "invisibleTime": "1500",
    }  # fmt: skip
    assert message._handle_text == f"7 {POPPED_MS + 5} 1500 3 0 broker-a 1 7"
    assert message._remaining_s == 1.5

    whole = f"7 {POPPED_MS + 9} 1000 0 0 broker-a 1 7 99"
    peer.script(CHANGE, Reply(header=ChangeInvisibleTimeReply(POPPED_MS + 9, 1000, 0, whole)))
    await popping.pops.change_invisible(message, 1)
    assert message._handle_text == whole


async def test_an_ack_waits_for_a_change_that_is_under_way_and_uses_the_new_receipt(peer, popping):
    peer.script(POP, popped(rec(7)))
    (message,) = await popping.pop()
    peer.script(CHANGE, None)
    changing = asyncio.create_task(popping.pops.change_invisible(message, 60))
    await until(lambda: fields(peer, CHANGE))
    acking = asyncio.create_task(popping.pops.ack([message]))
    await asyncio.sleep(0.02)
    assert not fields(peer, ACK)
    peer.sessions[0].reply(peer.requests(CHANGE)[0], 0, ChangeInvisibleTimeReply(POPPED_MS + 5, 60_000, 3))
    await asyncio.gather(changing, acking)
    assert fields(peer, ACK)[0]["extraInfo"] == f"7 {POPPED_MS + 5} 60000 3 0 broker-a 1 7"


async def test_changes_of_one_message_go_one_after_another_until_it_is_settled(peer, popping):
    peer.script(POP, popped(rec(7)))
    (message,) = await popping.pop()
    peer.script(CHANGE, None)
    first = asyncio.create_task(popping.pops.change_invisible(message, 60))
    await until(lambda: fields(peer, CHANGE))
    second = asyncio.create_task(popping.pops.change_invisible(message, 90))
    await asyncio.sleep(0.02)
    assert len(fields(peer, CHANGE)) == 1
    peer.sessions[0].reply(peer.requests(CHANGE)[0], 0, ChangeInvisibleTimeReply(POPPED_MS + 5, 60_000, 3))
    await asyncio.gather(first, second)
    assert fields(peer, CHANGE)[1]["extraInfo"] == f"7 {POPPED_MS + 5} 60000 3 0 broker-a 1 7"
    peer.script(CHANGE, None)
    first = asyncio.create_task(popping.pops.change_invisible(message, 60))
    await until(lambda: len(fields(peer, CHANGE)) == 3)
    late = asyncio.create_task(popping.pops.change_invisible(message, 90))
    acking = asyncio.create_task(popping.pops.ack([message]))
    await asyncio.sleep(0.02)
    peer.sessions[0].reply(peer.requests(CHANGE)[2], 0, ChangeInvisibleTimeReply(POPPED_MS + 9, 60_000, 3))
    await asyncio.gather(first, late, acking)
    assert len(fields(peer, CHANGE)) == 3 and len(fields(peer, ACK)) == 1
