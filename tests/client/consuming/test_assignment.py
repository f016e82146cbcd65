import asyncio

import pytest

from sparrowmq.background import Background
from sparrowmq.client.consuming.assignment import Assignment
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.client.consuming.queue_locks import TRUSTED_S, QueueLocks
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.consuming.settings import ConsumerSettings, subscription
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import LockedQueues, LockQueues
from sparrowmq.protocol.requests.headers import PullMessage, UpdateConsumerOffset
from sparrowmq.remoting.dispatch import Answer
from tests.client.cluster.test_brokers import World
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, pulls, rec

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(3)]
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET


class Kept:
    """Keeps what was delivered, and adds it to its queue as a delivery does."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.renewals = 0

    def arrived(self, owned, stored) -> None:
        for each in stored:
            message = ReceivedMessage(each, owned.queue)
            owned.add(message)
            self.messages.append(message)

    def renewed(self, owned) -> None:
        self.renewals += 1


class Owner(World):
    def __init__(self, peer, background: Background, locked: bool) -> None:
        super().__init__(peer)
        self.delivery = Kept()
        self.assignment = Assignment(
            ConsumerSettings("g", start="earliest", ordered=locked),
            self.network,
            BrokerOffsets("g", self.brokers),
            self.delivery,
            background.spawn,
            {"t": subscription("t", None, None, 1)},
            QueueLocks("g", "me", self.brokers) if locked else None,
        )


async def owner_of(peer, background, locked: bool) -> Owner:
    peer.has("t")
    peer.usual |= {
        RequestCode.PULL_MESSAGE: lambda _: None,
        QUERY: lambda _: Answer(ResponseCode.QUERY_NOT_FOUND),
        UPDATE: lambda _: Answer(),
        LOCK: lambda command: Answer(body=LockedQueues(LockQueues.decode(command.body).mq_set).encode()),
        UNLOCK: lambda _: Answer(),
    }
    owner = Owner(peer, background, locked)
    await owner.routes.of("t")
    return owner


@pytest.fixture
async def background():
    async with Background() as started:
        yield started


@pytest.fixture
async def owner(peer, background):
    made = await owner_of(peer, background, locked=False)
    yield made
    made.pool.close()


@pytest.fixture
async def orderly(peer, background):
    made = await owner_of(peer, background, locked=True)
    yield made
    made.pool.close()


def first_only(command) -> Answer | None:
    """One message in each queue."""
    return found(rec(0), next_offset=1) if command.header(PullMessage).queue_offset == 0 else None


def commits(peer) -> list[tuple[int, int]]:
    headers = [command.header(UpdateConsumerOffset) for command in peer.requests(UPDATE)]
    return [(each.queue_id, each.commit_offset) for each in headers]


def codes(peer, *wanted: int) -> list[int]:
    return [command.code for command in peer.received if command.code in wanted]


async def test_owned_queues_are_pulled(peer, owner):
    assert await owner.assignment.apply("t", QUEUES)
    assert owner.assignment.queues == QUEUES
    await until(lambda: len(pulls(peer)) == 3)
    assert [each.queue_offset for each in pulls(peer)] == [0, 0, 0]


async def test_a_queue_that_is_given_up_is_committed_and_pulled_no_more(peer, owner):
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), rec(1), next_offset=2))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 2)
    state = owner.assignment.state_of(QUEUES[0])
    state.settle(owner.delivery.messages[0])
    assert await owner.assignment.apply("t", [])
    assert owner.assignment.queues == [] and not state.is_owned
    assert commits(peer) == [(0, 1)]


async def test_a_queue_that_was_never_answered_has_nothing_to_commit(peer, owner):
    await owner.assignment.apply("t", QUEUES)
    await owner.assignment.apply("t", [])
    assert not commits(peer)


async def test_other_topics_are_left_alone(owner):
    await owner.assignment.apply("t", QUEUES)
    assert await owner.assignment.apply("other", [])
    assert owner.assignment.queues == QUEUES


async def test_a_queue_whose_beginning_is_unknown_is_an_error_after_the_others_are_taken(peer, owner):
    peer.script(QUERY, Answer(ResponseCode.SYSTEM_ERROR, remark="not now"))
    with pytest.raises(RemoteError, match="not now"):
        await owner.assignment.apply("t", QUEUES[:2])
    assert owner.assignment.queues == [QUEUES[1]]


async def test_a_reset_goes_on_elsewhere_and_forgets_what_is_handled(peer, owner):
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: owner.delivery.messages)
    before = owner.assignment.state_of(QUEUES[0])
    await owner.assignment.restart({QUEUES[0]: 40, QUEUES[1]: 50})
    assert commits(peer) == [(0, 40)] and not before.is_owned
    await until(lambda: pulls(peer)[-1].queue_offset == 40)


async def test_a_broker_that_moves_us_while_we_work_restarts_the_queue(peer, owner):
    peer.script(
        RequestCode.PULL_MESSAGE,
        found(rec(5), next_offset=6),
        Answer(ResponseCode.PULL_OFFSET_MOVED, found(next_offset=2).header),
    )
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: pulls(peer)[-1].queue_offset == 2 if pulls(peer) else False)
    assert owner.assignment.state_of(QUEUES[0]).unsettled == 0


async def test_closing_commits_everything(peer, owner):
    peer.usual[RequestCode.PULL_MESSAGE] = first_only
    await owner.assignment.apply("t", QUEUES[:2])
    await until(lambda: len(pulls(peer)) == 4)
    for message in owner.delivery.messages:
        owner.assignment.state_of(message.queue).settle(message)
    await owner.assignment.commit()
    assert sorted(commits(peer)) == [(0, 1), (1, 1)]
    await owner.assignment.close()
    assert owner.assignment.queues == [] and len(commits(peer)) == 2


@pytest.mark.covers("S-CONS-17")
async def test_an_orderly_queue_is_owned_only_once_it_is_locked(peer, orderly):
    peer.script(LOCK, Answer(body=LockedQueues(QUEUES[:1]).encode()))
    assert not await orderly.assignment.apply("t", QUEUES[:2])
    assert orderly.assignment.queues == QUEUES[:1]
    assert await orderly.assignment.apply("t", QUEUES[:2])
    assert orderly.assignment.queues == QUEUES[:2]


async def test_an_orderly_queue_is_committed_before_it_is_unlocked(peer, orderly):
    peer.script(RequestCode.PULL_MESSAGE, found(next_offset=9))
    await orderly.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 2)
    assert await orderly.assignment.apply("t", [])
    assert codes(peer, LOCK, UPDATE, UNLOCK) == [LOCK, UPDATE, UNLOCK] and commits(peer) == [(0, 9)]


async def test_an_orderly_queue_is_given_up_only_when_nothing_is_handled(peer, orderly):
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    await orderly.assignment.apply("t", QUEUES[:1])
    await until(lambda: orderly.delivery.messages)
    state = orderly.assignment.state_of(QUEUES[0])
    state.hand_out(orderly.delivery.messages)
    giving_up = asyncio.ensure_future(orderly.assignment.apply("t", []))
    await orderly.clock.advance(1)
    assert await giving_up is False and state.is_owned and state.is_leaving
    await orderly.assignment.apply("t", QUEUES[:1])
    assert not state.is_leaving and orderly.delivery.renewals == 1
    state.take_back(orderly.delivery.messages[0])
    assert await orderly.assignment.apply("t", [])


@pytest.mark.covers("S-CONS-17")
async def test_locks_are_renewed_and_one_that_is_lost_runs_out(peer, orderly):
    await orderly.assignment.renew_locks()
    assert not peer.requests(LOCK)
    await orderly.assignment.apply("t", QUEUES[:2])
    kept, lost = (orderly.assignment.state_of(queue) for queue in QUEUES[:2])
    await orderly.clock.advance(20)
    peer.script(LOCK, Answer(body=LockedQueues(QUEUES[:1]).encode()))
    await orderly.assignment.renew_locks()
    assert (kept.locked_until, lost.locked_until) == (20 + TRUSTED_S, TRUSTED_S)
    await orderly.assignment.close()
    assert codes(peer, UNLOCK) == [UNLOCK]


async def test_an_operator_sees_the_queues(owner):
    await owner.assignment.apply("t", QUEUES[:1])
    assert list(owner.assignment.report()) == QUEUES[:1]
