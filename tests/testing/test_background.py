"""A cluster for blocking code."""

import asyncio
import threading
import time

import pytest

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.store.store_settings import Flush
from sparrowmq.testing.background import BackgroundCluster

GOAL_S = 0.2


def test_blocking_code_sends_and_consumes(tmp_path):
    with (
        BackgroundCluster(tmp_path) as cluster,
        sync.connect(cluster.namesrv) as mq,
        mq.subscribe("orders", group="billing", start="earliest") as orders,
    ):
        sent = mq.send("orders", b"hello", tag="paid")
        message = next(iter(orders))
        assert (message.body, message.tag, message.msg_id) == (b"hello", "paid", sent.msg_id)
        message.ack()


def test_a_cluster_starts_in_a_fifth_of_a_second(tmp_path):
    took_s = []
    for number in range(5):
        begun = time.perf_counter()
        with BackgroundCluster(tmp_path / str(number)):
            took_s.append(time.perf_counter() - begun)
    assert min(took_s) < GOAL_S, took_s


def test_settings_reach_the_broker(tmp_path):
    with BackgroundCluster(tmp_path, flush=Flush.SYNC, cluster="Mine") as cluster:
        settings = cluster.cluster.brokers[0].settings
        assert (settings.flush, settings.cluster) == (Flush.SYNC, "Mine")


def test_coroutines_run_in_the_clusters_thread(tmp_path):
    async def where():
        return threading.current_thread().name, asyncio.get_running_loop()

    with BackgroundCluster(tmp_path) as cluster:
        name, loop = cluster.run(where())
        assert name.startswith("sparrowmq-cluster")
        assert cluster.run(where())[1] is loop


def test_a_coroutine_that_takes_too_long_is_cancelled(tmp_path):
    cancelled = threading.Event()

    async def sleepy():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with BackgroundCluster(tmp_path) as cluster:
        with pytest.raises(TimeoutError):
            cluster.run(sleepy(), timeout_s=0.05)
        assert cancelled.wait(5)


def test_the_thread_ends_with_the_context(tmp_path):
    before = set(threading.enumerate())
    with BackgroundCluster(tmp_path) as cluster:
        threads = set(threading.enumerate()) - before
        assert any(thread.name.startswith("sparrowmq-cluster") for thread in threads)
    deadline = time.monotonic() + 5
    while any(thread.is_alive() for thread in threads):
        assert time.monotonic() < deadline
    with pytest.raises(RuntimeError, match="not running"):
        _ = cluster.namesrv


def test_it_says_so_when_it_was_never_started(tmp_path):
    with pytest.raises(RuntimeError, match="use it inside"):
        _ = BackgroundCluster(tmp_path).namesrv


def test_a_cluster_that_cannot_start_tells_why(tmp_path):
    with pytest.raises(ConfigError, match="insecure"), BackgroundCluster(tmp_path, bind="0.0.0.0"):
        pytest.fail("a public address without --insecure is refused")


def test_what_the_test_raises_passes_as_it_is(tmp_path):
    with pytest.raises(ZeroDivisionError), BackgroundCluster(tmp_path):
        _ = 1 / 0


def test_messages_outlive_the_cluster(tmp_path):
    with BackgroundCluster(tmp_path) as cluster, sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b"kept")
    with (
        BackgroundCluster(tmp_path) as cluster,
        sync.connect(cluster.namesrv) as mq,
        mq.subscribe("orders", group="late", start="earliest") as orders,
    ):
        assert next(iter(orders)).body == b"kept"


def test_unknown_settings_are_refused(tmp_path):
    with pytest.raises(TypeError, match="flushh"), BackgroundCluster(tmp_path, flushh=Flush.SYNC):
        pytest.fail("there is no such setting")


def test_whoever_asks_as_the_cluster_ends_is_told_so(tmp_path):
    def ask() -> None:
        with pytest.raises(RuntimeError, match="not running"):
            cluster.run(never(), timeout_s=30)
        told.append(True)

    async def never() -> None:
        task = asyncio.current_task()
        assert task is not None
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # It outlives its loop.
        await asyncio.Event().wait()

    async def ask_in_the_last_turn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asking.start()
            asking.join(0.1)  # It waits for this loop.

    told: list[bool] = []
    asking = threading.Thread(target=ask)
    with BackgroundCluster(tmp_path) as cluster:
        loop = cluster._running()[1]
        asyncio.run_coroutine_threadsafe(ask_in_the_last_turn(), loop)
        cluster.run(asyncio.sleep(0))
    asking.join(10)
    assert told
