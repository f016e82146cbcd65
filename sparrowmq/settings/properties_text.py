"""The text of .properties files, as Java's `Properties.load` reads it.

Not by javaproperties, which loads XML, HTTP and mail: 3 MiB, and 35 ms at least of a start or a request (ADR 42).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of .properties text, as Java's Properties.load reads it; the last of equal keys counts.

    Raises: ValueError, a \\u escape is incomplete.
    """
    pairs = (_PAIR.match(line) for line in _logical_lines(text))
    return {_unescaped(pair[1]): _unescaped(pair[2]) for pair in pairs if pair is not None}


_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"((?:\\u[0-9A-Fa-f]{4})+)|\\(.?)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a line that ends with an odd number of backslashes goes on in the next."""
    begun: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        begun = (begun or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        if begun:
            yield begun
        begun = None
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:  # escapes that follow each other may be the halves of one character
            return bytes.fromhex(match[1].replace("\\u", "")).decode("utf-16-be", "surrogatepass")
        if match[2] == "u":
            raise ValueError(f"{text!r} has an incomplete \\u escape; write four hexadecimal digits")
        return _CONTROLS.get(match[2], match[2])

    return _ESCAPE.sub(plain, text)
