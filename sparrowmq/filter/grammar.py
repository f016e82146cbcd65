"""Parse SQL92 filters: a text becomes a `Filter`, or an error that names the place.

The grammar is that of Java's SelectorParser: OR below AND, below = <> and IS, below the other comparisons, below NOT
and signs. So NOT a = 5 is (NOT a) = 5; a comparison needs parentheses after NOT. Keywords ignore case; names of
properties do not. CONTAINS, STARTSWITH and ENDSWITH are keywords only in the place of an operator, so that filters
written for 4.9 can still use properties with these names.

Any client that may subscribe can send an expression. So its length, its words, their nesting and the work for each
message are limited. lark's
parser has a stack of its own, so no text exceeds Python's recursion limit.
Source: SelectorParser.jj, Java 4.9.7 and 5.4.0.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError

from sparrowmq.errors import InvalidFilter
from sparrowmq.filter.builder import Builder, Misuse
from sparrowmq.filter.tree import Filter
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
        return f"{found} cannot follow what is a whole expression; AND or OR is missing, or it is misspelt"
    return f"{found} cannot stand here; what can is {', '.join(wanted)}"


def _invalid(expression: str, token: Token, problem: str) -> InvalidFilter:
    """The error, with the place where `token` begins."""
    if token.type == "$END" or token.start_pos is None:
        token = _place(expression, len(expression))
    position = token.start_pos or 0
    line, column = token.line or 1, token.column or 1
    rest = expression[position : position + _SHOWN]
    where = f"before {rest!r}" if rest else "at the end"
    return InvalidFilter(f"line {line}, column {column}, {where}: {problem}", line, column)
