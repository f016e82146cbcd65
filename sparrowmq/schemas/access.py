"""Credentials for a schema registry: user and password, certificates.

    variable                        in a file (SCHEMA_REGISTRY_FILE)
    SCHEMA_REGISTRY_USER_INFO       basic.auth.user.info             user:password
    SCHEMA_REGISTRY_CA              ssl.ca.location                  a file of certificates to trust
    SCHEMA_REGISTRY_CERTIFICATE     ssl.certificate.location         the client's own certificate
    SCHEMA_REGISTRY_KEY             ssl.key.location                 its key

The names in the file are those of Confluent's clients. A command line has none of these: others on the machine see it.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sparrowmq.client.arguments import check_text
from sparrowmq.errors import ConfigError

FILE: Final = "SCHEMA_REGISTRY_FILE"
_NAMES: Final = {
    "basic.auth.user.info": "SCHEMA_REGISTRY_USER_INFO",
    "ssl.ca.location": "SCHEMA_REGISTRY_CA",
    "ssl.certificate.location": "SCHEMA_REGISTRY_CERTIFICATE",
    "ssl.key.location": "SCHEMA_REGISTRY_KEY",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials for a registry; `repr` shows none."""

    user_info: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def headers(self) -> dict[str, str]:
        if not self.user_info:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(self.user_info.encode()).decode()}

    def tls(self) -> ssl.SSLContext:
        """Return how connections are encrypted. Raises: ConfigError, a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(name for name in (self.ca, self.certificate, self.key) if name)
            raise ConfigError(
                f"the certificates for the schema registry cannot be used ({error}); the files are {names}"
            ) from None
        return context


def access(environment: Mapping[str, str] | None = None) -> Access:
    """Return the access that the environment names; a variable has priority over the file. Raises: ConfigError."""
    given = os.environ if environment is None else environment
    found = _of_file(Path(given[FILE])) if given.get(FILE) else {}
    found |= {name: given[variable] for name, variable in _NAMES.items() if given.get(variable)}
    user_info, *files = (found.get(name, "") for name in _NAMES)
    if user_info and ":" not in user_info:
        raise ConfigError("the schema registry's account has no password; write user:password")
    return Access(user_info, *files)


def checked_address(address: str) -> str:
    """Return the address of a registry, without a slash at its end. Raises: ConfigError."""
    check_text("the address of a registry", address)
    if not _is_address(address):
        raise ConfigError(f"{_without_account(address)!r} is no address of a registry; write http://host:8081")
    if "@" in urlsplit(address).netloc:
        raise ConfigError(
            f"the address {_without_account(address)} contains an account; "
            "put it into SCHEMA_REGISTRY_USER_INFO, or into the file that SCHEMA_REGISTRY_FILE names"
        )
    return address.rstrip("/")


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets without an end, or a port that is none
        return False
    return is_one and address.isprintable() and " " not in address


def _without_account(address: str) -> str:
    return address.rpartition("@")[2]


def _of_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}, which {FILE} names, cannot be read ({error})") from None
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not name or name.startswith("#"):
            continue
        if not equals or name not in _NAMES:
            raise ConfigError(f"{path}, line {number}: write NAME=VALUE; the names are {', '.join(_NAMES)}")
        found[name] = value
    return found
