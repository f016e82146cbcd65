"""Marks in Redis: taken by a lease while a handler runs, and kept for some days after it.

    SET mark token NX PX lease     taken; its lease is renewed while the handler runs, and ends after a crash
    SET mark done PX keep          the handler has ended
    deleted                        the handler has failed, so the message is handled again

Another delivery of a message that is taken waits for the outcome. If a program dies between its effect and `done`, the
effect happens again: only a mark in the transaction of the effect can exclude that (`sql`, `in_django`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeVar
from uuid import uuid4

from sparrowmq.client.arguments import check_kind, check_seconds
from sparrowmq.errors import BeingHandled, ConfigError
from sparrowmq.once.idempotent import Attempt

try:
    import redis
    from redis.asyncio import Redis as AsyncRedis
except ImportError as error:
    raise ConfigError(f"{__name__} needs the package redis: pip install 'sparrowmq[redis]'") from error

T = TypeVar("T")
POLL_PERIOD_S: Final = 0.05
_DONE_VALUE: Final = "done"
# Nothing happens to a lease that has ended. An expiry of 0 deletes.
_EXPIRE_SCRIPT: Final = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end"
)


class RedisStore:
    """Keeps marks in Redis, for handlers of the client's kind: `redis.Redis` or `redis.asyncio.Redis`.

    A mark is kept for `keep_s`, which must be longer than any duplicate may take to come; 7 days by default. After a
    crash others wait for `lease_s`; 30 s by default. `prefix` begins the names of the keys.
    """

    has_connection = False

    def __init__(
        self, client: redis.Redis | AsyncRedis, *, keep_s: float = 604_800, lease_s: float = 30, prefix: str = "once:"
    ) -> None:
        if not isinstance(client, redis.Redis | AsyncRedis):
            raise ConfigError(f"{client!r} is no client of Redis; give a redis.Redis or a redis.asyncio.Redis")
        check_seconds("keep_s", keep_s)
        check_seconds("lease_s", lease_s)
        check_kind("prefix", prefix, str, "a text, with which the names of the keys begin")
        self.is_async = isinstance(client, AsyncRedis)
        self._client: Any = client
        self._sleep: Any = asyncio.sleep if self.is_async else time.sleep
        self._keep_ms, self._lease_ms = int(keep_s * 1000) or 1, int(lease_s * 1000) or 1
        self._prefix = prefix

    def attempt(self, marks: Sequence[str]) -> Any:
        keys = [self._prefix + mark for mark in marks]
        return self._async_attempt(keys, uuid4().hex) if self.is_async else self._blocking_attempt(keys, uuid4().hex)

    # With a blocking client the coroutines below never wait, so they run as plain calls: see `_run_now`.

    @contextmanager
    def _blocking_attempt(self, keys: list[str], token: str) -> Iterator[Attempt]:
        owned_keys: list[str] = []
        has_ended = threading.Event()
        try:
            attempt = Attempt(_run_now(self._take(keys, token, owned_keys)))
            threading.Thread(target=self._renew_until, args=(owned_keys, token, has_ended), daemon=True).start()
            yield attempt
            _run_now(self._keep(owned_keys))
        except BaseException:
            _run_now(self._expire(owned_keys, token, 0))
            raise
        finally:
            has_ended.set()

    @asynccontextmanager
    async def _async_attempt(self, keys: list[str], token: str) -> AsyncIterator[Attempt]:
        owned_keys: list[str] = []
        renewing = asyncio.ensure_future(self._renew(owned_keys, token))
        try:
            yield Attempt(await self._take(keys, token, owned_keys))
            await self._keep(owned_keys)
        except BaseException:
            await self._expire(owned_keys, token, 0)
            raise
        finally:
            renewing.cancel()

    async def _take(self, keys: list[str], token: str, owned_keys: list[str]) -> list[bool]:
        """Take those marks that are not done, and note them. Raises: BeingHandled."""
        limit_s = 2 * self._lease_ms / 1000
        deadline, new_marks = time.monotonic() + limit_s, []
        for key in keys:
            while not (is_new := await self._execute("SET", key, token, "NX", "PX", self._lease_ms)):
                if await self._execute("GET", key) in (_DONE_VALUE, _DONE_VALUE.encode(), token, token.encode()):
                    break
                if time.monotonic() > deadline:
                    raise BeingHandled(key, limit_s)
                await self._result_of(self._sleep(POLL_PERIOD_S))
            new_marks.append(bool(is_new))
            owned_keys += [key] if is_new else []
        return new_marks

    async def _keep(self, owned_keys: list[str]) -> None:
        for key in owned_keys:
            await self._execute("SET", key, _DONE_VALUE, "PX", self._keep_ms)

    async def _expire(self, owned_keys: list[str], token: str, after_ms: int) -> None:
        for key in owned_keys:
            await self._execute("EVAL", _EXPIRE_SCRIPT, 1, key, token, after_ms)

    async def _renew(self, owned_keys: list[str], token: str) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            with suppress(redis.RedisError):  # The next one may come in time.
                await self._expire(owned_keys, token, self._lease_ms)

    def _renew_until(self, owned_keys: list[str], token: str, has_ended: threading.Event) -> None:
        while not has_ended.wait(self._lease_ms / 3000):
            with suppress(redis.RedisError):
                _run_now(self._expire(owned_keys, token, self._lease_ms))

    async def _execute(self, *command: Any) -> Any:
        return await self._result_of(self._client.execute_command(*command))

    async def _result_of(self, answer: Any) -> Any:
        return await answer if self.is_async else answer


def _run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")
