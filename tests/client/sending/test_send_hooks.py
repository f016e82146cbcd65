import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_hooks import SendHooks
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.errors import InvalidMessage, SendFailed, SendManyFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until

SEND = RequestCode.SEND_MESSAGE_V2


class Recording(Hooks):
    def __init__(self, name: str, seen: list) -> None:
        self.name = name
        self.seen = seen

    def before_send(self, message):
        self.seen.append(("before", self.name, message.body))
        message.properties[self.name] = "was here"

    def after_send(self, message, outcome):
        self.seen.append(("after", self.name, outcome))


@pytest.fixture
def seen() -> list:
    return []


@pytest.fixture
async def mq(peer, seen):
    peer.has("t")
    hooks = [Recording("one", seen), Recording("two", seen)]
    async with connect(peer.address, hooks=hooks, settings=ProducerSettings(retries=0, timeout_s=1)) as client:
        yield client


def marks(peer) -> list[dict[str, str]]:
    return [properties.parse(command.header(SendMessageV2).properties) for command in peer.sent]


async def test_hooks_see_a_message_before_and_after_and_may_add_properties(peer, mq, seen):
    message = Message("t", b"x", properties={"a": "1"})
    result = await mq.send(message)
    assert seen == [
        ("before", "one", b"x"),
        ("before", "two", b"x"),
        ("after", "two", result),
        ("after", "one", result),
    ]
    assert marks(peer)[0].items() >= {"a": "1", "one": "was here", "two": "was here"}.items()
    assert message.properties == {"a": "1"}, "the caller's own message stays as it is"


async def test_every_way_of_sending_is_seen(peer, mq, seen):
    result = await mq.send_soon("t", b"1")
    mq.send_nowait("t", b"2")
    many = await mq.send_many([Message("t", b"3", delay_level=1), Message("t", b"4", delay_level=1)])
    await until(lambda: len(peer.sent) == 4)
    assert all(mark["one"] == "was here" for mark in marks(peer))
    assert [outcome for what, who, outcome in seen if (what, who) == ("after", "one")] == [
        result,
        None,
        *many,
    ]


async def test_a_failure_and_a_cancellation_are_told(peer, mq, seen):
    peer.script(SEND, Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no"), None)
    with pytest.raises(SendFailed) as caught:
        await mq.send("t", b"1")
    sending = asyncio.ensure_future(mq.send("t", b"2"))
    await until(lambda: len(peer.sent) == 2)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    with pytest.raises(InvalidMessage) as refused:
        await mq.send("t", b"")
    outcomes = [outcome for what, who, outcome in seen if (what, who) == ("after", "one")]
    assert outcomes[0] is caught.value and outcomes[2] is refused.value
    assert isinstance(outcomes[1], asyncio.CancelledError)


async def test_of_many_messages_each_is_told_its_own_fate(peer, mq, seen):
    peer.script(SEND, Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no"))
    with pytest.raises(SendManyFailed):
        await mq.send_many([Message("t", b"1", delay_level=1), Message("t", b"2", delay_level=1)])
    outcomes = [outcome for what, who, outcome in seen if (what, who) == ("after", "one")]
    assert [type(outcome) for outcome in outcomes] == [SendFailed, SendResult]
    seen.clear()
    with pytest.raises(InvalidMessage) as refused:
        await mq.send_many([Message("t", b"1"), Message("t", b"")])
    assert [outcome for what, who, outcome in seen if (what, who) == ("after", "one")] == [refused.value] * 2


class Refusing(Hooks):
    def before_send(self, message):
        raise LookupError("not this one")


class Failing(Hooks):
    def after_send(self, message, outcome):
        raise LookupError("too bad")


class Spoiling(Hooks):
    def before_send(self, message):
        message.properties["a"] = 1


async def test_what_a_hook_raises_before_a_send_stops_it(peer, seen):
    peer.has("t")
    async with connect(peer.address, hooks=[Recording("one", seen), Refusing()]) as mq:
        for send in (mq.send_soon, mq.send_nowait):
            with pytest.raises(LookupError):
                send("t", b"x")
        assert not mq.unanswered
    assert not peer.sent
    assert [what for what, _, _ in seen] == ["before", "after"] * 2


async def test_what_a_hook_raises_after_a_send_is_logged(peer, seen, caplog):
    peer.has("t")
    async with connect(peer.address, hooks=[Recording("one", seen), Failing()]) as mq:
        assert (await mq.send("t", b"x")).offset == 7
    assert "failed after a send to t" in caplog.text and seen[-1][:2] == ("after", "one")


async def test_what_hooks_make_of_a_message_is_checked(peer):
    peer.has("t")
    seen: list = []
    async with connect(peer.address, hooks=[Recording("one", seen), Spoiling()]) as mq:
        with pytest.raises(InvalidMessage, match="names and values must be text") as caught:
            await mq.send("t", b"x")
    assert seen[-1] == ("after", "one", caught.value)


def test_by_default_nothing_happens():
    SendHooks().before_send(Message("t", b"x"))
    SendHooks().after_send(Message("t", b"x"), None)
