"""Failures of Spark: our sentence in its text, and whether another start may help.

Spark reports an error of a task, of planning or of a batch as text: stacks of Java and Python around the last line of a
traceback. Some causes end by themselves: a broker or a worker that was away, a full disk, a store that did not answer.
A wrong option, lost rows, a denied account or a read-only disk stay until somebody changes something.

A failed stream starts again from its checkpoint, after pauses of 1 s, 2 s, 4 s, up to a minute. A stream with an end
(`once`) gives up after a few failures in a row, because a timer or a person will start it again. A stream without an
end goes on until the cause is gone. Both give up at once if the next start would fail the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OUR_ERROR: Final = re.compile(r"^[^\w\n]*+sparrowmq\.(?:\w+\.)*(\w+): (.+)$", re.MULTILINE)
# Faults of a disk and of limits in the words of the system, which Java, Python and Rust repeat: a name and a sentence.
_SYSTEM_FAULTS: Final = {
    "No space left on device": ("DiskFull", "no room on the disk for {}; free some"),
    "Disk quota exceeded": ("DiskFull", "no room on the disk for {}; free some"),
    "database or disk is full": ("DiskFull", "no room on the disk for {}; free some"),  # SQLite's
    "Read-only file system": (
        "ReadOnlyDisk",
        "the disk of {} is mounted for reading only; look for its fault, mount it for writing, and start again",
    ),
    "Permission denied": ("NotPermitted", "this user may not read or write {}; correct its owner, and start again"),
    "Too many open files": (
        "NoDescriptor",
        "no file descriptor is left for {}; raise the limit (ulimit -n, LimitNOFILE of systemd), and start again",
    ),
}
_FAULT_WORDS: Final = "|".join(_SYSTEM_FAULTS)
_SYSTEM_FAULT: Final = re.compile(
    rf"Task failed while writing rows to (?:file:)?(\S*[^\s.])|(?:{_FAULT_WORDS}): '([^']+)'"
    rf"|(/\S+) \((?:{_FAULT_WORDS})\)|(/[^\s:]+): (?:{_FAULT_WORDS})|{_FAULT_WORDS}"
)
_NOT_CONNECTED: Final = "Python worker failed to connect back"  # Spark's; no setting changes the 10 s
_UNNAMED_PATH: Final = "the table, its progress, or the temporary files of Spark"
_PYTHON_ERROR: Final = re.compile(r"^[^\w\n]*+((?:\w+\.)*\w+(?:Error|Exception))(?:: (.*))?$", re.MULTILINE)

_COLOUR: Final = re.compile(r"\x1b\[[0-9]+m")
_JAVA_STACK: Final = re.compile(r"\s*(at |$)")  # below an error; other lines belong to its text
_MAX_CAUSE_CHARACTERS: Final = 400  # characters of a cause

CONFIG_ERROR: Final = "ConfigError"
# Our errors that come again at each start.
PERMANENT: Final = frozenset(
    {CONFIG_ERROR, "InvalidName", "InvalidFilter", "InvalidMessage", "MessageTooLarge"}
    | {"AccessDenied", "WrongServer", "LocalProtocolError", "RemoteProtocolError"}
    | {"RowsLost", "BadRecord", "BadStore", "CorruptRecord"}
)
# Python's and Spark's, by their last name: the program or the query is wrong.
_PROGRAM_ERRORS: Final = frozenset(
    {"AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "ModuleNotFoundError"}
    | {"NameError", "NotImplementedError", "TypeError", "UnboundLocalError"}
    | {"ArrowNotImplementedError", "ArrowTypeError"}
    | {"AnalysisException", "ParseException", "PySparkTypeError", "PySparkAttributeError"}
)


_NEED_OPERATOR: Final = frozenset({"ReadOnlyDisk", "NotPermitted"})


class Failure(NamedTuple):
    """The cause of a failure: the name of the error, and its sentence."""

    name: str
    reason: str

    @property
    def is_permanent(self) -> bool:
        return self.name in PERMANENT | _PROGRAM_ERRORS | _NEED_OPERATOR


def known_failure(text: str, default_path: str = _UNNAMED_PATH) -> Failure | None:
    """The error in a text of Spark for which we have a sentence; `default_path` is for faults that name no file."""
    if errors := _OUR_ERROR.findall(text):
        return Failure(*errors[-1])
    if _NOT_CONNECTED in text:
        return Failure(
            "SlowWorker",
            "Spark waits 10 s for each of its Python processes, and one took longer to start; start fewer streams at "
            "once, or use a machine with more processors",
        )
    fault = next((words for words in _SYSTEM_FAULTS if words in text), None)
    if fault is None:
        return None
    name, sentence = _SYSTEM_FAULTS[fault]
    places = (next(filter(None, match.groups()), None) for match in _SYSTEM_FAULT.finditer(text))
    return Failure(name, sentence.format(next(filter(None, places), default_path)))


def failure_from(text: str, default_path: str = _UNNAMED_PATH) -> Failure:
    """The cause of a failure: our error, else the last one of Python with the causes below it, else the first line."""
    if (known := known_failure(text, default_path)) is not None:
        return known
    if python_errors := list(_PYTHON_ERROR.finditer(text)):
        name, reason = python_errors[-1].groups()
        causes = takewhile(lambda line: not _JAVA_STACK.match(line), text[python_errors[-1].end() :].splitlines()[1:])
        reason = one_line("\n".join((reason or "", *causes)))[:_MAX_CAUSE_CHARACTERS]
        return Failure(name.rpartition(".")[2], f"{name.rpartition('.')[2]}: {reason}" if reason else name)
    return Failure("", text.strip().partition("\n")[0])


def one_line(text: str) -> str:
    """A text in one line, with colons for the coloured arrows that deltalake writes before each cause."""
    return ": ".join(" ".join(part.split()) for part in _COLOUR.sub("", text).split("↳"))


FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
MAX_FAILURES_WITH_END: Final = 5  # failures in a row: half a minute of pauses


@dataclass
class Restarts:
    """The failures in a row of one stream."""

    max_failures: int | None = None  # of them before it is given up; None for no limit
    _failures: int = 0

    def pause_s(self, error: Exception, *, made_progress: bool) -> float | None:
        """Return the pause before the next start, short if a batch was done since the last one; None to give up."""
        self._failures = 1 if made_progress else self._failures + 1
        if failure_from(str(error)).is_permanent or (
            self.max_failures is not None and self._failures > self.max_failures
        ):
            return None
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(self._failures - 1, 16)))


def has_session_ended(session: SparkSession) -> bool:
    """Whether a session can start nothing any more: its Java process is gone, or was asked to stop."""
    from py4j.protocol import Py4JError

    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):  # AttributeError: `stop` was called here
        return True
