import asyncio
from typing import Any, cast

import pytest

from sparrowmq.client.consuming.assignment import ELECTED_S, PAUSE_S, TRUSTED_S, Assignment, QueueLocks
from sparrowmq.client.consuming.consume_rate import ConsumeStats
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings, FlowLimits, subscription
from sparrowmq.client.consuming.offset_store import BrokerOffsets
from sparrowmq.client.consuming.received_message import ReceivedMessage, deliver_from
from sparrowmq.errors import A_SLAVE, ConfigError, RemoteError
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import LockedQueues, LockQueues
from sparrowmq.protocol.requests.headers import (
    OffsetReply,
    PullMessage,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.remoting.handler import Reply
from tests.client.cluster.test_broker_sessions import World
from tests.client.conftest import until
from tests.client.consuming.test_pulling import found, pulls, rec

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(3)]
LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
OF_SLAVE = Reply(ResponseCode.SLAVE_NOT_AVAILABLE, remark=f"{A_SLAVE}; its master has the offset")


class Kept:
    """Keeps what was delivered, and adds it to its queue as a delivery does."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.renewals = 0

    def add_pulled(self, owned, messages) -> None:
        owned.add(messages)
        deliver_from(messages, owned.queue, None, owned, "")
        self.messages += messages

    def offer_withdrawn(self, owned) -> None:
        self.renewals += 1

    def withdraw(self, owned) -> None:
        """Everything was taken as it came."""


class Owner(World):
    def __init__(self, peer, background: Background, locked: bool, flow: FlowLimits) -> None:
        super().__init__(peer)
        self.delivery = Kept()
        self.failures: list[Exception] = []
        self.subscriptions = {"t": subscription("t", None, None, 1)}
        self.assignment = Assignment(
            ConsumerSettings("g", start="earliest", ordered=locked, flow=flow),
            self.network,
            BrokerOffsets("g", self.brokers),
            cast(Any, self.delivery),
            background.spawn,
            self.subscriptions,
            on_failure=self.failures.append,
            stats=ConsumeStats(self.network.clock),
            locks=QueueLocks("g", "me", self.brokers) if locked else None,
        )


async def owner_of(peer, background, locked: bool, flow: FlowLimits | None = None) -> Owner:
    peer.has("t")
    peer.usual |= {
        RequestCode.PULL_MESSAGE: lambda _: None,
        QUERY: lambda command: committed(peer, command.header(QueryConsumerOffset).queue_id),
        UPDATE: lambda _: Reply(),
        LOCK: lambda command: Reply(body=LockedQueues(LockQueues.decode(command.body).mq_set).encode()),
        UNLOCK: lambda _: Reply(),
    }
    owner = Owner(peer, background, locked, flow or FlowLimits())
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


async def test_a_pull_asks_for_no_more_messages_than_may_wait(peer, background):
    owner = await owner_of(peer, background, locked=False, flow=FlowLimits(messages=7))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 1)
    assert pulls(peer)[0].max_msg_nums == 7
    owner.pool.close()


def first_only(command) -> Reply | None:
    """One message in each queue."""
    return found(rec(0), next_offset=1) if command.header(PullMessage).queue_offset == 0 else None


def commits(peer) -> list[tuple[int, int]]:
    headers = [command.header(UpdateConsumerOffset) for command in peer.requests(UPDATE)]
    return [(each.queue_id, each.commit_offset) for each in headers]


def committed(peer, queue_id: int) -> Reply:
    """What a broker answers who has heard those commits."""
    offset = dict(commits(peer)).get(queue_id)
    return Reply(ResponseCode.QUERY_NOT_FOUND) if offset is None else Reply(header=OffsetReply(offset))


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
    state = owner.assignment.process_queue_of(QUEUES[0])
    state.settle(owner.delivery.messages[0])
    giving_up = asyncio.ensure_future(owner.assignment.apply("t", []))
    await owner.clock.advance(1)
    assert await giving_up
    assert owner.assignment.queues == [] and not state.is_owned
    assert commits(peer) == [(0, 1)]
    assert len(pulls(peer)) == 2


async def test_what_is_being_handled_may_end_before_its_queue_is_given_up(peer, owner):
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), rec(1), next_offset=2))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 2)
    state = owner.assignment.process_queue_of(QUEUES[0])
    giving_up = asyncio.ensure_future(owner.assignment.apply("t", []))
    await owner.clock.advance(0.9)
    assert state.is_owned and not commits(peer)
    for message in owner.delivery.messages:
        state.settle(message)
    assert await giving_up and commits(peer) == [(0, 2)]


async def test_a_pull_that_commits_late_does_not_move_the_group_back(peer, owner):
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 2)  # The second one commits 0, and is held.
    owner.assignment.process_queue_of(QUEUES[0]).settle(owner.delivery.messages[0])
    peer.usual[QUERY] = lambda _: Reply(header=OffsetReply(0))
    await owner.assignment.apply("t", [])
    assert commits(peer) == [(0, 1), (0, 1)]


async def test_another_filter_is_pulled_by_at_once(peer, owner):
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 1)
    owner.subscriptions["t"] = subscription("t", "b", None, 2)
    owner.assignment.refilter("other")
    owner.assignment.refilter("t")
    await until(lambda: len(pulls(peer)) == 2)
    assert [each.subscription for each in pulls(peer)] == ["*", "b"]


async def test_a_paused_queue_is_not_pulled(peer, owner):
    await owner.assignment.apply("t", QUEUES[:2])
    await until(lambda: len(pulls(peer)) == 2)
    owner.assignment.pause(QUEUES[:1])
    owner.assignment.refilter("t")
    await until(lambda: len(pulls(peer)) == 3)
    assert pulls(peer)[2].queue_id == 1
    owner.assignment.resume(QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 4)
    assert pulls(peer)[3].queue_id == 0


async def test_what_comes_while_everything_is_paused_is_paused_too(peer, owner):
    owner.assignment.pause(None)
    await owner.assignment.apply("t", QUEUES)
    await owner.routes.fetch("t")  # A pull would have been sent before.
    assert not pulls(peer)
    owner.assignment.resume(QUEUES[:1])
    await until(lambda: pulls(peer))
    owner.assignment.resume(None)
    await until(lambda: len(pulls(peer)) == 3)
    assert [each.queue_id for each in pulls(peer)] == [0, 1, 2]


async def test_seeking_goes_on_elsewhere_and_is_committed_with_the_rest(peer, owner):
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: owner.delivery.messages)
    owner.assignment.seek(QUEUES[0], 40)
    assert owner.assignment.position(QUEUES[0]) == 40 and not owner.delivery.messages[0].is_current
    await until(lambda: pulls(peer)[-1].queue_offset == 40)
    await owner.assignment.commit()
    assert commits(peer) == [(0, 40)]


async def test_only_own_queues_can_be_paused_sought_or_asked_for(owner):
    for ask in (
        lambda: owner.assignment.pause(QUEUES),
        lambda: owner.assignment.resume(QUEUES),
        lambda: owner.assignment.seek(QUEUES[0], 1),
        lambda: owner.assignment.position(QUEUES[0]),
    ):
        with pytest.raises(ConfigError, match=r"t@broker-a\[0\] is not this member's now"):
            ask()
    with pytest.raises(ConfigError, match="negative"):
        owner.assignment.seek(QUEUES[0], -1)


async def test_the_lag_is_what_the_broker_has_and_nobody_settled(peer, owner):
    peer.usual[RequestCode.GET_MAX_OFFSET] = lambda _: Reply(header=OffsetReply(10))
    peer.usual[RequestCode.PULL_MESSAGE] = first_only
    await owner.assignment.apply("t", QUEUES[:2])
    await until(lambda: len(owner.delivery.messages) == 2)
    message = owner.delivery.messages[0]
    owner.assignment.process_queue_of(message.queue).settle(message)
    lags = await owner.assignment.lag()
    assert lags == {queue: 9 if queue == message.queue else 10 for queue in QUEUES[:2]}


async def test_a_queue_that_was_never_answered_has_nothing_to_commit(peer, owner):
    await owner.assignment.apply("t", QUEUES)
    await owner.assignment.apply("t", [])
    assert not commits(peer)


async def test_other_topics_are_left_alone(owner):
    await owner.assignment.apply("t", QUEUES)
    assert await owner.assignment.apply("other", [])
    assert owner.assignment.queues == QUEUES


async def test_a_queue_whose_beginning_is_unknown_is_an_error_after_the_others_are_taken(peer, owner):
    peer.script(QUERY, Reply(ResponseCode.SYSTEM_ERROR, remark="not now"))
    with pytest.raises(RemoteError, match="not now"):
        await owner.assignment.apply("t", QUEUES[:2])
    assert owner.assignment.queues == [QUEUES[1]]


async def test_a_reset_goes_on_elsewhere_and_forgets_what_is_handled(peer, owner):
    peer.script(RequestCode.PULL_MESSAGE, found(rec(0), next_offset=1))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: owner.delivery.messages)
    before = owner.assignment.process_queue_of(QUEUES[0])
    await owner.assignment.restart({QUEUES[0]: 40, QUEUES[1]: 50})
    assert commits(peer) == [(0, 40)] and not before.is_owned
    await until(lambda: pulls(peer)[-1].queue_offset == 40)


async def test_an_operator_moves_a_group_past_what_could_not_be_committed(peer, owner):
    """The queue is lost while its broker is away, and moved before it comes back: the operator's word counts."""
    owner.assignment._offsets._uncommitted[QUEUES[0]] = 9
    await owner.assignment.restart({QUEUES[0]: 0})
    assert not owner.assignment._offsets._uncommitted


