import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.rebalance import Rebalancer, diff
from sparrowmq.client.consuming.retry import Retry
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.allocation import averagely, by_config
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import TopicList
from sparrowmq.protocol.requests.client_bodies import ConsumerList
from sparrowmq.remoting.handler import Reply
from tests.client.cluster.test_broker_sessions import World
from tests.client.conftest import until

MEMBERS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
QUEUES = [MessageQueue("t", "broker-a", number) for number in range(4)]


class Owner:
    """Owns whatever it is given, once `is_ready`."""

    def __init__(self, peer, strategy=averagely) -> None:
        self.world = World(peer)
        self.clock = self.world.clock
        self.owned: dict[str, list[MessageQueue]] = {}
        self.is_ready = True
        self.topics = ["t"]
        self.rebalancer = Rebalancer("g", self.world.network, lambda: self.topics, self.apply, strategy)

    async def apply(self, topic: str, queues) -> bool:
        if self.is_ready:
            self.owned[topic] = sorted(queues)
        return self.is_ready


@pytest.fixture
async def owner(peer):
    made = Owner(peer)
    running = asyncio.ensure_future(made.rebalancer.run())
    yield made
    running.cancel()
    made.world.pool.close()


def members(*names: str) -> Reply:
    return Reply(body=ConsumerList(list(names)).encode())


async def pass_time(owner: Owner, seconds: float) -> None:
    """Turn the clock, with turns for the sockets before it."""
    await asyncio.sleep(0.02)
    await owner.clock.advance(seconds)


def test_a_change_is_what_goes_and_what_comes():
    change = diff(QUEUES[:2], QUEUES[1:3])
    assert change.drop == [QUEUES[0]] and change.add == [QUEUES[2]]


@pytest.mark.covers("S-CONS-06")
async def test_queues_are_shared_out_over_the_members(peer, owner):
    peer.has("t")
    peer.usual[MEMBERS] = lambda _: members("other", "me")
    await asyncio.wait_for(owner.rebalancer.first_round.wait(), 5)
    assert owner.owned == {"t": QUEUES[:2]}


@pytest.mark.covers("S-CONS-07")
async def test_a_member_too_many_gets_none(peer, owner):
    peer.has("t", queues=1)
    peer.usual[MEMBERS] = lambda _: members("a", "me")
    await asyncio.wait_for(owner.rebalancer.first_round.wait(), 5)
    assert owner.owned == {"t": []}


async def test_a_changed_group_is_shared_out_at_once(peer, owner):
    peer.has("t")
    await until(lambda: owner.owned)
    peer.usual[MEMBERS] = lambda _: members("me", "newcomer")
    owner.rebalancer.request_round()
    await until(lambda: owner.owned == {"t": QUEUES[:2]})


@pytest.mark.covers("S-CONS-12")
async def test_it_is_shared_out_every_20_s_anyway(peer, owner):
    peer.has("t")
    await until(lambda: owner.owned)
    peer.usual[MEMBERS] = lambda _: members("me", "newcomer")
    await pass_time(owner, 19)
    assert owner.owned == {"t": QUEUES}
    await pass_time(owner, 1)
    await until(lambda: owner.owned == {"t": QUEUES[:2]})


@pytest.mark.covers("S-START-09")
async def test_a_topic_that_comes_later_is_found_within_a_second(peer, owner):
    await asyncio.wait_for(owner.rebalancer.first_round.wait(), 5)
    for _ in range(10):
        await pass_time(owner, 1)
    assert not owner.owned
    peer.has("t")
    await pass_time(owner, 1)
    await until(lambda: owner.owned == {"t": QUEUES})


async def test_what_is_owned_stays_while_members_cannot_be_asked(peer, owner, caplog):
    peer.has("t")
    await until(lambda: owner.owned)
    peer.script(MEMBERS, Reply(ResponseCode.SYSTEM_BUSY, remark="busy"))
    owner.rebalancer.request_round()
    await until(lambda: "busy" in caplog.text)
    assert owner.owned == {"t": QUEUES}


@pytest.mark.covers("S-CONS-06")
async def test_a_broker_that_does_not_know_us_gets_a_heartbeat(peer, owner):
    peer.script(MEMBERS, Reply(ResponseCode.SYSTEM_ERROR, remark="no consumer for this group"))
    peer.has("t")
    await until(lambda: len(peer.requests(RequestCode.HEART_BEAT)) == 2)
    await pass_time(owner, 1)
    await until(lambda: owner.owned)


