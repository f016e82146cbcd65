"""A batch of thousands of messages is stored at once; if they are not plain, in parts, between which others run."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker import batches
from sparrowmq.errors import OF_A_SLAVE, DiskFull, RemoteError, RequestTimeout
from sparrowmq.kernel.batch_layout import MAX_COUNT
from sparrowmq.loop import slices
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.admin_headers import DeleteTopic
from tests.broker.conftest import until
from tests.broker.live import Live, live_broker, send_request

PLAIN = [BatchPart(b"%d" % number, b"UNIQ_KEY\x01id-%d\x02" % number) for number in range(12)]
WITH_ID = [BatchPart(b"%d" % number, f"UNIQ_KEY\x01id-{number}\x02KEYS\x01ü\x02".encode()) for number in range(12)]
OTHERS = [BatchPart(b"%d" % number, f"KEYS\x01Schlüssel-{number}\x02".encode()) for number in range(12)]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of four messages that are not plain, and a pause after each step."""
    monkeypatch.setattr(batches, "PART", 4)
    monkeypatch.setattr(batches, "PART_OF_ENTRIES", 4)
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)


async def everything(live: Live) -> list[StoredMessage]:
    found = await live.messages()
    while page := await live.messages(offset=len(found)):
        found += page
    return found


async def bodies(live: Live) -> list[bytes]:
    return [each.body for each in await live.messages()]


@pytest.mark.usefixtures("small_parts")
async def test_nothing_comes_between_plain_messages(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"before")
        for _ in range(5):
            begin = len(await everything(live))
            sent = live.session.call(send_request(batch=True), batch.encode(PLAIN))
            await asyncio.gather(*(send_others(live, sent) for _ in range(8)))
            reply = (await sent).header
            own = [each for each in (await everything(live))[begin:] if each.body != b"other"]
            assert [each.body for each in own] == [part.body for part in PLAIN]
            assert own[-1].queue_offset - own[0].queue_offset == len(PLAIN) - 1
            assert reply.msg_id.split(",") == [each.offset_id for each in own]
            assert (reply.queue_offset, reply.stored_at) == (own[0].queue_offset, None)


@pytest.mark.usefixtures("small_parts")
async def test_other_requests_are_handled_between_the_parts(tmp_path: Path) -> None:
    parts = OTHERS
    async with live_broker(tmp_path) as live:
        await live.send(b"before")
        for _ in range(50):
            begin = len(await everything(live))
            sent = live.session.call(send_request(batch=True), batch.encode(parts))
            await asyncio.gather(*(send_others(live, sent) for _ in range(8)))
            reply = (await sent).header
            own = [each for each in (await everything(live))[begin:] if each.body != b"other"]
            offsets = [each.queue_offset for each in own]
            assert [each.body for each in own] == [part.body for part in parts]
            assert reply.msg_id.split(",") == [each.offset_id for each in own]
            assert reply.queue_offset == offsets[0]
            if offsets[-1] - offsets[0] >= len(parts):  # a request came between two parts
                assert reply.stored_at == ",".join(f"0:{offset}" for offset in offsets)
                return
            assert reply.stored_at is None
        pytest.fail("no request came between two parts")


async def send_others(live: Live, sent: asyncio.Future[Any]) -> None:
    while not sent.done():
        await live.send(b"other")