async def test_a_broker_that_moves_us_while_we_work_restarts_the_queue(peer, owner):
    peer.script(
        RequestCode.PULL_MESSAGE,
        found(rec(5), next_offset=6),
        Reply(ResponseCode.PULL_OFFSET_MOVED, found(next_offset=2).header),
    )
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: pulls(peer)[-1].queue_offset == 2 if pulls(peer) else False)
    assert owner.assignment.process_queue_of(QUEUES[0]).unsettled_count == 0


async def test_closing_commits_everything(peer, owner):
    peer.usual[RequestCode.PULL_MESSAGE] = first_only
    await owner.assignment.apply("t", QUEUES[:2])
    await until(lambda: len(pulls(peer)) == 4)
    for message in owner.delivery.messages:
        owner.assignment.process_queue_of(message.queue).settle(message)
    await owner.assignment.commit()
    assert sorted(commits(peer)) == [(0, 1), (1, 1)]
    await owner.assignment.close()
    assert owner.assignment.queues == [] and len(commits(peer)) == 2


async def closed(world) -> None:
    """Return when the queues are closed, while the time goes on."""
    closing = asyncio.ensure_future(world.assignment.close())
    while not closing.done():
        if world.routes._refresh_requested.is_set():
            world.routes._refresh_requested.clear()
            await world.clock.advance(PAUSE_S)
        await asyncio.sleep(0.001)
    await closing


