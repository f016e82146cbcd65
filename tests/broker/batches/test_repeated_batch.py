"""A batch that is sent again: its messages are stored once, also if a crash had cut it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker import batches
from sparrowmq.broker.repeated_sends import RepeatedSends, keys
from sparrowmq.errors import RemoteError
from sparrowmq.loop import slices
from sparrowmq.loop.clock import SystemClock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from tests.broker.live import Live, live_broker, send_request

PARTS = [BatchPart(b"body-%d" % number, b"UNIQ_KEY\x01id-%d\x02" % number) for number in range(5)]


async def put(live: Live, parts: list[BatchPart], **fields: Any) -> Any:
    return await live.send(batch.encode(parts), batch=True, **fields)


async def bodies(live: Live, queue_id: int = 0) -> list[bytes]:
    return [each.body for each in await live.messages(queue_id=queue_id)]


async def test_a_repeated_batch_is_answered_as_the_first_time(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"before")
        first = await put(live, PARTS)
        assert await put(live, PARTS, may_be_stored=True) == first
        assert await put(live, PARTS, may_be_stored=True, queue_id=2) == first
        assert await bodies(live) == [b"before"] + [part.body for part in PARTS]
        assert await bodies(live, 2) == []


async def test_only_the_end_of_a_batch_that_a_crash_cut_is_stored(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await put(live, PARTS[:2])
        await live.send(b"between")
        reply = await put(live, PARTS, may_be_stored=True, queue_id=3)
        assert await bodies(live) == [b"body-0", b"body-1", b"between", b"body-2", b"body-3", b"body-4"]
        assert await bodies(live, 3) == []
        assert (reply.queue_id, reply.queue_offset, reply.stored_at) == (0, 0, "0:0,0:1,0:3,0:4,0:5")
        ids = [each.offset_id for each in await live.messages()]
        assert reply.msg_id.split(",") == ids[:2] + ids[3:]


async def test_a_repeated_batch_that_was_never_stored_is_stored_once(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        reply = await put(live, PARTS, may_be_stored=True)
        assert reply.stored_at is None
        assert await put(live, PARTS, may_be_stored=True) == reply
        assert await put(live, PARTS) == reply  # the first send, which came late
        assert await bodies(live) == [part.body for part in PARTS]


async def test_messages_of_a_batch_may_be_sent_again_one_by_one(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await put(live, PARTS)
        for number in range(5):
            key = {"UNIQ_KEY": f"id-{number}"}
            reply = await live.send(b"body-%d" % number, properties=key, may_be_stored=True)
            assert (reply.queue_id, reply.queue_offset) == (0, number)
        assert len(await bodies(live)) == 5


async def test_a_huge_repeated_batch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_REPEATED_MESSAGES", 4)
    async with live_broker(tmp_path) as live:
        with pytest.raises(RemoteError, match="at most 4 messages; this one has 5"):
            await put(live, PARTS, may_be_stored=True)
        await put(live, PARTS)
        assert len(await bodies(live)) == 5


async def test_messages_that_are_still_looked_up_are_not_stored_by_another_request(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        store = live.broker.store
        repeats = RepeatedSends(store, SystemClock(), 60_000, Figures())
        entry = Entry("orders", 0, b"body-4", Properties("UNIQ_KEY\x01id-4\x02"), 0, bytes(8))
        with repeats.under_way([keys([]), keys([entry])], "orders"):
            assert repeats.retried.topics == {"orders"}
            for is_repeated in (True, False):
                with pytest.raises(RemoteError, match="still looks for this message"):
                    repeats.before(entry, is_repeated)
        assert repeats.before(entry, True) is None


async def test_messages_without_ids_do_not_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    async with live_broker(tmp_path) as live:
        await live.send(b"before", properties={"UNIQ_KEY": "another"}, may_be_stored=True)
        parts = [BatchPart(b"%d" % number, b"") for number in range(5)]
        sent = live.session.call(send_request(batch=True), batch.encode(parts))
        while not sent.done():
            await live.send(b"other", may_be_stored=True)
        await sent
        assert sorted(set(await bodies(live))) == [b"0", b"1", b"2", b"3", b"4", b"before", b"other"]


async def test_a_large_batch_that_is_stored_for_the_first_time_slows_no_other_send_down(
    tmp_path: Path,
) -> None:
    async with live_broker(tmp_path) as live:
        repeats = RepeatedSends(live.broker.store, SystemClock(), 60_000, Figures())
        entry = Entry("orders", 0, b"body-4", Properties("UNIQ_KEY\x01id-4\x02"), 0, bytes(8))
        with repeats.under_way([keys([entry])]):
            assert repeats.retried.topics == set()
            with pytest.raises(RemoteError, match="or stores it"):
                repeats.before(entry, True)
        assert repeats.before(entry, True) is None
        assert repeats.retried.pending == []


async def test_a_batch_that_is_sent_again_twice_at_once_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)  # a pause after each message
    async with live_broker(tmp_path) as live:
        request = send_request(batch=True, may_be_stored=True)
        asked = [live.session.call(request, batch.encode(PARTS)) for _ in range(3)]
        _, *refused = await asyncio.gather(*asked, return_exceptions=True)
        assert all("still looks for this message" in str(each) for each in refused)
        assert await bodies(live) == [part.body for part in PARTS]
