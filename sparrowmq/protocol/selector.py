"""Select the messages of a queue for a consumer, by the queue entry first, and by the record only if necessary.

    entry ── wants(tags_code)? ── record ── predicate.holds(properties)? ── to the consumer
                  │ no: the record is never read            │ no: the next entry

A queue entry has the hash of the message's tag, which decides tag subscriptions without a read of the log; consumers
compare the tag itself. An SQL92 expression needs the record's properties. Source: ExpressionMessageFilter, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final


class Predicate:
    """A condition on a message's properties."""

    def holds(self, records: bytes, begin: int, end: int) -> bool:
        """Whether it is true for the message with the properties `records[begin:end]`."""
        raise NotImplementedError

    def leave(self) -> None:
        """Release the records that were read."""


class Selector:
    """The messages that a consumer wants: with one of these hashes of tags (None: any), and for which the predicate
    holds. `weight` is the cost of the predicate, relative to a usual one: with more weight, fewer records are read at
    once.
    """

    __slots__ = ("_codes", "predicate", "takes_all", "takes_all_tags", "weight")

    def __init__(
        self, codes: frozenset[int] | None = None, predicate: Predicate | None = None, weight: int = 1
    ) -> None:
        self._codes = codes
        self.weight = weight
        self.predicate = predicate
        self.takes_all_tags = codes is None  # whether every entry may belong to a wanted message
        self.takes_all = codes is None and predicate is None  # whether every message is wanted

    @property
    def codes(self) -> frozenset[int] | None:
        """The hashes of the wanted tags; None: any."""
        return self._codes

    def wants(self, tags_code: int) -> bool:
        return self._codes is None or tags_code in self._codes


ALL: Final = Selector()
