"""The pop state of a broker: restarts, resets, and messages that come back."""

import asyncio
import shutil

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.pop import pop_steps
from sparrowmq.broker.pop.pop_queue import InFlight, PopTable
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    ResetOffset,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat
from sparrowmq.protocol.requests.headers import HeartBeat, QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.protocol.requests.pop_headers import FROM_OLDEST, Polling
from sparrowmq.testing import Cluster
from tests.broker.conftest import until
from tests.broker.live import Live, live_broker
from tests.broker.pop_live import ack, change, pop, pop_all, pop_request
from tests.broker.replication.pairs import pair
from tests.broker.replication.slaves import slave_at
from tests.store.conftest import stores
from tests.store.stores import put

__all__ = ["stores"]


async def committed(live):
    return (await live.session.call(QueryConsumerOffset("poppers", "orders", 0))).header.offset


async def commit(live, offset):
    await live.session.call(UpdateConsumerOffset("poppers", "orders", 0, offset))


@pytest.mark.parametrize("ends_in_order", [True, False])
async def test_a_restart_keeps_what_is_hidden_and_what_is_done(tmp_path, clock, ends_in_order):
    async with live_broker(tmp_path / "a", clock=clock) as broker:
        for number in range(4):
            await broker.send(str(number).encode())
        result = await pop(broker, queue_id=0)
        await broker.session.call(ack(result[0]))
        await broker.session.call(ack(result[2]))
        store = broker.broker.settings.store_path
        if not ends_in_order:
            # As after a kill: the files of this moment, without what the end of a broker saves.
            copied = tmp_path / "b" / store.relative_to(tmp_path / "a")
            await asyncio.to_thread(_copy, store, copied)
    folder = tmp_path / ("a" if ends_in_order else "b")
    async with live_broker(folder, clock=clock) as broker:
        assert await committed(broker) == 1
        assert await pop(broker) == []
        await broker.session.call(ack(result[1]))  # the handle is still valid
        assert await committed(broker) == 3
        await clock.advance(31)
        assert [(each.body, each.reconsume_times) for each in await pop(broker)] == [(b"3", 1)]


def _copy(source, target):
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "spare"))


