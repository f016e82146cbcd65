"""Marks in a real Redis: leases while a handler runs, waiting for the outcome of others, expiry."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Iterator
from math import inf
from typing import Any, Final

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis

from sparrowmq import BeingHandled, ConfigError
from sparrowmq.once import idempotent
from sparrowmq.once.redis import RedisStore
from tests.interop.apache import free_ports
from tests.interop.child import Child, scratch
from tests.once.messages import received

PROGRAM: Final = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="needs Redis (Debian: apt install redis-server)")
pytestmark = needs_redis


class LiveRedis(Child):
    """A Redis that keeps nothing on disk."""

    def __init__(self) -> None:
        [self.port] = free_ports(1)
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        super().__init__(scratch("redis"), [PROGRAM or "redis-server", *options])

    def _wait_ready(self) -> None:
        self.wait_for("Ready to accept connections")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with LiveRedis() as server:
        yield server.port


@pytest.fixture
def client(port) -> Iterator[redis.Redis]:
    with redis.Redis(port=port) as client:
        client.flushall()
        yield client


def store_of(client, **options) -> RedisStore:
    return RedisStore(client, **{"lease_s": 0.3, **options})


def test_a_message_is_handled_once_and_its_mark_expires(client):
    calls = []
    bill = idempotent(store_of(client, keep_s=100), name="billing")(lambda message: calls.append(message.msg_id))
    for unique in ("U-1", "U-1", "U-2"):
        bill(received(unique))
    assert calls == ["U-1", "U-2"]
    [first, second] = client.keys("once:*")
    assert 99_000 < client.pttl(first) <= 100_000 and client.get(second) == b"done"


def test_a_failed_message_is_handled_again_at_once(client):
    calls = []

    @idempotent(store_of(client, lease_s=60))
    def bill(message):
        calls.append(message.msg_id)
        if len(calls) == 1:
            raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        bill(received())
    assert client.keys("*") == []
    bill(received())
    bill(received())
    assert len(calls) == 2


def test_a_batch_is_handled_without_its_duplicates(client):
    calls = []
    bill = idempotent(store_of(client))(lambda messages: calls.append([each.msg_id for each in messages]))
    bill([received("U-1"), received("U-1"), received("U-2")])
    bill([received("U-2"), received("U-3")])
    assert calls == [["U-1", "U-2"], ["U-3"]]


def test_a_duplicate_waits_for_a_handler_that_takes_longer_than_its_lease(client):
    """The lease is renewed: without that the duplicate would be handled as well."""
    calls, started = [], threading.Event()

    @idempotent(store_of(client, lease_s=0.3))
    def bill(message):
        calls.append(message.msg_id)
        started.set()
        time.sleep(0.5)

    first = threading.Thread(target=bill, args=(received(),))
    first.start()
    started.wait(10)
    bill(received())
    first.join()
    assert calls == ["U-1"]


async def test_the_same_with_asyncio(port, client):
    calls, started = [], asyncio.Event()
    async with AsyncRedis(port=port, decode_responses=True) as asynchronous:

        @idempotent(store_of(asynchronous, lease_s=0.3))
        async def bill(message):
            calls.append(message.msg_id)
            started.set()
            await asyncio.sleep(0.5)
            if message.tag == "fails":
                raise ValueError("not now")

        first = asyncio.create_task(bill(received()))
        await started.wait()
        await bill(received())
        await first
        with pytest.raises(ValueError, match="not now"):
            await bill(received("U-2", TAGS="fails"))
        await bill(received("U-2"))
    assert calls == ["U-1", "U-2", "U-2"]


async def test_a_cancelled_handler_leaves_no_mark(port, client):
    started = asyncio.Event()
    async with AsyncRedis(port=port) as asynchronous:

        @idempotent(store_of(asynchronous, lease_s=60))
        async def bill(message):
            started.set()
            await asyncio.Event().wait()

        handling = asyncio.create_task(bill(received()))
        await started.wait()
        [key] = client.keys("*")
        assert 0 < client.pttl(key) <= 60_000
        handling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handling
    assert client.keys("*") == []


def test_after_a_crash_the_lease_ends_and_the_message_is_handled(client):
    """A crash leaves the mark of its handler behind, and nothing renews it."""
    calls = []
    bill = idempotent(store_of(client))(lambda message: calls.append(message.msg_id))
    again: Any = store_of(client).attempt(["x"])
    client.set("once:x", "token of a dead process", px=300)
    with again as attempt:
        assert attempt.is_new == [True]
    bill(received())
    assert calls == ["U-1"]


def test_waiting_for_a_handler_that_does_not_end_is_an_error(client):
    bill = idempotent(store_of(client, lease_s=0.05))(lambda message: None)
    bill(received())
    [key] = client.keys("*")
    client.set(key, "another")
    with pytest.raises(BeingHandled, match="handling the message"):
        bill(received())
    assert client.get(key) == b"another"


@pytest.mark.parametrize(
    "wrong",
    [{"keep_s": 0}, {"lease_s": -1}, {"lease_s": None}, {"lease_s": "5"}, {"lease_s": inf}, {"prefix": None}],
)
def test_wrong_times_and_prefixes_are_refused(client, wrong):
    [name] = wrong
    with pytest.raises(ConfigError, match=f"{name}="):
        RedisStore(client, **wrong)


def test_a_client_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="no client of Redis"):
        RedisStore("127.0.0.1:6379")  # type: ignore[arg-type]
