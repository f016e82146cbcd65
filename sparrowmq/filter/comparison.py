"""Comparisons: =, <>, >, >=, <, <=, and by two of them BETWEEN.

Two values of one kind are compared directly. Two texts are compared only for equality: > and its like read both as
numbers. Values of different kinds are converted first:

    text with a number       the text is read as that kind of number: "7.5" fails against 5, not against 5.0
    text with a Boolean      the text is true if it says so; but a Boolean on the left fails
    two kinds of number      the wider one; a long becomes a double, and may be rounded
    Boolean with a number    differ

With a null on one side, > and its like are unknown. "=" is unknown if the left side is null, and false if the right one
is. Two nulls are equal. <> is NOT =.
Properties are text, so each comparison with a number parses one as Java does (`integer`, `double`). None means that
Java refuses the text, and that the expression fails. Integer.valueOf takes a sign and digits of any script,
within 32 or 64 bits; Double.valueOf takes more than Python's float, such as "1d" and "0x1p3", and less: no "inf".
Source: ComparisonExpression, Java 4.9.7; java.lang.Integer, Long and Double of Java 17.
"""

from __future__ import annotations

import math
import re
from typing import Final, cast

from sparrowmq.filter.tree import (
    BOOLEAN,
    DOUBLE,
    FAILED,
    FALSE,
    INT,
    LONG,
    RAISED,
    TEXT,
    TRUE,
    UNKNOWN,
    Condition,
    Literal,
    Operand,
    Property,
    Values,
)

_DIGITS_OF_ANY_INT: Final = 9  # so many decimal digits always fit into 32 bits
_MAX_LONG_DIGITS: Final = 19  # digits of the largest long
# Unlike Java: a longer text is no number. No double needs more digits, and parsing them takes time.
_MAX_NUMBER_CHARACTERS: Final = 1100
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?P<name>NaN|Infinity)"
    r"|(?P<plain>(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_TRIMMED_CHARACTERS: Final = "".join(map(chr, range(0x21)))  # what String.trim takes away

EQUAL: Final = 0
ABOVE: Final = 1
AT_LEAST: Final = 2
BELOW: Final = 3
AT_MOST: Final = 4
_MIRRORED: Final = (EQUAL, BELOW, AT_MOST, ABOVE, AT_LEAST)
_NO_ORDER: Final = 9  # Java throws


def comparison(left: Operand, operator: int, right: Operand) -> Condition:
    """The condition for `left how right`. A property beside a literal gets a faster class."""
    if isinstance(left, Property) and isinstance(right, Literal):
        return _with_literal(left, operator, right, UNKNOWN) or Comparison(left, operator, right)
    if isinstance(left, Literal) and isinstance(right, Property):
        when_null = FALSE if operator == EQUAL else UNKNOWN
        return _with_literal(right, _MIRRORED[operator], left, when_null) or Comparison(left, operator, right)
    return Comparison(left, operator, right)


def _with_literal(left: Property, operator: int, right: Literal, when_null: int) -> Condition | None:
    constant = right.constant
    if right.kind == TEXT:
        return SameText(left.index, cast(str, constant), when_null) if operator == EQUAL else None
    if right.kind == DOUBLE:
        return DoubleComparison(left.index, operator, cast(float, constant), when_null)
    return WholeComparison(left.index, operator, cast(int, constant), 32 if right.kind == INT else 64, when_null)


class SameText(Condition):
    def __init__(self, index: int, text: str, when_null: int) -> None:
        super().__init__(2)
        self.index = index
        self.text = text
        self.encoded = text.encode("utf-8", "surrogatepass")
        self.when_null = when_null

    def truth(self, values: Values) -> int:
        if values.is_same(self.index, self.text, self.encoded):
            return TRUE
        return self.when_null if values.is_missing(self.index) else FALSE

    def texts(self, index: int) -> frozenset[str] | None:
        return frozenset({self.text}) if index == self.index else None


class WholeComparison(Condition):
    """A property is compared with a whole number."""

    def __init__(self, index: int, operator: int, number: int, bits: int, when_null: int) -> None:
        super().__init__(2)
        self.index = index
        self.operator = operator
        self.number = number
        self.bits = bits
        self.when_null = when_null

    def truth(self, values: Values) -> int:
        short = values.short_number(self.index)
        if short >= 0:
            return _holds(self.operator, short - self.number)
        text = values.text(self.index)
        if text is None:
            return self.when_null
        number = integer(text, self.bits)
        return FAILED if number is None else _holds(self.operator, whole_order(number, self.number))

    def bounds(self, largest: int) -> tuple[int, int]:
        """The range of the numbers from 0 to `largest` for which it is true, ends included; (1, 0) if it is empty."""
        low = self.number + (self.operator == ABOVE) if self.operator in (EQUAL, ABOVE, AT_LEAST) else 0
        high = self.number - (self.operator == BELOW) if self.operator in (EQUAL, BELOW, AT_MOST) else largest
        low, high = max(low, 0), min(high, largest)
        return (low, high) if low <= high else (1, 0)


