"""The pop state of a broker: restarts, resets, and messages that come back."""

import asyncio

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.requests.admin_headers import DeleteTopic
from sparrowmq.protocol.requests.headers import QueryConsumerOffset, UpdateConsumerOffset
from tests.broker.live import live_broker
from tests.broker.pop_live import ack, pop, pop_all


async def committed(live):
    return (await live.session.call(QueryConsumerOffset("poppers", "orders", 0))).header.offset


async def commit(live, offset):
    await live.session.call(UpdateConsumerOffset("poppers", "orders", 0, offset))


@pytest.mark.parametrize("ends_in_order", [True, False])
async def test_a_restart_keeps_what_is_hidden_and_what_is_done(tmp_path, clock, ends_in_order):
    async with live_broker(tmp_path / "a", clock=clock) as broker:
        for number in range(4):
            await broker.send(str(number).encode())
        popped = await pop(broker, queue_id=0)
        await broker.session.call(ack(popped[0]))
        await broker.session.call(ack(popped[2]))
        store = broker.broker.settings.store_path
        if not ends_in_order:
            # As after a kill: the files of this moment, without what the end of a broker saves.
            copied = tmp_path / "b" / store.relative_to(tmp_path / "a")
            await asyncio.to_thread(_copy, store, copied)
    folder = tmp_path / ("a" if ends_in_order else "b")
    async with live_broker(folder, clock=clock) as broker:
        assert await committed(broker) == 1
        assert await pop(broker) == []
        await broker.session.call(ack(popped[1]))  # the handle is still valid
        assert await committed(broker) == 3
        await clock.advance(31)
        assert [(each.body, each.reconsume_times) for each in await pop(broker)] == [(b"3", 1)]


def _copy(source, target):
    import shutil

    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "spare"))


async def test_a_reset_begins_the_queue_again_and_old_handles_do_nothing(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(3):
            await broker.send(str(number).encode())
        popped = await pop(broker, queue_id=0)
        await broker.session.call(ack(popped[0]))
        await commit(broker, 0)
        with pytest.raises(RemoteError, match="not valid"):
            await broker.session.call(ack(popped[1]))
        assert await committed(broker) == 0
        assert [each.body for each in await pop(broker, queue_id=0)] == [b"0", b"1", b"2"]
        await commit(broker, 2)
        assert [each.body for each in await pop(broker, queue_id=0)] == [b"2"]


async def test_a_reset_survives_a_restart(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(3):
            await broker.send(str(number).encode())
        for message in await pop(broker, queue_id=0):
            await broker.session.call(ack(message))
        await commit(broker, 1)
    async with live_broker(tmp_path, clock=clock) as broker:
        assert [each.body for each in await pop_all(broker)] == [b"1", b"2"]


async def test_a_deleted_topic_begins_again(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"old")
        (old,) = await pop(broker)
        await broker.session.call(DeleteTopic("orders"))
        await broker.send(b"new")
        with pytest.raises(RemoteError, match="not valid"):
            await broker.session.call(ack(old))
        assert [each.body for each in await pop_all(broker)] == [b"new"]


async def test_a_message_is_given_again_in_its_place_before_new_ones(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"old")
        await pop(broker)
        await broker.send(b"new")
        await clock.advance(31)
        found = await pop_all(broker, queue_id=0)
        assert [(each.body, each.queue_offset, each.reconsume_times) for each in found] == [
            (b"old", 0, 1),
            (b"new", 1, 0),
        ]
