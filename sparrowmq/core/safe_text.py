"""Words of others, of the system, and for numbers, made fit for a line of a log, of an error or of output.

Words of others become one line, without control characters, and not endless: a name or a remark that a peer sends could
write lines of its own into our log.
"""

from __future__ import annotations

import re
from errno import EDQUOT, ENOSPC
from typing import Final

MAX_CHARACTERS: Final = 200

_NO_LAYOUT: Final = dict.fromkeys(map(ord, "\n\r\t"))
# The folders of an absolute path; neither those of a URL nor the slash in front of an address.
_FOLDERS: Final = re.compile(r"(?<![\w./:-])/(?:[^\s/'\",;:()]+/)+(?=[^\s/])")


def shown(words: object, max_characters: int = MAX_CHARACTERS) -> str:
    """The text of `words`, with everything that cannot be printed escaped, and cut to `max_characters` characters. What
    is cut off is counted: `xxxx... (1048576 characters)`.
    """
    text = str(words)
    start = text[:max_characters]
    if not start.isprintable():
        # repr escapes what does not print, and a backslash, which would else be taken for an escape.
        start = "".join(
            character if character.isprintable() else repr(character)[1:-1] for character in start.replace("\\", "\\\\")
        )[:max_characters]
    return start if len(text) <= max_characters else f"{start}... ({len(text)} characters)"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 entry`, `2,000 entries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def printable_text(content: bytes) -> str | None:
    """The text of a message's body; None if it is not UTF-8, or has control characters besides tabs and line ends."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if text.translate(_NO_LAYOUT).isprintable() else None


def without_folders(text: str) -> str:
    """The text with the name of each file in place of its path: clients learn no path of a server. `no room on the disk
    for /data/store/commitlog/000` becomes `no room on the disk for 000`.
    """
    return _FOLDERS.sub("", text) if "/" in text else text


def write_problem(error: Exception) -> str:
    """Return why a file cannot be written. For a file in the place of a folder, the system's own words do not help."""
    match error:
        case FileExistsError(filename=str() as folder):
            return f"{folder} is a file, and should be a folder; move it away"
        case NotADirectoryError(filename=str() as path):
            return f"one of the folders of {path} is a file; move it away"
    return getattr(error, "strerror", None) or str(error)


def error_sentence(error: BaseException) -> str:
    """Return an error as a sentence that says what to do, also one of the system: Python shows its number."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    if error.errno in (EDQUOT, ENOSPC):
        return f"{error.filename or 'the output'} cannot be written ({error.strerror}); free some room"
    if error.filename is None:
        return str(error)
    problem = write_problem(error)
    names_remedy = problem != error.strerror
    return problem if names_remedy else f"{error.filename} cannot be used ({problem}); correct the path or its owner"
