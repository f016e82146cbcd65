"""Recalls, asked of a whole broker."""

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.recall_handle import RecallHandle
from sparrowmq.protocol.requests.headers import RecallMessage
from tests.broker.live import live_broker


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


@pytest.mark.parametrize(
    "asked", [{"TIMER_DELAY_MS": "-1"}, {"TIMER_DELAY_MS": "", "DELAY": "3"}, {"UNIQ_KEY": ""}]
)
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
