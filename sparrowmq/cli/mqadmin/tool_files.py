"""Files that commands write to the same places as Java's tool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sparrowmq.cli.mqadmin.failures import Failure

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK


def write(path: Path, content: bytes) -> Path:
    """Write a file, and make the folders above it. Returns the path. Raises: Failure.

    Unlike Java: a link or a pipe in the place of the file is refused. In /tmp another user could let a link lead to any
    file of the operator, and a pipe would keep the command waiting.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, _FLAGS, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise Failure("java.io.FileNotFoundException", f"{path} ({error.strerror})") from None
    return path
