from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future

import pytest

import sparrowmq.sync
from sparrowmq.client.loop_thread import Callbacks, CallFuture
from sparrowmq.errors import ConfigError
from sparrowmq.testing.background import BackgroundCluster

LIMIT_S = 20.0


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory) -> Iterator[str]:
    with BackgroundCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.namesrv


def test_a_callback_may_block_and_call_the_client(namesrv):
    answers: Future[str] = Future()

    def send_another(sent: Future[sparrowmq.SendResult]) -> None:
        assert sent.result(0).status is sparrowmq.SendStatus.OK
        answers.set_result(mq.send("Callbacks", b"two").msg_id)

    with sparrowmq.sync.connect(namesrv) as mq:
        mq.send_soon("Callbacks", b"one").add_done_callback(send_another)
        assert answers.result(LIMIT_S)


@pytest.mark.covers("S-CFG-04")
@pytest.mark.parametrize(("wanted", "threads"), [(None, os.cpu_count()), (3, 3)])
def test_as_many_run_at_once_as_there_are_processors_unless_told(namesrv, wanted, threads):
    together, alone = threading.Barrier(threads + 1), threading.Event()
    running: list[str] = []

    def meet(sent: Future[sparrowmq.SendResult]) -> None:
        running.append(threading.current_thread().name)
        together.wait(LIMIT_S)
        alone.wait(LIMIT_S)

    with sparrowmq.sync.connect(namesrv, callback_threads=wanted) as mq:
        sent = [mq.send_soon("Callbacks", b"%d" % number) for number in range(threads + 1)]
        for future in sent:
            future.result(LIMIT_S)
            future.add_done_callback(meet)
        together.wait(LIMIT_S)
        assert len(running) == len(set(running)) == threads
        together = threading.Barrier(1)
        alone.set()


@pytest.mark.parametrize("threads", [0, -1, 1001, True, 2.0, "2"])
def test_a_number_that_none_could_be_is_refused(threads):
    with pytest.raises(ConfigError, match="callback_threads is a whole number from 1 to 1000"):
        sparrowmq.sync.connect("127.0.0.1:1", callback_threads=threads)


def started_by(callbacks: Callbacks) -> CallFuture[int]:
    """One that is not in a loop's thread: what it asks the loop for is done at once."""
    return CallFuture(callbacks, lambda call: call(), lambda _: None)


def test_a_callback_that_raises_is_told(caplog):
    callbacks, done = Callbacks(1), threading.Event()
    started = started_by(callbacks)
    started.add_done_callback(lambda _: 1 / 0)
    started.add_done_callback(lambda _: done.set())
    started.set_result(1)
    assert done.wait(LIMIT_S)
    callbacks.end()
    assert "a callback of a send failed" in caplog.text


def test_the_first_callbacks_of_two_threads_share_the_only_thread():
    """The threads change at each bytecode, so one may come between any two steps of the other."""

    def give() -> None:
        together.wait(LIMIT_S)
        callbacks.call(lambda _: ran_in.append(threading.get_ident()), Future())

    together = threading.Barrier(2)
    ran_in: list[int] = []
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(1000):
            callbacks = Callbacks(1)
            ran_in.clear()
            threads = [threading.Thread(target=give) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(LIMIT_S)
            callbacks.end()
            callbacks._pool.shutdown()
            assert len(ran_in) == 2 and len(set(ran_in)) == 1
    finally:
        sys.setswitchinterval(interval_s)


async def test_a_future_comes_to_what_its_inner_one_does():
    inner: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    started = started_by(Callbacks())
    started.follow(inner)
    inner.set_exception(ValueError("no"))
    await asyncio.sleep(0)
    assert isinstance(started.exception(0), ValueError)


@pytest.mark.parametrize("is_early", [True, False])
async def test_cancelling_it_cancels_the_inner_one(is_early):
    inner: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    started = started_by(Callbacks())
    if is_early:
        assert started.cancel()
        started.follow(inner)
    else:
        started.follow(inner)
        assert started.cancel()
    await asyncio.sleep(0)
    assert inner.cancelled() and started.cancelled()
    with pytest.raises(CancelledError):
        started.result(0)


async def test_cancelling_the_inner_one_cancels_it():
    inner: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    started = started_by(Callbacks())
    started.follow(inner)
    inner.cancel()
    await asyncio.sleep(0)
    with pytest.raises(CancelledError):
        started.result(0)


@pytest.mark.parametrize("were_used", [True, False])
def test_a_callback_that_is_given_after_the_end_is_called_where_it_is_given(were_used, caplog):
    callbacks, called = Callbacks(1), []
    started = started_by(callbacks)
    started.set_result(1)
    if were_used:
        used = threading.Event()
        started.add_done_callback(lambda _: used.set())
        assert used.wait(LIMIT_S)
    callbacks.end()
    started.add_done_callback(lambda done: called.append((done.result(), threading.current_thread())))
    assert called == [(1, threading.current_thread())] and not caplog.text
    started.add_done_callback(lambda _: 1 / 0)
    assert "division by zero" in caplog.text
