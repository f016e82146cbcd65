"""Orderly pops, and pops of large messages, asked of a whole broker."""

import asyncio
import threading
from pathlib import Path

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateSubscriptionGroup
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.pop_headers import Notification, PeekMessage, Polling
from sparrowmq.store.queues import cold_reads
from sparrowmq.store.vfs import Disk, File
from tests.broker.live import live_broker
from tests.broker.pop_live import ack, change, messages, pop, pop_all


async def send(broker, *bodies, group="", **fields):
    properties = {"__SHARDINGKEY": group} if group else {}
    for body in bodies:
        await broker.send(body, properties=properties, **fields)


async def order(broker, **fields):
    """The messages of one orderly pop of queue 0."""
    return await pop(broker, queue_id=0, order=True, **fields)


async def hold(broker, **fields):
    """An orderly pop that waits."""
    waiting = asyncio.ensure_future(order(broker, poll_time=20_000, **fields))
    while (await broker.session.call(Polling("poppers", "orders", 0))).header.polling_num < 1:
        await asyncio.sleep(0.01)
    return waiting


def bodies(found):
    return [each.body for each in found]


async def test_an_orderly_pop_blocks_its_queue_until_all_is_acknowledged(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"1", b"2", b"3")
        await send(broker, b"other", queue_id=1)
        first = await pop(broker, queue_id=0, max_msg_nums=2, order=True)
        assert bodies(first) == [b"1", b"2"]
        assert await pop(broker, queue_id=0, order=True) == []
        assert bodies(await pop(broker, queue_id=1, order=True)) == [b"other"]
        await broker.session.call(ack(first[0]))
        assert await pop(broker, queue_id=0, order=True) == []
        await broker.session.call(ack(first[1]))
        assert bodies(await pop(broker, queue_id=0, order=True)) == [b"3"]


async def test_an_orderly_pop_gives_messages_again_in_their_order(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"1", b"2", b"3")
        first = await pop(broker, queue_id=0, max_msg_nums=2, order=True)
        await clock.advance(31)
        again = await pop(broker, queue_id=0, order=True)
        assert [(each.body, each.reconsume_times) for each in again] == [(b"1", 1), (b"2", 1), (b"3", 0)]
        assert bodies(first) == [b"1", b"2"]


