import asyncio

import pytest

from sparrowmq.client.cluster.routes import Route
from sparrowmq.client.sending.send_request import SendRequest, no_queue_error
from sparrowmq.errors import ClientClosed, NoRoute, RemoteError, RequestTimeout, SendFailed
from sparrowmq.kernel.batch_layout import OVERHEAD_BYTES
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue

QUEUES = tuple(MessageQueue("t", "a", number) for number in range(4))
ROUTE = Route("t", QUEUES, QUEUES, {"a": {0: "127.0.0.1:1"}})


def outgoing(**fields) -> SendRequest:
    return SendRequest("t", b"body", "", timeout_s=3.0, msg_ids=("id",), **fields)


def awaited(**fields) -> tuple[SendRequest, asyncio.Future]:
    """A message, and the future by which its sender hears of it."""
    future = asyncio.get_running_loop().create_future()
    return outgoing(future=future, **fields), future


def test_only_messages_whose_queue_is_given_are_ordered():
    assert not outgoing().is_ordered
    assert outgoing(key="k").is_ordered
    assert outgoing(queue=QUEUES[1], is_fixed=True).is_ordered


def test_an_ordered_message_keeps_its_queue():
    assert outgoing(queue=QUEUES[1], is_fixed=True).ordered_queue(ROUTE) == QUEUES[1]
    assert outgoing(key="hello").ordered_queue(ROUTE) == QUEUES[99162322 % 4]


def test_without_queues_a_key_leads_nowhere():
    with pytest.raises(NoRoute):
        outgoing(key="k").ordered_queue(Route("t", (), QUEUES, {}))


def test_waiting_costs_more_than_the_body():
    assert outgoing().cost_bytes == 4 + OVERHEAD_BYTES


async def test_a_failure_says_where_how_often_and_what_to_do():
    item, future = awaited(queue=QUEUES[0])
    item.attempts = 3
    cause = RequestTimeout("127.0.0.1:1", "SendMessageV2", 3.0)
    item.fail(cause)
    with pytest.raises(SendFailed, match=r"to t@a\[0\].*after 3 attempts.*send it again later") as caught:
        await future
    assert caught.value.cause is cause


async def test_a_message_that_is_refused_for_good_is_not_to_be_sent_again():
    item, future = awaited(queue=QUEUES[0])
    item.fail(RemoteError(ResponseCode.MESSAGE_ILLEGAL, "the delivery is 3542400 s away"))
    with pytest.raises(SendFailed, match=r"would be refused again: change the message$"):
        await future


@pytest.mark.parametrize("error", [no_queue_error("t"), ClientClosed("closed")])
async def test_what_is_plain_already_is_told_as_it_is(error):
    item, future = awaited()
    item.fail(error)
    with pytest.raises(type(error)):
        await future


async def test_an_abandoned_message_hears_no_more():
    item, future = awaited()
    future.cancel()
    assert item.is_abandoned
    item.fail(ClientClosed("closed"))
    assert future.cancelled()
    outgoing().fail(ClientClosed("one-way messages have nobody to tell"))