async def test_a_broker_that_knows_others_alone_gets_a_heartbeat_and_is_asked_again(peer, owner):
    peer.script(MEMBERS, members("other"))
    peer.usual[MEMBERS] = lambda _: members("other", "me")
    peer.has("t")
    await until(lambda: owner.owned == {"t": QUEUES[:2]})
    assert len(peer.requests(RequestCode.HEART_BEAT)) == 2


async def test_a_queue_that_is_still_locked_is_tried_again_soon(peer, owner):
    owner.is_ready = False
    peer.has("t")
    await until(lambda: peer.requests(MEMBERS))
    owner.is_ready = True
    await pass_time(owner, 1)
    await until(lambda: owner.owned == {"t": QUEUES})


async def test_one_trouble_is_logged_once(peer, owner, caplog):
    peer.has("t")
    peer.usual[MEMBERS] = lambda _: Reply(ResponseCode.SYSTEM_ERROR, remark="all wrong")
    for _ in range(3):
        await until(lambda: peer.requests(MEMBERS))
        peer.received.clear()
        await pass_time(owner, 1)
    assert caplog.text.count("all wrong") == 1


@pytest.mark.covers("S-CONS-03")
async def test_broadcasting_gives_every_member_everything(peer):
    owner = Owner(peer, strategy=None)
    peer.has("t")
    await owner.rebalancer.run_round()
    assert owner.owned == {"t": QUEUES} and not peer.requests(MEMBERS)
    owner.world.pool.close()


async def test_a_round_that_was_asked_for_begins_with_a_commit(peer):
    peer.has("t")
    begun: list[int] = []

    async def begin() -> None:
        begun.append(len(peer.requests(MEMBERS)))

    owner = Owner(peer)
    owner.rebalancer._before_round = begin
    running = asyncio.ensure_future(owner.rebalancer.run())
    await until(lambda: owner.owned)
    assert not begun
    owner.rebalancer.request_round()
    await until(lambda: len(peer.requests(MEMBERS)) == 2)
    assert begun == [1]
    running.cancel()
    owner.world.pool.close()


async def test_a_topic_that_is_missed_is_told_of_once_and_the_retry_topic_never(peer, owner, caplog):
    peer.usual[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda _: Reply(
        body=TopicList(["orders", "unlike", "%DLQ%order"]).encode()
    )
    peer.has("t")
    owner.topics = ["order", "%RETRY%g"]
    owner.rebalancer.request_round()
    await until(lambda: "does not exist" in caplog.text)
    for _ in range(3):
        await pass_time(owner, 1)
    told = [line for line in caplog.messages if "does not exist" in line]
    assert told == ["group g waits for topic order, which does not exist; did you mean orders?"]


@pytest.mark.parametrize("wrong", [None, ["t"], 5, [QUEUES[0], None]])
async def test_a_strategy_that_returns_no_queues_ends_the_rounds(peer, wrong):
    peer.has("t")
    made = Owner(peer, lambda queues, members, me: wrong)
    with pytest.raises(ConfigError, match="return a list of queues"):
        await asyncio.wait_for(made.rebalancer.run(), 5)
    made.world.pool.close()


async def test_queues_that_a_strategy_gives_of_other_topics_are_owned_in_the_rounds_of_those(peer):
    peer.has("t")
    peer.has("u")
    every = [*QUEUES[:1], MessageQueue("u", "broker-a", 1)]
    made = Owner(peer, lambda queues, members, me: iter(every))
    made.topics = ["t", "u"]
    await made.rebalancer.run_round()
    assert made.owned == {"t": every[:1], "u": every[1:]}
    made.world.pool.close()


async def test_members_with_configured_queues_get_each_message_once_and_failed_ones_again(cluster):
    got: list[tuple[str, int]] = []
    queues = [MessageQueue(topic, "broker-0", 0) for topic in ("a", "b")]

    async def handle(message):
        got.append((message.topic, message.reconsume_times))
        if len(got) == 1:
            raise ValueError("again")

    async with connect(cluster.namesrv) as mq:
        for queue in queues:
            await mq.admin.create_topic(queue.topic, queues=1)
            await mq.send(queue.topic, b"x", queue=queue)
        strategy = by_config(queues)
        async with mq.subscribe(
            ["a", "b"], handle, group="g", start="earliest", strategy=strategy, retry=Retry(0.1)
        ) as members:
            await until(lambda: len(got) >= 3)
            for _ in range(3):
                await members._rebalancer.run_round()
            assert len(members.queues) == 3
    assert sorted(got) == sorted([("a", 0), ("b", 0), (got[0][0], 1)])
