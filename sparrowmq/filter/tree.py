"""The parts of an expression: operands, which have a value, and conditions, which are true or not.

A condition has four possible results for a message: true, false, unknown (SQL's NULL), or failed where Java throws. A
failed condition makes the whole expression fail, unless AND or OR has its result before. Only a true expression
matches.

Conditions ask for the values of properties one at a time, by their index in the filter's names. An early
decision saves the other look-ups.
Source: ConstantExpression, PropertyExpression, UnaryExpression and LogicExpression, Java 4.9.7; ComparisonExpression of
5.4.0 for the searches in text.
"""

from __future__ import annotations

from typing import Final

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2
FAILED: Final = 3

# The type of a value that is not null. It follows from the expression alone, because properties are always text.
NOTHING: Final = 0  # always null
INT: Final = 1
LONG: Final = 2
DOUBLE: Final = 3
TEXT: Final = 4
BOOLEAN: Final = 5

_MAX_COMPARISONS: Final = 50_000  # comparisons of characters, that take up to 50 us
_LINEAR_FROM: Final = 30_000  # characters of a text in which every search is linear (CPython: stringlib/fastsearch.h)

RAISED: Final = object()  # as an operand's value: Java throws here


class Values:
    """The values of one message's properties, by their index in `Filter.names`."""

    def text(self, index: int) -> str | None:
        """The value; None if the message lacks it."""
        raise NotImplementedError

    def short_number(self, index: int) -> int:
        """The value as a number, if it has one to nine decimal digits; -1 otherwise: then use `text`."""
        return -1

    def is_same(self, index: int, text: str, encoded: bytes) -> bool:
        """Whether the value is `text`, which in UTF-8 is `encoded`."""
        return self.text(index) == text

    def is_missing(self, index: int) -> bool:
        return self.text(index) is None


class Texts(Values):
    def __init__(self, texts: list[str | None]) -> None:
        self._texts = texts

    def text(self, index: int) -> str | None:
        return self._texts[index]


class Operand:
    """Something with a value."""

    def __init__(self, kind: int, depth: int = 1, is_literal: bool = False) -> None:
        self.kind = kind  # of the value, unless that is null
        self.depth = depth  # the number of operands nested here
        self.is_literal = is_literal  # it is written in the expression as it is; -5 is not a literal, but 5 with a sign

    def value(self, values: Values) -> object:
        """The value, None for null, or RAISED."""
        raise NotImplementedError


class Property(Operand):
    def __init__(self, name: str, index: int) -> None:
        super().__init__(TEXT)
        self.name = name
        self.index = index

    def value(self, values: Values) -> object:
        return values.text(self.index)


class Literal(Operand):
    """A number or a text in the expression, or such a number with a sign."""

    def __init__(self, kind: int, constant: object, is_literal: bool = True) -> None:
        super().__init__(kind, is_literal=is_literal)
        self.constant = constant

    def value(self, values: Values) -> object:
        return self.constant


class Negated(Operand):
    """A minus before an operand that is no number: null, unless the operand fails."""

    def __init__(self, inner: Operand) -> None:
        super().__init__(NOTHING, inner.depth + 1)
        self.inner = inner

    def value(self, values: Values) -> object:
        return RAISED if self.inner.value(values) is RAISED else None


class Condition(Operand):
    """An operand with a truth value."""

    def __init__(self, depth: int, is_literal: bool = False) -> None:
        super().__init__(BOOLEAN, depth, is_literal)

    def truth(self, values: Values) -> int:
        """TRUE, FALSE, UNKNOWN or FAILED."""
        raise NotImplementedError

    def texts(self, index: int) -> frozenset[str] | None:
        """The only texts that a property can have where this is true; None if it can have others too."""
        return None

    def value(self, values: Values) -> object:
        truth = self.truth(values)
        if truth == UNKNOWN:
            return None
        return RAISED if truth == FAILED else truth == TRUE


class Constant(Condition):
    """TRUE, FALSE or NULL."""

    def __init__(self, constant: int) -> None:
        super().__init__(1, is_literal=True)
        self.constant = constant

    def truth(self, values: Values) -> int:
        return self.constant


class Flag(Condition):
    """A property in the place of a condition: never true, because properties are text."""

    def __init__(self, index: int) -> None:
        super().__init__(2)
        self.index = index

    def truth(self, values: Values) -> int:
        return UNKNOWN if values.is_missing(self.index) else FALSE