@pytest.mark.usefixtures("small_parts")
async def test_a_batch_that_nothing_comes_between_is_answered_as_a_small_one(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        reply = await live.send(batch.encode(OTHERS), batch=True)
        assert (reply.queue_offset, reply.stored_at) == (0, None)
        assert reply.msg_id.split(",") == [each.offset_id for each in await live.messages()]


@pytest.mark.parametrize("bad", [b"TRAN_MSG\x01true\x02", b"DELAY\x013\x02"], ids=["half", "delayed"])
@pytest.mark.usefixtures("small_parts")
async def test_nothing_is_stored_of_a_batch_whose_last_message_is_refused(tmp_path: Path, bad: bytes) -> None:
    async with live_broker(tmp_path) as live:
        with pytest.raises(RemoteError, match="a batch cannot hold"):
            await live.send(batch.encode([*OTHERS, BatchPart(b"bad", bad)]), batch=True)
        assert await bodies(live) == []


async def test_the_answer_to_the_largest_batch_is_read(tmp_path: Path) -> None:
    parts = [BatchPart(b"", b"")] * MAX_COUNT
    async with live_broker(tmp_path) as live:
        sent = live.session.call(send_request(batch=True), batch.encode(parts), timeout_s=30)
        assert len((await sent).header.msg_id.split(",")) == MAX_COUNT


async def test_a_batch_of_thousands_is_stored_whole(tmp_path: Path) -> None:
    parts = [BatchPart(b"%d" % number, b"") for number in range(5000)]
    async with live_broker(tmp_path) as live:
        reply = await live.send(batch.encode(parts), batch=True)
        assert len(reply.msg_id.split(",")) == 5000
        last = [each.body for each in await live.messages(offset=4990)]
        assert last == [b"%d" % number for number in range(4990, 5000)]


async def sent_again(live: Live, parts: list[BatchPart]) -> Any:
    """The answer once the broker finds out whether it has the batch."""
    while True:
        try:
            return await live.send(batch.encode(parts), batch=True, may_be_stored=True)
        except RemoteError as error:
            assert "still looks for this message, or stores it" in str(error)


@pytest.mark.usefixtures("small_parts")
async def test_a_batch_that_is_sent_again_while_it_is_stored_is_stored_once(tmp_path: Path) -> None:
    parts = WITH_ID
    async with live_broker(tmp_path) as live:
        sent = live.session.call(send_request(batch=True), batch.encode(parts))
        while not live.broker.store.appender.count_added()[0]:
            await asyncio.sleep(0)
        with pytest.raises(RemoteError, match="or stores it"):
            await live.send(b"0", properties={"UNIQ_KEY": "id-0"}, may_be_stored=True)
        again = await sent_again(live, parts)
        assert (await sent).header == again
        assert await bodies(live) == [part.body for part in parts]
        assert await sent_again(live, parts) == again


@pytest.mark.usefixtures("small_parts")
async def test_a_batch_that_is_sent_again_before_its_first_part_is_stored_is_stored_once(
    tmp_path: Path,
) -> None:
    async with live_broker(tmp_path) as live:
        sent = live.session.call(send_request(batch=True), batch.encode(WITH_ID))
        again = await sent_again(live, WITH_ID)
        assert (await sent).header == again
        assert await bodies(live) == [part.body for part in WITH_ID]


@pytest.mark.usefixtures("small_parts")
async def test_a_message_that_is_sent_again_before_its_batch_is_stored_is_stored_once(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        sent = live.session.call(send_request(batch=True), batch.encode(WITH_ID))
        await live.send(b"11", properties={"UNIQ_KEY": "id-11", "KEYS": "ü"}, may_be_stored=True)
        reply = (await sent).header
        assert await bodies(live) == [b"11"] + [part.body for part in WITH_ID[:-1]]
        assert reply.stored_at is not None and reply.stored_at.endswith(",0:0")


@pytest.mark.usefixtures("small_parts")
async def test_large_batches_are_stored_one_after_another(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        request = send_request(batch=True)
        sent = [live.session.call(request, batch.encode(parts)) for parts in (WITH_ID, OTHERS)]
        assert [(await each).header.stored_at for each in sent] == [None, None]
        assert await bodies(live) == 2 * [part.body for part in OTHERS]


@pytest.mark.usefixtures("small_parts")
async def test_handover_refuses_the_batches_that_have_not_begun(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        dispatch: Any = live.broker._server.dispatch
        sends = dispatch._routes[RequestCode.SEND_MESSAGE_V2][1].__self__
        is_handed_over = asyncio.Event()
        sends._accepts_writes = lambda: not is_handed_over.is_set()
        request = send_request(batch=True)
        sent = [live.session.call(request, batch.encode(parts)) for parts in (WITH_ID, OTHERS)]
        while not live.broker.store.appender.count_added()[0]:
            await asyncio.sleep(0)
        is_handed_over.set()
        assert (await sent[0]).header.queue_offset == 0
        with pytest.raises(RemoteError, match=OF_A_SLAVE):
            await sent[1]
        assert await bodies(live) == [part.body for part in WITH_ID]
        assert not live.broker.store.appender.unfinished_batches


@pytest.mark.parametrize("is_repeated", [False, True], ids=["first", "sent again"])
@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "made again"])
@pytest.mark.usefixtures("small_parts")
async def test_batch_whose_topic_is_deleted_between_two_parts_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_repeated: bool, is_made_again: bool
) -> None:
    monkeypatch.setattr(batches, "PART_OF_ENTRIES", 4)
    parts = [BatchPart(b"%d" % number, f"UNIQ_KEY\x01ü-{number}\x02".encode()) for number in range(400)]
    async with live_broker(tmp_path) as live:
        request = send_request(batch=True, may_be_stored=is_repeated)
        sent = live.session.call(request, batch.encode(parts))
        while not live.broker.store.appender.count_added()[0]:
            await asyncio.sleep(0)
        await live.session.call(DeleteTopic("orders"))
        if is_made_again:
            await live.send(b"new")
        with pytest.raises(RemoteError, match="was deleted before all of this batch") as refused:
            await sent
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
        if is_made_again:
            assert await bodies(live) == [b"new"]
        else:
            assert not live.broker.store.queues.of_topic("orders")
        assert not live.broker.store.appender.unfinished_batches


@pytest.mark.parametrize("was_sent_again", [False, True], ids=["first", "after a repeat"])
@pytest.mark.usefixtures("small_parts")
async def test_a_batch_of_which_a_part_is_stored_is_not_answered_and_sent_again_it_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_sent_again: bool
) -> None:
    monkeypatch.setattr(batches, "PART_OF_ENTRIES", 4)
    async with live_broker(tmp_path) as live:
        appender = live.broker.store.appender
        if was_sent_again:
            await live.send(b"before", properties={"UNIQ_KEY": "another"}, may_be_stored=True)
        before = appender.count_added()[0]
        sent = live.session.call(send_request(batch=True), batch.encode(WITH_ID), timeout_s=2)
        while appender.count_added()[0] == before:
            await asyncio.sleep(0)
        appender.stall(DiskFull("/store", "no room"))
        with pytest.raises(RequestTimeout):
            await sent
        assert appender.count_added()[0] - before == 4
        await until(appender.try_again_if_due)
        await sent_again(live, WITH_ID)
        assert [each for each in await bodies(live) if each != b"before"] == [part.body for part in WITH_ID]


@pytest.mark.parametrize("parts", [PLAIN, OTHERS], ids=["plain", "not plain"])
@pytest.mark.usefixtures("small_parts")
async def test_nothing_is_stored_of_a_batch_for_which_the_log_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[BatchPart]
) -> None:
    def no_room(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "no room")

    large = [BatchPart(bytes(2000), part.properties) for part in parts]
    async with live_broker(tmp_path, commit_log_file_bytes=32 * 1024) as live:
        before = bytes(12_000)
        await live.send(before)  # leaves room for some of them, and makes no next file yet
        monkeypatch.setattr(os, "posix_fallocate", no_room)
        with pytest.raises(RemoteError, match="no room") as refused:
            await live.send(batch.encode(large), batch=True)
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await bodies(live) == [before]


async def test_a_batch_with_many_properties_keeps_its_order(tmp_path: Path) -> None:
    parts = [
        BatchPart(b"%d" % number, b"UNIQ_KEY\x01id-%d\x02" % number + b"k\x01v\x02" * 4000) for number in range(60)
    ]
    async with live_broker(tmp_path) as live:
        reply = await live.send(batch.encode(parts), batch=True)
        assert [each.body for each in await everything(live)] == [part.body for part in parts]
        assert reply.queue_offset == 0
