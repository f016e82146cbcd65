"""Logs of source and sink in processes that Spark started: time, level and logger, on standard error.

Spark configures no logging in its Python processes; Python then prints the bare text of a warning, without saying when,
or from where. Spark shows their standard error as its own, or keeps it as that of an executor.
"""

from __future__ import annotations

import logging
import time
from typing import Final

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show() -> None:
    """Print warnings so, unless logging is configured."""
    package = logging.getLogger("sparrowmq")
    if package.handlers or logging.getLogger().handlers:
        return
    formatter = logging.Formatter(_LINE, "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(formatter)
    package.addHandler(handler)