async def test_closing_commits_at_the_next_master(peer, owner):
    peer.usual[RequestCode.PULL_MESSAGE] = first_only
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 2)
    owner.assignment.process_queue_of(QUEUES[0]).settle(owner.delivery.messages[0])
    peer.script(UPDATE, OF_SLAVE, OF_SLAVE, OF_SLAVE)
    begun = owner.clock.monotonic()
    await closed(owner)
    assert commits(peer) == [(0, 1)] * 4
    assert owner.clock.age(begun) == 3 * PAUSE_S


async def test_closing_unlocks_at_the_next_master_once_everything_is_committed(peer, orderly):
    peer.script(RequestCode.PULL_MESSAGE, found(next_offset=9))
    await orderly.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 2)
    peer.script(UPDATE, OF_SLAVE, OF_SLAVE)
    peer.script(UNLOCK, OF_SLAVE, OF_SLAVE)
    await closed(orderly)
    assert codes(peer, UPDATE, UNLOCK) == [UPDATE, UPDATE, UPDATE, UNLOCK, UNLOCK, UNLOCK]


async def test_closing_waits_for_the_next_master_only_for_a_while(peer, owner):
    await never_committed(peer, owner)
    peer.usual[UPDATE] = lambda _: OF_SLAVE
    begun = owner.clock.monotonic()
    async with asyncio.timeout(10):
        await closed(owner)
    assert owner.clock.age(begun) == ELECTED_S


@pytest.mark.parametrize("answer", [Reply(ResponseCode.SYSTEM_ERROR), OF_SLAVE, None])
async def test_closing_waits_for_no_broker_that_is_away_and_for_no_slave_of_a_dead_master(peer, owner, answer):
    await never_committed(peer, owner)
    if answer is OF_SLAVE:
        owner.routes._brokers["broker-a"] = {1: peer.address}
    peer.usual[UPDATE] = lambda _: answer or ([session.abort() for session in peer.sessions] and None)
    async with asyncio.timeout(5):
        await owner.assignment.close()  # the clock stands still
    assert len(commits(peer)) <= 2


async def never_committed(peer, owner) -> None:
    """Own a queue with an offset that is not committed."""
    peer.script(RequestCode.PULL_MESSAGE, found(next_offset=9))
    await owner.assignment.apply("t", QUEUES[:1])
    await until(lambda: len(pulls(peer)) == 2)


