"""SQL92 filters, each compiled once for all its consumers. Tag filters are in protocol/selector.py.

A consumer sends an expression with the check at its start (CHECK_CLIENT_CONFIG), with its heartbeats, and perhaps with
every pull. The broker compiles an expression for the first check or pull that needs it, and keeps the result, or the
error. A long expression is compiled in slices. `enablePropertyFilter` allows these filters.

A heartbeat with a bad expression is accepted, because it carries other groups too. The pull is refused. Unlike Java:
the refusal has code 23 and the place of the error; Java answers 27 without a text.

A filter finds the properties that it needs in the records of the log:

    amount 0x01 7 0x02 region 0x01 EU 0x02 amount 0x01 8 0x02
    ^ a name is at the begin of the properties, or after 0x02   searched from the end: the last value counts

No other field of the record is decoded, and of the properties only the values that the filter needs.
Source: ConsumerFilterManager, PullMessageProcessor and ExpressionMessageFilter.isMatchedByCommitLog, Java 4.9.7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import MAX_REMARK_CHARACTERS, InvalidFilter, RemoteError
from sparrowmq.filter.comparison import WholeComparison
from sparrowmq.filter.tree import Filter, Values
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.selector import Predicate, Selector
from sparrowmq.protocol.subscription import SQL92
from sparrowmq.remoting.log_limit import LogLimit

_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"
_MAX_SEARCHED_BYTES: Final = 64  # of a name: a search takes up to so many steps for each byte of the record
_NOT_UTF8: Final = "\ufffd"
_MAX_SHORT_DIGITS: Final = 9  # digits of a number that is read without the rules for numbers in text
_MAX_SHORT_NUMBER: Final = 999_999_999
log = logging.getLogger(__name__)
MAX_FILTERS: Final = 1000
MAX_FILTER_CHARACTERS: Final = 1 << 20  # of all expressions together
_MAX_SHORT_EXPRESSION: Final = 256  # characters of an expression that is compiled in about 1 ms
_USUAL_SIZE: Final = 64  # of a filter; with a larger one, one read scans fewer records
PARSE_FAILED: Final = "parse the consumer's subscription failed"


class Filters:
    def __init__(self, are_allowed: bool, clock: Clock | None = None) -> None:
        self._are_allowed = are_allowed
        self._log_limit = LogLimit(clock or SystemClock())
        self._parse_in_steps: Callable[[str], Steps[Filter]] | None = None
        if are_allowed:
            # Import it at the start, because this blocks the loop for some time, and only if it is needed: 1.5 MB.
            from sparrowmq.filter.grammar import parse_in_steps

            self._parse_in_steps = parse_in_steps
        self._by_expression: dict[str, Selector | str] = {}  # a text is the error of a bad expression
        self._cached_characters = 0

    def selector(self, kind: str, expression: str | None) -> Selector | Steps[Selector]:
        """Return the selector of an expression, or the work to compile a long one. Raises: RemoteError, it is bad."""
        if kind != SQL92 or not self._are_allowed:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {shown(kind)}"
            )
        text = expression or ""
        selector = self._by_expression.pop(text, None)
        if selector is not None:
            self._by_expression[text] = selector  # the last, so the least recently used expression is the first
            return _selector_or_error(selector)
        return self._compiled(text) if len(text) > _MAX_SHORT_EXPRESSION else at_once(self._compiled(text))

    def _compiled(self, expression: str) -> Steps[Selector]:
        assert self._parse_in_steps is not None, "unreachable where there are no filters"
        selector = yield from _compile(expression, self._parse_in_steps)
        if isinstance(selector, str):
            text = "a consumer asks for a bad SQL92 expression: %s"
            self._log_limit.log(log, logging.WARNING, text, shown(selector, MAX_REMARK_CHARACTERS))
        if self._by_expression.pop(expression, None) is None:  # another pull may have compiled it during a pause
            self._cached_characters += len(expression)
        self._by_expression[expression] = selector
        while len(self._by_expression) > MAX_FILTERS or self._cached_characters > MAX_FILTER_CHARACTERS:
            oldest = next(iter(self._by_expression))
            del self._by_expression[oldest]
            self._cached_characters -= len(oldest)
        return _selector_or_error(selector)


def _selector_or_error(compiled: Selector | str) -> Selector:
    if isinstance(compiled, Selector):
        return compiled
    raise RemoteError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{PARSE_FAILED}: {compiled}")


def _compile(expression: str, parse_in_steps: Callable[[str], Steps[Filter]]) -> Steps[Selector | str]:
    try:
        compiled_filter = yield from parse_in_steps(expression)
    except InvalidFilter as error:
        return str(error)
    return Selector(_tags_codes(compiled_filter), predicate(compiled_filter), 1 + compiled_filter.size // _USUAL_SIZE)


def _tags_codes(expression: Filter) -> frozenset[int] | None:
    tags = expression.texts(Property.TAGS)
    # Only for ASCII tags: if a sender's text was no UTF-8, its hash there may have been another one.
    return frozenset(map(string_hash, tags)) if tags and all(map(str.isascii, tags)) else None


def predicate(expression: Filter) -> Predicate:
    root = expression.root
    return NumberFilter(expression, root) if isinstance(root, WholeComparison) else RecordFilter(expression)


class RecordFilter(Predicate):
    def __init__(self, expression: Filter) -> None:
        self._expression = expression
        self._values = RecordValues(expression.names)

    def holds(self, records: bytes, begin: int, end: int) -> bool:
        values = self._values
        values.move(records, begin, end)
        return self._expression.matches(values)

    def leave(self) -> None:
        self._values.leave()


class NumberFilter(Predicate):
    """The predicate of a filter that compares one property with a whole number of nine digits at most, as most do."""

    def __init__(self, expression: Filter, condition: WholeComparison) -> None:
        self._slow_filter = RecordFilter(expression)
        self._search = _PropertySearch(expression.names[condition.index])
        low, high = condition.bounds(_MAX_SHORT_NUMBER)
        self._low = low
        self._high = high

    def holds(self, records: bytes, begin: int, end: int) -> bool:
        start = self._search.find(records, begin, end)
        if start < 0:
            return False  # unknown
        number = _short_number(records, start, end)
        if number < 0:
            return self._slow_filter.holds(records, begin, end)
        return self._low <= number <= self._high

    def leave(self) -> None:
        self._slow_filter.leave()


class RecordValues(Values):
    """The property values of one record after another. Each is searched and decoded once, when it is asked for."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._searches = [_PropertySearch(name) for name in names]
        self._records = b""
        self._begin = 0
        self._end = 0
        self._record_number = 0

    def move(self, records: bytes, begin: int, end: int) -> None:
        self._records = records
        self._begin = begin
        self._end = end
        self._record_number += 1

    def leave(self) -> None:
        self._records = b""
        for search in self._searches:
            search.text = None

    def text(self, index: int) -> str | None:
        start = self._value_start(index)
        if start < 0:
            return None
        search = self._searches[index]
        if search.text is None:
            end = _value_end(self._records, start, self._end)
            search.text = self._records[start:end].decode("utf-8", "replace")
        return search.text

    def is_same(self, index: int, text: str, encoded: bytes) -> bool:
        if _NOT_UTF8 in text:  # decoding puts this character also in the place of bytes that are not UTF-8
            return self.text(index) == text
        start = self._value_start(index)
        if start < 0 or not self._records.startswith(encoded, start):
            return False
        return _value_end(self._records, start, self._end) == start + len(encoded)

    def is_missing(self, index: int) -> bool:
        return self._value_start(index) < 0

    def short_number(self, index: int) -> int:
        start = self._value_start(index)
        return -1 if start < 0 else _short_number(self._records, start, self._end)

    def _value_start(self, index: int) -> int:
        search = self._searches[index]
        if search.record_number != self._record_number:
            search.record_number = self._record_number
            search.text = None
            search.start = search.find(self._records, self._begin, self._end)
        return search.start


