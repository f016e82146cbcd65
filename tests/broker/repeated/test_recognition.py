"""A message that its producer sends again is stored once, and only that message."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.errors import BadStore, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from sparrowmq.protocol.requests.client_bodies import Heartbeat, ProducerBeat
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack, EndTransaction, HeartBeat
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush
from sparrowmq.testing.clock import ManualClock
from tests.broker.live import Live, live_broker, send_request
from tests.broker.members import Members
from tests.broker.staging.test_writers import ACCOUNTS
from tests.interop.etcd import needs_etcd

ID = {"UNIQ_KEY": "7F0000010001000000010000000A0000"}
HOUR_MS = 3_600_000


async def again(live: Live, body: bytes = b"body", **arguments: Any) -> Any:
    arguments.setdefault("properties", ID)
    return await live.send(body, may_be_stored=True, **arguments)


async def counts(live: Live) -> dict[str, int]:
    table = KVTable.decode((await live.session.call(GetBrokerRuntime())).body).table
    return {
        name: int(count) for name, _, count in (each.partition(":") for each in table.get("repeatedSends", "").split())
    }


async def test_a_message_that_is_sent_again_is_stored_once_and_answered_as_the_first_time(
    tmp_path: Path,
) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"before")
        first = await live.send(properties=ID)
        assert await again(live) == first
        assert await again(live, queue_id=3) == first  # the retry goes to another queue
        assert [each.body for each in await live.messages()] == [b"before", b"body"]
        assert await live.messages(queue_id=3) == []
        assert (await counts(live))["stored_before"] == 2


async def test_a_repeated_message_that_was_never_stored_is_stored(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        reply = await again(live)
        assert (reply.queue_id, reply.queue_offset) == (0, 0)
        assert await again(live) == reply
        assert len(await live.messages()) == 1
        assert await counts(live) == {"stored_before": 1, "stored_now": 1, "came_late": 0, "unknown": 0}


async def test_a_send_that_is_no_repeat_is_stored_as_before(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        for _ in range(2):
            await live.send(properties=ID)
        assert len(await live.messages()) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"body": b"forged"},
        {"flag": 1},
        {"reconsume_times": 1},
        {"properties": ID | {"TAGS": "other"}},
        {"topic": "elsewhere"},
        {"properties": {"KEYS": ID["UNIQ_KEY"]}},
        {"properties": {}},
    ],
)
async def test_another_message_with_the_same_id_makes_none_vanish(tmp_path: Path, other: dict[str, Any]) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"here", topic="elsewhere")
        await live.send(**{"properties": ID} | other)
        reply = await again(live)
        assert await again(live) == reply
        assert [each.body for each in await live.messages()][-1] == b"body"
        stored = len(await live.messages()) + len(await live.messages("elsewhere"))
        assert stored == 3


@pytest.mark.parametrize("flush", [Flush.SYNC, Flush.ASYNC])
async def test_a_restart_forgets_no_message(tmp_path: Path, flush: Flush) -> None:
    async with live_broker(tmp_path, flush=flush) as live:
        first = await live.send(properties=ID)
    async with live_broker(tmp_path, flush=flush) as live:
        reply = await again(live)
        assert (reply.queue_id, reply.queue_offset) == (first.queue_id, first.queue_offset)
        assert parse_offset_id(reply.msg_id).physical_offset == parse_offset_id(first.msg_id).physical_offset
        assert len(await live.messages()) == 1


async def test_only_messages_of_the_window_are_recognised(tmp_path: Path) -> None:
    clock = ManualClock()
    async with live_broker(tmp_path, clock=clock, repeat_window_ms=20_000) as live:
        await live.send(properties=ID)
        await clock.advance(18)
        await again(live)
        assert len(await live.messages()) == 1
        await clock.advance(4)
        await again(live)
        assert len(await live.messages()) == 2


@pytest.mark.parametrize("settings", [{"repeat_window_ms": 0}, {"index": False}])
async def test_a_broker_that_recognises_nothing_says_so_and_stores_each_send(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with live_broker(tmp_path, **settings) as live:
        beat = Heartbeat("me", [ProducerBeat("producers")])
        reply = await live.session.call(HeartBeat(), beat.encode())
        assert reply.header.repeat_window_ms is None
        for _ in range(2):
            await again(live)
        assert len(await live.messages()) == 2


async def test_a_heartbeat_says_that_repeats_are_recognised(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        beat = Heartbeat("me", [ProducerBeat("producers")])
        reply = await live.session.call(HeartBeat(), beat.encode())
        assert reply.header.repeat_window_ms == HOUR_MS


@pytest.mark.parametrize("delay", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "700"}])
async def test_a_delayed_message_is_recognised_while_it_waits_and_afterwards(
    tmp_path: Path, delay: dict[str, str]
) -> None:
    async with live_broker(tmp_path) as live:
        first = await live.send(queue_id=2, properties=ID | delay)
        assert await again(live, queue_id=1, properties=ID | delay) == first
        if "DELAY" not in delay:
            assert first.recall_handle is not None
        [message] = await delivered(live, queue_id=2)
        assert message.body == b"body"
        assert await again(live, properties=ID | delay) == first
        await live.send(b"last", queue_id=2)
        assert [each.body for each in await live.messages(queue_id=2)] == [b"body", b"last"]


async def delivered(live: Live, queue_id: int) -> Any:
    """The message of a queue, once it is there."""
    while not (found := await live.messages(queue_id=queue_id, sys_flag=6, suspend_timeout_millis=5000)):
        pass
    return found


async def test_a_half_message_is_recognised_before_and_after_its_end(tmp_path: Path) -> None:
    half = ID | {"TRAN_MSG": "true", "PGROUP": "producers"}
    async with live_broker(tmp_path) as live:
        first = await live.send(queue_id=1, properties=half, sys_flag=4)
        assert await again(live, properties=half, sys_flag=4) == first
        offset = parse_offset_id(first.msg_id).physical_offset
        end = EndTransaction("producers", first.queue_offset, offset, 8, msg_id=ID["UNIQ_KEY"])
        await live.session.call(end)
        assert await again(live, properties=half, sys_flag=4) == first
        assert [each.body for each in await live.messages(queue_id=1)] == [b"body"]


async def test_a_first_send_that_arrives_after_its_repeat_is_stored_once(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        reply = await again(live)
        assert await live.send(properties=ID) == reply
        await live.send(b"another", properties=ID)
        assert [each.body for each in await live.messages()] == [b"body", b"another"]
        assert (await counts(live))["came_late"] == 1


async def test_a_broker_that_cannot_find_out_stores_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object) -> list[memoryview]:
        raise BadStore("the index is damaged")

    async with live_broker(tmp_path) as live:
        await live.send(properties=ID)
        monkeypatch.setattr(MessageStore, "find_by_unique_id", damaged)
        with pytest.raises(RemoteError, match="it was not stored now: the index is damaged") as refused:
            await again(live)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY and refused.value.retriable
        assert len(await live.messages()) == 1
        assert (await counts(live))["unknown"] == 1


async def test_a_message_that_a_consumer_gave_back_is_not_taken_for_its_next_retry(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        sent = await live.send(properties=ID)
        offset = parse_offset_id(sent.msg_id).physical_offset
        await live.session.call(ConsumerSendMsgBack(offset, "group", 0, "id", "orders", False, 16))
        for times in (1, 2):
            for _ in range(2):
                await again(live, topic="%RETRY%group", reconsume_times=times)
        stored = await live.messages("%RETRY%group")
        assert [each.reconsume_times for each in stored] == [1, 2]


async def test_a_repeat_without_an_id_is_stored(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        for _ in range(2):
            await again(live, properties={})
        assert len(await live.messages()) == 2


async def test_another_account_that_sends_first_makes_no_message_vanish(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    half = ID | {"TRAN_MSG": "true", "PGROUP": "producers"}
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {"acl": True, "acl_file": tmp_path / "plain_acl.yml"}
        live = await stack.enter_async_context(live_broker(tmp_path / "stores", **settings))
        sessions = []
        for name in ("stranger", "sparkjob"):
            pool = Pool(SystemClock(), sign=signer(name, "secret-of-all"))
            stack.callback(pool.close)
            sessions.append(await pool.session(live.broker.address))
        stranger, owner = sessions
        await stranger.call(send_request(properties=half), b"body")
        await stranger.call(send_request(properties=ID), b"forged")
        repeated = send_request(properties=half, may_be_stored=True)
        first = (await owner.call(repeated, b"body")).header
        assert first.queue_offset == 1  # the stranger's half message is another one
        assert (await owner.call(repeated, b"body")).header == first
        await owner.call(send_request(properties=ID, may_be_stored=True), b"body")
        live.broker.store.publish()
        read = live.broker.store.read("orders", 0, 0, 10)
        stored = [record.decode(each).body for view in read.views for each in record.walk(view)]
        assert stored == [b"forged", b"body"]


@needs_etcd
@pytest.mark.parametrize("parts", [1, 3])
async def test_the_next_master_recognises_what_the_one_before_stored(members: Members, parts: int) -> None:
    for number in (1, 2):
        members.change(number, index=True, index_slots=1000, index_entries=4000)
    await members.two_in_sync()
    names = [f"id-{number}" for number in range(parts)]
    body = batch.encode([BatchPart(name.encode(), f"UNIQ_KEY\x01{name}\x02".encode()) for name in names])
    first = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")
    stored = await first.call(send_request(batch=True), body, timeout_s=10)
    assert stored.code == 0
    await members.stop(1)
    await members.leader(2)
    second = await members.pool.session(f"127.0.0.1:{members.settings(2).port}")
    repeated = await second.call(send_request(batch=True, may_be_stored=True), body, accept={10, 11, 12}, timeout_s=10)
    assert repeated.header.queue_offset == stored.header.queue_offset
    assert await members.bodies(2) == [name.encode() for name in names]
