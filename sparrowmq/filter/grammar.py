"""Parse SQL92 filters: a text becomes a `Filter`, or an error that names the place.

The grammar is that of Java's SelectorParser: OR below AND, below = <> and IS, below the other comparisons, below NOT
and signs. So NOT a = 5 is (NOT a) = 5; a comparison needs parentheses after NOT. Keywords ignore case; names of
properties do not. CONTAINS, STARTSWITH and ENDSWITH are keywords only in the place of an operator, so that filters
written for 4.9 can still use properties with these names.

Any client that may subscribe can send an expression. So its length, its words, their nesting and the work for each
message are limited. lark's parser has a stack of its own, so no text exceeds Python's recursion limit.

`Builder` makes conditions of the parsed expression, and refuses operands that do not fit (`Misuse`), as Java does when
it compiles. Comparisons such as "<" refuse a literal text. They accept a property, although its value may be a text.

Source: SelectorParser.jj, Java 4.9.7 and 5.4.0; SelectorParser.asBooleanExpression, ComparisonExpression.check* and
ConstantExpression, Java 4.9.7.
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
_SEARCH_COST: Final = 32  # a search in text costs as much as so many words
_SHOWN_CHARACTERS: Final = 24  # characters of the expression in an error

# The longest token that fits counts, hence the lookaheads; a name is never a keyword.
_WORD_END: Final = "(?![A-Za-z0-9_$])"
SEARCHES: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})  # words of 5.x
_WORDS: Final = ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", *sorted(SEARCHES))
_GRAMMAR: Final = rf"""
start: disjunction
?disjunction: conjunction | disjunction OR conjunction
?conjunction: equality | conjunction AND equality
?equality: comparison
    | equality EQUAL comparison         -> equal
    | equality UNEQUAL comparison       -> unequal
    | equality IS NULL                  -> is_null
    | equality IS NOT NULL              -> is_not_null
?comparison: operand
    | comparison (ABOVE | AT_LEAST | BELOW | AT_MOST) operand       -> order_comparison
    | comparison NOT? (CONTAINS | STARTSWITH | ENDSWITH) TEXT       -> search
    | comparison NOT? BETWEEN operand AND operand                   -> between
    | comparison NOT? IN "(" TEXT ("," TEXT)* ")"                   -> among
?operand: "+" operand
    | MINUS operand     -> negative
    | NOT operand       -> negation
    | "(" disjunction ")"
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
_TOKEN_TEXTS: Final = {
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
_COMPARISON_OPERATORS: Final = {"ABOVE": ABOVE, "AT_LEAST": AT_LEAST, "BELOW": BELOW, "AT_MOST": AT_MOST}
_NUMBER_KINDS: Final = frozenset({INT, LONG, DOUBLE})
_LONG_LIMIT: Final = 1 << 63
_INT_LIMIT: Final = 1 << 31
_SMALLEST_DOUBLE: Final = math.ulp(0.0)  # Double.MIN_VALUE
T = TypeVar("T", bound=Operand)
Children = list[Any]  # tokens and operands, as the rule of the grammar has them


def parse(expression: str) -> Filter:
    return at_once(parse_in_steps(expression))


def parse_in_steps(expression: str) -> Steps[Filter]:
    """Parse an expression, word by word. Raises: InvalidFilter, the text is no expression, too long or too deep, or
    costs too much; the error says where.
    """
    if not expression.strip():
        raise InvalidFilter("the expression is empty; write a condition such as amount > 5", 1, 1)
    if len(expression) > MAX_LENGTH:
        raise InvalidFilter(
            f"the expression has {len(expression)} characters, {MAX_LENGTH} are allowed", 1, MAX_LENGTH + 1
        )
    tree, size = yield from _parse_tree(expression)
    builder = Builder()
    try:
        root = builder.transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, Misuse):
            raise _invalid_filter(expression, error.orig_exc.token, str(error.orig_exc)) from None
        raise
    return Filter(tuple(builder.names), root, size)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    # ASCII, or the Kelvin sign would be a k.
    return Lark(_GRAMMAR, parser="lalr", lexer="basic", g_regex_flags=re.ASCII | re.IGNORECASE)


