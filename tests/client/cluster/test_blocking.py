"""The blocking face, over real sockets."""

from contextlib import ExitStack

import pytest

from sparrowmq.client.cluster.blocking_network import BlockingNetwork, BrokersAway, RetryPolicy
from sparrowmq.errors import (
    BrokerUnreachable,
    NameServerUnreachable,
    NetworkError,
    NoRoute,
    RemoteError,
    RemoteProtocolError,
)
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import GetMaxOffset, PullMessage, QueryConsumerOffset
from sparrowmq.protocol.signature import signer
from tests.peer import BROKER, HangUp, Peer, Refuse


@pytest.fixture
def peer():
    with Peer() as peer:
        yield peer


@pytest.fixture
def connect(peer):
    """Makes networks, whose retries do not wait, and leaves them after the test."""
    with ExitStack() as stack:

        def connect(name_servers=None, **given):
            network = BlockingNetwork(name_servers or [peer.address], sleep=lambda _: None, **given)
            return stack.enter_context(network)

        yield connect


def test_routes_name_readable_and_writable_queues(peer, connect):
    peer.store("T", 1, [])
    route = connect().route("T")
    assert route.readable == route.writable == (MessageQueue("T", BROKER, 0), MessageQueue("T", BROKER, 1))
    assert route.brokers[BROKER][0] == peer.address


def test_an_unknown_topic_has_no_route(peer, connect):
    with pytest.raises(NoRoute, match=f"no route for topic 'U' at name server {peer.address}"):
        connect().route("U")


def test_a_name_server_that_is_down_is_passed_over(peer, connect):
    peer.store("T", 0, [])
    for _ in range(8):
        assert connect(["127.0.0.1:1", peer.address]).topics() == ["T"]


def test_topics_of_a_broker_itself_are_none_of_users_also_when_it_has_gone(peer, connect):
    for topic in ("T", BROKER):
        peer.store(topic, 0, [])
    network = connect()
    assert network.topics() == ["T"]
    assert network.registered == {BROKER}
    peer.brokers.clear()
    assert network.topics() == ["T"]
    assert not network.registered


def test_all_name_servers_down_is_an_error_after_the_retries():
    waits: list[float] = []
    unreachable = BlockingNetwork(["127.0.0.1:1", "127.0.0.1:2"], retry_policy=RetryPolicy(3, 1.0), sleep=waits.append)
    with pytest.raises(NameServerUnreachable, match=r"127\.0\.0\.1:1;127\.0\.0\.1:2"):
        unreachable.retrying(unreachable.topics)
    assert waits == [1.0, 1.0]  # the first attempt follows at once


def test_a_restarted_broker_is_found_again(peer, connect):
    peer.store("T", 0, [b"x"] * 5)
    alive = connect()
    queue = MessageQueue("T", BROKER, 0)
    asked = {"end": (queue, GetMaxOffset(topic="T", queue_id=0))}
    assert alive.ask(asked)["end"].offset == 5
    peer.answers[30].append(HangUp())
    with pytest.raises(NetworkError):
        alive.ask(asked)
    peer.answers[30].append(HangUp())
    assert alive.retrying(lambda: alive.ask(asked))["end"].offset == 5


def test_many_queues_are_asked_at_once_and_refusals_stand_beside_answers(peer, connect):
    peer.store("T", 1, [])
    peer.committed["G", 1] = 9
    queues = [MessageQueue("T", BROKER, number) for number in (0, 1)]
    asked = {queue: (queue, QueryConsumerOffset("G", "T", queue.queue_id)) for queue in queues}
    found = connect().ask(asked)
    assert found[queues[1]].offset == 9
    refusal = found[queues[0]]
    assert isinstance(refusal, RemoteError) and refusal.code == 22


