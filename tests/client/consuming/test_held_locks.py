from collections.abc import AsyncIterator

import pytest

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.consuming.assignment import QueueLocks
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import LockedQueues, LockQueues
from sparrowmq.remoting.handler import Reply
from tests.client.cluster.test_broker_sessions import World

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(3)]


@pytest.fixture
async def brokers(peer) -> AsyncIterator[Brokers]:
    world = World(peer)
    peer.has("t")
    await world.routes.of("t")
    yield world.brokers
    world.pool.close()


async def test_only_what_the_broker_locked_is_ours(peer, brokers):
    peer.script(RequestCode.LOCK_BATCH_MQ, Reply(body=LockedQueues(QUEUES[:2]).encode()))
    assert await QueueLocks("g", "me", brokers).lock(QUEUES) == set(QUEUES[:2])
    options = LockQueues.decode(peer.requests(RequestCode.LOCK_BATCH_MQ)[0].body)
    assert (options.consumer_group, options.client_id, options.mq_set) == ("g", "me", QUEUES)


async def test_a_broker_that_does_not_answer_gives_none(peer, brokers):
    peer.script(RequestCode.LOCK_BATCH_MQ, Reply(ResponseCode.SYSTEM_ERROR))
    locks = QueueLocks("g", "me", brokers)
    assert await locks.lock(QUEUES) == set()
    assert await locks.lock([MessageQueue("t", "nowhere", 0)]) == set()


async def test_an_outage_is_one_line_until_the_next_success(peer, brokers, caplog):
    refused, locked = Reply(ResponseCode.SYSTEM_ERROR), Reply(body=LockedQueues(QUEUES).encode())
    peer.script(RequestCode.LOCK_BATCH_MQ, refused, refused, locked, refused)
    locks = QueueLocks("g", "me", brokers)
    for lines in (1, 1, 1, 2):
        await locks.lock(QUEUES)
        assert caplog.text.count("WARNING") == lines


async def test_unlocking_names_the_queues_and_fails_quietly(peer, brokers):
    peer.script(RequestCode.UNLOCK_BATCH_MQ, Reply(), Reply(ResponseCode.SYSTEM_ERROR))
    locks = QueueLocks("g", "me", brokers)
    await locks.unlock(QUEUES[:1])
    await locks.unlock(QUEUES[1:])
    sent = [LockQueues.decode(command.body).mq_set for command in peer.requests(RequestCode.UNLOCK_BATCH_MQ)]
    assert sent == [QUEUES[:1], QUEUES[1:]]


async def test_queues_whose_lock_was_not_answered_are_unlocked_when_another_member_is_to_have_them(peer, brokers):
    """The broker may have locked them. Then no member could consume them for a minute."""
    peer.script(RequestCode.LOCK_BATCH_MQ, Reply(ResponseCode.SYSTEM_ERROR))
    peer.script(RequestCode.UNLOCK_BATCH_MQ, Reply())
    locks = QueueLocks("g", "me", brokers)
    await locks.lock(QUEUES)
    await locks.unlock_unused(QUEUES[1:])
    (sent,) = [LockQueues.decode(command.body).mq_set for command in peer.requests(RequestCode.UNLOCK_BATCH_MQ)]
    assert sent == QUEUES[:1]


async def test_queues_that_were_given_up_while_their_broker_was_away_are_unlocked_later(peer, brokers):
    peer.script(RequestCode.UNLOCK_BATCH_MQ, Reply(ResponseCode.SYSTEM_ERROR), Reply())
    peer.script(RequestCode.LOCK_BATCH_MQ, Reply(body=LockedQueues(QUEUES[:1]).encode()))
    locks = QueueLocks("g", "me", brokers)
    await locks.unlock(QUEUES)
    await locks.lock(QUEUES[:1])  # ours again
    await locks.unlock_unused()
    await locks.unlock_unused()
    sent = [LockQueues.decode(command.body).mq_set for command in peer.requests(RequestCode.UNLOCK_BATCH_MQ)]
    assert [sorted(queues) for queues in sent] == [QUEUES, QUEUES[1:]]
