"""The stacks of all threads and tasks of this process, as text: the `jstack` that operators request of consumers."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback


def stacks() -> str:
    """The stack of each thread, and of each task of the running loop, one after the other."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = io.StringIO()
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}\n")
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        text.write(f"task {task.get_name()}\n")
        task.print_stack(file=text)
        text.write("\n")
    return text.getvalue()
