"""Which messages of a queue a consumer gets: asked for each queue entry first, and for the record only if need be.

    entry ── wants(tags_code)? ── record ── predicate.holds(properties)? ── to the consumer
                  │ no: the record is never looked at       │ no: the next entry

A queue entry has the hash of the message's tag, which settles tag subscriptions without touching the log (a consumer
compares the tag itself, for hashes collide). What an SQL92 expression looks at stands in the record's properties.
Whoever reads a queue for consumers takes a `Selector`: pulls, held polls.
Source: ExpressionMessageFilter, Java 4.9.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer


class Predicate:
    """What must hold for a message beyond its tag."""

    def holds(self, records: bytes, begin: i64, end: i64) -> bool:
        """Whether it does for the message whose properties are `records[begin:end]`."""
        raise NotImplementedError

    def leave(self) -> None:
        """Let go of the records that were looked at."""


class Selector:
    """What to let through.

    Args:
        codes: hashes of tags, of which a message must have one; None for any.
        predicate: what must hold for a message's properties.
        weight: so many times as long as a usual one the predicate takes; the fewer records are looked at in one go.
    Attributes:
        takes_all_tags: whether any entry may stand for a wanted message.
        takes_all: whether any message is wanted.
    """

    __slots__ = ("_codes", "predicate", "takes_all", "takes_all_tags", "weight")

    def __init__(
        self, codes: frozenset[int] | None = None, predicate: Predicate | None = None, weight: int = 1
    ) -> None:
        self._codes = codes
        self.weight = weight
        self.predicate = predicate
        self.takes_all_tags = codes is None
        self.takes_all = codes is None and predicate is None

    def wants(self, tags_code: int) -> bool:
        """Whether an entry may stand for a wanted message."""
        return self._codes is None or tags_code in self._codes


ALL: Final = Selector()
