"""Our client asks, answers and traces, with Apache's servers and ours."""

from __future__ import annotations

import asyncio
import time

import pytest

import sparrowmq
from sparrowmq import ReceivedMessage
from tests.interop.apache import mqadmin
from tests.interop.our_client import EVERY_BROKER, LIMIT_S, read

pytestmark = EVERY_BROKER


@pytest.mark.cell("request")
async def test_requests_have_their_answers_from_another_client(target, mq, topic):
    async def answer(message: ReceivedMessage) -> None:
        assert await message.reply(b"re: " + message.body)

    async with (
        sparrowmq.connect(target.namesrv) as other,
        other.subscribe(topic, answer, group=f"g-{topic}", start="earliest"),
    ):
        bodies = [b"%d" % number for number in range(20)]
        answers = await asyncio.gather(*(mq.request(topic, body, timeout_s=LIMIT_S) for body in bodies))
    assert [each.body for each in answers] == [b"re: " + body for body in bodies]
    assert {each.topic for each in answers} == {"DefaultCluster_REPLY_TOPIC"}


async def test_an_asker_that_is_gone_has_no_answer(target, mq, topic):
    async with sparrowmq.connect(target.namesrv) as asker:
        asking = asyncio.ensure_future(asker.request(topic, b"x", timeout_s=LIMIT_S))
        (request,) = await read(mq, topic, 1)  # However long that takes, then the asker goes.
        asking.cancel()
    assert not await request.reply(b"too late")


@pytest.mark.slow
@pytest.mark.cell("trace")
@pytest.mark.slow
async def test_apaches_admin_tool_shows_what_our_client_traced(target, topic):
    group = f"g-{topic}"
    async with sparrowmq.connect(target.namesrv, trace=True, group="shop") as mq:
        sent = await mq.send(topic, b"hello", keys="k")
        async with mq.subscribe(topic, lambda message: None, group=group, start="earliest"):
            deadline = time.monotonic() + LIMIT_S
            while len(traces := await mq.admin.trace(sent.msg_id)) < 3:
                assert time.monotonic() < deadline, traces
                await asyncio.sleep(0.1)
    done = await asyncio.to_thread(mqadmin, "4.9.7", "queryMsgTraceById", "-i", sent.msg_id, "-n", target.namesrv)
    lines = [line.split() for line in done.stdout.splitlines()]
    (pub,) = [line for line in lines if line[:1] == ["Pub"]]
    (sub,) = [line for line in lines if line[:1] == ["Sub"]]
    assert (pub[1], pub[-1], sub[1], sub[-1]) == ("shop", "success", group, "success")
