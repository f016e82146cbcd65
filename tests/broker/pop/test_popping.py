"""Orderly pops, and pops of large messages, asked of a whole broker."""

import asyncio
import threading
from pathlib import Path

from sparrowmq.store.queues import cold_reads
from sparrowmq.store.vfs import Disk, File
from tests.broker.live import live_broker
from tests.broker.pop_live import ack, pop, pop_all


async def send(broker, *bodies, **fields):
    for body in bodies:
        await broker.send(body, **fields)


def bodies(messages):
    return [each.body for each in messages]


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