async def test_messages_of_a_group_wait_for_it_and_those_of_others_are_given(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", group="a")
        await send(broker, b"b1", group="b")
        await send(broker, b"a2", b"a3", group="a")
        await send(broker, b"x1", b"x2")
        (first,) = await order(broker, max_msg_nums=1)
        others = await order(broker)
        assert (first.body, bodies(others)) == (b"a1", [b"b1", b"x1", b"x2"])
        await send(broker, b"b2", group="b")
        assert await order(broker) == []
        await broker.session.call(ack(others[0]))
        assert bodies(await order(broker)) == [b"b2"]
        await broker.session.call(ack(first))
        assert bodies(await order(broker)) == [b"a2", b"a3"]


async def test_a_group_comes_again_in_its_order_and_before_its_new_messages(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", b"a2", b"a3", group="a")
        first = await order(broker, max_msg_nums=2)
        await broker.session.call(change(first[0], 1000))
        await clock.advance(2)
        assert await order(broker) == []  # a2 is still with its consumer
        await clock.advance(29)
        again = await order(broker)
        assert [(each.body, each.reconsume_times) for each in again] == [(b"a1", 1), (b"a2", 1), (b"a3", 0)]


async def test_with_no_reading_ahead_all_messages_of_a_queue_have_one_order(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock, message_group_read_ahead=0) as broker:
        await send(broker, b"a1", group="a")
        await send(broker, b"b1", group="b")
        (first,) = await order(broker, max_msg_nums=1)
        assert await order(broker) == []
        await broker.session.call(ack(first))
        assert bodies(await order(broker)) == [b"b1"]


async def test_no_more_messages_wait_than_are_read_ahead(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock, message_group_read_ahead=3) as broker:
        await send(broker, b"a1", b"a2", b"a3", b"a4", group="a")
        await send(broker, b"b1", group="b")
        (first,) = await order(broker, max_msg_nums=1)
        assert await order(broker) == []
        waiting = await hold(broker)
        await broker.session.call(ack(first))
        assert bodies(await asyncio.wait_for(waiting, 10)) == [b"a2", b"a3", b"a4"]
        assert await order(broker) == []


async def test_a_pop_that_waits_reads_on_when_a_message_is_done(tmp_path):
    async with live_broker(tmp_path, message_group_read_ahead=3) as broker:
        await send(broker, b"a1", b"a2", b"a3", group="a")
        await send(broker, b"b1", group="b")
        first = await order(broker, max_msg_nums=2)
        waiting = await hold(broker)
        await broker.session.call(ack(first[0]))  # a2 is still with its consumer
        assert bodies(await asyncio.wait_for(waiting, 10)) == [b"b1"]


async def test_a_message_that_got_more_time_too_late_blocks_its_group_again(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", b"a2", group="a")
        (first,) = await order(broker, max_msg_nums=1)
        assert await order(broker) == []
        await clock.advance(31)
        await broker.session.call(change(first, 60_000))
        assert await order(broker) == []
        await clock.advance(61)
        assert bodies(await order(broker)) == [b"a1", b"a2"]


async def test_a_plain_pop_gives_what_waits_and_an_orderly_one_goes_on_behind_it(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", b"a2", group="a")
        await send(broker, b"b1", group="b")
        (first,) = await order(broker, max_msg_nums=1)
        assert bodies(await order(broker)) == [b"b1"]
        (second,) = await pop_all(broker, queue_id=0)
        assert (second.body, second.reconsume_times) == (b"a2", 0)
        await send(broker, b"a3", group="a")
        await send(broker, b"c1", group="c")
        assert bodies(await order(broker)) == [b"c1"]
        for message in (first, second):
            await broker.session.call(ack(message))
        assert bodies(await order(broker)) == [b"a3"]


async def test_a_peek_shows_what_waits(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", b"a2", group="a")
        await send(broker, b"b1", group="b")
        assert bodies(await order(broker, max_msg_nums=1)) == [b"a1"]
        assert bodies(await order(broker)) == [b"b1"]
        peeked = await broker.session.call(PeekMessage("orders", 0, 32, "poppers"))
        assert bodies(messages(peeked)) == [b"a2"]


async def test_a_forged_handle_does_not_acknowledge_what_waits(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", b"a2", group="a")
        await send(broker, b"b1", group="b")
        (first,) = await order(broker, max_msg_nums=1)
        (other,) = await order(broker)
        for known in (first, other):
            handle = ReceiptHandle.parse(known.properties["POP_CK"])._replace(queue_offset=1)
            for token in (handle.revive_queue, 0, 999):
                forged = ack(first, str(handle._replace(revive_queue=token)), offset=1)
                with pytest.raises(RemoteError, match="not valid"):
                    await broker.session.call(forged)


async def test_the_same_attempt_gets_only_messages_that_no_other_pop_got(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", b"a2", group="a")
        await send(broker, b"b1", group="b")
        assert bodies(await order(broker, attempt_id="A")) == [b"a1", b"a2", b"b1"]
        await clock.advance(31)
        assert bodies(await order(broker, attempt_id="B", max_msg_nums=1)) == [b"a1"]
        # a2 is of attempt A, but a1 is with another consumer.
        assert bodies(await order(broker, attempt_id="A")) == [b"b1"]


async def test_the_same_attempt_of_all_queues_gets_the_same_messages(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for queue_id in range(4):
            await send(broker, b"%d" % queue_id, queue_id=queue_id, group="a")
        lost = [bodies(await pop(broker, order=True, max_msg_nums=1, attempt_id=name)) for name in "ABC"]
        again = [bodies(await pop(broker, order=True, max_msg_nums=1, attempt_id=name)) for name in "BCA"]
        assert again == [lost[1], lost[2], lost[0]]


async def test_a_notification_knows_the_messages_of_an_attempt(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", group="a")
        await order(broker, attempt_id="A")
        notices = [Notification("poppers", "orders", 0, 0, 0, True, name) for name in ("A", "B")]
        answers = [(await broker.session.call(each)).header.has_msg for each in notices]
        assert answers == [True, False]


async def test_the_same_attempt_gets_the_same_messages_with_new_handles(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"1", b"2", b"3")
        lost = await pop(broker, queue_id=0, max_msg_nums=2, order=True, attempt_id="A")
        again = await pop(broker, queue_id=0, max_msg_nums=2, order=True, attempt_id="A")
        assert [(each.body, each.reconsume_times) for each in again] == [(b"1", 0), (b"2", 0)]
        assert again[0].properties["POP_CK"] != lost[0].properties["POP_CK"]
        assert await pop(broker, queue_id=0, order=True, attempt_id="B") == []
        for message in again:
            await broker.session.call(ack(message))
        assert bodies(await pop(broker, queue_id=0, order=True, attempt_id="A")) == [b"3"]


async def test_an_acknowledgement_wakes_a_pop_that_waits_for_its_message_group(tmp_path):
    async with live_broker(tmp_path) as broker:
        await send(broker, b"a1", b"a2", group="a")
        await send(broker, b"b1", group="b")
        (first,) = await order(broker, max_msg_nums=1)
        assert bodies(await order(broker)) == [b"b1"]
        waiting = await hold(broker)
        await broker.session.call(ack(first))
        assert bodies(await asyncio.wait_for(waiting, 10)) == [b"a2"]


@pytest.mark.parametrize("read_ahead", [0, 4096])
async def test_a_dead_letter_wakes_an_orderly_pop_that_waits(tmp_path, clock, read_ahead):
    async with live_broker(tmp_path, clock=clock, message_group_read_ahead=read_ahead) as broker:
        config = GroupConfig("poppers", retry_max_times=0)
        await broker.session.call(UpdateAndCreateSubscriptionGroup(), config.encode())
        await send(broker, b"a1", b"a2", group="a")
        assert bodies(await order(broker, max_msg_nums=1, invisible_time=5000)) == [b"a1"]
        waiting = await hold(broker)
        await clock.advance(5.2)
        assert bodies(await asyncio.wait_for(waiting, 10)) == [b"a2"]


async def test_a_restart_keeps_what_waits_and_the_attempts(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a1", b"a2", group="a")
        await send(broker, b"b1", b"b2", group="b")
        assert bodies(await order(broker, max_msg_nums=1, attempt_id="A")) == [b"a1"]
        assert bodies(await order(broker, attempt_id="B")) == [b"b1", b"b2"]
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"c1", b"c2", group="c")
        await send(broker, b"a3", group="a")
        assert bodies(await order(broker, max_msg_nums=1)) == [b"c1"]
        (first,) = await order(broker, attempt_id="A")
        others = await order(broker, attempt_id="B")
        assert [(each.body, each.reconsume_times) for each in (first, *others)] == [
            (b"a1", 0),
            (b"b1", 0),
            (b"b2", 0),
        ]
        assert await order(broker, attempt_id="C") == []
        waiting = await hold(broker)
        await broker.session.call(ack(first))
        assert bodies(await asyncio.wait_for(waiting, 10)) == [b"a2", b"a3"]


async def test_an_acknowledgement_wakes_an_orderly_pop_that_waits(tmp_path):
    async with live_broker(tmp_path) as broker:
        await send(broker, b"1", b"2")
        (first,) = await pop(broker, queue_id=0, max_msg_nums=1, order=True)
        waiting = asyncio.ensure_future(pop(broker, queue_id=0, order=True, poll_time=20_000))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await broker.session.call(ack(first))
        assert bodies(await asyncio.wait_for(waiting, 10)) == [b"2"]


async def test_a_pop_ends_at_256_kib_and_gives_a_larger_message_alone(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await send(broker, b"a" * 200_000, b"b" * 100_000, b"c" * 300_000)
        assert [len(each.body) for each in await pop(broker, queue_id=0)] == [200_000]
        assert [len(each.body) for each in await pop(broker, queue_id=0)] == [100_000]
        assert [len(each.body) for each in await pop(broker, queue_id=0)] == [300_000]
        await clock.advance(31)
        again = [len(each.body) for each in await pop_all(broker, queue_id=0)]
        assert sorted(again) == [100_000, 200_000, 300_000]


async def test_all_queues_get_their_turn(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for queue_id in range(4):
            await send(broker, *[b"x"] * 3, queue_id=queue_id)
        first = [(await pop(broker, max_msg_nums=1))[0].queue_id for _ in range(4)]
        assert sorted(first) == [0, 1, 2, 3]


async def test_a_pop_far_behind_has_a_thread_read_what_has_left_the_cache(tmp_path, clock, monkeypatch):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(cold_reads.NEAR + 40):
            await broker.send(str(number).encode())
        assert bodies(await pop(broker, queue_id=0, max_msg_nums=2)) == [b"0", b"1"]
        readers: list[threading.Thread] = []
        real_read = Disk.read

        def read(disk: Disk, file: File, offset: int, size: int) -> bytes:
            if Path(file.path).parent.name == "commitlog":
                readers.append(threading.current_thread())
            return real_read(disk, file, offset, size)

        def is_cached(disk: Disk, file: File, offset: int) -> bool:
            return bool(readers)

        monkeypatch.setattr(Disk, "read", read)
        monkeypatch.setattr(Disk, "is_cached", is_cached)
        assert bodies(await pop(broker, queue_id=0, max_msg_nums=2)) == [b"2", b"3"]
        assert readers[0] is not threading.main_thread()
