"""Log files that are never the end of a server: a line that its file cannot take goes to stderr.

The folder may be gone, a rotation tool may have created the file for another user, or the disk may be full. The next
line tries the file again, and so does the check of conditions each second (`logs.problem`).
"""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler, WatchedFileHandler

from sparrowmq.core.safe_text import write_problem


class _FileOrStderr(logging.FileHandler):
    """Writes to stderr what the file cannot take."""

    unwritable: dict[str, str]  # gets the file and the reason while lines go to stderr
    _failed = False  # whether the line that is written now failed

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError as error:  # the file cannot be opened again
            self._write_to_stderr(record, error)
        else:
            if self.stream is not None and self.baseFilename in self.unwritable and not self._failed:
                del self.unwritable[self.baseFilename]
        self._failed = False

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._failed = True
            self._write_to_stderr(record, error)
        else:
            super().handleError(record)

    def _write_to_stderr(self, record: logging.LogRecord, error: OSError) -> None:
        reason, is_new = write_problem(error), self.baseFilename not in self.unwritable
        self.unwritable[self.baseFilename] = reason
        if sys.stderr is None:
            return
        if is_new:
            sys.stderr.write(f"the log file {self.baseFilename} cannot be written ({reason}); its lines go here\n")
        sys.stderr.write(f"{self.format(record)}\n")


class WatchedFile(_FileOrStderr, WatchedFileHandler):
    """A file that is opened again if it was moved away."""

    def __init__(self, file: str) -> None:
        super().__init__(file, encoding="utf-8")


class RotatedFile(_FileOrStderr, RotatingFileHandler):
    """A file that is followed by another one at a size."""

    def __init__(self, file: str, size_bytes: int, keep: int) -> None:
        RotatingFileHandler.__init__(self, file, maxBytes=size_bytes, backupCount=keep, encoding="utf-8")
