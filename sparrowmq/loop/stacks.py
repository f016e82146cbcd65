"""The stacks of all threads and tasks of this process, as text, for those who look for a fault."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import traceback

from sparrowmq.loop.slices import Steps


def stacks_now() -> Steps[str]:
    """Return the stacks of all threads, and of all tasks of the running loop, each made in a step."""
    names = {each.ident: each.name for each in threading.enumerate()}
    text = io.StringIO()
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, '?')} ({ident})\n{''.join(traceback.format_stack(frame))}\n")
        yield
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        text.write(f"task {task.get_name()}\n")
        task.print_stack(file=text)
        text.write("\n")
        yield
    return text.getvalue()
