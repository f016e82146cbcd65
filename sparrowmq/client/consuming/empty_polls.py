"""Pauses between requests that find nothing although no broker held them.

A broker holds a pull or a pop until a message comes. One that answers at once, again and again, is full, broken or
hostile: without pauses a client would ask it thousands of times a second, and log as often. The first quick answers
have no pause, and the next ones short ones: a queue that was moved, or a broker that stops, delays no message.
"""

from __future__ import annotations

from typing import Final

HELD_S: Final = 0.1  # an answer that took so long needs no pause
_FREE: Final = 5  # quick answers without a pause
_FIRST_S: Final = 0.001
_LONGEST_S: Final = 1.0


class EmptyPollBackoff:
    """The quick answers without messages that came one after another from one queue."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def pause_s(self, has_messages: bool, took_s: float) -> float:
        """Return the pause before the next request, after an answer that found something, or that took so long."""
        if has_messages or took_s >= HELD_S:
            self._count = 0
            return 0.0
        self._count = min(self._count + 1, 100)
        return min(_FIRST_S * 2.0 ** (self._count - _FREE - 1), _LONGEST_S) if self._count > _FREE else 0.0
