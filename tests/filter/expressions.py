"""Random SQL92 expressions and messages: every construct, every type, nulls, and junk.

Most expressions are grown from the grammar, so that they mean something; some are then broken, by a token taken away,
doubled or exchanged. All comes from one `Random`, so a seed gives the same again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Final

NAMES: Final = ("a", "b", "c", "amount", "Region", "_x", "$y", "TAGS", "missing", "a1")
NUMBERS: Final = (
    *(
        "0",
        "1",
        "5",
        "7",
        "10",
        "5L",
        "7l",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9007199254740993",
    ),
    *(
        "9223372036854775808",
        "5.",
        "5.0",
        ".5",
        "7.25",
        "1e1",
        "1E+2",
        "5e-1",
        "0.0",
        "1e400",
        "4.9e-324",
        "1e-400",
    ),
    *("9007199254740992.0", "007", "0x1F", "00.5", "0L"),
)
TEXTS: Final = ("'5'", "'abc'", "''", "'it''s'", "'EU'", "'true'", "'ab'", "'é'", "'😀'", "' 5 '", "'5.0'")
VALUES: Final = (
    *(
        "0",
        "1",
        "5",
        "7",
        "10",
        "-5",
        "+5",
        "5.0",
        "7.25",
        "1e1",
        "007",
        " 5 ",
        "5L",
        "5d",
        "5f",
        "0x1p3",
        "0x1.8P1",
    ),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "-NaN",
        "inf",
        "1_0",
        "٣",
        "５",
        "𝟝",
        "-0",
        "-0.0",
        "0.0",
        ".5",
        "5.",
        ".",
        "-",
    ),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *(
        "-9223372036854775808",
        "9007199254740993",
        "9007199254740992",
        "1e400",
        "-1e400",
        "1e-400",
        "0x1p99999",
    ),
    *(
        "000000000000000000000000000005",
        "true",
        "TRUE",
        "tRue",
        "false",
        "abc",
        "ab",
        "EU",
        "it's",
        "é",
        "😀",
        "",
        " ",
    ),
    *("+", "++5", "5 5", "\t5\n", "\u00a05", "1e", "0x5", "null", "K"),
)
SPACES: Final = (" ", " ", " ", "", "  ", "\n", "\t", "\r\n", " /* a * b **/ ", " -- note\n", "\f")
JUNK: Final = (
    "#",
    "'",
    "!=",
    ";",
    "(",
    ")",
    "NOT",
    "AND",
    "IS",
    "5",
    "x",
    ",",
    "/*",
    "--",
    "IN",
    "é",
    "==",
    "LIKE",
)
_TOKENS: Final = re.compile(r"'(?:''|[^'])*'|[\w$.]+|<>|[<>]=|\s+|.", re.DOTALL)


def messages(random: Random, count: int) -> list[dict[str, str]]:
    """Messages' properties; `missing` is in none of them."""
    return [
        {name: random.choice(VALUES) for name in NAMES if name != "missing" and random.random() < 0.75}
        for _ in range(count)
    ]


def expression(random: Random, with_searches: bool) -> str:
    """One expression; with CONTAINS, STARTSWITH and ENDSWITH, which 4.9 does not know, or without."""
    text = Grower(random, with_searches).condition(random.randint(0, 3))
    return _broken(random, text) if random.random() < 0.2 else text


