"""Texts of others on a terminal, which they do not steer: control characters are shown as an escape, such as \\x1b.

The bodies, keys and client ids that `mqadmin` prints come from any sender. Files and pipes get them unchanged, because
programs read the output as that of Java's tool.
"""

from __future__ import annotations

import io
import unicodedata
from typing import Final, TextIO, cast

_LAYOUT: Final = "\n\t"


def shown(text: str) -> str:
    """Escape the characters that a terminal would not print as they are, such as \\x1b."""
    if text.isprintable():
        return text
    return "".join(
        character if _has_shape(character) else character.encode("unicode_escape").decode() for character in text
    )


def _has_shape(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"  # blanks of other scripts


def plain(stream: TextIO) -> TextIO:
    """Return the stream itself, or a plain terminal if it is a terminal."""
    return cast(TextIO, PlainTerminal(stream)) if stream.isatty() else stream


class PlainTerminal(io.TextIOBase):
    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str, /) -> int:
        self._terminal.write("".join(character if character in _LAYOUT else shown(character) for character in text))
        return len(text)

    def flush(self) -> None:
        self._terminal.flush()
