"""A set that keeps the order in which its items came.

The order of a set of objects depends on their addresses. The product never relies on it, but a run would not be
repeated exactly. So the modules that have such sets get this one while they run in the simulation. The kernel has sets
of numbers alone, whose order is always the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any


class OrderedSet(MutableSet[Any]):
    """A set by insertion."""

    __slots__ = ("__weakref__", "_items")

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self._items))}}}"

    def add(self, value: Any) -> None:
        self._items[value] = None

    def discard(self, value: Any) -> None:
        self._items.pop(value, None)

    def update(self, *others: Iterable[Any]) -> None:
        for other in others:
            self._items.update(dict.fromkeys(other))

    def union(self, *others: Iterable[Any]) -> OrderedSet:
        found = self.copy()
        found.update(*others)
        return found

    def difference(self, *others: Iterable[Any]) -> OrderedSet:
        found = self.copy()
        found.difference_update(*others)
        return found

    def difference_update(self, *others: Iterable[Any]) -> None:
        for other in others:
            for item in list(other):
                self.discard(item)

    def intersection(self, *others: Iterable[Any]) -> OrderedSet:
        kept = [set(other) for other in others]
        return OrderedSet(item for item in self if all(item in each for each in kept))

    def intersection_update(self, *others: Iterable[Any]) -> None:
        self._items = self.intersection(*others)._items

    def issubset(self, other: Iterable[Any]) -> bool:
        there = set(other)
        return all(item in there for item in self)

    def issuperset(self, other: Iterable[Any]) -> bool:
        return all(item in self for item in other)

    def copy(self) -> OrderedSet:
        return OrderedSet(self)