def test_answers_to_more_than_is_asked_at_once_are_told_apart(peer, connect):
    count = 1100  # more than two rounds
    peer.store("T", 0, [])
    for number in range(count):
        peer.committed["G", number] = number * 7
    asked = {
        number: (MessageQueue("T", BROKER, number), QueryConsumerOffset("G", "T", number)) for number in range(count)
    }
    found = connect().ask(asked)
    assert {number: found[number].offset for number in asked} == {number: number * 7 for number in asked}


def test_the_bodies_of_many_answers_come_at_once_with_refusals_beside_them(peer, connect):
    for number in range(600):
        peer.store("T", number, [b"body-%d" % number])
    peer.answers[11].append(Refuse(21))
    asked = {queue: (queue, pull(queue)) for queue in (MessageQueue("T", BROKER, number) for number in range(600))}
    found = connect().ask_for_bodies(asked)
    refusal = found[MessageQueue("T", BROKER, 0)]
    assert isinstance(refusal, RemoteError) and refusal.code == 21
    assert all(b"body-%d" % number in found[MessageQueue("T", BROKER, number)] for number in range(1, 600))


def pull(queue):
    return PullMessage("g", queue.topic, queue.queue_id, 0, 1, 4, 0, 0, 0, subscription="*")


def test_abandoned_answers_close_their_connection_and_no_other(peer, connect):
    peer.store("T", 0, [])
    alive = connect()
    link = alive.link(MessageQueue("T", BROKER, 0))
    alive.release()
    assert alive.link(MessageQueue("T", BROKER, 0)) is link
    link.send(GetMaxOffset(topic="T", queue_id=0))
    alive.release()
    assert alive.link(MessageQueue("T", BROKER, 0)) is not link
    alive.forget()


def test_requests_are_signed_when_there_are_keys(peer, connect):
    peer.store("T", 0, [])
    connect(sign=signer("me", "mine")).route("T")
    _, fields = peer.asked[-1]
    assert fields["AccessKey"] == "me"
    assert len(fields["Signature"]) == 28


def test_a_route_that_makes_no_sense_is_refused(peer, connect):
    peer.store("T", 0, [])
    peer.answers[105].append(Refuse(0))
    with pytest.raises(RemoteProtocolError, match="JSON"):
        connect().route("T")


def test_a_new_topic_is_sent_to_by_the_template_if_there_is_one(peer, connect):
    with pytest.raises(NoRoute, match="no route for topic 'New'"):
        connect().route_for_sending("New")
    for queue_id in range(8):
        peer.store("TBW102", queue_id, [])
    route = connect().route_for_sending("New")
    assert not route.readable and route.writable == tuple(MessageQueue("New", BROKER, n) for n in range(4))


@pytest.mark.parametrize("topic", ["New", "TBW102"])
def test_a_broker_that_comes_between_two_questions_is_found(peer, connect, topic):
    """The topic and the template were unknown when they were asked for, and the broker there when it was."""
    peer.store(topic, 0, [])
    peer.answers[105].extend([Refuse(17), Refuse(17)])
    assert bool(connect().route_for_sending("New").readable) is (topic == "New")


def test_a_topic_that_nobody_has_or_makes_is_told_at_once_unless_its_brokers_may_come_back(peer, connect):
    network = connect(retry_policy=RetryPolicy(retries=2))

    def attempts(topic, error):
        before = peer.count(105)
        with pytest.raises(error):
            network.retrying(lambda: network.route_for_sending(topic))
        return (peer.count(105) - before) // 2

    assert attempts("U", NoRoute) == 2  # looked at twice, as its broker may just have come
    peer.store("T", 0, [])
    network.route("T")
    del peer.queues["T"]
    assert attempts("T", BrokersAway) == 3
    peer.brokers.clear()
    assert attempts("U", BrokersAway) == 3


def test_a_queue_of_a_broker_that_no_route_names_is_unreachable(peer, connect):
    peer.store("T", 0, [])
    with pytest.raises(BrokerUnreachable, match="no name server knows this broker for topic T"):
        connect().link(MessageQueue("T", "unknown", 0))


