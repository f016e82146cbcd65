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
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, Final, TypeAlias, TypeVar
from uuid import uuid4

from sparrowmq.errors import BeingHandled, ConfigError
from sparrowmq.once.idempotent import Attempt

try:
    import redis
    from redis.asyncio import Redis as AsyncRedis
except ImportError as error:
    raise ConfigError(f"{__name__} needs the package redis: pip install 'sparrowmq[redis]'") from error

T = TypeVar("T")
# A command, or seconds to wait: what blocks and what does not then share all the rest.
Steps: TypeAlias = Generator[tuple[Any, ...] | float, Any, T]

POLL_S: Final = 0.05
_DONE: Final = "done"
# Nothing happens to a lease that has ended. An expiry of 0 deletes.
_EXPIRE: Final = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end"
)


class RedisStore:
    """Keeps marks in Redis, for handlers of the client's kind: `redis.Redis` or `redis.asyncio.Redis`.

    Args:
        keep_s: how long a mark is kept, which must be longer than any duplicate may take to come; 7 days by default.
        lease_s: after a crash others wait for so long; 30 s by default.
        prefix: begins the names of the keys.
    """

    has_connection = False

    def __init__(
        self,
        client: redis.Redis | AsyncRedis,
        *,
        keep_s: float = 604_800,
        lease_s: float = 30,
        prefix: str = "once:",
    ) -> None:
        if not isinstance(client, redis.Redis | AsyncRedis):
            raise ConfigError(
                f"{client!r} is no client of Redis; give a redis.Redis or a redis.asyncio.Redis"
            )
        if not keep_s > 0 or not lease_s > 0:
            raise ConfigError(f"keep_s={keep_s!r} and lease_s={lease_s!r} must be seconds above 0")
        self.is_async = isinstance(client, AsyncRedis)
        self._client: Any = client
        self._keep_ms, self._lease_s, self._lease_ms = (
            int(keep_s * 1000) or 1,
            lease_s,
            int(lease_s * 1000) or 1,
        )
        self._prefix = prefix

    def attempt(
        self, marks: Sequence[str]
    ) -> AbstractContextManager[Attempt] | AbstractAsyncContextManager[Attempt]:
        keys = [self._prefix + mark for mark in marks]
        return self._asynchronous(keys, uuid4().hex) if self.is_async else self._blocking(keys, uuid4().hex)

    @contextmanager
    def _blocking(self, keys: list[str], token: str) -> Iterator[Attempt]:
        taken: list[str] = []
        ended = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(taken, token, ended), daemon=True)
        try:
            attempt = Attempt(self._drive(self._take(keys, token, taken)))
            renewing.start()
            yield attempt
            self._drive(self._keep(taken))
        except BaseException:
            self._drive(self._expire(taken, token, 0))
            raise
        finally:
            ended.set()

    @asynccontextmanager
    async def _asynchronous(self, keys: list[str], token: str) -> AsyncIterator[Attempt]:
        taken: list[str] = []
        renewing = asyncio.ensure_future(self._renew_soon(taken, token))
        try:
            yield Attempt(await self._drive_soon(self._take(keys, token, taken)))
            await self._drive_soon(self._keep(taken))
        except BaseException:
            await self._drive_soon(self._expire(taken, token, 0))
            raise
        finally:
            renewing.cancel()

    def _take(self, keys: list[str], token: str, taken: list[str]) -> Steps[list[bool]]:
        """Take those marks that are not done, and note them. Raises: BeingHandled."""
        until, new = time.monotonic() + 2 * self._lease_s, []
        for key in keys:
            while not (is_new := (yield ("SET", key, token, "NX", "PX", self._lease_ms))):
                held = yield ("GET", key)
                if held in (_DONE, _DONE.encode(), token, token.encode()):
                    break
                if time.monotonic() > until:
                    raise BeingHandled(key, 2 * self._lease_s)
                yield POLL_S
            new.append(bool(is_new))
            taken += [key] if is_new else []
        return new

    def _keep(self, taken: list[str]) -> Steps[None]:
        for key in taken:
            yield ("SET", key, _DONE, "PX", self._keep_ms)

    def _expire(self, taken: list[str], token: str, after_ms: int) -> Steps[None]:
        for key in taken:
            yield ("EVAL", _EXPIRE, 1, key, token, after_ms)

    def _renew(self, taken: list[str], token: str, ended: threading.Event) -> None:
        while not ended.wait(self._lease_s / 3):
            with suppress(redis.RedisError):  # The next one may come in time.
                self._drive(self._expire(taken, token, self._lease_ms))

    async def _renew_soon(self, taken: list[str], token: str) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(redis.RedisError):
                await self._drive_soon(self._expire(taken, token, self._lease_ms))

    def _drive(self, steps: Steps[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, float):
                time.sleep(step)
            else:
                answer = self._client.execute_command(*step)

    async def _drive_soon(self, steps: Steps[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = await (
                asyncio.sleep(step) if isinstance(step, float) else self._client.execute_command(*step)
            )
