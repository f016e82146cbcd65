"""A blocking connection over real sockets."""

import socket
import threading

import pytest

from sparrowmq.client.cluster.blocking_network import BlockingLink
from sparrowmq.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
)
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import GetMaxOffset, PullMessage
from tests.peer import HangUp, Peer, Refuse, Silence


@pytest.fixture
def peer():
    with Peer() as peer:
        yield peer


def max_offset(queue_id=0):
    return GetMaxOffset(topic="T", queue_id=queue_id)


@pytest.fixture
def link(peer):
    peer.store("T", 0, [b"x"] * 5)
    peer.store("T", 1, [b"x"] * 7)
    link = BlockingLink(peer.address)
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


def test_large_answers_come_whole_whatever_comes_with_them(peer, link):
    bodies = [bytes([number]) * 400_000 for number in range(5)]
    peer.store("T", 2, bodies)
    queue = MessageQueue("T", "broker-a", 2)
    pulls = [link.send(PullMessage.now("g", queue, offset, 32, 4 << 20)) for offset in (0, 1, 4, 0)]
    small = link.send(max_offset(0))
    found = [link.wait(opaque).body for opaque in reversed(pulls)]
    assert [[record.decode(each).body for each in record.walk(body)] for body in found] == [
        bodies[first:] for first in (0, 4, 1, 0)
    ]
    assert link.wait(small).ext_fields()["offset"] == "5"
    assert link.is_idle


def test_an_answer_that_ends_in_the_middle_is_no_answer():
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = BlockingLink(f"127.0.0.1:{server.getsockname()[1]}")
        opaque = link.send(max_offset())
        connection = server.accept()[0]
        connection.sendall((200_000).to_bytes(4, "big") + bytes([0, 0, 0, 2]) + b"{}" + bytes(90_000))
        connection.close()
        with pytest.raises(ConnectionClosed):
            link.wait(opaque)


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


def test_what_was_answered_before_the_end_is_kept(peer, link):
    peer.later[30, 3] = HangUp()
    first, second, third = (link.send(max_offset(number)) for number in (0, 1, 0))
    with pytest.raises(ConnectionClosed):
        link.wait(third)
    assert link.wait(second).ext_fields()["offset"] == "7"
    link.close()
    with pytest.raises(ConnectionClosed):
        link.wait(first)


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
        BlockingLink(address)


def test_garbage_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk():
            accepted, _ = server.accept()
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            accepted.close()

        threading.Thread(target=talk, daemon=True).start()
        link = BlockingLink(f"127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(RemoteProtocolError):
            link.wait(link.send(max_offset()))
        link.close()


def test_what_is_no_address_cannot_be_connected():
    with pytest.raises(BrokerUnreachable, match="write host:port"):
        BlockingLink("nonsense")
