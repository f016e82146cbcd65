"""The packages that a gRPC port needs beside those of a server, and whether they are installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from sparrowmq.errors import ConfigError

PACKAGES: Final[Mapping[str, str]] = {"google.protobuf": "protobuf"}
INSTALL: Final = "pip install 'sparrowmq[server,grpc]'"


def missing_packages() -> list[str]:
    return [package for module, package in PACKAGES.items() if not _is_installed(module)]


def check_installed(program: str) -> None:
    """Raises: ConfigError, `program` needs a package that is not installed."""
    if names := missing_packages():
        raise ConfigError(f"{program} needs the packages {', '.join(names)}: {INSTALL}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
