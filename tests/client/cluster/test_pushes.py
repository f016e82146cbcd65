import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import ConsumerRunning, ResetOffsets
from sparrowmq.protocol.requests.headers import (
    GetConsumerRunning,
    NotifyConsumerIdsChanged,
    ResetConsumerClientOffset,
)
from sparrowmq.remoting.dispatch import Answer
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, rec

MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP


@pytest.fixture
async def consumer(peer):
    peer.has("t", queues=1)
    peer.has("%RETRY%g", queues=1)
    peer.usual |= {
        RequestCode.PULL_MESSAGE: lambda _: None,
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Answer(ResponseCode.QUERY_NOT_FOUND),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: Answer(),
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


@pytest.mark.parametrize("form", ["encode", "encode_for_c"])
async def test_an_operator_moves_the_group(peer, session, consumer, form):
    queue = MessageQueue("t", "broker-a", 0)
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    body = getattr(ResetOffsets({queue: 42, MessageQueue("t", "elsewhere", 0): 1}), form)()
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


async def test_a_group_that_is_not_ours_is_an_error(session):
    with pytest.raises(RemoteError, match="does not consume in group other"):
        await session.call(GetConsumerRunning(consumer_group="other", client_id="me"))


def _offset(command) -> int:
    return int(command.ext_fields()["queueOffset"])