class Not(Condition):
    def __init__(self, inner: Condition) -> None:
        super().__init__(inner.depth + 1)
        self.inner = inner

    def truth(self, values: Values) -> int:
        truth = self.inner.truth(values)
        return 1 - truth if truth <= TRUE else truth


class Every(Condition):
    """Conditions with AND between them: the first that is false, or fails, decides."""

    def __init__(self, parts: list[Condition]) -> None:
        super().__init__(max([part.depth for part in parts]) + 1)
        self.parts = parts

    def truth(self, values: Values) -> int:
        result = TRUE
        for part in self.parts:
            truth = part.truth(values)
            if truth in (FALSE, FAILED):
                return truth
            if truth == UNKNOWN:
                result = UNKNOWN
        return result

    def texts(self, index: int) -> frozenset[str] | None:
        for part in self.parts:
            part_texts = part.texts(index)
            if part_texts is not None:
                return part_texts
        return None


class AnyOf(Condition):
    """Conditions with OR between them: the first that is true, or fails, decides."""

    def __init__(self, parts: list[Condition]) -> None:
        super().__init__(max([part.depth for part in parts]) + 1)
        self.parts = parts

    def truth(self, values: Values) -> int:
        result = FALSE
        for part in self.parts:
            truth = part.truth(values)
            if truth in (TRUE, FAILED):
                return truth
            if truth == UNKNOWN:
                result = UNKNOWN
        return result

    def texts(self, index: int) -> frozenset[str] | None:
        all_texts: list[str] = []
        for part in self.parts:
            texts = part.texts(index)
            if texts is None:
                return None
            all_texts += texts
        return frozenset(all_texts)


class Missing(Condition):
    def __init__(self, operand: Operand) -> None:
        super().__init__(operand.depth + 1)
        self.operand = operand

    def truth(self, values: Values) -> int:
        operand = self.operand
        if isinstance(operand, Property):
            return TRUE if values.is_missing(operand.index) else FALSE
        value = operand.value(values)
        if value is RAISED:
            return FAILED
        return TRUE if value is None else FALSE


class Among(Condition):
    """IN: a property is one of some texts."""

    def __init__(self, index: int, texts_allowed: frozenset[str], is_negated: bool) -> None:
        super().__init__(2)
        self.index = index
        self.texts_allowed = texts_allowed
        self.is_negated = is_negated

    def truth(self, values: Values) -> int:
        text = values.text(self.index)
        if text is None:
            return UNKNOWN
        return TRUE if (text in self.texts_allowed) != self.is_negated else FALSE

    def texts(self, index: int) -> frozenset[str] | None:
        return self.texts_allowed if index == self.index and not self.is_negated else None


class Search(Condition):
    """CONTAINS, STARTSWITH, ENDSWITH. False, even with NOT, if the value is no text or the text to find is empty."""

    def __init__(self, operand: Operand, operator: str, text: str, is_negated: bool) -> None:
        super().__init__(operand.depth + 1)
        self.operand = operand
        self.operator = operator
        self.text = text
        self.is_negated = is_negated

    def truth(self, values: Values) -> int:
        value = self.operand.value(values)
        if value is RAISED and self.text:  # without a text to look for, Java does not even look
            return FAILED
        if not isinstance(value, str) or not self.text:
            return FALSE
        if self.operator == "CONTAINS":
            is_found = _contains(value, self.text)
        elif self.operator == "STARTSWITH":
            is_found = value.startswith(self.text)
        else:
            is_found = value.endswith(self.text)
        return TRUE if is_found != self.is_negated else FALSE


def _contains(text: str, part: str) -> bool:
    """Whether `part` is in `text`, in linear time. CPython searches a text of less than 30,000 characters in a
    quadratic way, so a text and a word that may take long are searched in a longer text.
    """
    size = len(text)
    if size * len(part) <= _MAX_COMPARISONS or size >= _LINEAR_FROM:
        return part in text
    at = text.ljust(_LINEAR_FROM).find(part)
    return 0 <= at <= size - len(part)


class Filter:
    """A whole expression."""

    def __init__(self, names: tuple[str, ...], root: Condition, size: int) -> None:
        self.names = names  # the properties that it reads
        self.size = size  # a measure of its cost: the number of its words and signs, with more for each search in text
        self.root = root  # the condition of the whole expression

    def texts(self, name: str) -> frozenset[str] | None:
        """The only texts that a property can have where the expression is true; None if it can have others too."""
        return self.root.texts(self.names.index(name)) if name in self.names else None

    def matches(self, values: Values) -> bool:
        """Whether the expression is true for a message with these values."""
        return self.root.truth(values) == TRUE
