"""The messages of each orderly pop whose answer may be lost: the same attempt id gets them again.

A message is of the last pop that got it, until it is done. Steps have a number for each attempt id, so that a client
cannot make them long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

NO_ATTEMPT: Final = 0


def number_of(attempt_id: str) -> int:
    """Return the number of an attempt id, of 63 bits."""
    if not attempt_id:
        return NO_ATTEMPT
    from hashlib import blake2b  # a broker loads it only for orderly pops

    return int.from_bytes(blake2b(attempt_id.encode("utf-8", "replace"), digest_size=8).digest()) >> 1


class Attempts:
    """The messages of the attempts of one queue."""

    __slots__ = ("_messages", "_of")

    def __init__(self) -> None:
        self._of: dict[int, int] = {}  # by offset
        self._messages: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def take(self, offsets: Sequence[int], attempt: int) -> None:
        """Note that a pop got messages. One without an attempt only takes them from others."""
        for offset in offsets:
            if offset in self._of:
                self.drop(offset)
            if attempt != NO_ATTEMPT:
                self._of[offset] = attempt
        if attempt != NO_ATTEMPT:
            self._messages.setdefault(attempt, set()).update(offsets)

    def drop(self, offset: int) -> None:
        """Forget a message."""
        attempt = self._of.pop(offset, NO_ATTEMPT)
        if attempt != NO_ATTEMPT:
            messages = self._messages[attempt]
            messages.discard(offset)
            if not messages:
                del self._messages[attempt]

    def messages(self, attempt: int) -> list[int]:
        """Return the messages of an attempt, in their order."""
        return sorted(self._messages.get(attempt, ()))

    def attempt_of(self, offset: int) -> int:
        return self._of.get(offset, NO_ATTEMPT)

    def clear(self) -> None:
        self._of.clear()
        self._messages.clear()
