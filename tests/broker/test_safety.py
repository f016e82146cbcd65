"""No answer leaves before its message is as safe as the broker promises: a whole broker, a real socket, a slow disk."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack, SendBatchMessage
from sparrowmq.protocol.wire.codec import encode_request
from sparrowmq.protocol.wire.header import Request
from sparrowmq.store.store_settings import Flush
from sparrowmq.store.vfs import Disk, File
from tests.broker.live import Live, live_broker, send_request

BATCH_BODY = batch.encode([batch.BatchPart(b"body", b"")] * 3)


def message(**properties: str) -> tuple[Request, bytes]:
    return send_request(properties=properties), b"body"


def whole_batch(**properties: str) -> tuple[Request, bytes]:
    header = send_request(properties=properties, batch=True)
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    return SendBatchMessage(**fields), BATCH_BODY


def given_back(**properties: str) -> tuple[Request, bytes]:
    return ConsumerSendMsgBack(0, "consumers", 0), b""


KINDS = [message, whole_batch, given_back]


class Asker:
    """Asks by a plain socket, and looks whether an answer has come."""

    def __init__(self, live: Live) -> None:
        host, _, port = live.broker.address.partition(":")
        self.socket = socket.create_connection((host, int(port)))

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, header: Request, body: bytes) -> None:
        self.socket.sendall(encode_request(header, header.code, 1, len(body)) + body)

    def is_answered(self, within_s: float = 0) -> bool:
        waiting = select.poll()  # which takes any descriptor, where select() takes those below 1,024
        waiting.register(self.socket, select.POLLIN)
        return bool(waiting.poll(1000 * within_s))


class Held:
    """Keeps what the broker does with its log from happening, until a test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on = threading.Event()
        self.began = threading.Event()
        sync = Disk.sync

        def wait(disk: Disk, file: File) -> None:
            if "commitlog" in file.path:
                self.began.set()
                assert self.may_go_on.wait(20), "the test forgot to let the sync go on"
            sync(disk, file)

        monkeypatch.setattr(Disk, "sync", wait)


@pytest.mark.covers("S-STORE-08")
@pytest.mark.parametrize("kind", KINDS)
async def test_with_sync_flush_an_answer_waits_for_the_disk(tmp_path: Path, monkeypatch, kind) -> None:
    async with live_broker(tmp_path, flush=Flush.SYNC) as live:
        await live.send()
        disk = Held(monkeypatch)
        with Asker(live) as asker:
            asker.ask(*kind())
            assert await asyncio.to_thread(disk.began.wait, 10)
            for _ in range(20):
                await asyncio.sleep(0.005)
                assert not asker.is_answered()
            disk.may_go_on.set()
            assert await asyncio.to_thread(asker.is_answered, 10)


@pytest.mark.parametrize("kind", [message, whole_batch])
async def test_who_does_not_want_to_wait_is_answered_before_the_disk(tmp_path: Path, monkeypatch, kind) -> None:
    async with live_broker(tmp_path, flush=Flush.SYNC, safety_timeout_ms=60_000) as live:
        await live.send()
        disk = Held(monkeypatch)
        with Asker(live) as asker:
            asker.ask(*kind(WAIT="false"))
            assert await asyncio.to_thread(asker.is_answered, 10)
        disk.may_go_on.set()


@pytest.mark.covers("S-STORE-08")
@pytest.mark.parametrize("kind", KINDS)
async def test_with_async_flush_an_answer_waits_for_the_write(tmp_path: Path, monkeypatch, kind) -> None:
    """What a killed broker had acknowledged is in the kernel's hands."""
    async with live_broker(tmp_path, flush=Flush.ASYNC) as live:
        await live.send()
        with Asker(live) as asker:
            answered_before: list[bool] = []
            write = Disk.write

            def look(disk: Disk, file: File, offset: int, content: bytes) -> None:
                if "commitlog" in file.path:
                    answered_before.append(asker.is_answered(0.05))
                write(disk, file, offset, content)

            monkeypatch.setattr(Disk, "write", look)
            asker.ask(*kind())
            assert await asyncio.to_thread(asker.is_answered, 10)
        assert answered_before == [False]


async def test_a_disk_that_takes_too_long_is_told_with_the_place_of_the_message(tmp_path: Path, monkeypatch) -> None:
    async with (
        live_broker(tmp_path, flush=Flush.SYNC, safety_timeout_ms=200) as live,
        sparrowmq.connect(live.cluster.namesrv) as mq,
    ):
        for _ in range(8):  # the later ones by a lane, as the slow one
            await mq.send("orders", b"quick")
        disk = Held(monkeypatch)
        sent = await mq.send("orders", b"slow")
        assert sent.status is sparrowmq.SendStatus.FLUSH_DISK_TIMEOUT
        disk.may_go_on.set()
        after = await mq.send("orders", b"quick again")
        assert after.status is sparrowmq.SendStatus.OK
        stored = [message.body for queue in range(4) for message in await live.messages(queue_id=queue)]
        assert sorted(stored) == [*[b"quick"] * 8, b"quick again", b"slow"]