def _parse_tree(expression: str) -> Steps[tuple[Tree[Token], int]]:
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
                raise _invalid_filter(expression, token, f"the expression has {too_much}; make it shorter")
            yield
        tree: Tree[Token] = parser.feed_eof()  # type: ignore[no-untyped-call]
        return tree, count + _SEARCH_COST * costs.searches
    except UnexpectedToken as error:
        raise _invalid_filter(expression, error.token, _unexpected_text(error)) from None
    except UnexpectedCharacters as error:
        position: int = error.pos_in_stream  # type: ignore[assignment]
        character = expression[position]
        problem = "this text has no end: a ' is missing" if character == "'" else f"{character!r} means nothing here"
        raise _invalid_filter(expression, _place(expression, position), problem) from None


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


def _unexpected_text(error: UnexpectedToken) -> str:
    token = error.token
    found_text = "the end" if token.type == "$END" else f'"{token[:_SHOWN_CHARACTERS]}"'
    names = set(error.accepts or error.expected)
    if "NAME" in names:
        names -= SEARCHES
    allowed = sorted({_TOKEN_TEXTS.get(name, name) for name in names})
    if "the end" in allowed:
        return f"{found_text} cannot follow a complete expression; AND or OR is missing or misspelt"
    return f"{found_text} is not allowed here; allowed: {', '.join(allowed)}"


def _invalid_filter(expression: str, token: Token, problem: str) -> InvalidFilter:
    """The error, with the place where `token` begins."""
    if token.type == "$END" or token.start_pos is None:
        token = _place(expression, len(expression))
    position = token.start_pos or 0
    line, column = token.line or 1, token.column or 1
    following_text = expression[position : position + _SHOWN_CHARACTERS]
    place = f"before {following_text!r}" if following_text else "at the end"
    return InvalidFilter(f"line {line}, column {column}, {place}: {problem}", line, column)


class Misuse(Exception):
    """The syntax is right, but the operands do not fit. `token` is the place."""

    def __init__(self, token: Token, problem: str) -> None:
        super().__init__(problem)
        self.token = token


