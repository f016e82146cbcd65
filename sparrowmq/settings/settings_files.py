"""Files of settings: their text in any encoding, the pairs of .properties files, and which files have changed.

Text is UTF-8, and bytes that are no UTF-8 are Latin-1, as Java reads them:

    # <GBK>                 a comment: any bytes
    brokerName=caf<E9>      a value: the name is "café", and a warning names the file and the key

Such a byte is read as a mark, a private character that YAML allows, and only values turn marks into Latin-1. So the
parsers drop comments as always, and need no second look at the bytes.
Source: Properties.load, Java 8. Unlike Java, which reads all bytes as Latin-1: a value in UTF-8 is what it says.
"""

from __future__ import annotations

import logging
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

from sparrowmq.errors import ConfigError

log = logging.getLogger(__name__)

_MARK_BY_SURROGATE: Final = {
    0xDC00 + byte: 0xF700 + byte for byte in range(0x80, 0x100)
}  # "surrogateescape" of each byte
_LATIN_1_BY_MARK: Final = {0xF700 + byte: byte for byte in range(0x80, 0x100)}
_PAIR: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"((?:\\u[0-9A-Fa-f]{4})+)|\\(.?)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

Stamp: TypeAlias = tuple[tuple[str, int, int, int, int] | None, ...]


def read_text(path: Path) -> str:
    """Read a file, with a mark for each byte that is no UTF-8. Raises: OSError."""
    return path.read_bytes().removeprefix(BOM_UTF8).decode("utf-8", "surrogateescape").translate(_MARK_BY_SURROGATE)


def value_of(text: str, place: object) -> str:
    """Return a value of such a text with Latin-1 for its marks; if it has some, log a warning with its place."""
    value = text.translate(_LATIN_1_BY_MARK)
    if value != text:
        log.warning("%s has bytes that are no UTF-8, read as Latin-1; save the file as UTF-8", place)
    return value


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of .properties text, as Java's Properties.load reads it; the last of equal keys counts.

    Not by javaproperties, which loads XML, HTTP and mail: 3 MiB, and 35 ms at least of a start or a request (ADR 42).

    Raises: ValueError, a \\u escape is incomplete.
    """
    pairs = (_PAIR.match(line) for line in _logical_lines(text))
    return {_unescaped(pair[1]): _unescaped(pair[2]) for pair in pairs if pair is not None}


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a line that ends with an odd number of backslashes goes on in the next."""
    unfinished: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if unfinished is None and (not line or line[0] in "#!"):
            continue
        unfinished = (unfinished or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            unfinished = unfinished[:-1]
            continue
        if unfinished:
            yield unfinished
        unfinished = None
    if unfinished:
        yield unfinished


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:  # escapes that follow each other may be the halves of one character
            return bytes.fromhex(match[1].replace("\\u", "")).decode("utf-16-be", "surrogatepass")
        if match[2] == "u":
            raise ValueError(f"{text!r} has an incomplete \\u escape; write four hexadecimal digits")
        return _CONTROLS.get(match[2], match[2])

    return _ESCAPE.sub(plain, text)


def stamp(files: Iterable[Path]) -> Stamp:
    """Return a value that changes when the files, or their permissions, change."""

    def stamp_of(path: Path) -> tuple[str, int, int, int, int] | None:
        try:
            status = os.stat(path)
        except OSError:
            return None
        return str(path), status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    return tuple(stamp_of(path) for path in files)


class ChangedFiles:
    """The files that were loaded, and their changes since then: accounts, users, certificates.

    A change counts at the second call that sees the same files. A half-written file could show an administrator without
    its limits, and of a certificate and its key only one may have been replaced. `files` returns the paths of the
    files; `content` names what they have. `problem` says why they do not take effect as they are now; "" if they do.
    """

    def __init__(self, files: Callable[[], Iterable[Path]], content: str = "files") -> None:
        self._files = files
        self._content = content
        self.problem = ""
        self._seen_stamp = stamp(files())
        # Their stamp; None if they could not be used, so that they count as changed again.
        self.loaded: Stamp | None = self._seen_stamp

    def has_changed(self) -> bool:
        """Return whether the files are to be loaded again; they count as loaded then."""
        last, self._seen_stamp = self._seen_stamp, stamp(self._files())
        if self._seen_stamp != last or self._seen_stamp == self.loaded:
            return False
        self.loaded = self._seen_stamp
        return True

    def reload(self, load: Callable[[], None]) -> None:
        """Call `load` if the files have changed. Its ConfigError changes nothing, and is reported once."""
        if not self.has_changed():
            return
        try:
            load()
        except ConfigError as error:
            if isinstance(error.__cause__, OSError):
                self.loaded = None  # the file may become readable without a change that shows
            problem = f"the {self._content} do not change: {error}"
            if problem != self.problem:
                log.error("the %s do not change until this is fixed: %s", self._content, error)
            self.problem = problem
        else:
            self.problem = ""
