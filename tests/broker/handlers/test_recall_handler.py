"""Recalls, asked of a whole broker."""

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.headers import RecallMessage
from tests.broker.live import live_broker, pull_request, send_request
from tests.broker.transactions.test_deciders import company


def request(handle, topic="orders"):
    return RecallMessage(topic, str(handle), "producers")


async def send(broker, delay_ms=60_000, unique="AB01", **properties):
    asked = {"UNIQ_KEY": unique, "TIMER_DELAY_MS": str(delay_ms), **properties}
    return await broker.send(b"later", properties=asked)


async def test_a_send_for_a_time_gives_a_handle_and_the_recall_takes_it(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        reply = await send(broker)
        handle = RecallHandle.parse(reply.recall_handle)
        assert handle == RecallHandle("orders", "broker-0", clock.now_ms() + 60_000, "AB01")
        answer = await broker.session.call(request(handle))
        assert answer.header.msg_id == "AB01"
        await send(broker, unique="AB02")
        await clock.advance(61)
        assert [each.unique_key for each in await broker.messages()] == ["AB02"]


@pytest.mark.parametrize("asked", [{"TIMER_DELAY_MS": "-1"}, {"TIMER_DELAY_MS": "", "DELAY": "3"}, {"UNIQ_KEY": ""}])
async def test_no_handle_is_given_for_what_cannot_be_recalled(tmp_path, clock, asked):
    async with live_broker(tmp_path, clock=clock) as broker:
        assert (await send(broker, **asked)).recall_handle is None


async def test_a_recall_that_cannot_be_is_refused_by_name(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        handle = RecallHandle.parse((await send(broker)).recall_handle)
        for wrong, topic, code, what in (
            ("no handle", "orders", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
            (handle, "nowhere", ResponseCode.TOPIC_NOT_EXIST, "not exist"),
            (handle._replace(topic="other"), "orders", ResponseCode.ILLEGAL_OPERATION, "topic not match"),
            (handle._replace(broker_name="b"), "orders", ResponseCode.ILLEGAL_OPERATION, "waits at broker b"),
            (handle._replace(due_ms=5), "orders", ResponseCode.ILLEGAL_OPERATION, "due already"),
            (handle._replace(due_ms=10**17), "orders", ResponseCode.MESSAGE_ILLEGAL, "timerMaxDelaySec"),
        ):
            with pytest.raises(RemoteError, match=what) as refused:
                await broker.session.call(request(wrong, topic))
            assert refused.value.code == code


async def test_recalls_can_be_switched_off(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock, recalls=False) as broker:
        reply = await send(broker)
        with pytest.raises(RemoteError, match="recallMessageEnable is false") as refused:
            await broker.session.call(request(reply.recall_handle))
        assert refused.value.code == ResponseCode.NO_PERMISSION


async def test_clients_cannot_send_to_the_timers_topic(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        with pytest.raises(RemoteError, match="forbidden"):
            await broker.send(topic="rmq_sys_wheel_timer")


@pytest.mark.parametrize("account, is_recalled", [("payments", True), ("partners", False), ("operators", True)])
async def test_a_recall_by_another_account_that_may_send_to_the_topic_has_no_effect(
    tmp_path, clock, account, is_recalled
):
    async with company(tmp_path, clock=clock) as (_, connect):
        (payments, _), (recaller, _) = await connect("payments"), await connect(account)
        forged = {"TIMER_OWNER": account, "TIMER_DELAY_MS": "60000"}
        sent = await payments.call(send_request("orders", 0, forged | {"UNIQ_KEY": "AB01"}), b"later")
        await recaller.call(request(sent.header.recall_handle))
        by_send = {"TIMER_DEL_UNIQKEY": "orders+AB01", "UNIQ_KEY": "R", "TIMER_OWNER": "payments"}
        if account != "operators":  # whose plain messages recall only their own
            await recaller.call(send_request("orders", 0, forged | by_send), b"0")
        await clock.advance(61)
        (operators, _) = await connect("operators")
        found = (await operators.call(pull_request("orders", 0, 0), accept=(0, 19, 20, 21))).body
        messages = [record.decode(view) for view in record.walk(found)]
        assert [each.unique_key for each in messages] == ([] if is_recalled else ["AB01"])
        assert not any("TIMER_OWNER" in each.properties for each in messages)
