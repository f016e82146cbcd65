"""Messages that rot in the log while they wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def rot(store: Path, text: bytes) -> Callable[[], None]:
    """Flip a bit of the first record that has the text, on disk; returns what mends it."""

    def overwrite(content: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content)

    path = next(each for each in sorted((store / "commitlog").iterdir()) if text in each.read_bytes())
    at = path.read_bytes().index(text)
    overwrite(bytes([text[0] ^ 4]))
    return lambda: overwrite(text[:1])
