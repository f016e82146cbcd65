import asyncio

import pytest

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.cluster.name_servers import NameServerList, NameServers
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.cluster.routes import Routes
from sparrowmq.errors import ACCESS_EXCEPTION, BrokerUnreachable, ConnectionClosed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.headers import (
    GetMaxOffset,
    HeartBeat,
    HeartBeatReply,
    PullMessage,
    UnregisterClient,
)
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import EXPIRY_PERIOD_S, MUTE_S
from sparrowmq.testing.clock import ManualClock
from tests.client.conftest import until
from tests.client.scripted import Scripted

BEAT = RequestCode.HEART_BEAT


class World:
    """A network whose tasks do not run, so that tests can."""

    def __init__(self, peer) -> None:
        self.clock = ManualClock()
        self.pool = Pool(self.clock)
        self.routes = Routes(NameServers(NameServerList([peer.address]), self.pool), self.clock)
        self.beat: bytes | None = b"{}"
        self.brokers = Brokers(self.pool, self.routes, self.clock, lambda: self.beat)
        self.network = Network(peer.address, client_id="me", clock=self.clock)
        self.network.routes, self.network.brokers = self.routes, self.brokers


@pytest.fixture
async def world(peer):
    made = World(peer)
    yield made
    made.pool.close()


@pytest.mark.covers("S-START-03")
async def test_a_new_connection_begins_with_a_heartbeat(peer, world):
    assert world.brokers.open_session(peer.address) is None
    session, same = await asyncio.gather(*[world.brokers.session(peer.address) for _ in range(2)])
    assert session is same is world.brokers.open_session(peer.address)
    assert [command.code for command in peer.received] == [BEAT]


async def test_nobody_to_announce_sends_no_heartbeat(peer, world):
    world.beat = None
    await world.brokers.session(peer.address)
    await world.brokers.announce()
    assert not peer.requests(BEAT)


async def test_a_new_connection_after_a_restart_is_greeted_again(peer, world):
    session = await world.brokers.session(peer.address)
    session.close()
    await until(lambda: session.closed)
    assert await world.brokers.session(peer.address) is not session
    assert len(peer.requests(BEAT)) == 2


async def test_a_refused_greeting_does_not_bar_the_connection(peer, world):
    peer.script(BEAT, Reply(ResponseCode.SYSTEM_ERROR, remark="no"))
    assert await world.brokers.session(peer.address) is world.brokers.open_session(peer.address)


async def test_a_refusal_that_repeats_itself_is_logged_once_until_a_heartbeat_is_taken(peer, world, caplog):
    no_group, busy = (Reply(ResponseCode.SYSTEM_ERROR, remark=remark) for remark in ("no group", "busy"))
    peer.script(BEAT, no_group, no_group, busy, busy, Reply(), busy)
    await world.brokers.session(peer.address)
    for _ in range(5):
        await world.brokers.announce()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.rpartition(": ")[2] for line in lines] == ["no group", "busy", "busy"]


@pytest.mark.covers("S-START-06")
@pytest.mark.covers("S-CFG-06")
async def test_every_known_broker_gets_a_heartbeat_after_1_s_and_every_30_s(peer, world):
    peer.has("t", others={"gone": "127.0.0.1:1"})
    await world.routes.of("t")
    beating = asyncio.ensure_future(world.brokers.keep_alive())
    for count, wait_s in ((1, 1), (2, 30), (3, 30)):
        await world.clock.advance(wait_s - 0.1)
        assert len(peer.requests(BEAT)) == count - 1
        await world.clock.advance(0.1)
        await until(lambda: len(peer.requests(BEAT)) == count)  # noqa: B023
    beating.cancel()


async def test_a_connected_broker_of_no_used_topic_gets_one_too_and_a_gone_one_does_not(peer, world):
    """As an admin's, which are connected by their addresses: a broker parts with who is silent for 120 s."""
    session = await world.brokers.session(peer.address)
    await world.brokers.announce()
    assert len(peer.requests(BEAT)) == 2
    session.close()
    await until(lambda: session.closed)
    await world.brokers.announce()
    assert world.brokers.open_session(peer.address) is None and len(peer.requests(BEAT)) == 2


async def test_a_broker_is_found_by_its_name_and_by_another_replica_if_need_be(peer, world):
    peer.has("t")
    await world.routes.of("t")
    assert await world.brokers.of("broker-a") is await world.brokers.of("broker-a", 1)