class DoubleComparison(Condition):
    """A property is compared with a number that has a fraction or an exponent."""

    def __init__(self, index: int, operator: int, number: float, when_null: int) -> None:
        super().__init__(2)
        self.index = index
        self.operator = operator
        self.number = number
        self.when_null = when_null

    def truth(self, values: Values) -> int:
        short = values.short_number(self.index)
        if short >= 0:
            return _holds(self.operator, double_order(float(short), self.number))
        text = values.text(self.index)
        if text is None:
            return self.when_null
        number = double(text)
        return FAILED if number is None else _holds(self.operator, double_order(number, self.number))


class Comparison(Condition):
    """Any two operands are compared."""

    def __init__(self, left: Operand, operator: int, right: Operand) -> None:
        super().__init__(max(left.depth, right.depth) + 1)
        self.left = left
        self.operator = operator
        self.right = right

    def truth(self, values: Values) -> int:
        left = self.left.value(values)
        if left is RAISED:
            return FAILED
        if left is None and self.operator != EQUAL:
            return UNKNOWN
        right = self.right.value(values)
        if right is RAISED:
            return FAILED
        if left is None or right is None:
            return self._with_null(left, right)
        order = self._order(left, right)
        return FAILED if order == _NO_ORDER else _holds(self.operator, order)

    def _with_null(self, left: object, right: object) -> int:
        if self.operator != EQUAL:
            return UNKNOWN
        if left is None:
            return TRUE if right is None else UNKNOWN
        return FALSE

    def _order(self, left: object, right: object) -> int:
        kinds = self.left.kind, self.right.kind
        if kinds == (TEXT, TEXT):
            if self.operator == EQUAL:
                return _equality(left == right)
            return _order_of(_read_number(str(left), DOUBLE), _read_number(str(right), DOUBLE), DOUBLE)
        if kinds == (BOOLEAN, BOOLEAN):
            return _equality(left == right)
        if kinds[0] == BOOLEAN:
            return _NO_ORDER if kinds[1] == TEXT else -1
        if kinds[1] == BOOLEAN:
            return _equality((str(left).lower() == "true") == right) if kinds[0] == TEXT else -1
        if kinds[0] == TEXT:
            return _order_of(_read_number(str(left), kinds[1]), right, kinds[1])
        if kinds[1] == TEXT:
            return _order_of(left, _read_number(str(right), kinds[0]), kinds[0])
        return _order_of(left, right, max(kinds))


def _read_number(text: str, kind: int) -> int | float | None:
    if kind == DOUBLE:
        return double(text)
    return integer(text, 64 if kind == LONG else 32)


def _order_of(left: object, right: object, kind: int) -> int:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return _NO_ORDER
    if kind == DOUBLE:
        return double_order(float(left), float(right))
    return whole_order(cast(int, left), cast(int, right))


def _equality(is_equal: bool) -> int:
    return 0 if is_equal else 1


def _holds(operator: int, order: int) -> int:
    if operator == EQUAL:
        return TRUE if order == 0 else FALSE
    if operator == ABOVE:
        return TRUE if order > 0 else FALSE
    if operator == AT_LEAST:
        return TRUE if order >= 0 else FALSE
    if operator == BELOW:
        return TRUE if order < 0 else FALSE
    return TRUE if order <= 0 else FALSE


def integer(text: str, bits: int) -> int | None:
    """The whole number in `text`, if it fits into so many bits, sign included."""
    if len(text) <= _DIGITS_OF_ANY_INT and text.isascii() and text.isdigit():
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    # Java looks at UTF-16 units, so digits beyond U+FFFF are none.
    if len(digits) > _MAX_NUMBER_CHARACTERS or not digits.isdecimal() or max(digits) > "\uffff":
        return None
    # Leading zeros of any script are worth nothing, and may be many.
    start = 0
    while start < len(digits) - 1 and int(digits[start]) == 0:
        start += 1
    if len(digits) - start > _MAX_LONG_DIGITS:
        return None
    number = -int(digits[start:]) if text[0] == "-" else int(digits[start:])
    limit = 1 << (bits - 1)
    return number if -limit <= number < limit else None


def double(text: str) -> float | None:
    text = text.strip(_TRIMMED_CHARACTERS)
    match = _DOUBLE.fullmatch(text) if len(text) <= _MAX_NUMBER_CHARACTERS else None
    if match is None:
        return None
    if match["plain"] is not None:
        number = float(match["plain"])
    elif match["name"] is not None:
        number = math.nan if match["name"] == "NaN" else math.inf
    else:
        number = _hexadecimal(match["hex"])
    return -number if text[0] == "-" else number


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def double_order(left: float, right: float) -> int:
    """-1, 0 or 1 as Double.compare: NaN is above all and equal to itself, and 0.0 above -0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return int(math.copysign(1.0, left) > math.copysign(1.0, right)) - int(
            math.copysign(1.0, left) < math.copysign(1.0, right)
        )
    return int(left != left) - int(right != right)


def whole_order(left: int, right: int) -> int:
    """-1, 0 or 1."""
    return (left > right) - (left < right)
