from sparrowmq.protocol.requests.admin_headers import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
)
from sparrowmq.store.retention import Asked


async def test_the_queues_of_topics_that_are_not_there_go(desk, client):
    for topic in ("Orders", "Gone", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "%RETRY%g"):
        desk.send(b"x", topic=topic)
    desk.topics.delete("Gone")
    desk.topics.delete("RMQ_SYS_TRANS_OP_HALF_TOPIC")
    await client.call(CleanUnusedTopic())
    assert {topic for topic, _, _ in desk.store.queues()} == {
        "Orders",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "%RETRY%g",
    }


async def test_the_store_is_told_to_clean_at_once(desk, client):
    desk.store.asked_to_clean()
    await client.call(CleanExpiredConsumeQueue())
    assert desk.store.asked_to_clean() is Asked.QUEUES
    await client.call(DeleteExpiredCommitLog())
    assert desk.store.asked_to_clean() is Asked.FILES
