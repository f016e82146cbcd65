"""Messages, results and errors go to a pool of processes and back."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import msgspec
import pytest

import sparrowmq
from sparrowmq import errors
from sparrowmq.client.client import Client
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.errors import ConfigError, SendFailed, SendManyFailed
from sparrowmq.protocol.messages.message import Message, MessageQueue


@dataclass
class Order:
    """The typed body of a handler."""

    id: str
    amount: int


class Bill(msgspec.Struct):
    """Another one."""

    order: str


def shown(message: ReceivedMessage) -> tuple[object, ...]:
    """All that a program reads of a message."""
    return (
        *(message.topic, message.full_topic, message.body, message.tag, message.keys, message.properties),
        *(message.msg_id, message.offset_msg_id, message.offset, message.queue, message.stored),
        *(message.born_timestamp_ms, message.store_timestamp_ms, message.reconsume_times, repr(message)),
    )


def refused(message: ReceivedMessage) -> str:
    """The sentences by which a copy refuses to be settled and to be given time, in the process of a pool."""
    said = []
    for call in (message.ack, partial(message.extend, 5)):
        try:
            call()
        except ConfigError as error:
            said.append(str(error))
    return said[0] if said == said[:1] * 2 else "it was settled"


async def test_a_received_message_goes_to_a_process_pool_and_is_settled_here(mq: Client):
    await mq.send("t", b'{"id": "o-1"}' * 1000, tag="paid", keys=["a", "b"], properties={"region": "eu"})
    async with mq.subscribe("t", group="g", start="earliest") as consumer:
        message = await anext(consumer)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            assert pool.submit(shown, message).result(60) == shown(message)
            assert "is a copy, from `copy` or a pickle" in pool.submit(refused, message).result(60)
        for made in (pickle.loads(pickle.dumps(message)), copy.copy(message)):
            for settle in (made.ack, made.retry, made._cancel, made.process, made.ack):
                with pytest.raises(ConfigError, match="settle it there"):
                    settle()
            with pytest.raises(ConfigError, match="settled or answered"):
                await made.reply(b"x")
        assert message.is_unsettled and sum((await consumer.lag()).values()) == 1
        message.ack()
        assert sum((await consumer.lag()).values()) == 0


async def test_a_message_of_a_namespace_keeps_its_names(cluster):
    async with sparrowmq.connect(cluster.namesrv, namespace="shop") as mq:
        await mq.send("t", b"x")
        async with mq.pull_consumer(group="g", start="earliest") as reader:
            reader.assign(await reader.queues("t"))
            (message,) = await reader.poll()
            assert shown(pickle.loads(pickle.dumps(message))) == shown(message)
            assert message.topic == "t" and message.full_topic == "shop%t"


@pytest.mark.parametrize(
    "value",
    [
        Message("t", b"x", "paid", ["a"], {"region": "eu"}, delay_level=3),
        Message("t", b"x", flag=7),
        MessageQueue("t", "broker-a", 3),
        SendResult("id", "offset id", MessageQueue("t", "broker-a", 3), 7, sparrowmq.SendStatus.OK, "handle"),
        sparrowmq.ProducerSettings(retries=5),
        sparrowmq.Credentials("key", "secret"),
        Order("o-1", 5),
        Bill("o-1"),
    ],
)
def test_values_of_a_program_are_pickled(value):
    assert pickle.loads(pickle.dumps(value)) == value


RESULT = SendResult("id", "offset id", MessageQueue("t", "broker-a", 3), 7)
MADE = [
    SendFailed("not sent", True, errors.RequestTimeout("a:1", "SendMessage", 3.0)),
    SendManyFailed([RESULT, SendFailed("not sent", True)]),
    errors.RemoteError(1, "no"),
    errors.AccessDenied("no"),
    errors.AccessDenied("no", 16),
    errors.BrokerUnreachable("a:1", "refused"),
    errors.NameServerUnreachable("a:1", errors.ConnectionClosed("a:1")),
    errors.ConnectionClosed("a:1"),
    errors.RequestTimeout("a:1", "SendMessage", 3.0),
    errors.NoRoute("t", "a:1"),
    errors.NoGroup("g"),
    errors.NoMessage("id", "at a:1"),
    errors.ChangeFailed("setting topic t", ["a"], {"b": errors.RemoteError(1, "no")}),
    errors.InvalidFilter("what", 1, 2),
    errors.StoreLocked("/store", 5),
    errors.CorruptRecord("file", 5, "a record"),
    errors.NotSafeInTime(1, "on disk", 5.0),
    ConfigError("wrong"),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_errors_come_back_from_a_process_pool(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert str(vars(again)) == str(vars(error))


@pytest.mark.parametrize("spread", [pickle.dumps, copy.deepcopy])
async def test_a_client_and_its_parts_are_not_pickled_and_say_what_to_do(mq: Client, spread):
    blocking = sparrowmq.sync.connect("127.0.0.1:1")
    for client in (mq, blocking):
        parts = (client.producer("p"), client.subscribe("t", group="g"), client.pull_consumer(group="g"))
        for each in (client, *parts, client.simple_consumer(group="g"), client.admin):
            with pytest.raises(ConfigError, match="connect in the other process"):
                spread(each)
