"""Parse SQL92 filters: a text becomes a `Filter`, or an error that names the place.

The grammar is that of Java's SelectorParser: OR below AND, below = <> and IS, below the other comparisons, below NOT
and signs. So NOT a = 5 is (NOT a) = 5; a comparison needs parentheses after NOT. Keywords ignore case; names of
properties do not. CONTAINS, STARTSWITH and ENDSWITH are keywords only in the place of an operator, so that filters
written for 4.9 can still use properties with these names.

Any client that may subscribe can send an expression. So its length, its words, their nesting and the work for each
message are limited. lark's parser has a stack of its own, so no text exceeds Python's recursion limit.

`Builder` makes conditions of the parsed expression, and refuses operands that do not fit, as Java does when it
compiles. Java looks only at the expression itself: "<" and its like refuse a literal text, but accept a property,
although its value may be a text. A refusal is `Misuse`, with the sign or word at fault.
Source: SelectorParser.jj, Java 4.9.7 and 5.4.0; SelectorParser.asBooleanExpression, ComparisonExpression.check*
and ConstantExpression, Java 4.9.7.
"""

from __future__ import annotations

import math
import re
import sys
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError
from lark.visitors import Transformer_NonRecursive

from sparrowmq.errors import InvalidFilter
from sparrowmq.filter.comparison import ABOVE, AT_LEAST, AT_MOST, BELOW, EQUAL, comparison, double_order, whole_order
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
    Filter,
    Flag,
    Literal,
    Missing,
    Negated,
    Not,
    Operand,
    Property,
    Search,
)
from sparrowmq.loop.slices import Steps, at_once

MAX_LENGTH: Final = 32_768  # characters
MAX_TOKENS: Final = 4096  # words, values and signs; parsing so many takes 0.1 s, in slices
# The work for one message: each property is searched once and may be read by each operation, and a search in a text of
# 32 KB takes up to 50 us. So a message takes at most some ms, and filters of people have far fewer of each.
MAX_READS: Final = 256
MAX_NAMES: Final = 64
MAX_SEARCHES: Final = 64
_SEARCH_SIZE: Final = 32  # a search in text costs as much as so many words
_SHOWN: Final = 24  # characters of the expression in an error

