"""A page that costs much: all who ask meanwhile share one, and it is made for at most a fifth of the time.

A scrape of a large broker takes 50 ms of its processor, and the port has no log-in. Without a pause between two pages
one program that asks again and again would take half of the broker. A visitor gets only figures that were read after
the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from sparrowmq.metrics.http_endpoint import Answer

_REST: Final = 4  # times as long as the page took
_LONGEST_REST_S: Final = 1.0  # a scrape has 10 s by default


class SharedPage:
    def __init__(self, make: Callable[[], Awaitable[Answer]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._answer: Answer | None = None
        self._began_s = 0.0
        self._next_s = 0.0

    async def get(self) -> Answer:
        """Return the page as of now. Raises: the error of its making."""
        now_s = asyncio.get_running_loop().time
        asked_s = now_s()
        async with self._turn:
            if self._answer is not None and self._began_s >= asked_s:
                return self._answer
            await asyncio.sleep(self._next_s - now_s())
            self._answer, self._began_s = None, now_s()
            try:
                self._answer = await self._make()
                return self._answer
            finally:
                self._next_s = now_s() + min(_REST * (now_s() - self._began_s), _LONGEST_REST_S)
