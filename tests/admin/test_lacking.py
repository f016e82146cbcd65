"""How many messages a slave lacks, counted at whole brokers and from what queues say."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq import Admin, MessageQueue
from sparrowmq.admin.brokers import _missing_count, _newest_message_lag_s
from sparrowmq.protocol.requests.offset_bodies import TopicOffset
from tests.broker.replication.pairs import pair


@pytest.mark.parametrize("has_some", [True, False])
async def test_the_messages_that_a_slave_lacks_are_counted_topic_by_topic(tmp_path: Path, has_some: bool) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        if has_some:
            await both.start("slave")
            for body in (b"1", b"2", b"3"):
                await both.send(body)
            await both.same()
            await both.stop("slave")
        await both.start("slave", ha_master="127.0.0.1:1")  # it serves, and follows nobody
        for topic in ("orders", "orders", "bills"):
            await both.send(b"later", topic)
        async with Admin(both.namesrv) as admin:
            master, slave = await admin.standings(count=True)
            (_, plain) = await admin.standings()
    assert slave.behind_messages == 3 and slave.behind_bytes
    assert plain.problem is not None and plain.problem.startswith("cannot connect to 127.0.0.1:1 ")
    assert (master.behind_messages, plain.behind_messages, plain.behind_bytes) == (
        None,
        None,
        slave.behind_bytes,
    )


async def test_a_slave_that_has_all_lacks_no_message(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        await both.send(b"1")
        await both.same()
        async with Admin(both.namesrv) as admin:
            assert [each.behind_messages for each in await admin.standings(count=True)] == [None, 0]


def end(newest: int, *, oldest: int = 0, ms: int = 0) -> TopicOffset:
    return TopicOffset(min_offset=oldest, max_offset=newest, last_update_timestamp=ms)


Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def test_of_a_queue_that_the_slave_does_not_know_it_lacks_what_is_still_there() -> None:
    assert _missing_count({Q0: end(10, oldest=4), Q1: end(7)}, {Q1: end(5)}) == 8


def test_a_slave_that_was_asked_a_moment_later_is_not_ahead_elsewhere() -> None:
    assert _missing_count({Q0: end(10), Q1: end(7)}, {Q0: end(12), Q1: end(5)}) == 2


def test_the_time_is_that_between_the_newest_messages_if_there_are_any() -> None:
    theirs, its = {Q0: end(1, ms=9_500), Q1: end(1, ms=4_000)}, {Q0: end(1, ms=2_000), Q1: end(1, ms=4_000)}
    assert _newest_message_lag_s([(theirs, its)]) == 5.5
    assert _newest_message_lag_s([(theirs, {Q0: end(0)})]) is None