# The longest token that fits counts, hence the lookaheads; a name is never a keyword.
_WORD_END: Final = "(?![A-Za-z0-9_$])"
SEARCHES: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})  # words of 5.x
_WORDS: Final = ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", *sorted(SEARCHES))
_GRAMMAR: Final = rf"""
start: either
?either: both | either OR both
?both: equality | both AND equality
?equality: comparison
    | equality EQUAL comparison         -> equal
    | equality UNEQUAL comparison       -> unequal
    | equality IS NULL                  -> is_null
    | equality IS NOT NULL              -> is_not_null
?comparison: operand
    | comparison (ABOVE | AT_LEAST | BELOW | AT_MOST) operand       -> order
    | comparison NOT? (CONTAINS | STARTSWITH | ENDSWITH) TEXT       -> search
    | comparison NOT? BETWEEN operand AND operand                   -> between
    | comparison NOT? IN "(" TEXT ("," TEXT)* ")"                   -> among
?operand: "+" operand
    | MINUS operand     -> negative
    | NOT operand       -> negation
    | "(" either ")"
    | (TEXT | DECIMAL | FLOAT | TRUE | FALSE | NULL)            -> literal
    | (NAME | CONTAINS | STARTSWITH | ENDSWITH)                 -> name

EQUAL: "="
UNEQUAL: "<>"
AT_LEAST: ">="
AT_MOST: "<="
ABOVE: ">"
BELOW: "<"
MINUS: "-"
{"".join(f"{word}.3: /{word}{_WORD_END}/{chr(10)}" for word in _WORDS)}
NAME.2: /[A-Za-z_$][A-Za-z0-9_$]*/
TEXT: /'(?:''|[^'])*'/
FLOAT.3: /[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+/
DECIMAL.2: /0|[1-9][0-9]*L?/
SPACE.4: /[ \t\n\r\f]+/
LINE_COMMENT.4: /--[^\n\r]*(?:\n|\r)/
BLOCK_COMMENT.4: /\/\*[^*]*\*(?:\*|[^*\/][^*]*\*)*\//
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
_SIGNS: Final = {
    "NAME": "a property",
    "TEXT": "a 'text'",
    "DECIMAL": "a number",
    "FLOAT": "a number",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "PLUS": "+",
    "MINUS": "-",
    "EQUAL": "=",
    "UNEQUAL": "<>",
    "AT_LEAST": ">=",
    "AT_MOST": "<=",
    "ABOVE": ">",
    "BELOW": "<",
    "$END": "the end",
}
MAX_DEPTH: Final = 200  # operands in each other, parentheses not counted: evaluating them is recursive
_CONSTANTS: Final = {"TRUE": TRUE, "FALSE": FALSE, "NULL": UNKNOWN}
_ORDERS: Final = {"ABOVE": ABOVE, "AT_LEAST": AT_LEAST, "BELOW": BELOW, "AT_MOST": AT_MOST}
_NUMBERS: Final = frozenset({INT, LONG, DOUBLE})
_LONG_LIMIT: Final = 1 << 63
_INT_LIMIT: Final = 1 << 31
_SMALLEST: Final = math.ulp(0.0)  # Double.MIN_VALUE
T = TypeVar("T", bound=Operand)
Children = list[Any]  # tokens and operands, as the rule of the grammar has them


def parse(expression: str) -> Filter:
    """Do `parsing` at once."""
    return at_once(parsing(expression))


def parsing(expression: str) -> Steps[Filter]:
    """Parse an expression, word by word.

    Raises: InvalidFilter, the text is no expression, too long or too deep, or costs too much; the error says where.
    """
    if not expression.strip():
        raise InvalidFilter("the expression is empty; write a condition such as amount > 5", 1, 1)
    if len(expression) > MAX_LENGTH:
        raise InvalidFilter(
            f"the expression has {len(expression)} characters, {MAX_LENGTH} are allowed", 1, MAX_LENGTH + 1
        )
    tree, size = yield from _tree(expression)
    builder = Builder()
    try:
        root = builder.transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, Misuse):
            raise _invalid(expression, error.orig_exc.token, str(error.orig_exc)) from None
        raise
    return Filter(tuple(builder.names), root, size)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    # ASCII, or the Kelvin sign would be a k.
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", g_regex_flags=re.ASCII | re.IGNORECASE)


def _tree(expression: str) -> Steps[tuple[Tree[Token], int]]:
    parser = _parser().parse_interactive(expression)
    count = 0
    costs = _Costs()
    try:
        for token in parser.iter_parse():
            count += 1
            too_much = costs.add(token)
            if count > MAX_TOKENS:
                too_much = f"more than {MAX_TOKENS} words, values and signs"
            if too_much:
                raise _invalid(expression, token, f"the expression has {too_much}; make it shorter")
            yield
        tree: Tree[Token] = parser.feed_eof()  # type: ignore[no-untyped-call]
        return tree, count + _SEARCH_SIZE * costs.searches
    except UnexpectedToken as error:
        raise _invalid(expression, error.token, _unexpected(error)) from None
    except UnexpectedCharacters as error:
        position: int = error.pos_in_stream  # type: ignore[assignment]
        found = expression[position]
        what = "this text has no end: a ' is missing" if found == "'" else f"{found!r} means nothing here"
        raise _invalid(expression, _place(expression, position), what) from None


class _Costs:
    """Counts the parts of an expression that cost time for each message."""

    def __init__(self) -> None:
        self._reads = 0
        self.searches = 0
        self._names: set[str] = set()

    def add(self, token: Token) -> str:
        """Count a token; return which limit it exceeds, or ""."""
        if token.type in SEARCHES:
            self.searches += 1
        elif token.type == "NAME":
            self._reads += 1
            self._names.add(str(token))
        if self._reads > MAX_READS:
            return f"more than {MAX_READS} places that read a property"
        if len(self._names) > MAX_NAMES:
            return f"more than {MAX_NAMES} properties"
        return f"more than {MAX_SEARCHES} searches in text" if self.searches > MAX_SEARCHES else ""


def _place(expression: str, position: int) -> Token:
    line = expression.count("\n", 0, position) + 1
    column = position - (expression.rfind("\n", 0, position) + 1) + 1
    return Token("", expression[position : position + 1], position, line, column)


def _unexpected(error: UnexpectedToken) -> str:
    token = error.token
    found = "the end" if token.type == "$END" else f'"{token[:_SHOWN]}"'
    names = set(error.accepts or error.expected)
    if "NAME" in names:
        names -= SEARCHES
    wanted = sorted({_SIGNS.get(name, name) for name in names})
    if "the end" in wanted:
        return f"{found} cannot follow a complete expression; AND or OR is missing or misspelt"
    return f"{found} is not allowed here; allowed: {', '.join(wanted)}"


def _invalid(expression: str, token: Token, problem: str) -> InvalidFilter:
    """The error, with the place where `token` begins."""
    if token.type == "$END" or token.start_pos is None:
        token = _place(expression, len(expression))
    position = token.start_pos or 0
    line, column = token.line or 1, token.column or 1
    rest = expression[position : position + _SHOWN]
    where = f"before {rest!r}" if rest else "at the end"
    return InvalidFilter(f"line {line}, column {column}, {where}: {problem}", line, column)


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
            if isinstance(operand, Constant) and operand.constant == UNKNOWN:
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
