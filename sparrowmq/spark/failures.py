"""Failures of Spark: our sentence in its text, and whether another start may help.

Spark reports an error of a task, of planning or of a batch as text: stacks of Java and Python around the last line of a
traceback. Some causes end by themselves: a broker or a worker that was away, a full disk, a store that did not answer.
A wrong option, lost rows or a denied account stay until somebody changes something.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_OURS: Final = re.compile(r"^[^\w\n]*+sparrowmq\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)
_NO_ROOM: Final = (
    "No space left on device",
    "Disk quota exceeded",
)  # as Java and Python have it of the system
_WRITTEN: Final = re.compile(
    rf"Task failed while writing rows to (?:file:)?(\S*[^\s.])|(?:{'|'.join(_NO_ROOM)}): '([^']+)'"
)
_DISKS: Final = "the table, its progress, or the temporary files of Spark"
_PYTHONS: Final = re.compile(r"^[^\w\n]*+((?:\w+\.)*\w+(?:Error|Exception))(?:: (.*))?$", re.MULTILINE)

CONFIG_ERROR: Final = "ConfigError"
# Our errors that come again at each start.
PERMANENT: Final = frozenset(
    {CONFIG_ERROR, "InvalidName", "InvalidFilter", "InvalidMessage", "MessageTooLarge"}
    | {"AccessDenied", "WrongServer", "LocalProtocolError", "RemoteProtocolError"}
    | {"RowsLost", "BadRecord", "BadStore", "CorruptRecord"}
)
# Python's and Spark's, by their last name: the program or the query is wrong.
_OF_THE_PROGRAM: Final = frozenset(
    {"AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError"}
    | {"NameError", "NotImplementedError", "TypeError", "UnboundLocalError"}
    | {"ArrowNotImplementedError", "ArrowTypeError"}
    | {"AnalysisException", "ParseException", "PySparkTypeError", "PySparkAttributeError"}
)


class Failure(NamedTuple):
    """The cause of a failure: the name of the error, and its sentence."""

    kind: str
    why: str

    @property
    def is_permanent(self) -> bool:
        """Whether the same would fail again."""
        return self.kind in PERMANENT or self.kind in _OF_THE_PROGRAM


def ours(text: str) -> Failure | None:
    """The error in a text of Spark for which we have a sentence: our last one, or a full disk."""
    if found := _OURS.findall(text):
        return Failure(*found[-1])
    if not any(each in text for each in _NO_ROOM):
        return None
    written = _WRITTEN.search(text)
    place = written[1] or written[2] if written else _DISKS
    return Failure("DiskFull", f"no room on the disk for {place}; free some")


def failure(text: str) -> Failure:
    """The cause of a failure: our error, else the last one of Python, else the first line of the text."""
    if (found := ours(text)) is not None:
        return found
    if of_python := _PYTHONS.findall(text):
        name, why = of_python[-1]
        return Failure(name.rpartition(".")[2], f"{name.rpartition('.')[2]}: {why}" if why else name)
    return Failure("", text.strip().partition("\n")[0])
