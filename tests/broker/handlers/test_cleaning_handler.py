from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from sparrowmq.broker.handlers.admin_handler import CleaningHandler
from sparrowmq.protocol.requests.admin_headers import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
)
from sparrowmq.store.retention import Cleaning


async def test_the_queues_of_topics_that_are_not_there_go(desk, client):
    for topic in ("Orders", "Gone", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%RETRY%g"):
        desk.send(b"x", topic=topic)
    desk.topics.delete("Gone")
    desk.topics.delete("RMQ_SYS_TRANS_OP_HALF_TOPIC")
    await client.call(CleanUnusedTopic())
    assert {queue.topic for queue in desk.store.queues} == {
        "Orders",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "%RETRY%g",
    }


class Told:
    """A store that keeps what it was told; the real one would have done it before a test could look."""

    def __init__(self) -> None:
        self.asked: list[Cleaning] = []

    def clean(self, what: Cleaning) -> None:
        self.asked.append(what)


def test_the_store_is_told_to_clean_at_once(desk):
    store, peer = Told(), cast(Any, SimpleNamespace(address="127.0.0.1:1"))
    handler = CleaningHandler(replace(desk.shared, store=cast(Any, store)))
    handler.queues(CleanExpiredConsumeQueue(), b"", peer)
    handler.files(DeleteExpiredCommitLog(), b"", peer)
    assert store.asked == [Cleaning.QUEUES, Cleaning.FILES]
