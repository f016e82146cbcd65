import gc

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerRunning, ConsumerStatus
from sparrowmq.protocol.requests.headers import (
    CheckTransactionState,
    ConsumeMessageDirectly,
    GetConsumerRunning,
    GetConsumerStatus,
    NotifyConsumerIdsChanged,
    PushReply,
    ResetConsumerClientOffset,
)
from sparrowmq.protocol.requests.offset_bodies import ResetOffsets
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.log_limit import LINES
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, rec
from tests.records import encoded

MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP


@pytest.fixture
async def consumer(peer):
    peer.has("t", queues=1)
    peer.has("%RETRY%g", queues=1)
    peer.usual |= {
        RequestCode.PULL_MESSAGE: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: Reply(),
    }
    async with (
        connect(peer.address, client_id="me") as mq,
        mq.subscribe("t", group="g", start="earliest") as subscribed,
    ):
        yield subscribed


@pytest.fixture
def session(peer, consumer):
    """The broker's end of the connection."""
    return peer.sessions[0]


async def test_a_changed_group_is_shared_out_at_once(peer, session):
    asked = len(peer.requests(MEMBERS))
    session.tell(NotifyConsumerIdsChanged(consumer_group="g"))
    session.tell(NotifyConsumerIdsChanged(consumer_group="of somebody else"))
    await until(lambda: len(peer.requests(MEMBERS)) > asked)


@pytest.mark.parametrize("form", ["encoding", "encoding_for_c"])
async def test_an_operator_moves_the_group(peer, session, consumer, form):
    queue = MessageQueue("t", "broker-a", 0)
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    reset = ResetOffsets({queue: 42, MessageQueue("t", "elsewhere", 0): 1})
    body = b"".join(at_once(getattr(reset, form)()))
    await session.call(ResetConsumerClientOffset(topic="t", group="g"), body)
    await until(lambda: 42 in [_offset(command) for command in peer.requests(RequestCode.PULL_MESSAGE)])
    commits = peer.requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [command.ext_fields()["commitOffset"] for command in commits] == ["42"]


async def test_an_operator_sees_what_a_consumer_does(session):
    answer = await session.call(GetConsumerRunning(consumer_group="g", client_id="me"))
    running = ConsumerRunning.decode(answer.body)
    assert running.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert {each.topic for each in running.subscription_set} == {"t", "%RETRY%g"}
    assert MessageQueue("t", "broker-a", 0) in running.mq_table


async def test_an_operator_sees_the_stacks_of_threads_and_tasks_when_wanted(session):
    answer = await session.call(GetConsumerRunning(consumer_group="g", client_id="me"))
    assert ConsumerRunning.decode(answer.body).jstack is None
    answer = await session.call(GetConsumerRunning(consumer_group="g", client_id="me", jstack_enable=True))
    jstack = ConsumerRunning.decode(answer.body).jstack
    assert jstack is not None and "thread MainThread" in jstack and "task rebalance g" in jstack


async def test_a_group_that_is_not_ours_is_an_error(session):
    with pytest.raises(RemoteError, match="does not consume in group other"):
        await session.call(GetConsumerRunning(consumer_group="other", client_id="me"))
    with pytest.raises(RemoteError, match="does not consume in group other"):
        await session.call(ConsumeMessageDirectly(consumer_group="other"), a_record(b"x"))


async def test_an_operator_sees_where_a_consumer_stands_in_a_topic(peer, session, consumer):
    await consumer.commit()
    standing = await session.call(GetConsumerStatus(topic="t", group="g"))
    assert ConsumerStatus.decode(standing.body).message_queue_table == {MessageQueue("t", "broker-a", 0): 0}
    for topic, group in (("other", "g"), ("t", "other")):
        nowhere = await session.call(GetConsumerStatus(topic=topic, group=group))
        assert ConsumerStatus.decode(nowhere.body).message_queue_table == {}


async def test_an_operator_has_a_message_handled(peer):
    peer.has("t", queues=1)
    peer.has("%RETRY%g", queues=1)
    peer.usual |= {RequestCode.PULL_MESSAGE: lambda _: None}
    peer.usual[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: Reply(ResponseCode.QUERY_NOT_FOUND)
    seen = []

    def handle(message):
        seen.append((message.body, message.topic, message.queue))

    async with (
        connect(peer.address, client_id="me") as mq,
        mq.subscribe("t", handle, group="g", start="earliest") as consumer,
    ):
        request = ConsumeMessageDirectly(consumer_group="g", client_id="me", broker_name="broker-a")
        answer = await peer.sessions[0].call(request, a_record(b"x"))
        assert consumer.queues and all(consumer.position(queue) == 0 for queue in consumer.queues)
    assert ConsumeOutcome.decode(answer.body).consume_result == "CR_SUCCESS"
    assert seen == [(b"x", "t", MessageQueue("t", "broker-a", 3))]
    assert not peer.requests(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_who_has_no_handler_cannot_be_made_to_handle(session):
    with pytest.raises(RemoteError, match="has no handler"):
        await session.call(ConsumeMessageDirectly(consumer_group="g"), a_record(b"x"))


async def test_an_answer_is_taken_even_if_nobody_asked(session):
    push = PushReply("p", "c_REPLY_TOPIC", "TBW102", 4, 0, 0, 1, 0, "CORRELATION_ID\x01c\x02")
    assert (await session.call(push, b"too late")).code == 0


def a_record(body: bytes) -> bytes:
    """A record of topic t, queue 3."""
    return encoded("t", 3, body)


def _offset(command) -> int:
    return int(command.ext_fields()["queueOffset"])


async def test_push_that_has_not_begun_when_its_client_is_left_leaves_nothing_behind(peer, monkeypatch):
    async with Network(peer.address) as network:
        await network.brokers.session(peer.address)
        spawn, cancelled = network.background.spawn, []

        def spawn_and_leave(coroutine, name):
            task = spawn(coroutine, name)
            task.cancel()
            cancelled.append(task)
            return task

        monkeypatch.setattr(network.background, "spawn", spawn_and_leave)
        peer.sessions[0].tell(ResetConsumerClientOffset(topic="t", group="g"))
        await until(lambda: cancelled)
    gc.collect()  # a coroutine that was never awaited would warn now, and warnings are errors


async def test_pushes_of_a_false_broker_do_not_fill_the_log(peer, session, consumer, caplog):
    caplog.set_level("INFO", "sparrowmq.client")
    offsets = {MessageQueue("t", "elsewhere", number): 1 for number in range(30)}
    reset = b"".join(at_once(ResetOffsets(offsets).encoding()))
    half = encoded("orders", 0, b"half", b"PGROUP\x01g\x02")
    for number in range(LINES + 5):
        session.tell(ResetConsumerClientOffset(topic="t", group="g"), reset)
        session.tell(CheckTransactionState(number, number), half)
        session.tell(PushReply("g", "t", "TBW102", 4, 0, 0, 1, 0, born_host="\x1b[2J"))
    await session.call(GetConsumerStatus(topic="t", group="g"))  # each push before has a task that has begun
    for kind in ("moved to other offsets", "has no check here", "came too late"):
        lines = [text for text in caplog.messages if kind in text]
        assert 0 < len(lines) <= LINES
        assert all(len(text) < 600 and "\x1b" not in text for text in lines)
