import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.received_message import ConsumeHooks, Outcome, ReceivedMessage
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.sending.send_hooks import SendHooks
from tests.client.conftest import until
from tests.client.consuming.test_received import QUEUE, Told, stored


class Diary(Hooks):
    def __init__(self, name: str, entries: list[object]) -> None:
        self.name, self.entries = name, entries

    def before_consume(self, messages) -> None:
        self.entries.append((self.name, "before", len(messages)))

    def after_consume(self, messages, error) -> None:
        self.entries.append((self.name, "after", type(error)))


class Broken(ConsumeHooks):
    def before_consume(self, messages) -> None:
        raise LookupError("before")

    def after_consume(self, messages, error) -> None:
        raise LookupError("after")


def hooked(told: Told, *hooks: ConsumeHooks) -> ReceivedMessage:
    return ReceivedMessage(stored(), QUEUE, told, ProcessQueue(QUEUE, 0, FlowLimits(), hooks=hooks))


def test_by_default_nothing_happens():
    ConsumeHooks().before_consume([])
    ConsumeHooks().after_consume([], ValueError())


async def test_hooks_see_a_block_in_their_order_and_backwards():
    entries: list[object] = []
    told = Told()
    async with hooked(told, Diary("one", entries), Diary("two", entries)).process():
        entries.append("block")
    nothing = type(None)
    assert entries == [
        ("one", "before", 1),
        ("two", "before", 1),
        "block",
        ("two", "after", nothing),
        ("one", "after", nothing),
    ]
    assert told.outcomes == [Outcome.DONE]


def test_hooks_see_what_a_block_raises():
    entries: list[object] = []
    message = hooked(Told(), Diary("one", entries))
    with pytest.raises(ValueError, match="broken"), message.process():
        raise ValueError("broken")
    assert entries[-1] == ("one", "after", ValueError)


def test_a_hook_that_fails_is_logged_and_changes_nothing(caplog):
    told = Told()
    with hooked(told, Broken()).process():
        pass
    assert told.outcomes == [Outcome.DONE]
    assert "LookupError: before" in caplog.text and "LookupError: after" in caplog.text


@pytest.mark.parametrize("ordered", [False, True])
async def test_hooks_of_a_client_see_handlers_and_blocks(cluster, ordered):
    entries: list[object] = []
    hooks = [Diary("one", entries)]
    async with connect(cluster.namesrv, hooks=hooks) as mq:
        await mq.send("t", b"x")
        async with mq.subscribe("t", lambda portion: None, group="g", start="earliest", batch=4, ordered=ordered):
            await until(lambda: len(entries) == 2)
        async with (
            mq.subscribe("t", group="h", start="earliest", ordered=ordered) as consumer,
            (await anext(consumer)).process(),
        ):
            pass
    assert entries == [("one", "before", 1), ("one", "after", type(None))] * 2


def test_one_object_sees_what_is_sent_and_what_is_consumed():
    assert isinstance(Hooks(), SendHooks) and isinstance(Hooks(), ConsumeHooks)
