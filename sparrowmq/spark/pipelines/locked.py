"""A folder that one process works in at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparrowmq.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows has no such locks; there nobody is stopped.
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, made if it is not there; a killed process lets go. Raises: ConfigError, another has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ConfigError(
                    f"another run is at work in {folder}; wait for its end, or stop it"
                ) from None
        yield
