"""The state of a server's own process, for `sparrowmq bundle`: stacks, the end of its log, versions.

    stacks    of each thread, and of each task of the event loop
    log       its last lines: of its file, or of what it wrote to stderr
    process   its version and Python's, its id, its platform

Values of secret settings are hidden wherever they are.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import threading
from collections.abc import Iterable
from dataclasses import fields
from typing import Final

from sparrowmq.core import logs
from sparrowmq.core.process import list_stacks
from sparrowmq.loop.slices import run_to_end
from sparrowmq.settings.settings import Settings
from sparrowmq.version import VERSION

HIDDEN: Final = "(hidden)"
_SHORTEST_SECRET: Final = 4


async def diagnosis(settings: Settings, log_bytes: int = logs.TAIL_BYTES) -> dict[str, str]:
    stacks = await run_to_end(list_stacks())
    log = await asyncio.to_thread(logs.tail, log_bytes)
    parts = {"process": _process(), "stacks": stacks, "log": log}
    return {name: hide_secrets(secrets_of(settings), text) for name, text in parts.items()}


def secrets_of(settings: Settings) -> set[str]:
    values = (getattr(settings, setting.name) for setting in fields(settings) if not setting.repr)
    return {value for value in values if isinstance(value, str)}


def hide_secrets(secrets: Iterable[str], text: str) -> str:
    """Hide the secrets in a text. A secret of three characters would hide half of it, so it stays."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    return text


def _process() -> str:
    facts = {
        "sparrowmq": VERSION,
        "python": sys.version.replace("\n", " "),
        "platform": platform.platform(),
        "pid": os.getpid(),
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
        "load": " ".join(f"{average:.2f}" for average in os.getloadavg()),
    }
    return "".join(f"{name}: {value}\n" for name, value in facts.items())
