"""Calls in a forked child of the test's process."""

import os
import select
import signal
import traceback
from collections.abc import Callable

LIMIT_S = 20.0


def in_child(call: Callable[[], object], limit_s: float = LIMIT_S) -> str:
    """Fork, call something in the child, and return how it ended: "Class: text" of its error, or "returned ..."."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _report(call, writing)
    os.close(writing)
    try:
        ended, _, _ = select.select([reading], [], [], limit_s)
        if not ended:
            os.kill(child, signal.SIGKILL)
            return "hung"
        return os.read(reading, 1 << 16).decode()
    finally:
        os.close(reading)
        os.waitpid(child, 0)


def _report(call: Callable[[], object], writing: int) -> None:
    """Write how the call ended, and leave the child without the cleaning up of the parent's things."""
    try:
        said = f"returned {call()!r}"
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
        if not type(error).__module__.startswith("sparrowmq"):
            said += "".join(traceback.format_exception(error))
    os.write(writing, said.encode()[: 1 << 15])
    os._exit(0)
