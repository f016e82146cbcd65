import asyncio

import pytest

from sparrowmq.client.cluster.name_servers import NameServerList, NameServers
from sparrowmq.client.cluster.routes import Routes
from sparrowmq.errors import BrokerUnreachable, NetworkError, NoRoute
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.clock import ManualClock
from tests.client.conftest import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def routes(peer, clock):
    pool = Pool(clock)
    yield Routes(NameServers(NameServerList([peer.address]), pool), clock)
    pool.close()


def asked(peer) -> int:
    return len(peer.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC))


async def test_a_route_is_asked_once_however_many_want_it(peer, routes):
    peer.has("t")
    found = await asyncio.gather(*[routes.of("t") for _ in range(5)])
    assert asked(peer) == 1 and all(route is found[0] for route in found)
    assert routes.cached("t") is found[0]
    assert routes.master("broker-a") == routes.replica("broker-a", 1) == peer.address
    assert routes.master("broker-b") is routes.replica("broker-b", 1) is None


@pytest.mark.covers("S-ROUTE-02", "S-START-02")
@pytest.mark.covers("S-PROD-09")
@pytest.mark.covers("S-PROD-08")
async def test_a_topic_that_does_not_exist_is_sent_by_the_template(peer, routes):
    peer.has("TBW102", queues=8)
    route = await routes.for_sending("new")
    assert not route.readable and route.writable == tuple(MessageQueue("new", "broker-a", n) for n in range(4))
    assert routes.cached("new") is None
    with pytest.raises(NoRoute):
        await routes.of("new")
    peer.has("new", queues=2)
    await routes.refresh()
    assert len(routes.cached_for_sending("new").writable) == 2


@pytest.mark.parametrize("topic", ["new", "TBW102"])
async def test_a_broker_that_comes_between_two_questions_is_found(peer, routes, topic):
    """The topic and the template were unknown when they were asked for, and the broker there when it was."""
    peer.has(topic)
    peer.brokers = {"broker-a": peer.address}
    unknown = Reply(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
    peer.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown, unknown)
    assert bool((await routes.for_sending("new")).readable) is (topic == "new")


@pytest.mark.covers("S-ROUTE-05")
async def test_without_a_template_there_is_no_route(peer, routes):
    peer.brokers = {"broker-a": peer.address}
    with pytest.raises(NoRoute, match=f"no route for topic 'new' at name server {peer.address}"):
        await routes.for_sending("new")


async def test_without_any_broker_a_topic_may_still_come(peer, routes):
    """The name server has just started, and nobody can tell whether the topic is there."""
    with pytest.raises(BrokerUnreachable, match=f"any broker .none is registered at {peer.address} now"):
        await routes.for_sending("new")


@pytest.mark.covers("S-START-05", "S-ROUTE-11")
@pytest.mark.covers("S-CFG-05")
async def test_routes_are_refreshed_every_30_s_and_watchers_told(peer, routes, clock):
    peer.has("t", queues=1)
    await routes.of("t")
    changed: list[str] = []
    routes.watch(changed.append)
    refreshing = asyncio.ensure_future(routes.keep_fresh())
    await clock.advance(29)
    assert asked(peer) == 1
    peer.has("t", queues=2)
    await clock.advance(1)
    await until(lambda: changed == ["t"])
    assert len(routes.cached("t").readable) == 2
    routes.unwatch(changed.append)
    refreshing.cancel()


async def test_a_doubted_route_is_refreshed_within_a_second(peer, routes, clock):
    peer.has("t")
    await routes.of("t")
    refreshing = asyncio.ensure_future(routes.keep_fresh())
    routes.doubt()
    await clock.advance(1)
    await until(lambda: asked(peer) == 2)
    refreshing.cancel()


async def test_what_is_known_stays_when_it_cannot_be_learned(peer, routes):
    peer.has("t")
    known = await routes.of("t")
    del peer.routes["t"]
    await routes.refresh()
    assert routes.cached("t") == known
    await peer.__aexit__()
    for session in peer.sessions:
        session.close()
    await routes.refresh()
    assert routes.cached("t") == known
    with pytest.raises(NetworkError):
        await routes.of("other")


async def test_a_route_that_is_refused_holds_up_no_other_topic(peer, routes, caplog):
    """At a name server without accounts, anyone can give a topic of this client such a route."""
    for topic in ("bad", "good"):
        peer.has(topic, queues=1)
        await routes.of(topic)
    peer.has("bad", queues=70_000)
    peer.has("good", queues=2)
    for _ in range(30):
        await routes.refresh()
    assert [len(routes.cached(topic).readable) for topic in ("bad", "good")] == [1, 2]
    lines = [line for line in caplog.messages if "cannot refresh the route of bad" in line]
    assert len(lines) == 20 and "<= 65535" in lines[0]


def moved(peer, address: str, *topics: str) -> None:
    """From now on the name server tells that these topics' broker is there."""
    for topic in topics:
        peer.has(topic)
        peer.routes[topic].broker_datas[0].broker_addrs[0] = address


@pytest.mark.parametrize("gone", ["a", "b"])
async def test_a_topic_that_is_gone_does_not_hold_its_broker_at_an_old_address(peer, routes, gone):
    """Whichever of the topics was learned last, and is asked for last."""
    for topic in ("a", "b"):
        peer.has(topic)
        await routes.of(topic)
    del peer.routes[gone]
    moved(peer, "127.0.0.1:2", "b" if gone == "a" else "a")
    await routes.refresh()
    assert routes.master("broker-a") == routes.replica("broker-a", 0) == "127.0.0.1:2"


async def test_a_new_topic_tells_where_the_broker_of_an_old_one_is_now(peer, routes):
    peer.has("a")
    await routes.of("a")
    moved(peer, "127.0.0.1:2", "b")
    await routes.of("b")
    assert routes.master("broker-a") == "127.0.0.1:2"


async def test_the_broker_of_topics_that_are_all_gone_is_looked_up_by_its_name(peer, routes):
    """As with a pod that comes back with an empty disk at another address."""
    peer.has("a")
    await routes.of("a")
    peer.routes.clear()
    peer.brokers = {"broker-a": "127.0.0.1:2", "broker-b": "127.0.0.1:3"}
    await routes.refresh()
    assert routes.brokers == {"broker-a": {0: "127.0.0.1:2"}}
    peer.brokers = {}  # a name server that has just started
    await routes.refresh()
    assert routes.master("broker-a") == "127.0.0.1:2"


async def test_a_broker_that_no_route_names_any_more_is_forgotten(peer, routes):
    peer.has("a", others={"broker-b": "127.0.0.1:2"})
    await routes.of("a")
    peer.has("a")
    await routes.refresh()
    assert list(routes.brokers) == ["broker-a"]
