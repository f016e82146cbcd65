"""The port that Prometheus asks: what it answers, and whom it does not wait for."""

import asyncio
from contextlib import asynccontextmanager, suppress
from time import thread_time

import pytest

from sparrowmq.core import descriptors
from sparrowmq.errors import StoreError
from sparrowmq.metrics import http_endpoint
from sparrowmq.metrics.http_endpoint import Answer, Endpoint
from sparrowmq.remoting.listener import Listener


async def ok(query):
    return Answer(200, f"ok {sorted(query.items())}".encode())


async def broken(query):
    raise StoreError("it is damaged")


async def wrong(query):
    raise ZeroDivisionError


@asynccontextmanager
async def answering(**pages):
    door = Listener("127.0.0.1", 0)
    door.bind()
    task = asyncio.create_task(Endpoint(door, {f"/{name}": page for name, page in pages.items()}).run())
    try:
        while not door.is_open:
            await asyncio.sleep(0)
        yield door.port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def say(port: int, text: bytes) -> bytes:
    """What comes until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def test_a_page_is_answered_with_its_query():
    async with answering(metrics=ok) as port:
        said = await say(port, get("/metrics?compat=exporter&b=%20"))
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.endswith(b"ok [('b', ' '), ('compat', 'exporter')]")


@pytest.mark.parametrize("path", ["/metrics", "/<script>"])
async def test_no_browser_runs_a_script_of_an_answer_or_shows_it_in_a_frame(path):
    async with answering(metrics=ok) as port:
        said = (await say(port, get(path))).decode()
    assert "default-src 'none';" in said and "frame-ancestors 'none'" in said and "nosniff" in said


async def test_a_question_may_come_byte_by_byte():
    async with answering(metrics=ok) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in get("/metrics"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await asyncio.wait_for(reader.read(), 10)).endswith(b"ok []")
        writer.close()


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        (get("/"), 404, b"there are /metrics"),
        (get("//[x"), 400, b"Invalid IPv6 URL"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405, b"only GET"),
        (b"\x00\x01 nonsense\r\n\r\n", 400, b""),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 20_000, 431, b""),
    ],
)
async def test_what_is_no_question_is_told_so(asked, status, words, caplog):
    async with answering(metrics=ok) as port:
        said = await say(port, asked)
    assert said.startswith(b"HTTP/1.1 %d " % status) and words in said
    assert not caplog.records


HEADS = {
    "blanks in front of a wrong character": (b"a:" + b" " * 8000 + b"\x00", b"200"),
    "more blanks": (b"a:" + b" " * 20_000 + b"\x00", b"431"),
    "many lines": (b"a:b\r\n" * 40_000, b"431"),
    "many words": (b"a:" + b" b" * 60_000, b"431"),
}


@pytest.mark.parametrize(("lines", "status"), HEADS.values(), ids=HEADS)
async def test_no_head_keeps_the_event_loop_from_others(lines, status):
    async with answering(metrics=ok) as port:
        before_s = thread_time()
        with suppress(ConnectionError):  # it was closed while some of the head was on its way
            assert (await say(port, get("/metrics")[:-2] + lines + b"\r\n\r\n"))[9:12] == status
        assert thread_time() - before_s < 0.05


async def test_a_page_that_cannot_be_made_says_why():
    async with answering(metrics=broken) as port:
        assert b" 503 " in (said := await say(port, get("/metrics"))) and b"it is damaged" in said


async def test_a_mistake_in_a_page_ends_the_visit_and_nothing_else(caplog):
    async with answering(metrics=wrong, healthz=ok) as port:
        assert await say(port, get("/metrics")) == b""
        assert b" 200 " in await say(port, get("/healthz"))
    assert "a request was not answered" in caplog.text


async def test_who_says_nothing_is_let_go(monkeypatch):
    monkeypatch.setattr(http_endpoint, "_SILENCE_S", 0.05)
    async with answering(metrics=ok) as port:
        assert await say(port, b"GET /metr") == b""


async def test_one_visitor_too_many_takes_the_place_of_another(monkeypatch):
    monkeypatch.setattr(descriptors, "MAX_METRICS_CONNECTIONS", 2)
    async with answering(metrics=ok) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert b" 200 " in await say(port, get("/metrics"))
        for _, writer in idle:
            writer.close()


async def test_idle_visitors_do_not_take_the_place_of_those_that_have_asked(monkeypatch):
    monkeypatch.setattr(descriptors, "MAX_METRICS_CONNECTIONS", 8)
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(query):
        begun.release()
        await go_on.wait()
        return await ok(query)

    async with answering(metrics=slow, readyz=ok) as port:
        asking = [asyncio.create_task(say(port, get("/metrics"))) for _ in range(6)]
        for _ in asking:
            await begun.acquire()
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        assert b" 200 " in await say(port, get("/readyz"))
        go_on.set()
        assert all(b" 200 " in said for said in await asyncio.gather(*asking))
        for _, writer in idle:
            writer.close()


async def test_leaving_ends_a_page_that_is_being_made():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(query):
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async with answering(metrics=slow) as port:
        asking = asyncio.create_task(say(port, get("/metrics")))
        await begun.wait()
    await asyncio.wait_for(ended.wait(), 10)
    assert await asking == b""


async def test_bytes_behind_a_request_are_not_read():
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(query):
        begun.set()
        await go_on.wait()
        return Answer(200, b"ok")

    async with answering(metrics=slow) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(get("/metrics") + bytes(32 << 20))
        await begun.wait()
        for _ in range(200):
            await asyncio.sleep(0.001)
        assert writer.transport.get_write_buffer_size() > 16 << 20
        go_on.set()
        writer.transport.abort()
