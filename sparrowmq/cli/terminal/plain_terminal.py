"""A terminal that texts of others do not steer: it shows control characters as an escape, such as \\x1b.

The bodies, keys and client ids that `mqadmin` prints come from any sender. Files and pipes get them unchanged, because
programs read the output as that of Java's tool.
"""

from __future__ import annotations

import io
from typing import Final, TextIO, cast

_LAYOUT: Final = "\n\t"


def plain(stream: TextIO) -> TextIO:
    """Return the stream itself, or a plain terminal if it is a terminal."""
    return cast(TextIO, PlainTerminal(stream)) if stream.isatty() else stream


class PlainTerminal(io.TextIOBase):
    """Writes to a terminal."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def write(self, text: str, /) -> int:
        shown = (each if each.isprintable() or each in _LAYOUT else repr(each)[1:-1] for each in text)
        self._terminal.write("".join(shown))
        return len(text)

    def flush(self) -> None:
        self._terminal.flush()