class Grower:
    """Grows one expression; what `depth` is left limits how far."""

    def __init__(self, random: Random, with_searches: bool) -> None:
        self._random = random
        self._with_searches = with_searches

    def condition(self, depth: int) -> str:
        kinds: list[Callable[[int], str]] = [
            self._compare,
            self._compare,
            self._compare,
            self._equal,
            self._null,
        ]
        kinds += [self._between, self._among, self._constant]
        if self._with_searches:
            kinds += [self._search, self._search]
        if depth > 0:
            kinds += 2 * [self._joined, self._joined, self._negated, self._nested]
        return self._random.choice(kinds)(depth)

    def _joined(self, depth: int) -> str:
        words = [self.condition(depth - 1) for _ in range(self._random.randint(2, 4))]
        return self._between_words(words, self._random.choice(("AND", "OR", "and", "Or")))

    def _between_words(self, words: list[str], joint: str) -> str:
        return words[0] + "".join(f" {joint} {word}" for word in words[1:])

    def _negated(self, depth: int) -> str:
        inner = self.condition(depth - 1)
        return f"{self._word('NOT')} {inner}" if self._random.random() < 0.3 else f"{self._word('NOT')}({inner})"

    def _nested(self, depth: int) -> str:
        return f"({self._space()}{self.condition(depth - 1)}{self._space()})"

    def _compare(self, depth: int) -> str:
        sign = self._random.choice((">", ">=", "<", "<="))
        left, right = self._name(), self._number()
        if self._random.random() < 0.3:
            left, right = self._operand(depth), self._operand(depth)
        return f"{left}{self._space()}{sign}{self._space()}{right}"

    def _equal(self, depth: int) -> str:
        sign = self._random.choice(("=", "=", "<>"))
        left, right = self._operand(depth), self._operand(depth)
        return f"{left}{self._space()}{sign}{self._space()}{right}"

    def _null(self, depth: int) -> str:
        return f"{self._operand(depth)} {self._random.choice(('IS NULL', 'IS NOT NULL', 'is not  null'))}"

    def _between(self, depth: int) -> str:
        left, low, high = self._name(), self._number(), self._number()
        if self._random.random() < 0.3:
            left, low, high = (self._operand(depth) for _ in range(3))
        return f"{left} {self._maybe_not()}{self._word('BETWEEN')} {low} {self._word('AND')} {high}"

    def _among(self, depth: int) -> str:
        left = self._name() if self._random.random() < 0.9 else self._operand(depth)
        texts = f"{self._space()},".join(self._text() for _ in range(self._random.randint(1, 7)))
        return f"{left} {self._maybe_not()}{self._word('IN')}{self._space()}({texts})"

    def _search(self, depth: int) -> str:
        word = self._word(self._random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
        left = self._name() if self._random.random() < 0.8 else self._operand(depth)
        return f"{left} {self._maybe_not()}{word} {self._text()}"

    def _constant(self, depth: int) -> str:
        return self._random.choice(("TRUE", "FALSE", "NULL", "true", self._name()))

    def _operand(self, depth: int) -> str:
        kinds: list[Callable[[], str]] = [self._name, self._name, self._number, self._text]
        kinds.append(lambda: self._random.choice(("TRUE", "FALSE", "NULL", "false")))
        kinds.append(lambda: f"{self._random.choice(('-', '+', '- ', '-+-'))}{self._operand(depth - 1)}")
        if depth > 0:
            kinds.append(lambda: f"({self.condition(depth - 1)})")
            kinds.append(lambda: f"({self._operand(depth - 1)})")
        return self._random.choice(kinds)() if depth > -3 else self._name()

    def _name(self) -> str:
        return self._random.choice(NAMES)

    def _number(self) -> str:
        return self._random.choice(("", "", "-", "+")) + self._random.choice(NUMBERS)

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _maybe_not(self) -> str:
        return self._random.choice(("", "", f"{self._word('NOT')} "))

    def _word(self, word: str) -> str:
        return self._random.choice((word, word, word.lower(), word.title()))

    def _space(self) -> str:
        return self._random.choice(SPACES)


def _broken(random: Random, text: str) -> str:
    tokens = _TOKENS.findall(text)
    for _ in range(random.randint(1, 2)):
        at = random.randrange(len(tokens) + 1)
        tokens[at : at + random.randint(0, 1)] = random.choice(
            ([], [random.choice(JUNK)], [" ", random.choice(JUNK), " "])
        )
    return "".join(tokens)
