"""Answers about names, asked for once in some seconds, for all clients.

A known answer stays in use while the server does not give another one, and while one client waits for the next one. So
a server that hangs delays one question in some seconds, by a second. Clients that want the same unknown name at once
wait for one question. They join it only once it has its turn: a question that waits behind a thousand others of its
connection delays no other connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, NamedTuple, TypeVar

from sparrowmq.errors import NetworkError, NoRoute, RemoteError
from sparrowmq.loop.clock import Clock

V = TypeVar("V")

FRESH_S: Final = 5.0
REFRESH_S: Final = 1.0  # for a newer answer, if one is known; also how long a brief answer is kept
MOST_KEPT: Final = 10_000

Turn = Callable[[], AbstractAsyncContextManager[None]]


class _CachedAnswer(NamedTuple, Generic[V]):
    """An answer, and the time of the clock at which it was asked for."""

    asked_s: float
    answer: V


class AnswerCache(Generic[V]):
    """Answers that are asked for again after some seconds, and kept while no answer comes.

    Args:
        is_brief: whether an answer will soon be another one. It is asked for again after a second.
    """

    def __init__(
        self,
        clock: Clock,
        ask: Callable[[str], Awaitable[V]],
        is_brief: Callable[[V], bool] = lambda _: False,
    ) -> None:
        self._clock = clock
        self._ask = ask
        self._is_brief = is_brief
        self._answers: dict[str, _CachedAnswer[V]] = {}
        self._asking: dict[str, asyncio.Future[V]] = {}

    async def of(self, name: str, turn: Turn) -> V:
        """The answer for a name; `turn` waits until it may be asked for. Raises: as `ask`, if none was kept."""
        known = self._answers.get(name)
        now = self._clock.monotonic()
        if known is None:
            return await self._ask_once(name, turn)
        if now - known.asked_s < (REFRESH_S if self._is_brief(known.answer) else FRESH_S):
            return known.answer
        self._answers[name] = _CachedAnswer(now, known.answer)  # others use it meanwhile
        try:
            return await self._clock.wait_for(self._ask_once(name, turn, now), REFRESH_S)
        except (NetworkError, TimeoutError):
            return known.answer
        except (NoRoute, RemoteError):
            self._answers.pop(name, None)
            raise

    async def _ask_once(self, name: str, turn: Turn, later_than_s: float = -1.0) -> V:
        """The answer of a question: one that another client asks now, or one of our own."""
        while True:
            asking = self._asking.get(name)
            if asking is None:
                async with turn():
                    known, asking = self._answers.get(name), self._asking.get(name)
                    if known is not None and known.asked_s > later_than_s:
                        return known.answer
                    if asking is None:
                        return await self._ask_now(name)
            await asyncio.wait((asking,))
            if not asking.cancelled():  # its client has not left
                return asking.result()

    async def _ask_now(self, name: str) -> V:
        asking = self._asking[name] = asyncio.get_running_loop().create_future()
        try:
            found = await self._ask(name)
        except BaseException as error:
            del self._asking[name]
            if isinstance(error, NetworkError | NoRoute | RemoteError):
                asking.set_exception(error)
                asking.exception()  # counts as read, also if no other client waits
            else:
                asking.cancel()
            raise
        del self._asking[name]
        asking.set_result(found)
        if len(self._answers) >= MOST_KEPT:
            self._answers.clear()
        self._answers[name] = _CachedAnswer(self._clock.monotonic(), found)
        return found