async def test_a_broker_of_no_route_is_unreachable_and_routes_are_doubted(peer, world):
    refreshing = asyncio.ensure_future(world.routes.keep_fresh())
    peer.has("t")
    await world.routes.of("t")
    with pytest.raises(BrokerUnreachable, match="no route names this broker"):
        await world.brokers.of("unknown")
    await world.clock.advance(1)
    await until(lambda: len(peer.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 2)
    refreshing.cancel()


async def test_routes_are_doubted_when_a_broker_comes_back_as_it_may_be_a_slave_now(peer, world):
    refreshing = asyncio.ensure_future(world.routes.keep_fresh())
    peer.has("t")
    await world.routes.of("t")
    session = await world.brokers.session(peer.address)
    await world.clock.advance(2)
    assert len(peer.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
    session.close()
    await until(lambda: session.closed)
    await world.brokers.session(peer.address)
    await world.clock.advance(2)
    await until(lambda: len(peer.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 2)
    refreshing.cancel()


async def test_all_connected_brokers_are_told_whatever_they_answer(peer, world):
    await world.brokers.tell_all(UnregisterClient(client_id="me"))
    await world.brokers.session(peer.address)
    peer.script(RequestCode.UNREGISTER_CLIENT, Reply(ResponseCode.SYSTEM_ERROR))
    await world.brokers.tell_all(UnregisterClient(client_id="me"))
    assert len(peer.requests(RequestCode.UNREGISTER_CLIENT)) == 1


async def test_a_connection_that_ends_during_the_greeting_is_an_error(peer, world):
    peer.script(BEAT, None)
    asking = asyncio.ensure_future(world.brokers.session(peer.address))
    await until(lambda: peer.requests(BEAT))
    for session in peer.sessions:
        session.close()
    with pytest.raises(ConnectionClosed):
        await asking


@pytest.fixture
async def broker(peer, world):
    """A broker beside the name server."""
    async with Scripted() as started:
        started.name = "broker-b"
        is_master_of_it(peer, started.address)
        await world.routes.of("t")
        yield started


def is_master_of_it(peer, address):
    peer.name = "broker-b"
    peer.has("t", others={"broker-b": address})


async def unanswered(broker, world, request):
    """The answer to a request that the broker has had for a second, and says nothing to."""
    session = await world.brokers.session(broker.address)
    broker.script(request.code, None)
    answer = session.call(request, timeout_s=30)
    await until(lambda: broker.requests(request.code))
    await world.clock.advance(MUTE_S + EXPIRY_PERIOD_S)
    return answer


async def test_routes_are_doubted_while_a_broker_answers_nothing(broker, world):
    answer = await unanswered(broker, world, GetMaxOffset(topic="t", queue_id=0))
    assert world.routes._refresh_requested.is_set()
    answer.cancel()


async def test_a_long_poll_that_waits_is_no_reason_to_doubt(broker, world):
    pull = PullMessage(
        consumer_group="g",
        topic="t",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
    )
    answer = await unanswered(broker, world, pull)
    assert not world.routes._refresh_requested.is_set()
    answer.cancel()


async def test_who_waits_for_a_master_that_is_none_any_more_and_says_nothing_is_told(peer, broker, world):
    answer = await unanswered(broker, world, GetMaxOffset(topic="t", queue_id=0))
    is_master_of_it(peer, "127.0.0.1:1")
    await world.routes.refresh()
    with pytest.raises(ConnectionClosed):
        await answer


async def test_a_former_master_that_answers_keeps_its_connection(peer, broker, world):
    session = await world.brokers.session(broker.address)
    is_master_of_it(peer, "127.0.0.1:1")
    await world.routes.refresh()
    assert world.routes.master("broker-b") == "127.0.0.1:1"
    await session.call(HeartBeat(), b"{}")


async def test_what_each_broker_can_is_known_until_its_connection_ends(peer, broker, world):
    can = HeartBeatReply(timer_max_delay_sec=100, repeat_window_ms=1000, takes_reasons=True)
    peer.script(BEAT, Reply(header=can))
    broker.script(BEAT, Reply(1, remark=f"{ACCESS_EXCEPTION}no"))
    able, unable = [await world.brokers.session(each.address) for each in (peer, broker)]
    brokers = world.brokers
    for session, is_able in ((able, True), (unable, False)):
        assert brokers.delivers_at_any_time(session) is is_able
        assert brokers.retries_at_any_time(session) is is_able
        assert brokers.recognises_repeats(session) is is_able
        assert brokers.takes_reasons(session) is is_able
        assert (brokers.denial(session) is None) is is_able
    able.close()
    unable.close()
    await until(lambda: able.closed and unable.closed)
    assert not (
        brokers._any_delay_sessions
        or brokers._repeat_recognising_sessions
        or brokers._reason_taking_sessions
        or brokers._denials
    )
