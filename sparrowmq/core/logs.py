"""The log of a server: its file, its format and its level.

    stderr                      unless a file is named, or while the file cannot be written
    FILE                        opened again if it was moved away, so any rotation tool can move it
    FILE with a size limit      FILE.1 is the previous one, ... FILE.5 the oldest
    text                        2026-11-21 10:41:18,003 INFO sparrowmq.broker.registration: ...
    json                        {"time": "2026-11-21T10:41:18.003Z", "level": "INFO", "logger": ..., "message": ...,
                                 "event": "group %s is deleted", "group": "billing"}

A value of a message is a field of JSON if the word in front of it is one of `FIELDS`: topic %s, broker %s, by %s.

A message is always one line: characters that cannot be printed are escaped, because a peer may have sent them.

`logLevel` is a live setting of the servers. It applies to SparrowMQ's own lines, not to those of libraries.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Final

from sparrowmq.core.safe_text import shown
from sparrowmq.settings.setting_kinds import choice, integer
from sparrowmq.settings.settings import Settings, setting

OURS: Final = "sparrowmq"
FIELDS: Final = {
    **{
        name: name
        for name in (
            "topic",
            "group",
            "broker",
            "queue",
            "account",
            "member",
            "master",
            "slave",
            "request",
            "condition",
        )
    },
    **dict.fromkeys(("at", "from", "server"), "address"),
    **dict.fromkeys(("client", "producer", "consumer"), "client"),
    "by": "peer",
    "offset": "offset",
    "epoch": "epoch",
}
_VALUE_PATTERN: Final = re.compile(r"(?:(\w+)[ =])?%([-+ #0-9.]*[a-zA-Z%])")
_TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Level(Enum):
    """The least level of a line."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class Form(Enum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class LogSettings(Settings):
    log_level: Level = setting("logLevel", Level.INFO, choice(Level), live=True)
    """Least important level that is logged."""
    slow_request_ms: int = setting("slowRequestMillis", 1000, integer(0, 3_600_000), live=True)
    """Time from which a request is logged as slow, in milliseconds. 0 logs none."""


log = logging.getLogger(__name__)

TAIL_BYTES: Final = 1 << 20
_TAIL_LINES: Final = 1000
_MIN_FREE_BYTES: Final = 64 << 10  # free ones, with which a file of lines goes on

_tail: _LogTail | None = None  # the log that began in this process
_unwritable_files: dict[str, str] = {}  # the files that cannot be written now, and why


def problem() -> str:
    """Return why lines go to stderr that a log file should have; "" if none do. A server that has nothing to say would
    never find out that its file can be written again. So it says that.
    """
    for file in [file for file in _unwritable_files if _is_writable(file)]:
        log.warning("the log file %s can be written again", file)
    return "; ".join(
        f"the log file {file} cannot be written ({reason}): its lines go to stderr"
        for file, reason in _unwritable_files.items()
    )


def _is_writable(file: str) -> bool:
    try:
        with open(file, "a"):
            disk = os.statvfs(file)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize >= _MIN_FREE_BYTES


def files() -> list[Path]:
    return [
        Path(log_handler.baseFilename)
        for log_handler in logging.getLogger().handlers
        if isinstance(log_handler, logging.FileHandler)
        and getattr(log_handler, "unwritable", None) is _unwritable_files
    ]


def apply_settings(settings: LogSettings) -> None:
    logging.getLogger(OURS).setLevel(settings.log_level.value)


def begin(file: str | None, form: Form, size_bytes: int | None, keep: int) -> None:
    """Let the log of this process go where `handler` writes. Raises: OSError, the file cannot be written."""
    global _tail
    log_handler = handler(file, form, size_bytes, keep)
    _tail = _LogTail(Path(file) if file is not None else None, log_handler.formatter)
    logging.basicConfig(level=logging.INFO, handlers=[log_handler] if file is not None else [log_handler, _tail])


def tail(size_bytes: int = TAIL_BYTES) -> str:
    """Return the last lines of this process's log. It reads the file, so call it in a thread."""
    return _tail.text(size_bytes) if _tail is not None else ""


class _LogTail(logging.Handler):
    """The end of the log: of its file, or the last lines for stderr, which no program can read again."""

    def __init__(self, file: Path | None, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._file = file
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def text(self, size_bytes: int) -> str:
        if self._file is None:
            return "".join(f"{line}\n" for line in self._lines)[-size_bytes:]
        try:
            with self._file.open("rb") as lines:
                lines.seek(max(0, self._file.stat().st_size - size_bytes))
                return lines.read(size_bytes).decode(errors="replace")
        except OSError as error:
            return f"the log file {self._file} cannot be read: {error.strerror}\n"


def handler(file: str | None, form: Form, size_bytes: int | None, keep: int) -> logging.Handler:
    """Make the handler that writes the log: to stderr without a file. Another file begins at `size_bytes`, and `keep`
    older ones stay. Raises: OSError.
    """
    log_handler: logging.Handler
    if file is None:
        log_handler = logging.StreamHandler()
    else:
        from sparrowmq.core.log_handlers import RotatedFile, WatchedFile  # a server without a log file needs none

        log_handler = WatchedFile(file) if size_bytes is None else RotatedFile(file, size_bytes, keep)
        log_handler.unwritable = _unwritable_files
    log_handler.setFormatter(JsonLines() if form is Form.JSON else TextLines(_TEXT_FORMAT))
    return log_handler


class TextLines(logging.Formatter):
    """Each message one line, behind it the trace of an error if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = shown(record.message, 10 * len(record.message))
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """Each line an object.

    `time` (UTC), `level`, `logger`, `message`; `error` with the trace if there is one. A message with values also has
    `event`, which is equal for all messages of a kind, and the values that `FIELDS` names.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.args:
            line |= {"event": record.msg} | fields_of(record.msg, record.args)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        import json  # few servers log JSON

        text = json.dumps(line, ensure_ascii=False)
        if text.isprintable():
            return text
        return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def fields_of(template: object, values: object) -> dict[str, str]:
    """Return the values of a message that its text names; the first one of a name counts."""
    if not isinstance(template, str) or not isinstance(values, tuple):
        return {}
    words = [word for word, kind in _VALUE_PATTERN.findall(template) if kind != "%"]
    fields: dict[str, str] = {}
    for word, value in zip(words, values, strict=False):
        field = FIELDS.get(word)
        if field and not (field == "address" and isinstance(value, int)):  # "from %d to %d" are offsets
            fields.setdefault(field, str(value))
    return fields
