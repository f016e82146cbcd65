"""Build conditions from the parsed expression, and refuse operands that do not fit, as Java does when it compiles.

Java looks only at the expression itself: "<" and its like refuse a literal text, but accept a property, although its
value may be a text. A refusal is `Misuse`, with the sign or word at fault.
Source: SelectorParser.asBooleanExpression, ComparisonExpression.check* and ConstantExpression, Java 4.9.7.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Final, TypeVar, cast

from lark import Token
from lark.visitors import Transformer_NonRecursive

from sparrowmq.filter.comparison import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, comparison
from sparrowmq.filter.numbers import double_order, whole_order
from sparrowmq.filter.tree import (
    DOUBLE,
    FALSE,
    INT,
    LONG,
    TEXT,
    TRUE,
    UNKNOWN,
    Among,
    AnyOf,
    Condition,
    Constant,
    Every,
    Flag,
    Literal,
    Missing,
    Negated,
    Not,
    Operand,
    Property,
    Search,
)

MAX_DEPTH: Final = 200  # operands in each other, parentheses not counted: evaluating them is recursive
_CONSTANTS: Final = {"TRUE": TRUE, "FALSE": FALSE, "NULL": UNKNOWN}
_ORDERS: Final = {"ABOVE": ABOVE, "AT_LEAST": AT_LEAST, "BELOW": BELOW, "AT_MOST": AT_MOST}
_NUMBERS: Final = frozenset({INT, LONG, DOUBLE})
_LONG_LIMIT: Final = 1 << 63
_INT_LIMIT: Final = 1 << 31
_SMALLEST: Final = math.ulp(0.0)  # Double.MIN_VALUE

T = TypeVar("T", bound=Operand)
Children = list[Any]  # tokens and operands; grammar.py says which rule has which


class Misuse(Exception):
    """The syntax is right, but the operands do not fit. `token` is the place."""

    def __init__(self, token: Token, problem: str) -> None:
        super().__init__(problem)
        self.token = token


class Builder(Transformer_NonRecursive[Token, Condition]):
    """Builds one filter.

    Attributes:
        names: the index of each property, by its name.
    """

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self.names: dict[str, int] = {}

    def start(self, children: Children) -> Condition:
        return self._condition(children[0], Token("", "", 0, 1, 1))

    def either(self, children: Children) -> Condition:
        left, token, right = children
        parts = [self._condition(left, token), self._condition(right, token)]
        if isinstance(left, AnyOf):
            parts[:1] = left.parts
        return _bounded(AnyOf(parts), token)

    def both(self, children: Children) -> Condition:
        left, token, right = children
        parts = [self._condition(left, token), self._condition(right, token)]
        if isinstance(left, Every):
            parts[:1] = left.parts
        return _bounded(Every(parts), token)

    def equal(self, children: Children) -> Condition:
        left, token, right = children
        for operand in (left, right):
            if _is_null(operand):
                raise Misuse(token, f"NULL cannot be compared by {token}; write IS NULL or IS NOT NULL")
        if isinstance(left, Constant) and right.is_literal and not isinstance(right, Constant):
            raise Misuse(token, "TRUE and FALSE cannot be compared with a number or a text")
        return _bounded(comparison(left, EQUAL, right), token)

    def unequal(self, children: Children) -> Condition:
        return _bounded(Not(self.equal(children)), children[1])

    def is_null(self, children: Children) -> Condition:
        return _bounded(Missing(children[0]), children[1])

    def is_not_null(self, children: Children) -> Condition:
        return _bounded(Not(Missing(children[0])), children[1])

    def order(self, children: Children) -> Condition:
        left, token, right = children
        return _order(left, _ORDERS[token.type], right, token)

    def search(self, children: Children) -> Condition:
        operand, *negation, how, text = children
        return _bounded(Search(operand, how.type, _text(text), bool(negation)), how)

    def between(self, children: Children) -> Condition:
        operand, *negation, token, low, _, high = children
        if negation:
            outside = [_order(operand, BELOW, low, token), _order(operand, ABOVE, high, token)]
            return _bounded(AnyOf(outside), token)
        parts: list[Condition] = [
            _order(operand, AT_LEAST, low, token),
            _order(operand, AT_MOST, high, token),
        ]
        if low.is_literal and high.is_literal and _is_above(low, high):
            raise Misuse(token, "the first number is above the second, so no value is between them")
        return _bounded(Every(parts), token)

    def among(self, children: Children) -> Condition:
        operand, *words = children
        is_negated = words[0].type == "NOT"
        token, *texts = words[is_negated:]
        if not isinstance(operand, Property):
            raise Misuse(token, "IN needs a property on its left")
        return Among(operand.index, frozenset(map(_text, texts)), is_negated)

    def negative(self, children: Children) -> Operand:
        token, operand = children
        if isinstance(operand, Literal) and operand.kind in _NUMBERS:
            return Literal(operand.kind, -cast(float, operand.constant), is_literal=False)
        return _bounded(Negated(operand), token)

    def negation(self, children: Children) -> Condition:
        token, operand = children
        return _bounded(Not(self._condition(operand, token)), token)

    def literal(self, children: Children) -> Operand:
        token: Token = children[0]
        if token.type in _CONSTANTS:
            return Constant(_CONSTANTS[token.type])
        if token.type == "TEXT":
            return Literal(TEXT, _text(token))
        return _float(token) if token.type == "FLOAT" else _decimal(token)

    def name(self, children: Children) -> Property:
        name = str(children[0])
        return Property(name, self.names.setdefault(name, len(self.names)))

    def _condition(self, operand: Operand, token: Token) -> Condition:
        if isinstance(operand, Condition):
            return operand
        if isinstance(operand, Property):
            return Flag(operand.index)
        where = f" beside {token.upper()}" if token else ""
        raise Misuse(token, f"a condition is needed{where}, such as amount > 5, not a number or a text")


def _bounded(made: T, token: Token) -> T:
    if made.depth > MAX_DEPTH:
        raise Misuse(token, f"more than {MAX_DEPTH} operands are nested; make the expression flatter")
    return made


def _order(left: Operand, how: int, right: Operand, token: Token) -> Condition:
    for operand in (left, right):
        is_text = operand.is_literal and operand.kind not in _NUMBERS
        if is_text or isinstance(operand, Condition):
            raise Misuse(token, f"{token.upper()} compares numbers and properties, nothing else")
    return _bounded(comparison(left, how, right), token)


def _is_null(operand: Operand) -> bool:
    return isinstance(operand, Constant) and operand.constant == UNKNOWN


def _is_above(left: Operand, right: Operand) -> bool:
    first, second = cast(Literal, left).constant, cast(Literal, right).constant
    if DOUBLE in (left.kind, right.kind):
        return double_order(float(cast(float, first)), float(cast(float, second))) > 0
    return whole_order(cast(int, first), cast(int, second)) > 0


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _decimal(token: Token) -> Literal:
    # Long literals are in decimal, so a limit on their length comes first: reading digits takes time.
    digits = token.rstrip("lL")
    number = int(digits) if len(digits) < 20 else _LONG_LIMIT
    if number >= _LONG_LIMIT:
        raise Misuse(token, f"the number is too large; the largest is {_LONG_LIMIT - 1}")
    return Literal(INT if number < _INT_LIMIT else LONG, number)


def _float(token: Token) -> Literal:
    number = float(token)
    if number > sys.float_info.max:
        raise Misuse(token, f"the number is too large; the largest is {sys.float_info.max}")
    if number < _SMALLEST:
        raise Misuse(token, f"the number is too small; the smallest with a fraction is {_SMALLEST}; write 0")
    return Literal(DOUBLE, number)
