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


async def test_the_store_is_told_to_clean_at_once(desk):
    peer = cast(Any, SimpleNamespace(address="127.0.0.1:1"))
    handler = CleaningHandler(desk.shared)
    handler.queues(CleanExpiredConsumeQueue(), b"", peer)
    assert desk.store.retention.take_request() is Cleaning.QUEUES
    handler.files(DeleteExpiredCommitLog(), b"", peer)
    assert desk.store.retention.take_request() is Cleaning.FILES