class _PropertySearch:
    """The place of the value of one name in the record of a turn."""

    __slots__ = ("_begin", "_name", "record_number", "start", "text")

    def __init__(self, name: str) -> None:
        self._name = name.encode() + _NAME_END
        self._begin = _VALUE_END + self._name[:_MAX_SEARCHED_BYTES]
        self.start = -1
        self.text: str | None = None  # the value, once it was decoded
        self.record_number = 0

    def find(self, records: bytes, begin: int, end: int) -> int:
        """Return the begin of the last value that is not empty, in the properties `records[begin:end]`; -1 if none."""
        name, size = self._name, len(self._name)
        name_at = end
        while name_at > begin:
            name_at = records.rfind(self._begin, begin, name_at + len(self._begin) - 2) + 1
            if name_at == 0:
                name_at = begin  # no byte is before the first name
            start = name_at + size
            if start < end and records[start : start + 1] != _VALUE_END and records.startswith(name, name_at):
                return start
        return -1


def _value_end(records: bytes, start: int, end: int) -> int:
    value_end = records.find(_VALUE_END, start, end)
    return end if value_end < 0 else value_end


def _short_number(records: bytes, start: int, end: int) -> int:
    """Return the number at `start`; -1 if it is not one to nine digits."""
    digits = records[start : _value_end(records, start, min(end, start + _MAX_SHORT_DIGITS + 1))]
    number = whole_number(str(digits, "latin-1"), _MAX_SHORT_DIGITS)
    return -1 if number is None else number
