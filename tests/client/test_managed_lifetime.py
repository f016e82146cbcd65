"""Clients that a framework starts and closes."""

import asyncio
import signal
import threading
import time

import pytest

import sparrowmq.sync
from sparrowmq.client.blocking_client import SyncConsumer
from sparrowmq.client.client import ManagedLifetime, connect
from sparrowmq.errors import ClientClosed, ConfigError
from tests.client.conftest import until


async def test_a_client_is_started_in_one_task_and_closed_in_another(cluster):
    mq = connect(cluster.namesrv)
    assert await asyncio.create_task(mq.start()) is mq
    await mq.send("orders", b"x")
    with pytest.raises(ConfigError, match="entered only once"):
        await mq.start()
    await asyncio.create_task(mq.close())
    await mq.close()
    with pytest.raises(ClientClosed):
        await mq.send("orders", b"x")


async def test_it_serves_the_declared_handlers_until_it_is_closed(cluster):
    mq = connect(cluster.namesrv)
    seen: list[str] = []

    @mq.handler("orders", group="g", start="earliest", grace_s=5)
    async def handle(body: str) -> None:
        await asyncio.sleep(0.05)
        seen.append(body)

    await mq.start(serve=True)
    await mq.send("orders", b"x")
    await until(lambda: mq._network.membership.consumers)
    await until(lambda: seen)
    await mq.close()
    assert seen == ["x"] and not mq._network.membership.consumers


async def test_a_handler_that_closes_its_client_ends_first(cluster):
    mq = connect(cluster.namesrv)
    steps: list[str] = []

    @mq.handler("orders", group="g", start="earliest")
    async def handle(body: str) -> None:
        await mq.close()
        steps.append(body)

    await mq.start(serve=True)
    await mq.send("orders", b"x")
    await until(lambda: steps)
    async with asyncio.timeout(5):
        await mq.close()
    assert steps == ["x"] and not mq._network.membership.consumers


async def test_a_client_that_was_closed_before_its_start_lives_when_it_starts(cluster):
    mq = connect(cluster.namesrv)
    await mq.close()
    await mq.start()
    await asyncio.sleep(0.05)
    await mq.send("orders", b"x")
    await mq.close()


async def test_without_handlers_nothing_is_started():
    mq = connect("127.0.0.1:1")
    with pytest.raises(ConfigError, match="no handler was declared"):
        await mq.start(serve=True)
    await mq.close()
    await mq.start()
    await mq.close()


class Part:
    def __init__(self, error: Exception | None = None, *, hangs: bool = False, stays: bool = False) -> None:
        self.error = error
        self.hangs = hangs
        self.stays = stays
        self.steps: list[str] = []

    async def __aenter__(self) -> None:
        self.steps.append("in")
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def __aexit__(self, *_: object) -> None:
        self.steps.append("out")
        if self.stays:
            await asyncio.Event().wait()


async def test_a_close_returns_when_another_one_was_cancelled():
    part, life = Part(stays=True), ManagedLifetime()
    await life.start([part])
    one, other = (asyncio.ensure_future(life.close()) for _ in range(2))
    await until(lambda: part.steps == ["in", "out"])
    one.cancel()
    await other
    assert one.cancelled()


async def test_the_error_of_a_start_is_raised_and_what_was_entered_is_left():
    first, life = Part(), ManagedLifetime()
    with pytest.raises(LookupError):
        await life.start([first, Part(LookupError())])
    await life.close()
    assert first.steps == ["in", "out"]


async def test_a_start_that_is_cancelled_leaves_what_it_entered():
    first, life = Part(), ManagedLifetime()
    starting = asyncio.ensure_future(life.start([first, Part(hangs=True)]))
    await until(lambda: first.steps)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert first.steps == ["in", "out"]


def test_the_blocking_client_has_the_same(rocketmq_server, rocketmq_topic):
    mq = sparrowmq.sync.connect(rocketmq_server)
    seen, done = list[str](), threading.Event()

    @mq.handler(rocketmq_topic, group="started", start="earliest")
    def handle(body: str) -> None:
        seen.append(body)
        done.set()

    mq.close()
    assert mq.start(serve=True) is mq
    mq.send(rocketmq_topic, b"x")
    assert done.wait(10) and seen == ["x"]
    mq.close()
    mq.close()
    with pytest.raises(ClientClosed):
        mq.send(rocketmq_topic, b"x")


@pytest.mark.timeout(30)
def test_the_handler_of_a_signal_may_close_a_client_that_serves(rocketmq_server, rocketmq_topic):
    mq = sparrowmq.sync.connect(rocketmq_server)
    handled, main = list[bytes](), threading.get_ident()

    @mq.handler(rocketmq_topic, group=rocketmq_topic, start="earliest")
    def handle(body: bytes) -> None:
        time.sleep(0.2)  # until the main thread waits in `serve`
        signal.pthread_kill(main, signal.SIGUSR1)
        time.sleep(0.2)
        handled.append(body)

    before = signal.signal(signal.SIGUSR1, lambda *_: mq.close())
    try:
        mq.start()
        mq.send(rocketmq_topic, b"x")
        mq.serve()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [b"x"]
    with pytest.raises(ClientClosed):
        mq.send(rocketmq_topic, b"x")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("in_handler", [True, False])
def test_closing_ends_the_loop_of_a_client_in_a_with_block(rocketmq_server, rocketmq_topic, in_handler):
    main, handled = threading.get_ident(), list[bytes]()

    def close() -> None:
        time.sleep(0.2)  # until the main thread waits for a message
        if in_handler:
            signal.pthread_kill(main, signal.SIGUSR1)
        else:
            mq.close()

    before = signal.signal(signal.SIGUSR1, lambda *_: mq.close())
    try:
        with sparrowmq.sync.connect(rocketmq_server) as mq:
            mq.send(rocketmq_topic, b"x")
            with (
                pytest.raises(ClientClosed),
                mq.subscribe(rocketmq_topic, group=rocketmq_topic, start="earliest") as messages,
            ):
                for message in messages:
                    with message.process():
                        handled.append(message.body)
                    threading.Thread(target=close).start()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [b"x"]
    with pytest.raises(ClientClosed):
        mq.send(rocketmq_topic, b"x")


def test_a_client_may_be_closed_at_the_end_of_its_block(rocketmq_server, rocketmq_topic):
    with sparrowmq.sync.connect(rocketmq_server) as mq:
        sent = mq.send_soon(rocketmq_topic, b"x")
        mq.close()
        mq.close()
        assert sent.result(5).status.name == "OK"


@pytest.mark.timeout(30)
def test_serving_ends_well_if_the_client_is_closed_while_a_consumer_is_entered(
    rocketmq_server, rocketmq_topic, monkeypatch
):
    mq = sparrowmq.sync.connect(rocketmq_server)
    enter = SyncConsumer.__enter__

    @mq.handler(rocketmq_topic, group=rocketmq_topic)
    def handle(body: bytes) -> None: ...

    def close_and_enter(consumer: SyncConsumer) -> SyncConsumer:
        mq.close()
        return enter(consumer)

    with pytest.raises(ClientClosed):
        mq.serve()
    mq.start()
    monkeypatch.setattr(SyncConsumer, "__enter__", close_and_enter)
    mq.serve()
