"""The reason why no TCP connection could be made, in the words of the operating system.

asyncio hides them: `[Errno 111] Connect call failed ('127.0.0.1', 9)` is "Connection refused" here.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Final

_NUMBER: Final = re.compile(r"\[Errno ([0-9]+)\]")


def why_unconnected(error: BaseException) -> str:
    """Return the reason; empty if the error has no text, as a timeout.

    A name with several addresses fails with "Multiple exceptions", one for each. Equal reasons are named once.
    """
    number = getattr(error, "errno", None)
    numbers = [number] if number else map(int, _NUMBER.findall(str(error)))
    reasons = dict.fromkeys(_text_of(each) for each in numbers if each > 0)
    return ", ".join(reasons) or str(getattr(error, "strerror", None) or error)


def _text_of(number: int) -> str:
    said = os.strerror(number)
    return f"{said} in this process: raise `ulimit -n`" if number == errno.EMFILE else said