async def test_a_reset_begins_the_queue_again_and_old_handles_do_nothing(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(3):
            await broker.send(str(number).encode())
        result = await pop(broker, queue_id=0)
        await broker.session.call(ack(result[0]))
        await commit(broker, 0)
        with pytest.raises(RemoteError, match="not valid"):
            await broker.session.call(ack(result[1]))
        assert await committed(broker) == 0
        assert [each.body for each in await pop(broker, queue_id=0)] == [b"0", b"1", b"2"]
        await commit(broker, 2)
        assert [each.body for each in await pop(broker, queue_id=0)] == [b"2"]


class Noted:
    """A journal that notes when its caller wants."""

    def note_pops(self):
        pass


async def test_a_snapshot_has_the_state_though_messages_are_popped_meanwhile(tmp_path, stores, monkeypatch):
    monkeypatch.setattr(pop_steps, "_LARGEST_PIECE", 2000)
    store = stores.open()
    for number in range(800):
        put(store, str(number).encode(), "orders", number % 4)
    store.publish()
    offsets = Offsets(tmp_path / "offsets.json")
    pops, copy = PopState(PopTable(), store, offsets, SystemClock(), Turn(), Noted(), 1 << 40), PopTable()
    until = InFlight(1, 1 << 50, 3, 0, 0)
    for queue_id in range(4):
        queue = pops.queue("orders", "poppers", queue_id, FROM_OLDEST)
        pops.take(queue, list(range(150)), 150, until)
    list(pops.take_steps())
    for piece in pops.snapshot():
        copy.apply_all(piece)
        for queue in pops.table:
            pops.settle(queue, list(queue.live_offsets())[:3])
            pops.take(queue, [queue.next_offset], queue.next_offset + 1, until)
        if next(iter(pops.table)).next_offset % 2:  # else the turn has not ended yet
            for logged in pops.take_steps():
                copy.apply_all(logged)
    for logged in pops.take_steps():
        copy.apply_all(logged)
    assert next(iter(pops.table)).next_offset > 155
    for queue in pops.table:
        same = copy.get(queue.topic, queue.group, queue.queue_id)
        assert same is not None
        assert list(same.live_offsets()) == list(queue.live_offsets())
        assert (same.next_offset, same.count, same.front) == (queue.next_offset, queue.count, queue.front)


async def test_new_messages_are_in_the_first_step_of_a_pop_that_gives_some_again(tmp_path, stores):
    store = stores.open()
    for number in range(4):
        put(store, str(number).encode(), "orders", 0)
    store.publish()
    offsets = Offsets(tmp_path / "offsets.json")
    pops = PopState(PopTable(), store, offsets, SystemClock(), Turn(), Noted(), 1 << 40)
    queue = pops.queue("orders", "poppers", 0, FROM_OLDEST)
    pops.take(queue, [0, 1], 2, InFlight(1, 2, 3, 0, 0))
    list(pops.take_steps())
    pops.take(queue, [0, 1, 2, 3], 4, InFlight(1, 2, 4, 0, 0))
    (piece,) = pops.take_steps()
    copy = PopTable()
    copy.apply_all(piece[:1])  # as after a power cut between two records
    same = copy.get("orders", "poppers", 0)
    assert same is not None
    assert (same.next_offset, list(same.live_offsets())) == (4, [2, 3])


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


async def test_a_deleted_topic_begins_again_after_a_restart(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"old")
        await pop(broker)
        await broker.session.call(DeleteTopic("orders"))
        await broker.send(b"new")
    async with live_broker(tmp_path, clock=clock) as broker:
        assert [each.body for each in await pop_all(broker)] == [b"new"]


async def test_a_stopped_broker_looks_at_no_times(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        config = GroupConfig("poppers", retry_max_times=0)
        await broker.session.call(UpdateAndCreateSubscriptionGroup(), config.encode())
        await broker.send(b"dead")
        await pop(broker)
    await clock.advance(31)  # the store is closed, so nothing can be read


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


async def test_a_message_that_was_changed_too_late_comes_once_and_leaves_the_others_alone(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(4):
            await broker.send(str(number).encode())
        result = await pop(broker, queue_id=0)
        await broker.session.call(ack(result[1]))
        await broker.session.call(change(result[2], 3_600_000))
        await clock.advance(31)
        await broker.session.call(change(result[0], 1000))  # too late, but no other consumer has it
        await clock.advance(2)
        assert [each.body for each in await pop_all(broker, queue_id=0)] == [b"0", b"3"]
        assert await committed(broker) == 0
        await clock.advance(31)
        assert [each.body for each in await pop_all(broker, queue_id=0)] == [b"0", b"3"]


async def test_a_message_that_the_same_attempt_got_again_comes_once(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(3):
            await broker.send(str(number).encode())
        first = await pop(broker, queue_id=0, order=True, attempt_id="A")
        await broker.session.call(ack(first[1]))
        await clock.advance(31)
        again = await pop(broker, queue_id=0, order=True, attempt_id="A")
        assert [each.body for each in again] == [b"0", b"2"]
        await clock.advance(31)
        last = await pop(broker, queue_id=0, order=True, attempt_id="B")
        assert [each.body for each in last] == [b"0", b"2"]
        for message in last:
            await broker.session.call(ack(message))
        assert await committed(broker) == 3


async def test_a_slave_that_becomes_the_master_knows_what_is_hidden_and_done(tmp_path):
    async with pair(tmp_path) as both:
        master = await both.start("master", role=BrokerRole.SYNC_MASTER)
        await both.start("slave")
        for number in range(4):
            await both.send(str(number).encode())
        asked = await both.session("master")
        await until(lambda: both.log("slave") != b"", limit_s=30)
        live = Live(master, asked, Cluster(tmp_path / "none", 0))
        result = await pop(live, queue_id=0)
        for message in result[:3:2]:
            await asked.call(ack(message, str(handle_of(message, "broker-a"))))
        with pytest.raises(RemoteError) as refused:
            await (await both.session("slave")).call(pop_request())
        assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE
        await both.same()
        await both.stop("master")
        await both.stop("slave")
        successor = await both.start("slave", role=BrokerRole.ASYNC_MASTER, broker_id=0)
        asked = await both.session("slave")
        live = Live(successor, asked, Cluster(tmp_path / "none", 0))
        assert await committed(live) == 1
        assert await pop(live) == []
        await asked.call(ack(result[1], str(handle_of(result[1], "broker-a"))))
        assert await committed(live) == 3


async def test_a_slave_that_becomes_the_master_keeps_message_groups_and_attempts(tmp_path):
    async with pair(tmp_path) as both:
        master = await both.start("master", role=BrokerRole.SYNC_MASTER)
        await both.start("slave")
        for number, group in enumerate("aabab"):
            await both.send(str(number).encode(), properties={"__SHARDINGKEY": group})
        asked = await both.session("master")
        await until(lambda: both.log("slave") != b"", limit_s=30)
        live = Live(master, asked, Cluster(tmp_path / "none", 0))
        order = {"queue_id": 0, "order": True}
        first = await pop(live, **order, max_msg_nums=1, attempt_id="A")
        assert [each.body for each in await pop(live, **order, attempt_id="B")] == [b"2", b"4"]
        assert [each.body for each in first] == [b"0"]
        await both.same()
        await both.stop("master")
        await both.stop("slave")
        successor = await both.start("slave", role=BrokerRole.ASYNC_MASTER, broker_id=0)
        asked = await both.session("slave")
        live = Live(successor, asked, Cluster(tmp_path / "none", 0))
        assert await pop(live, **order, attempt_id="C") == []
        (again,) = await pop(live, **order, attempt_id="A")
        assert (again.body, again.reconsume_times) == (b"0", 0)
        await asked.call(ack(again, str(handle_of(again, "broker-a"))))
        assert [each.body for each in await pop(live, **order, attempt_id="C")] == [b"1", b"3"]


def handle_of(message, broker_name):
    return ReceiptHandle.parse(message.properties["POP_CK"])._replace(broker_name=broker_name)


async def test_a_reset_moves_members_that_pop_and_wakes_them(tmp_path, clock):
    """Such members have no offsets. A reset by an operator was told to them only, so it changed nothing."""
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(3):
            await broker.send(str(number).encode())
        beat = Heartbeat("a member", [], [ConsumerBeat("poppers", "CONSUME_ACTIVELY")])
        await broker.session.call(HeartBeat(), beat.encode())
        for each in await pop_all(broker):
            await broker.session.call(ack(each))
        waiting = asyncio.create_task(pop(broker, poll_time=20_000, born_time=clock.now_ms()))
        while (await broker.session.call(Polling("poppers", "orders", 0))).header.polling_num < 1:
            await asyncio.sleep(0.01)
        await broker.session.call(ResetOffset("orders", "poppers", 0, is_force=True))
        found = await waiting
        found += await pop_all(broker)
        assert sorted(each.body for each in found) == [b"0", b"1", b"2"]
        assert await committed(broker) == 0
        await broker.session.call(ResetOffset("orders", "poppers", -1, is_force=True))
        await clock.advance(31)
        assert await pop_all(broker) == []


async def test_a_reset_that_no_slave_has_is_not_answered_as_done(tmp_path):
    """The next master would go on where the group was."""
    async with live_broker(tmp_path, role=BrokerRole.SYNC_MASTER, slave_timeout_ms=100) as broker:
        await broker.session.call(UpdateAndCreateTopic("orders", 1, 1, 6))
        await broker.session.call(pop_request(), accept={209, 210})
        beat = Heartbeat("a member", [], [ConsumerBeat("poppers", "CONSUME_ACTIVELY")])
        await broker.session.call(HeartBeat(), beat.encode())
        async with slave_at(broker.broker.ha_address) as slave:
            slave.report(0)
            await slave.piece()
            with pytest.raises(RemoteError, match="group poppers is reset and in effect here, but not yet safe"):
                await broker.session.call(ResetOffset("orders", "poppers", 0, is_force=True))


async def test_a_reset_of_a_group_that_never_popped_leaves_its_offsets_to_its_members(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"0")
        beat = Heartbeat("a member", [], [ConsumerBeat("poppers", "CONSUME_PASSIVELY")])
        await broker.session.call(HeartBeat(), beat.encode())
        await commit(broker, 1)
        await broker.session.call(ResetOffset("orders", "poppers", 0, is_force=True))
        assert await committed(broker) == 1
