"""sparrowmq.spark.pipelines.message_copies: copies are in order, have ids and born times, and come once."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConnectionClosed, RemoteError, RemoteProtocolError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import PullMessageReply
from sparrowmq.protocol.wire.command import Command
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.pipelines.message_copies import (
    ORIGIN,
    Copier,
    Copying,
    Original,
    ends_of,
    pair_queues,
    pull_messages,
)
from sparrowmq.spark.source.partition_ranges import Range
from sparrowmq.spark.source.pulls import Pulls
from sparrowmq.spark.worker import connect
from tests.records import encoded

DEADLINE_S = 20
SOURCE = MessageQueue("far", "broker-a", 3)
OTHER = MessageQueue("far", "broker-b", 3)
_names = count()


@pytest.fixture
def target(namesrv):
    """A queue of a topic of its own."""
    name = f"copies-{next(_names)}"
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic(name, queues=1)
    return MessageQueue(name, "broker-0", 0)


@pytest.fixture
def as_apache(monkeypatch):
    """Copy as to a broker of Apache's, which does not know where copies end."""
    look = Copier._find_end
    monkeypatch.setattr(Copier, "_find_end", lambda *given: look(*given)._replace(takes_copies=False))


@pytest.fixture(params=["ours", "as_apache"])
def copier(request, namesrv, target):
    """Makes copiers to the target, with a network each."""
    if request.param == "as_apache":
        request.getfixturevalue("as_apache")
    options = parse(SinkOptions, {"nameServer": namesrv, "fetchOffset.retryIntervalMs": "1"})

    @contextmanager
    def copier(label="m", **given):
        with connect(options) as network:
            yield Copier(network, Copying(options, label, {SOURCE: target, OTHER: target}, **given))

    return copier


@pytest.fixture
def stored(namesrv, target):
    """Reads the target, as soon as it has so many messages."""

    def stored(number):
        options = parse(SourceOptions, {"nameServer": namesrv, "topic": target.topic})
        with connect(options) as network:
            pulls = Pulls(network, [Range(target, 0, number)], options)
            return [record.decode(each) for answer in pulls.answers() for each in record.walk(answer.body)]

    return stored


def original(offset, queue=SOURCE, born_ms=1_700_000_000_000, **given):
    kept = {"UNIQ_KEY": f"id-{offset}", "TAGS": "paid"} | given.pop("properties", {})
    return Original(queue, offset, born_ms, 7, given.pop("sys_flag", 0), kept, b"%d" % offset)