class Builder(Transformer_NonRecursive[Token, Condition]):
    """Builds one filter."""

    def __init__(self) -> None:
        super().__init__(visit_tokens=False)
        self.names: dict[str, int] = {}  # the index of each property, by its name

    def start(self, children: Children) -> Condition:
        return self._condition(children[0], Token("", "", 0, 1, 1))

    def disjunction(self, children: Children) -> Condition:
        left, token, right = children
        parts = [self._condition(left, token), self._condition(right, token)]
        if isinstance(left, AnyOf):
            parts[:1] = left.parts
        return _check_depth(AnyOf(parts), token)

    def conjunction(self, children: Children) -> Condition:
        left, token, right = children
        parts = [self._condition(left, token), self._condition(right, token)]
        if isinstance(left, Every):
            parts[:1] = left.parts
        return _check_depth(Every(parts), token)

    def equal(self, children: Children) -> Condition:
        left, token, right = children
        for operand in (left, right):
            if isinstance(operand, Constant) and operand.constant == UNKNOWN:
                raise Misuse(token, f"NULL cannot be compared by {token}; write IS NULL or IS NOT NULL")
        if isinstance(left, Constant) and right.is_literal and not isinstance(right, Constant):
            raise Misuse(token, "TRUE and FALSE cannot be compared with a number or a text")
        return _check_depth(comparison(left, EQUAL, right), token)

    def unequal(self, children: Children) -> Condition:
        return _check_depth(Not(self.equal(children)), children[1])

    def is_null(self, children: Children) -> Condition:
        return _check_depth(Missing(children[0]), children[1])

    def is_not_null(self, children: Children) -> Condition:
        return _check_depth(Not(Missing(children[0])), children[1])

    def order_comparison(self, children: Children) -> Condition:
        left, token, right = children
        return _order_comparison(left, _COMPARISON_OPERATORS[token.type], right, token)

    def search(self, children: Children) -> Condition:
        operand, *negation, operator, text = children
        return _check_depth(Search(operand, operator.type, _text_of_token(text), bool(negation)), operator)

    def between(self, children: Children) -> Condition:
        operand, *negation, token, low, _, high = children
        if negation:
            outside = [_order_comparison(operand, BELOW, low, token), _order_comparison(operand, ABOVE, high, token)]
            return _check_depth(AnyOf(outside), token)
        parts: list[Condition] = [
            _order_comparison(operand, AT_LEAST, low, token),
            _order_comparison(operand, AT_MOST, high, token),
        ]
        if low.is_literal and high.is_literal and _is_above(low, high):
            raise Misuse(token, "the first number is above the second, so no value is between them")
        return _check_depth(Every(parts), token)

    def among(self, children: Children) -> Condition:
        operand, *words = children
        is_negated = words[0].type == "NOT"
        token, *texts = words[is_negated:]
        if not isinstance(operand, Property):
            raise Misuse(token, "IN needs a property on its left")
        return Among(operand.index, frozenset(map(_text_of_token, texts)), is_negated)

    def negative(self, children: Children) -> Operand:
        token, operand = children
        if isinstance(operand, Literal) and operand.kind in _NUMBER_KINDS:
            return Literal(operand.kind, -cast(float, operand.constant), is_literal=False)
        return _check_depth(Negated(operand), token)

    def negation(self, children: Children) -> Condition:
        token, operand = children
        return _check_depth(Not(self._condition(operand, token)), token)

    def literal(self, children: Children) -> Operand:
        token: Token = children[0]
        if token.type in _CONSTANTS:
            return Constant(_CONSTANTS[token.type])
        if token.type == "TEXT":
            return Literal(TEXT, _text_of_token(token))
        return _float_literal(token) if token.type == "FLOAT" else _decimal_literal(token)

    def name(self, children: Children) -> Property:
        name = str(children[0])
        return Property(name, self.names.setdefault(name, len(self.names)))

    def _condition(self, operand: Operand, token: Token) -> Condition:
        if isinstance(operand, Condition):
            return operand
        if isinstance(operand, Property):
            return Flag(operand.index)
        place = f" beside {token.upper()}" if token else ""
        raise Misuse(token, f"a condition is needed{place}, such as amount > 5, not a number or a text")


def _check_depth(operand: T, token: Token) -> T:
    if operand.depth > MAX_DEPTH:
        raise Misuse(token, f"more than {MAX_DEPTH} operands are nested; make the expression flatter")
    return operand


def _order_comparison(left: Operand, operator: int, right: Operand, token: Token) -> Condition:
    for operand in (left, right):
        is_text = operand.is_literal and operand.kind not in _NUMBER_KINDS
        if is_text or isinstance(operand, Condition):
            raise Misuse(token, f"{token.upper()} compares numbers and properties, nothing else")
    return _check_depth(comparison(left, operator, right), token)


def _is_above(left: Operand, right: Operand) -> bool:
    first, second = cast(Literal, left).constant, cast(Literal, right).constant
    if DOUBLE in (left.kind, right.kind):
        return double_order(float(cast(float, first)), float(cast(float, second))) > 0
    return whole_order(cast(int, first), cast(int, second)) > 0


def _text_of_token(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _decimal_literal(token: Token) -> Literal:
    # Long literals are in decimal, so a limit on their length comes first: reading digits takes time.
    digits = token.rstrip("lL")
    number = int(digits) if len(digits) < 20 else _LONG_LIMIT
    if number >= _LONG_LIMIT:
        raise Misuse(token, f"the number is too large; the largest is {_LONG_LIMIT - 1}")
    return Literal(INT if number < _INT_LIMIT else LONG, number)


def _float_literal(token: Token) -> Literal:
    number = float(token)
    if number > sys.float_info.max:
        raise Misuse(token, f"the number is too large; the largest is {sys.float_info.max}")
    if number < _SMALLEST_DOUBLE:
        raise Misuse(token, f"the number is too small; the smallest with a fraction is {_SMALLEST_DOUBLE}; write 0")
    return Literal(DOUBLE, number)
