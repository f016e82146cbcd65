"""sparrowmq.spark.wire: links and clusters over real sockets."""

import socket
import threading

import pytest

from sparrowmq.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    NetworkError,
    NoRoute,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
)
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import GetMaxOffset, QueryConsumerOffset
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.ranges import Bounds
from sparrowmq.spark.wire import Cluster, Link, cluster, offset_of
from tests.spark.peer import BROKER, HangUp, Refuse, Silence


def max_offset(queue_id=0):
    return GetMaxOffset(topic="T", queue_id=queue_id)


@pytest.fixture
def link(peer):
    peer.store("T", 0, [b"x"] * 5)
    peer.store("T", 1, [b"x"] * 7)
    link = Link(peer.address)
    yield link
    link.close()


def test_many_requests_are_under_way_and_answers_are_kept_until_asked_for(link):
    first, second, third = (link.send(max_offset(number)) for number in (0, 1, 0))
    assert not link.is_idle
    assert link.wait(third).ext_fields()["offset"] == "5"
    assert link.wait(second).ext_fields()["offset"] == "7"
    assert not link.is_idle
    assert link.wait(first).ext_fields()["offset"] == "5"
    assert link.is_idle
    assert link.local_ip == bytes([127, 0, 0, 1])


def test_an_error_code_is_an_exception_with_the_peers_words(peer, link):
    peer.answers[30].append(Refuse(16, "no permission"))
    with pytest.raises(RemoteError, match="code 16: no permission"):
        link.call(max_offset())


def test_a_connection_that_ends_says_so(peer, link):
    peer.answers[30].append(HangUp())
    with pytest.raises(ConnectionClosed, match=peer.address):
        link.call(max_offset())
    with pytest.raises(ConnectionClosed):
        link.call(max_offset())


def test_silence_ends_the_link(peer, link):
    peer.answers[30].append(Silence())
    with pytest.raises(RequestTimeout, match=r"within 0\.05 s"):
        link.call(max_offset(), timeout_s=0.05)
    with pytest.raises(ConnectionClosed):
        link.call(max_offset())


def test_nobody_listening_is_told_with_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(BrokerUnreachable, match=address):
        Link(address)


def test_garbage_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk():
            accepted, _ = server.accept()
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            accepted.close()

        threading.Thread(target=talk, daemon=True).start()
        link = Link(f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(RemoteProtocolError):
            link.wait(link.send(max_offset()))
        link.close()


def test_routes_name_readable_and_writable_queues(peer, connect):
    peer.store("T", 1, [])
    route = connect().route("T")
    assert route.readable == route.writable == (MessageQueue("T", BROKER, 0), MessageQueue("T", BROKER, 1))
    assert route.addresses[BROKER][0] == peer.address


def test_an_unknown_topic_has_no_route(peer, connect):
    with pytest.raises(NoRoute, match=f"no route for topic 'U' at name server {peer.address}"):
        connect().route("U")


def test_a_name_server_that_is_down_is_passed_over(peer, connect):
    peer.store("T", 0, [])
    dead = f"127.0.0.1:1;{peer.address}"
    for _ in range(8):
        assert connect(nameServer=dead).topics() == ["T"]


def test_all_name_servers_down_is_an_error_after_the_retries():
    waits: list[float] = []
    options = parse(SourceOptions, {"nameServer": "127.0.0.1:1;127.0.0.1:2", "topic": "T", "retries": "3"})
    unreachable = Cluster(options, waits.append)
    with pytest.raises(BrokerUnreachable):
        unreachable.retrying(unreachable.topics)
    assert waits == [1.0, 1.0]  # the first attempt follows at once


def test_a_restarted_broker_is_found_again(peer, connect):
    peer.store("T", 0, [b"x"] * 5)
    alive = connect()
    queue = MessageQueue("T", BROKER, 0)
    assert alive.bounds([queue]) == {queue: Bounds(0, 5)}
    peer.answers[30].append(HangUp())
    with pytest.raises(NetworkError):
        alive.bounds([queue])
    peer.answers[30].append(HangUp())
    assert alive.retrying(lambda: alive.bounds([queue])) == {queue: Bounds(0, 5)}


def test_many_queues_are_asked_at_once_and_refusals_stand_beside_answers(peer, connect):
    peer.store("T", 1, [])
    peer.committed["G", 1] = 9
    queues = [MessageQueue("T", BROKER, number) for number in (0, 1)]
    asked = {queue: (queue, QueryConsumerOffset("G", "T", queue.queue_id)) for queue in queues}
    found = connect().ask(asked)
    assert offset_of(found[queues[1]]) == 9
    with pytest.raises(RemoteError, match="code 22"):
        offset_of(found[queues[0]])


def test_abandoned_answers_close_their_connection_and_no_other(peer, connect):
    peer.store("T", 0, [])
    alive = connect()
    link = alive.link(MessageQueue("T", BROKER, 0))
    alive.release()
    assert alive.link(MessageQueue("T", BROKER, 0)) is link
    link.send(max_offset())
    alive.release()
    assert alive.link(MessageQueue("T", BROKER, 0)) is not link
    alive.forget()


def test_a_process_has_one_cluster_for_the_same_brokers(peer):
    assert cluster(peer.source(topic="T")) is cluster(peer.sink(topic="U"))
    assert cluster(peer.source(topic="T")) is not cluster(
        peer.source(topic="T", accessKey="a", secretKey="b")
    )


def test_requests_are_signed_when_there_are_keys(peer, connect):
    peer.store("T", 0, [])
    connect(accessKey="me", secretKey="mine").route("T")
    _, fields = peer.asked[-1]
    assert fields["AccessKey"] == "me"
    assert len(fields["Signature"]) == 28


def test_a_route_that_makes_no_sense_is_refused(peer, connect):
    peer.store("T", 0, [])
    peer.answers[105].append(Refuse(0))
    with pytest.raises(RemoteProtocolError, match="the route of topic 'T' cannot be read"):
        connect().route("T")
