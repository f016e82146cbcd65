"""Whether a message in the log fits an SQL92 filter: the properties that the filter asks for are found in its record.

    amount 0x01 7 0x02 region 0x01 EU 0x02 amount 0x01 8 0x02
    ^ a name begins the properties, or stands behind 0x02       searched from behind: the last value counts

Nothing else of the record is taken apart, and no object is made for a message but the texts that are asked for. Of a
number even its few digits are read where they lie.
Source: ExpressionMessageFilter.isMatchedByCommitLog, Java 4.9.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrowmq.filter.comparison import WholeComparison
from sparrowmq.filter.tree import Filter, Values
from sparrowmq.protocol.selector import Predicate

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

_NAME_END: Final = b"\x01"
_VALUE_END: Final = 2
_NOT_UTF8: Final = "\ufffd"
_LONGEST_SHORT: Final = 9  # digits of a number that needs no more thought
_LARGEST_SHORT: Final = 999_999_999
_ZERO: Final = 48  # "0"; a literal, so that it is compiled in


def predicate(wanted: Filter) -> Predicate:
    """A filter as a `Selector`'s predicate."""
    root = wanted.root
    return NumberFilter(wanted, root) if isinstance(root, WholeComparison) else RecordFilter(wanted)


class RecordFilter(Predicate):
    """Any filter."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._values = RecordValues(wanted.names)

    def holds(self, records: bytes, begin: i64, end: i64) -> bool:
        values = self._values
        values.move(records, begin, end)
        return self._wanted.matches(values)

    def leave(self) -> None:
        self._values.leave()


class NumberFilter(Predicate):
    """A filter that compares one property with a whole number, as most do: nothing is kept between its steps.

    What is not just a few digits is left to the filter as such.
    """

    def __init__(self, wanted: Filter, condition: WholeComparison) -> None:
        self._any = RecordFilter(wanted)
        self._place = _Place(wanted.names[condition.index])
        low, high = condition.bounds(_LARGEST_SHORT)
        self._low: i64 = low
        self._high: i64 = high

    def holds(self, records: bytes, begin: i64, end: i64) -> bool:
        start = self._place.find(records, begin, end)
        if start < 0:
            return False  # unknown
        number = _short_number(records, start, end)
        if number < 0:
            return self._any.holds(records, begin, end)
        return self._low <= number <= self._high

    def leave(self) -> None:
        self._any.leave()


class RecordValues(Values):
    """Values out of one record after another; each is looked for once, when it is asked for."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._places = [_Place(name) for name in names]
        self._records = b""
        self._begin: i64 = 0
        self._end: i64 = 0
        self._turn: i64 = 0

    def move(self, records: bytes, begin: i64, end: i64) -> None:
        """Go to the record whose properties are `records[begin:end]`."""
        self._records = records
        self._begin = begin
        self._end = end
        self._turn += 1

    def leave(self) -> None:
        """Let go of the record."""
        self._records = b""

    def text(self, index: int) -> str | None:
        start = self._start(index)
        if start < 0:
            return None
        end: i64 = start
        while end < self._end and self._records[end] != _VALUE_END:
            end += 1
        return self._records[start:end].decode("utf-8", "replace")

    def is_same(self, index: int, text: str, encoded: bytes) -> bool:
        if _NOT_UTF8 in text:  # it stands for bytes that are not UTF-8, too
            return self.text(index) == text
        start = self._start(index)
        behind: i64 = start + len(encoded)
        if start < 0 or behind > self._end or not _is_at(self._records, start, encoded):
            return False
        return behind == self._end or self._records[behind] == _VALUE_END

    def is_missing(self, index: int) -> bool:
        return self._start(index) < 0

    def short_number(self, index: int) -> int:
        start = self._start(index)
        return -1 if start < 0 else _short_number(self._records, start, self._end)

    def _start(self, index: int) -> i64:
        """Where the value begins, -1 if there is none."""
        place = self._places[index]
        if place.turn != self._turn:
            place.turn = self._turn
            place.start = place.find(self._records, self._begin, self._end)
        return place.start


class _Place:
    """Where the value of one name stands in the record of a turn.

    A name is searched as Horspool does, from behind: where the name would begin stands a byte, which tells how far to
    the left the name can begin at the earliest.
    """

    __slots__ = ("_name", "_steps", "start", "turn")

    def __init__(self, name: str) -> None:
        self._name = name.encode() + _NAME_END
        self.start: i64 = -1
        self.turn: i64 = 0
        size = len(self._name)
        steps = [min(size, 255)] * 256
        for behind in range(min(size, 256) - 1, 0, -1):
            steps[self._name[behind]] = behind
        self._steps = bytes(steps)

    def find(self, records: bytes, begin: i64, end: i64) -> i64:
        """Where the last value begins that is not empty, in the properties `records[begin:end]`; -1 if none does."""
        name, steps = self._name, self._steps
        size: i64 = len(name)
        first: i64 = name[0]
        at: i64 = end - size - 1  # a value has a byte at least
        while at >= begin:
            here: i64 = records[at]
            if (
                here == first
                and records[at + size] != _VALUE_END
                and (at == begin or records[at - 1] == _VALUE_END)
                and _is_at(records, at, name)
            ):
                return at + size
            at -= steps[here]
        return -1


def _short_number(records: bytes, start: i64, end: i64) -> i64:
    """The number whose few digits begin there; -1 if it is none, or needs more thought."""
    at: i64 = start
    longest: i64 = start + _LONGEST_SHORT
    number: i64 = 0
    while at < end:
        digit: i64 = records[at] - _ZERO
        if not 0 <= digit <= 9 or at == longest:
            # Two returns: of one with a condition the compiler would make an object.
            if records[at] == _VALUE_END:
                return number
            return -1
        number = 10 * number + digit
        at += 1
    return number


def _is_at(records: bytes, at: i64, wanted: bytes) -> bool:
    """Whether `wanted` stands there; names and values are short, so this is quicker than a slice."""
    i: i64 = 0
    size: i64 = len(wanted)
    while i < size and records[at + i] == wanted[i]:
        i += 1
    return i == size