def test_what_is_known_outlives_the_name_server(peer, connect, caplog):
    now = [0.0]
    peer.store("T", 0, [])
    network = connect(monotonic=lambda: now[0])
    route, topics = network.route("T"), network.topics()
    peer.store("U", 0, [])
    peer.answers[105].extend([HangUp()] * 9)
    peer.answers[206].extend([HangUp()] * 9)
    for _trigger in range(3):
        assert (network.route("T"), network.topics()) == (route, topics)
    assert peer.count(105) == 2  # not asked again within a second
    with pytest.raises(NameServerUnreachable):
        network.route("U")
    peer.answers.clear()
    now[0] = 1.0
    assert network.topics() == ["T", "U"]
    begun, ended = caplog.messages
    assert begun.startswith(f"name server {peer.address} is away; known routes are used")
    assert ended == f"name server {peer.address} is back after 1 s"


def test_a_route_that_a_name_server_denies_is_not_remembered(peer, connect):
    peer.store("T", 0, [])
    network = connect()
    network.route("T")
    del peer.queues["T"]
    with pytest.raises(NoRoute):
        network.route("T")


def test_a_broker_that_is_away_leaves_the_others_their_answers(peer, connect):
    peer.store("T", 0, [b"x"] * 5)
    here, away = MessageQueue("T", BROKER, 0), MessageQueue("T", "broker-b", 0)
    asked = {queue: (queue, GetMaxOffset(topic="T", queue_id=0)) for queue in (away, here)}
    network = connect()
    with pytest.raises(BrokerUnreachable):
        network.ask(asked)
    found = network.ask_reachable(asked, 1.0)
    assert found[here].offset == 5
    assert isinstance(found[away], BrokerUnreachable)
    peer.answers[30].append(HangUp())
    assert network.ask_reachable(asked, 1.0)[here].offset == 5  # the connection had ended, and is made anew


def test_an_outage_is_waited_out_and_told(peer, connect, caplog):
    now = [0.0]

    def attempt():
        now[0] += 10
        if now[0] < 60:
            raise BrokerUnreachable("broker-a", "refused")
        return now[0]

    def patient(outage_s):
        now[0] = 0.0
        network = connect(retry_policy=RetryPolicy(2, 1.0, outage_s), monotonic=lambda: now[0])
        return network.retrying(attempt)

    assert patient(100.0) == 60
    assert [text.partition(";")[0] for text in caplog.messages] == [
        "broker-a is away",
        "broker-a is back after 40 s",
    ]
    for outage_s in (0.0, 30.0):
        with pytest.raises(BrokerUnreachable):
            patient(outage_s)


def test_a_busy_broker_is_not_an_outage(connect):
    attempts = []

    def attempt():
        attempts.append(1)
        raise NetworkError("busy")

    with pytest.raises(NetworkError):
        connect(retry_policy=RetryPolicy(2, 1.0, 100.0), monotonic=lambda: 0.0).retrying(attempt)
    assert len(attempts) == 3


def test_what_one_network_knows_another_can_learn(peer, connect):
    peer.store("T", 0, [])
    told, taught = connect(), connect()
    told.route("T")
    taught.learn(told.addresses_of({BROKER, "unknown"}))
    before = peer.count(105)
    assert taught.link(MessageQueue("T", BROKER, 0)).address == peer.address
    assert peer.count(105) == before


def test_a_broker_that_failed_is_looked_for_again_at_the_name_server(peer, connect):
    peer.store("T", 0, [])
    network = connect()
    network.learn({BROKER: {0: "127.0.0.1:1"}})
    queue = MessageQueue("T", BROKER, 0)
    asked = {"end": (queue, GetMaxOffset(topic="T", queue_id=0))}
    assert isinstance(network.ask_reachable(asked, 1.0)["end"], BrokerUnreachable)
    assert network.ask_reachable(asked, 1.0)["end"].offset == 0
