"""The senders that wait for room in the window of a producer, or until it is empty."""

from __future__ import annotations

import asyncio
from collections import deque

from sparrowmq.client.sending.window import Window

Sleeper = asyncio.Future[None]


class WindowWaiters:
    """Wakes senders in their order, as many as there is room for."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._for_room: deque[Sleeper] = deque()
        self._for_end: deque[Sleeper] = deque()
        self._is_offering = False

    async def room(self) -> None:
        """Return when the next message would be sent at once. Callers return in their order. May be cancelled."""
        if self._for_room or not self._window.has_room:
            await _sleep(self._for_room)

    async def end(self) -> None:
        """Return when every message, also those that come meanwhile, is answered or has failed."""
        if self._window.unanswered:
            await _sleep(self._for_end)

    def look(self) -> None:
        """Wake the senders that may go on now: messages have left the window."""
        if self._for_room and not self._is_offering:
            self._offer_room()
        if self._for_end and not self._window.unanswered:
            _wake(self._for_end, len(self._for_end))

    def wake_all(self) -> None:
        """Wake those that wait for room, as there will be none: the client is closed."""
        _wake(self._for_room, len(self._for_room))

    def _offer_room(self) -> None:
        """Wake as many waiting senders as there is room for.

        A sender that is woken may put no message. So the room that is left is offered to the next ones afterwards.
        """
        self._is_offering = False
        if self._for_room and self._window.has_room:
            _wake(self._for_room, self._window.size - self._window.in_flight)
            if self._for_room:
                self._is_offering = True
                asyncio.get_running_loop().call_soon(self._offer_room)


async def _sleep(among: deque[Sleeper]) -> None:
    wanted: Sleeper = asyncio.get_running_loop().create_future()
    among.append(wanted)
    await wanted


def _wake(sleepers: deque[Sleeper], count: int) -> None:
    while sleepers and count > 0:
        sleeper = sleepers.popleft()
        if not sleeper.done():
            sleeper.set_result(None)
            count -= 1
