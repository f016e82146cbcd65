"""Folders that a pipeline makes, and that hold nothing of anybody else's."""

from __future__ import annotations

from pathlib import Path

from sparrowmq.errors import ConfigError


def demand_absent(to: str | Path) -> None:
    """Raises: ConfigError, there is something already."""
    if Path(to).exists():
        raise ConfigError(f"{to} is there already; name another folder")
