"""Starts that are cancelled, and consumers that leave, while a broker hangs: no group is kept, no error is lost."""

import asyncio
import gc
from typing import Any

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until

GREETING = RequestCode.HEART_BEAT
MAKERS = {
    "reader": lambda mq: mq.pull_consumer(group="g", auto_commit_s=5),
    "consumer": lambda mq: mq.subscribe("t", group="g"),
    "ordered": lambda mq: mq.subscribe("t", print, group="g", ordered=True),
}


@pytest.fixture
def hanging(peer):
    """It answers no pull and no heartbeat, and knows two queues."""
    peer.has("t", queues=2)
    peer.has("%RETRY%g", queues=1)
    peer.usual |= {
        RequestCode.PULL_MESSAGE: lambda _: None,
        RequestCode.LOCK_BATCH_MQ: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: None,
        RequestCode.UNREGISTER_CLIENT: lambda _: None,
    }
    return peer


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
async def test_a_start_that_is_cancelled_keeps_no_group_and_no_task(hanging, make):
    async with connect(hanging.address, client_id="me") as mq:
        await mq.queues("t")
        hanging.usual[GREETING] = lambda _: None
        before = asyncio.all_tasks()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), make(mq):
                await asyncio.Event().wait()
        assert asyncio.all_tasks() == before
        hanging.usual[GREETING] = lambda _: Reply()
        async with asyncio.timeout(10), make(mq) as second:
            assert second.group == "g"


async def test_a_producer_that_cannot_be_made_keeps_no_group():
    mq = connect("127.0.0.1:1")
    mq.check("p")(print)
    wrong: list[Any] = ["f", print]
    for check in wrong:
        with pytest.raises(ConfigError):
            mq.producer("p", check=check)
    assert mq.producer("p").group == "p"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["hangs", "dies"])
async def test_a_consumer_that_leaves_while_its_broker_hangs_loses_no_error(hanging, end):
    seen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["message"]))
    async with connect(hanging.address, client_id="me") as mq:
        async with mq.subscribe("t", group="g", start="earliest") as consumer:
            await until(lambda: len(consumer.queues) == 3)
            for queue in consumer.queues:
                consumer.seek(queue, 5)
        async with mq.pull_consumer(group="r", auto_commit_s=5) as reader:
            reader.assign(await reader.queues("t"))
            for queue in reader.assigned:
                reader.seek(queue, 5)
            assert not await reader.poll(timeout_s=0.05)
            pulls = len(hanging.requests(RequestCode.PULL_MESSAGE))
            assert pulls >= 2
            if end == "dies":
                for session in hanging.sessions:
                    session.abort()
                await until(lambda: all(each.answer and each.answer.done() for each in reader._assigned_queues.all()))
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()
    assert seen == []


async def test_leaving_is_cancelled_while_the_broker_hangs(hanging):
    seen: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["message"]))
    async with connect(hanging.address, client_id="me") as mq:
        consumer = await mq.subscribe("t", group="g", start="earliest").__aenter__()
        await until(lambda: len(consumer.queues) == 3)
        for queue in consumer.queues:
            consumer.seek(queue, 5)
        before = len(hanging.requests(RequestCode.UPDATE_CONSUMER_OFFSET))
        leaving = asyncio.ensure_future(consumer.__aexit__(None, None, None))
        await until(lambda: len(hanging.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) > before)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert "g" not in mq._network.membership.consumers
    gc.collect()
    await asyncio.sleep(0)
    assert seen == []
