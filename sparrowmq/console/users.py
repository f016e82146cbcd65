"""The users of the console: a file of names, roles and hashed passwords.

    alice:admin:scrypt$16384$8$1$c2FsdA==$aGFzaA==          name : role : password, one a line; # begins a comment

`sparrowmq console --make-user alice:admin` prints such a line. Passwords are hashed with scrypt (RFC 7914), which takes
16 MiB and about 50 ms each time, and so does a wrong name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.settings.settings_files import ChangedFiles

_COST: Final = (1 << 14, 8, 1)  # n, r, p: what RFC 7914 gives for log-ins
_MAX_PASSWORD_LENGTH: Final = 1024  # characters of a password; more is no password but an attempt to keep us busy
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH: Final = re.compile(r"scrypt\$\d{1,8}\$\d{1,3}\$\d{1,3}\$[\w+/=]{4,}\$[\w+/=]{4,}", re.ASCII)


class Role(IntEnum):
    """The actions that a user may run; each role includes the lower ones."""

    VIEW = 1
    OPERATE = 2  # messages and offsets: send, resend, redrive, reset, skip
    ADMIN = 3  # topics, groups, settings and accounts


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    role: Role
    password_hash: str

    def line(self) -> str:
        return f"{self.name}:{self.role.name.lower()}:{self.password_hash}"


class Accounts:
    """The accounts by name; `read_changed` returns those of now, or None if nothing has changed."""

    def __init__(
        self, accounts: Mapping[str, Account], read_changed: Callable[[], Mapping[str, Account] | None] = lambda: None
    ) -> None:
        self._accounts = accounts
        self._read_changed = read_changed
        self._unknown = Account("", Role.VIEW, hash_password(secrets.token_hex()))

    def find(self, name: str) -> Account | None:
        return self._accounts.get(name)

    def renew(self) -> set[str]:
        """Read a file that has changed; return the names that have gone, or have another role or password.

        Raises: ConfigError, the file is wrong; the accounts stay as they were.
        """
        before, now = self._accounts, self._read_changed()
        if now is None:
            return set()
        self._accounts = now
        return {name for name, account in before.items() if now.get(name) != account}

    def check(self, name: str, password: str) -> Account | None:
        """The account, if the password is its own; takes as long for a wrong name. Blocks for about 50 ms."""
        account = self._accounts.get(name, self._unknown)
        is_right = len(password) <= _MAX_PASSWORD_LENGTH and matches(account.password_hash, password)
        return account if is_right and account is not self._unknown else None


def read_accounts(path: Path) -> Accounts:
    """The accounts of a file, which may change. Raises: ConfigError, as `renew`."""
    files = ChangedFiles(lambda: [path])
    return Accounts(_in_file(path), lambda: _in_file(path) if files.has_changed() else None)


def _in_file(path: Path) -> Mapping[str, Account]:
    """Raises: ConfigError, it cannot be read, has no account, or a line is wrong."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the console's users {path} cannot be read ({error})") from error
    accounts = parse_accounts(lines, str(path))
    if not accounts:
        raise ConfigError(f"{path} names no user; `sparrowmq console --make-user NAME:ROLE` prints a line for it")
    return accounts


def parse_accounts(lines: Iterable[str], source: str) -> dict[str, Account]:
    """The accounts of some lines. Raises: ConfigError."""
    accounts: dict[str, Account] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, _, rest = text.partition(":")
        role, _, password = rest.partition(":")
        if not _HASH.fullmatch(password):
            raise ConfigError(f"{source}:{number}: this is not a password hash as --make-user prints it")
        if name in accounts:
            raise ConfigError(f"{source}:{number}: user {name} is there twice")
        accounts[name] = Account(*parse_user(f"{name}:{role}", f"{source}:{number}"), password)
    return accounts


def parse_user(text: str, source: str) -> tuple[str, Role]:
    """The two parts of name:role; without a role it is admin. Raises: ConfigError."""
    name, separator, role = text.partition(":")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{source}: {name!r} is not a valid user name; use letters, digits, and . _ @ - between them")
    if role.upper() not in Role.__members__ and separator:
        raise ConfigError(f"{source}: {role!r} is not a role; use view, operate or admin")
    return name, Role[role.upper()] if separator else Role.ADMIN


def hash_password(password: str) -> str:
    """A password as it is kept. Blocks for about 50 ms."""
    salt = secrets.token_bytes(16)
    parts = [base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, *_COST))]
    return "$".join(["scrypt", *map(str, _COST), *parts])


def matches(hashed_password: str, password: str) -> bool:
    _, n, r, p, salt, digest = hashed_password.split("$")
    actual = _scrypt(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(actual, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=1 << 28)