def test_copies_have_their_ids_properties_and_born_times_and_are_in_order(copier, stored):
    rows = [original(offset, born_ms=1_700_000_000_000 + offset // 3) for offset in range(10)]
    with copier() as made:
        made.copy(rows)
        assert (made.copied.sent, made.copied.already_there) == (10, 0)
    found = stored(10)
    assert [each.body for each in found] == [b"%d" % offset for offset in range(10)]
    assert [each.unique_key for each in found] == [f"id-{offset}" for offset in range(10)]
    assert [each.born_timestamp_ms for each in found] == [row.born_ms for row in rows]
    assert {(each.flag, each.tags) for each in found} == {(7, "paid")}
    assert found[4].properties[ORIGIN] == "m/far@broker-a:3:4"


def test_what_is_there_is_not_sent_again_by_whoever_comes_next(copier, stored):
    with copier() as first:
        first.copy([original(offset) for offset in range(5)])
    with copier() as second:
        second.copy([original(offset) for offset in range(8)])
        assert (second.copied.sent, second.copied.already_there) == (3, 5)
    assert [each.body for each in stored(8)] == [b"%d" % offset for offset in range(8)]


def test_two_sources_of_one_queue_and_two_pipelines_are_told_apart(copier, stored):
    with copier() as made:
        made.copy([original(offset) for offset in range(50)])
        made.copy([original(offset, OTHER) for offset in range(2)])
        assert made.copied.sent == 52
    with copier("another") as made:
        made.copy([original(0)])
        assert made.copied.sent == 1
    with copier() as made:
        made.copy([original(49), original(50)])
        assert (made.copied.sent, made.copied.already_there) == (1, 1)
    assert len(stored(54)) == 54


def test_a_copy_is_found_behind_however_much_others_wrote_since_the_batch_began(copier, target):
    with copier() as made:
        made.copy([original(offset) for offset in range(5)])
        made.copy([original(offset, OTHER) for offset in range(9000)])
    with copier(floors={target: 0}) as again:
        again.copy([original(offset) for offset in range(6)])
        assert (again.copied.sent, again.copied.already_there) == (1, 5)


def test_what_others_wrote_into_the_property_of_copies_is_passed_over(namesrv, copier, target):
    with copier() as made:
        made.copy([original(offset) for offset in range(3)])
    with sync.connect(namesrv) as mq:
        for odd in ("x", "²", "9" * 5000):
            mq.send(target.topic, b"-", properties={ORIGIN: f"m/far@broker-a:3:{odd}"})
    with copier() as again:
        again.copy([original(offset) for offset in range(4)])
        assert (again.copied.sent, again.copied.already_there) == (1, 3)


def test_ends_are_those_of_brokers_that_are_there(namesrv, copier, target):
    options = parse(SinkOptions, {"nameServer": namesrv, "fetchOffset.numRetries": "0"})
    away = MessageQueue(target.topic, "broker-1", 0)
    with copier() as made:
        made.copy([original(offset) for offset in range(3)])
    assert ends_of(options, [target, away]) == {target: 3}


@pytest.mark.parametrize("copier", ["as_apache"], indirect=True)
def test_an_answer_that_is_lost_makes_no_double(copier, stored, monkeypatch):
    """The broker stores a parcel, and the connection ends before it says so."""
    with copier() as made:
        made.copy([original(0)])
        send = made._send_once
        lost: list[object] = []

        def lose_one(parcel, target):
            send(parcel, target)
            if not lost:
                lost.append(parcel)
                raise ConnectionClosed("the test", None)

        monkeypatch.setattr(made, "_send_once", lose_one)
        made.copy([original(offset, born_ms=offset) for offset in range(1, 4)])
        assert lost and made.copied.sent == 4
    assert [each.body for each in stored(4)] == [b"0", b"1", b"2", b"3"]


def test_copies_of_mirrors_are_copied_only_if_told_to(copier, stored):
    rows = [original(0), original(1, properties={ORIGIN: "x/t@b:0:9"})]
    with copier() as made:
        made.copy(rows)
        assert (made.copied.sent, made.copied.skipped) == (1, 1)
    with copier("chained", chained=True) as made:
        made.copy(rows)
        assert made.copied.sent == 2
    assert stored(3)[2].properties[ORIGIN] == "chained/far@broker-a:3:1"


def test_what_a_broker_wrote_into_the_properties_is_not_copied(copier, stored):
    with copier() as made:
        made.copy([original(0, properties={"TRAN_MSG": "true", "DELAY": "3", "region": "eu"})])
    (found,) = stored(1)
    assert found.properties["region"] == "eu"
    assert not {"TRAN_MSG", "DELAY"} & found.properties.keys()


def test_a_refused_message_is_told_with_its_place(copier):
    with copier() as made, pytest.raises(SendFailed, match=r"far@broker-a\[3\] 5"):
        made.copy([original(5)._replace(body=b"x" * (5 << 20))])


def test_queues_are_paired_by_name_then_number_and_stay_so():
    def queues(topic, *places):
        return [MessageQueue(topic, *place) for place in places]

    sources = queues("t", ("a", 0), ("a", 1), ("b", 0), ("b", 1))
    same = pair_queues(sources, queues("u", ("a", 0), ("a", 1), ("b", 0), ("b", 1)), {})
    assert [(each.broker_name, each.queue_id) for each in same.values()] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    other = pair_queues(sources, queues("u", ("x", 0), ("x", 1), ("x", 2), ("x", 3)), {})
    assert sorted(each.queue_id for each in other.values()) == [0, 1, 2, 3]
    assert pair_queues(sources, queues("u", ("x", 0)), other) == other
    assert set(pair_queues(sources, queues("u", ("x", 0)), {}).values()) == {MessageQueue("u", "x", 0)}


def test_messages_of_a_topic_that_was_made_again_are_others(copier, stored):
    part = (SOURCE.topic, SOURCE.broker_name)
    with copier() as made:
        made.copy([original(offset) for offset in range(5)])
    for incarnation in (9_000, -1):
        for there in (0, 3):
            with copier(incarnations={part: incarnation}) as made:
                made.copy([original(offset) for offset in range(3)])
                assert (made.copied.sent, made.copied.already_there) == (3 - there, there)
    with copier() as made:
        made.copy([original(5)])
    origins = [each.properties[ORIGIN] for each in stored(12)]
    named = [":4", *(f"+9000:{each}" for each in range(3)), "+-1:0"]
    assert origins[4:9] == [f"m/far@broker-a:3{which}" for which in named]


def pulled_from(*replies):
    """The messages from offset 3 on, up to 9, of a broker that gives these codes, next offsets and bodies in turn."""
    left = list(replies)

    class BlockingLink:
        def send(self, request):
            return 0

        def wait(self, opaque):
            code, following, body = left.pop(0)
            header: Any = PullMessageReply(0, following, 0, 9)
            return Command(code, ext=header, body=body)

    link: Any = BlockingLink()
    return list(pull_messages(link, MessageQueue("orders", "broker-0", 0), 3, 9))


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY])
def test_copies_that_a_broker_does_not_give_to_the_end_are_an_error(code):
    """Their end would pass for that of the copies, and the pipeline would copy the last messages again."""
    with pytest.raises(RemoteProtocolError, match="from offset 3 on, and names 3 as the next offset"):
        pulled_from((code, 3, b""))


def test_copies_behind_a_file_that_is_going_are_found():
    last = encoded("orders", body=b"last")
    found = pulled_from((ResponseCode.PULL_RETRY_IMMEDIATELY, 8, b"none"), (ResponseCode.SUCCESS, 9, last))
    assert [record.decode(each).body for each in found] == [b"last"]
    assert pulled_from((ResponseCode.PULL_NOT_FOUND, 3, b"")) == []
    with pytest.raises(RemoteError):
        pulled_from((ResponseCode.NO_PERMISSION, 3, b""))
