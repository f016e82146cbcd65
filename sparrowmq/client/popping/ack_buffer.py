"""The messages of a group that are to be acknowledged together, at the end of a turn of the loop.

PopQueue.settle ──> add ──> the first of a turn begins a task ──> the task takes all    (compiled, for each message)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class AckBuffer:
    """Popped messages whose acknowledgements are not sent yet.

    Args:
        begin: starts the task that takes them, when the first one comes. If it raises, none is taken.
    """

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin
        self._messages: list[Any] = []

    def add(self, message: object) -> None:
        if not self._messages:
            self._begin()
        self._messages.append(message)

    def extend(self, messages: Sequence[object]) -> None:
        if messages and not self._messages:
            self._begin()
        self._messages += messages

    def take(self) -> list[Any]:
        """Remove all messages, and return them."""
        messages, self._messages = self._messages, []
        return messages
