import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import LockedQueues, LockQueues
from sparrowmq.protocol.requests.headers import LockBatchMq, UnlockBatchMq

QUEUES = [MessageQueue("Orders", "broker-a", queue_id) for queue_id in range(3)]


@pytest.fixture
def lock(desk, client):
    desk.create("Orders", queues=3)

    async def locked(client_id, queues):
        body = LockQueues("g", client_id, queues).encode()
        return LockedQueues.decode((await client.call(LockBatchMq(), body)).body).locked

    return locked


@pytest.mark.covers("S-CONS-17")
async def test_queues_are_locked_for_one_client_of_a_group(client, lock):
    assert await lock("one", QUEUES[:2]) == QUEUES[:2]
    assert await lock("two", QUEUES) == QUEUES[2:]
    await client.call(UnlockBatchMq(), LockQueues("g", "one", QUEUES[:1]).encode())
    assert await lock("two", QUEUES) == [QUEUES[0], QUEUES[2]]


async def test_a_queue_that_is_not_here_is_not_locked(desk, lock):
    """Its name is a claim: locks of all names that somebody thinks of would fill memory and log."""
    strange = [MessageQueue("Orders", "broker-a", queue_id) for queue_id in (-1, 3, 2**31 - 1)]
    assert await lock("one", [*strange, MessageQueue("Unknown", "broker-a", 0)]) == []
    assert list(desk.locks.snapshot()) == []


async def test_a_client_id_is_as_long_as_a_record_of_the_journal_can_bear(desk, lock):
    for client_id in ("", "x" * 256, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 128):
        with pytest.raises(RemoteError, match="it must have 1 to 255"):
            await lock(client_id, QUEUES)
    assert list(desk.locks.snapshot()) == []
    assert await lock("x" * 255, QUEUES) == QUEUES


async def test_a_queue_is_the_same_whatever_broker_a_client_names(lock):
    other = MessageQueue("Orders", "another", 0)
    assert await lock("one", [other]) == [other], "the answer has the queue as it was asked for"
    assert await lock("two", QUEUES[:1]) == []
