"""Messages that wait for a taker: from many queues to many takers, each message to one.

An asyncio.Queue that can be closed and drained in portions. It needs no limit of its own: what it holds is
bounded by the flow control of the queues that fill it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Each taker wakes so many others if it leaves items: all in a few turns of the loop if they are slow, and few for
# nothing if one of them takes everything.
_WOKEN: Final = 2


class InboxClosed(Exception):
    """There will be no more messages."""


class Inbox(Generic[T]):
    """A closable queue of one event loop.

    Args:
        on_idle: called when a taker begins to wait, or takes the last item.
    Attributes:
        idle: the number of takers that wait.
    """

    def __init__(self, on_idle: Callable[[], object] = lambda: None) -> None:
        self.idle = 0
        self._on_idle = on_idle
        self._items: deque[T] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def extend(self, items: Iterable[T]) -> None:
        """Add items behind the others and wake takers for them."""
        self._items.extend(items)
        self._wake(min(len(self._items), _WOKEN))

    async def take(self) -> T:
        """The next item. Cancelling takes none.

        Raises: InboxClosed, closed, even if items are left: they were never acknowledged, so they come again.
        """
        while not self._items or self._closed:
            if self._closed:
                raise InboxClosed
            taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            self.idle += 1
            self._on_idle()
            try:
                await taker
            except asyncio.CancelledError:
                if taker.done() and not taker.cancelled():
                    self._wake(1)  # Another taker may have the item for which this one was woken.
                else:
                    self.idle -= 1
                raise
        return self.take_here(1)[0]

    def next_here(self) -> T | None:
        """The next item; None if there is none, or it is closed. A taker was woken for the rest when they came."""
        items = self._items
        if not items or self._closed:
            return None
        item = items.popleft()
        if not items:
            self._on_idle()
        return item

    def take_here(self, count: int) -> list[T]:
        """Up to `count` items that are there; none if it is closed. Wakes takers for the rest."""
        items = self._items
        if not items or self._closed:
            return []
        taken = [items.popleft()] if count == 1 else [items.popleft() for _ in range(min(count, len(items)))]
        if not items:
            self._on_idle()
        elif self._takers:
            self._wake(min(len(items), _WOKEN))
        return taken

    def withdraw(self, is_wanted: Callable[[T], bool]) -> list[T]:
        """Take out the items that fulfil a condition."""
        withdrawn = [item for item in self._items if is_wanted(item)]
        if withdrawn:
            self._items = deque(item for item in self._items if not is_wanted(item))
        return withdrawn

    @property
    def is_closed(self) -> bool:
        return self._closed

    def open(self) -> None:
        """Undo `close`."""
        self._closed = False

    def close(self) -> None:
        """Let every taker end."""
        self._closed = True
        self._wake(len(self._takers))

    def __len__(self) -> int:
        return len(self._items)

    def _wake(self, count: int) -> None:
        while self._takers and count > 0:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                self.idle -= 1
                count -= 1
