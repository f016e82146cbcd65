"""sparrowmq.spark.pipelines.message_copies: many requests under way, in order, and none twice."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager
from itertools import count

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.client.cluster.blocking_network import reply_header
from sparrowmq.errors import RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import CopyBatch, CopyBatchReply, GetMaxOffset
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.pipelines import message_copies
from sparrowmq.spark.pipelines.message_copies import Copier, Copying, Original
from sparrowmq.spark.source.partition_ranges import Range
from sparrowmq.spark.source.pulls import Pulls
from sparrowmq.spark.worker import connect
from tests.spark.pipelines.copying.delayed import wire_to

SOURCE = MessageQueue("far", "broker-a", 3)
BORN_MS = 1_700_000_000_000
_names = count()


@pytest.fixture
def target(namesrv):
    name = f"piped-{next(_names)}"
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic(name, queues=1)
    return MessageQueue(name, "broker-0", 0)


@pytest.fixture
def wired(namesrv, target, monkeypatch):
    """Makes copiers whose requests take some time to the broker and back."""

    @contextmanager
    def wired(delay_s=0.0, **given):
        usual = {
            "nameServer": namesrv,
            "fetchOffset.retryIntervalMs": "10",
            "outageTimeout": "60s",
            "sendBatchRows": "10",
        }
        options = parse(SinkOptions, usual | given)
        with connect(options) as network:
            (address,) = network.route(target.topic).brokers["broker-0"].values()
            with wire_to(address, delay_s) as wire:
                network.learn({"broker-0": {0: wire.address}})
                # The name server would give the address without the wire.
                monkeypatch.setattr(network, "route", lambda topic: None)
                yield Copier(network, Copying(options, "m", {SOURCE: target})), wire

    return wired


@pytest.fixture
def bodies(namesrv, target):
    def bodies():
        options = parse(SourceOptions, {"nameServer": namesrv, "topic": target.topic})
        with connect(options) as network:
            end = network.link(target).call(GetMaxOffset(target.topic, target.queue_id))[0].offset
            pulls = Pulls(network, [Range(target, 0, end)], options)
            found = [record.decode(each) for pulled in pulls.answers() for each in record.walk(pulled.body)]
        assert [each.born_timestamp_ms for each in found] == [BORN_MS + int(each.body) for each in found]
        assert [each.unique_key for each in found] == [f"id-{int(each.body)}" for each in found]
        return [int(each.body) for each in found]

    return bodies


def original(offset, **properties):
    kept = {"UNIQ_KEY": f"id-{offset}"} | properties
    return Original(SOURCE, offset, BORN_MS + offset, 0, 0, kept, b"%d" % offset)


def test_the_rate_does_not_depend_on_the_round_trip(wired, bodies):
    with wired(delay_s=0.05) as (copier, _):
        begin = time.monotonic()
        copier.copy(original(offset) for offset in range(3000))
        assert copier.copied.sent == 3000
        # The 300 requests take 30 s one after the other; with one for each born time, five minutes.
        assert time.monotonic() - begin < 15
    assert bodies() == list(range(3000))


@pytest.mark.parametrize("seed", range(3))
def test_cut_connections_lose_and_double_nothing(wired, bodies, seed):
    cuts = set(random.Random(seed).sample(range(6000), 20))
    with wired(delay_s=0.005) as (copier, wire):

        def rows(first):
            for offset in range(first, first + 2000):
                if offset in cuts:
                    wire.cut()
                yield original(offset)

        for first in range(0, 6000, 2000):
            copier.copy(rows(first))
        assert wire.cuts == len(cuts)
    assert bodies() == list(range(6000))


def test_copies_without_a_slave_in_time_are_asked_for_again_and_those_without_a_slave_are_not(
    wired, bodies, monkeypatch
):
    codes = {0: ResponseCode.FLUSH_SLAVE_TIMEOUT, 3: ResponseCode.SLAVE_NOT_AVAILABLE}
    seen, failures = [], []

    def less_safe(request, reply):
        if not isinstance(request, CopyBatch):
            return reply_header(request, reply)
        seen.append((request.follows, reply.header(CopyBatchReply).stored))
        code = codes.get(len(seen) - 1)
        if code is not None:
            raise RemoteError(code, "less safe")
        return reply_header(request, reply)

    monkeypatch.setattr(message_copies, "reply_header", less_safe)
    with wired(maxInFlight="1") as (copier, _):
        monkeypatch.setattr(copier._network, "recover", lambda error, count: failures.append(str(error)))
        copier.copy(original(offset) for offset in range(50))
        assert copier.copied.sent == 50
    assert len(failures) == 1 and "a slave is late" in failures[0]
    stored = [follows for follows, is_stored in seen if is_stored]
    assert stored == [0, 10, 20, 30, 40], "it asks after the first one, and the broker stores no batch again"
    assert bodies() == list(range(50))


def test_two_copiers_at_once_double_nothing(wired, bodies):
    with wired(delay_s=0.01) as (one, _), wired(delay_s=0.003) as (other, _):
        threads = [
            threading.Thread(target=each.copy, args=([original(offset) for offset in range(3000)],))
            for each in (one, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert bodies() == list(range(3000))


def test_a_refused_message_is_named_and_those_before_it_are_stored(wired, bodies):
    rows = [original(offset) for offset in range(120)]
    rows[70] = original(70, LONG="x" * 32_700)
    with (
        wired() as (copier, _),
        pytest.raises(SendFailed, match=r"the broker refuses .*far.* 70: .*properties"),
    ):
        copier.copy(rows)
    assert bodies() == list(range(70))