@pytest.mark.covers("S-CONS-17")
async def test_an_orderly_queue_is_owned_only_once_it_is_locked(peer, orderly):
    peer.script(LOCK, Reply(body=LockedQueues(QUEUES[:1]).encode()))
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
    state = orderly.assignment.process_queue_of(QUEUES[0])
    state.hand_out(orderly.delivery.messages)
    giving_up = asyncio.ensure_future(orderly.assignment.apply("t", []))
    await orderly.clock.advance(1)
    assert await giving_up is False and state.is_owned and state.is_leaving
    await orderly.assignment.apply("t", QUEUES[:1])
    assert not state.is_leaving and orderly.delivery.renewals == 1
    state.take_back(orderly.delivery.messages[0])
    assert await orderly.assignment.apply("t", [])


@pytest.mark.covers("S-CONS-17")
async def test_locks_are_renewed_and_one_that_another_member_has_is_trusted_no_more(peer, orderly):
    assert await orderly.assignment.renew_locks()
    assert not peer.requests(LOCK)
    await orderly.assignment.apply("t", QUEUES[:2])
    kept, lost = (orderly.assignment.process_queue_of(queue) for queue in QUEUES[:2])
    await orderly.clock.advance(20)
    peer.script(LOCK, Reply(body=LockedQueues(QUEUES[:1]).encode()))
    assert not await orderly.assignment.renew_locks()
    assert (kept.locked_until, lost.locked_until) == (20 + TRUSTED_S, 0.0)
    assert orderly.delivery.renewals == 1
    await orderly.assignment.close()
    assert codes(peer, UNLOCK) == [UNLOCK]


async def test_a_lock_that_could_not_be_renewed_runs_out(peer, orderly):
    await orderly.assignment.apply("t", QUEUES[:1])
    state = orderly.assignment.process_queue_of(QUEUES[0])
    await orderly.clock.advance(20)
    peer.script(LOCK, Reply(ResponseCode.SYSTEM_ERROR))
    assert not await orderly.assignment.renew_locks()
    assert state.locked_until == TRUSTED_S


async def test_a_queue_that_goes_on_elsewhere_is_trusted_no_longer_than_before(peer, orderly):
    """An operator resets the offsets of all members, also of one whose lock another has."""
    await orderly.assignment.apply("t", QUEUES[:2])
    await orderly.clock.advance(20)
    peer.script(LOCK, Reply(body=LockedQueues(QUEUES[:1]).encode()))
    await orderly.assignment.renew_locks()
    await orderly.clock.advance(5)
    await orderly.assignment.restart(dict.fromkeys(QUEUES[:2], 7))
    kept, lost = (orderly.assignment.process_queue_of(queue) for queue in QUEUES[:2])
    assert (kept.locked_until, lost.locked_until) == (20 + TRUSTED_S, 0.0)


async def test_a_lock_is_trusted_from_the_time_at_which_it_was_asked_for(peer, orderly, monkeypatch):
    """A master that was asked before an election may answer after it."""
    ask = orderly.assignment.locks.ask

    async def late(queues):
        answers = await ask(queues)
        await orderly.clock.advance(1)
        return answers

    monkeypatch.setattr(orderly.assignment.locks, "ask", late)
    await orderly.assignment.apply("t", QUEUES[:1])
    state = orderly.assignment.process_queue_of(QUEUES[0])
    assert state.locked_until == TRUSTED_S
    await orderly.assignment.renew_locks()
    assert state.locked_until == 1 + TRUSTED_S


async def test_a_queue_that_was_given_up_while_its_lock_was_renewed_is_unlocked(peer, orderly, monkeypatch):
    ask = orderly.assignment.locks.ask

    async def late(queues):
        answers = await ask(queues)
        await orderly.assignment.apply("t", QUEUES[:1])
        return answers

    await orderly.assignment.apply("t", QUEUES[:2])
    monkeypatch.setattr(orderly.assignment.locks, "ask", late)
    await orderly.assignment.renew_locks()
    assert codes(peer, UNLOCK) == [UNLOCK]
    await orderly.assignment.apply("t", QUEUES[:1])
    unlocked = [LockQueues.decode(command.body).mq_set for command in peer.requests(UNLOCK)]
    assert unlocked == [[QUEUES[1]], [QUEUES[1]]]


async def test_an_operator_sees_the_queues(owner):
    await owner.assignment.apply("t", QUEUES[:1])
    assert list(owner.assignment.report()) == QUEUES[:1]
