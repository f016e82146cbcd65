"""Whether a message in the log fits an SQL92 filter: the properties that the filter asks for are found in its record.

    "\\x02amount\\x01" is searched from behind: amount 0x01 7 0x02 region 0x01 EU 0x02
                                                ^ the first one has no 0x02 before it

Nothing else of the record is taken apart, and no object is made for a message but the texts that are asked for.
Source: ExpressionMessageFilter.isMatchedByCommitLog, Java 4.9.7.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.filter.tree import Filter, Values
from sparrowmq.protocol.messages.properties import mark
from sparrowmq.protocol.selector import Predicate

_VALUE_END: Final = 2
_NOT_UTF8: Final = "\ufffd"
_LONGEST_SHORT: Final = 9  # digits of a number that needs no more thought


class RecordFilter(Predicate):
    """A filter as a `Selector`'s predicate."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._values = RecordValues(wanted.names)

    def holds(self, records: bytes, begin: int, end: int) -> bool:
        values = self._values
        values.move(records, begin, end)
        matches = self._wanted.matches(values)
        values.leave()
        return matches


class RecordValues(Values):
    """Values out of one record after another; each is looked for once, when it is asked for."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._marks = [mark(name).encode() for name in names]
        self._first_marks = [each[1:] for each in self._marks]
        self._records = b""
        self._begin = self._end = 0
        self._turn = 0
        self._found_in = [0] * len(names)  # the turn in which the value was looked for
        self._starts = [0] * len(names)
        self._ends = [0] * len(names)  # 0 if there is no value

    def move(self, records: bytes, begin: int, end: int) -> None:
        """Go to the record whose properties are `records[begin:end]`."""
        self._records = records
        self._begin = begin
        self._end = end
        self._turn += 1

    def leave(self) -> None:
        """Let go of the record."""
        self._records = b""

    def text(self, index: int) -> str | None:
        if self._found_in[index] != self._turn:
            self._find(index)
        end = self._ends[index]
        return self._records[self._starts[index] : end].decode("utf-8", "replace") if end else None

    def is_same(self, index: int, text: str, encoded: bytes) -> bool:
        if self._found_in[index] != self._turn:
            self._find(index)
        start, end = self._starts[index], self._ends[index]
        if _NOT_UTF8 in text:  # it stands for bytes that are not UTF-8, too
            return self.text(index) == text
        return end - start == len(encoded) and end > 0 and _is_at(self._records, start, encoded)

    def is_missing(self, index: int) -> bool:
        if self._found_in[index] != self._turn:
            self._find(index)
        return self._ends[index] == 0

    def short_number(self, index: int) -> int:
        if self._found_in[index] != self._turn:
            self._find(index)
        start, end, records = self._starts[index], self._ends[index], self._records
        if not 0 < end - start <= _LONGEST_SHORT:
            return -1
        number = 0
        for at in range(start, end):
            digit = records[at] - 48
            if not 0 <= digit <= 9:
                return -1
            number = 10 * number + digit
        return number

    def _find(self, index: int) -> None:
        """The last value that is not empty, as everywhere."""
        self._found_in[index] = self._turn
        self._ends[index] = 0
        wanted, records, begin = self._marks[index], self._records, self._begin
        behind = self._end
        while (at := records.rfind(wanted, begin, behind)) >= 0:
            if self._is_value(index, at + len(wanted)):
                return
            behind = at + 1
        first = self._first_marks[index]
        if begin + len(first) < self._end and _is_at(records, begin, first):
            self._is_value(index, begin + len(first))

    def _is_value(self, index: int, start: int) -> bool:
        records, end = self._records, start
        while end < self._end and records[end] != _VALUE_END:
            end += 1
        if end == start:
            return False
        self._starts[index], self._ends[index] = start, end
        return True


def _is_at(records: bytes, at: int, wanted: bytes) -> bool:
    """Whether `wanted` stands there; names and values are short, so this is quicker than a slice."""
    return all(records[at + i] == wanted[i] for i in range(len(wanted)))
