"""sparrowmq.spark.source.presence: what is away is held, and only what a broker says is lost."""

import pytest

from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets, RowsLost
from sparrowmq.spark.source.presence import Presence
from sparrowmq.spark.source.query_offsets import OffsetClient
from tests.spark.peer import BROKER, HangUp, Refuse

MAX_OFFSET = 30


def q(number, topic="T", broker=BROKER):
    return MessageQueue(topic, broker, number)


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def presence(clock):
    return Presence(clock)


@pytest.fixture
def look(peer, connect, presence):
    """Looks as each trigger does."""
    peer.store("T", 0, [b"x"] * 10)
    network = connect(retries="0")

    def look(begun, topic="T", **given):
        return presence.bounds(OffsetClient(network, peer.source(topic=topic, **given)), begun)

    return look


HERE = {q(0): Bounds(0, 10)}


def test_brokers_that_are_there_are_read_whatever_the_others_do(look):
    assert look({q(0): 3}) == HERE
    assert look({q(0): 3, q(0, broker="broker-b"): 9}) == HERE
    assert look({q(0): 3, q(0, topic="other"): 9}) == HERE


def test_an_absent_broker_is_tried_again_after_a_pause(look, presence, peer, clock):
    peer.answers[MAX_OFFSET].extend([HangUp()] * 2)
    assert look({q(0): 3}) == {}
    asked = peer.count(MAX_OFFSET)
    clock.now_s = 0.9
    assert look({q(0): 3}) == {}
    assert peer.count(MAX_OFFSET) == asked
    clock.now_s = 1.0
    assert look({q(0): 3}) == HERE
    peer.answers[MAX_OFFSET].extend([HangUp()] * 2)
    assert look({q(0): 3}) == {}
    presence.retry_now()
    assert look({q(0): 3}) == HERE


def test_the_longer_looking_takes_the_longer_is_the_pause(look, peer, clock, monkeypatch):
    asked = OffsetClient.reachable_bounds

    def slow(self, queues, begun):
        clock.now_s += 2.0
        return asked(self, queues, begun)

    peer.answers[MAX_OFFSET].extend([HangUp()] * 2)
    monkeypatch.setattr(OffsetClient, "reachable_bounds", slow)
    assert look({q(0): 3}) == {}
    monkeypatch.undo()
    clock.now_s = 2.0 + 19.9
    assert look({q(0): 3}) == {}
    clock.now_s = 2.0 + 20.0
    assert look({q(0): 3}) == HERE


def test_a_slave_that_is_behind_has_lost_nothing(look, peer, connect, caplog):
    assert look({q(0): 12}) == HERE  # a master that says so has: the caller finds out
    peer.masters = False
    peer.store("U", 0, [b"x"] * 5)
    assert look({q(0, topic="U"): 9}, topic="U") == {}
    assert look({q(0, topic="U"): 5}, topic="U") == {q(0, topic="U"): Bounds(0, 5)}
    begun, ended = caplog.messages
    assert begun.startswith("topic U on broker-a is away; its queues are held")
    assert "was read to 9, what answers ends at 5" in begun
    assert ended.startswith("topic U on broker-a is back")


@pytest.mark.parametrize("named", [False, True])
def test_a_deleted_topic_ends_a_strict_stream_and_others_wait_for_it(look, peer, caplog, named):
    if named:
        peer.incarnations.update(T=7_000, gone=8_000)
    peer.store("gone", 0, [b"x"] * 4)
    begun = Offsets({q(0): 3, q(0, topic="gone"): 4}, {("gone", BROKER): 8_000} if named else {})
    assert look(begun, topic="T,gone").keys() == begun.keys()
    del peer.queues["gone"]
    with pytest.raises(RowsLost, match=r"topic gone was deleted on broker-a.*set failOnDataLoss=false"):
        look(begun, topic="T,gone")
    for _ in range(2):
        assert look(begun, topic="T,gone", failOnDataLoss="false").keys() == {q(0)}
    (said,) = [each for each in caplog.messages if "gone on broker-a" in each]
    assert "the broker has no such topic: it was deleted" in said
    peer.answers[MAX_OFFSET].extend([Refuse(17)] * 2)
    with pytest.raises(RowsLost, match="was deleted"):
        look(begun, topic="T,gone")


def test_a_slave_that_lacks_a_topic_or_knows_another_one_is_behind(look, peer):
    peer.masters = False
    peer.incarnations.update(T=7_000)
    assert look(Offsets({q(0): 3}, {("T", BROKER): 8_000})) == {}
    assert look(Offsets({q(0): 3}, {("T", BROKER): 7_000})).keys() == {q(0)}
    begun = Offsets({q(0): 3, q(0, topic="gone"): 4}, {("gone", BROKER): 8_000})
    assert look(begun, topic="T,gone").keys() == {q(0)}


def test_a_busy_broker_is_held_and_a_refusal_for_good_is_told(look, peer, caplog):
    peer.answers[MAX_OFFSET].append(Refuse(2, "busy"))
    assert look({q(0): 3}) == {}
    assert look({q(0): 3}) == HERE
    assert [message.partition(";")[0] for message in caplog.messages] == [
        "topic T on broker-a is away",
        "topic T on broker-a is back after 0 s",
    ]
    peer.answers[MAX_OFFSET].append(Refuse(16, "no permission"))
    with pytest.raises(RemoteError, match="no permission"):
        look({q(0): 3})
    peer.answers[MAX_OFFSET].append(Refuse(1, "org.apache.rocketmq.acl.common.AclException: no"))
    with pytest.raises(AccessDenied):
        look({q(0): 3})
