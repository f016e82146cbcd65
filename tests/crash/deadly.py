"""`python -m tests.crash.deadly FILE POINT COUNT ARGUMENT...`: `sparrowmq ARGUMENT...` that dies at a crash point.

A crash point is a moment at one of the effects on files: `flush.py:_work:fdatasync before`, `... after`, and for a
write `... half`, when a part of it is done. It is named by the function that asked for it. The process kills itself
when it is there for the COUNT-th time. Each point that it meets it adds to FILE, so who plays learns them all.

Not the product is changed for that, but the functions of `os` that it has files changed by, before it is imported.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

EFFECTS: Final = (
    "pwrite",
    "fdatasync",
    "fsync",
    "replace",
    "unlink",
    "posix_fallocate",
    "ftruncate",
    "rmdir",
    "mkdir",
)
CHECKPOINT_MS: Final = 150  # or a life of a second would see none
_PRODUCT: Final = f"{os.sep}sparrowmq{os.sep}"


class Deaths:
    """Which point is the last one."""

    def __init__(self, path: str, point: str, count: int) -> None:
        self.point = point
        self.left = count
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._met: set[str] = set()

    def meet(self, point: str) -> None:
        """Remember a point; at the last one this does not return."""
        if point not in self._met:
            self._met.add(point)
            os.write(self._file, f"{point}\n".encode())
        if self.is_last(point):
            self.die()
        if point == self.point:
            self.left -= 1

    def is_last(self, point: str) -> bool:
        return point == self.point and self.left == 1

    @staticmethod
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def watched(effect: str, deaths: Deaths) -> Callable[..., Any]:
    """The function of `os`, with its crash points."""
    real = getattr(os, effect)

    def act(*arguments: Any, **words: Any) -> Any:
        site = site_of(effect)
        if site is None:
            return real(*arguments, **words)
        deaths.meet(f"{site} before")
        if effect == "pwrite":
            fd, content, offset = arguments
            if deaths.is_last(f"{site} half"):
                real(fd, content[: len(content) // 2], offset)
            deaths.meet(f"{site} half")
        result = real(*arguments, **words)
        deaths.meet(f"{site} after")
        return result

    return act


def site_of(effect: str) -> str | None:
    """Who of the product asks for it, but for the files that only hand it on."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if _PRODUCT in path and not path.endswith(("vfs.py", "log_file.py")):
            return f"{os.path.basename(path)}:{frame.f_code.co_name}:{effect}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


def hasten_checkpoints() -> None:
    """Have them made in their own time, as those of a broker that lives long."""
    from sparrowmq.store.message_store import MessageStore

    opened = MessageStore.open.__func__  # type: ignore[attr-defined]

    def open_hastily(cls: type[MessageStore], /, settings: Any, **words: Any) -> MessageStore:
        store: MessageStore = opened(cls, replace(settings, checkpoint_interval_ms=CHECKPOINT_MS), **words)
        return store

    MessageStore.open = classmethod(open_hastily)  # type: ignore[assignment, method-assign]


def main(path: str, point: str, count: str, *arguments: str) -> None:
    deaths = Deaths(path, point, int(count))
    for effect in EFFECTS:
        setattr(os, effect, watched(effect, deaths))
    hasten_checkpoints()
    sys.argv = ["sparrowmq", *arguments]
    runpy.run_module("sparrowmq", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
