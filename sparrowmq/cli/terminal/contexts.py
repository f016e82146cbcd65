"""Contexts: the address, the account and the TLS settings of clusters, under names.

    ~/.config/sparrowmq/contexts.json    or what SPARROWMQ_CONTEXTS names; only its owner can read it

A command uses one context, or none; it never takes the account of one cluster to another one. The first of these that
is given decides:

    --context NAME, SPARROWMQ_CONTEXT    that context; the environment's addresses and account are ignored
    -n, NAMESRV_ADDR                     no context
    `sparrowmq context use NAME`         that context
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.client.cluster.name_servers import ADDRESSES_VARIABLE, DOMAIN_VARIABLE
from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, ConfigError

FILE_VARIABLE: Final = "SPARROWMQ_CONTEXTS"
NAME_VARIABLE: Final = "SPARROWMQ_CONTEXT"
_UMASK: Final = 0o077  # what is taken away


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    namesrv: str  # `host:port;host:port`
    access_key: str = ""  # "" for no account
    secret_key: str = ""
    tls: bool = False
    tls_config: str = ""  # a file with tls.client.*; it implies `tls`

    @property
    def credentials(self) -> Credentials | None:
        return Credentials(self.access_key, self.secret_key) if self.access_key else None


class Contexts(msgspec.Struct):
    current: str = ""  # the name that `context use` chose
    by_name: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        if name in self.by_name:
            return self.by_name[name]
        known = ", ".join(sorted(self.by_name)) or "none"
        raise ConfigError(
            f"there is no context {name!r} (known: {known}); make it by `sparrowmq context set {name} -n host:port`"
        )


def contexts_file() -> Path:
    if path := os.environ.get(FILE_VARIABLE):
        return Path(path).expanduser()
    home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(home) / "sparrowmq" / "contexts.json"


def load() -> Contexts:
    """Return the contexts of this user. Raises: ConfigError, the file cannot be read."""
    try:
        return snapshot.load(contexts_file(), Contexts) or Contexts()
    except BadStore as error:
        raise ConfigError(str(error)) from None


def save(contexts: Contexts) -> None:
    """Replace the file. Raises: ConfigError, it cannot be written."""
    path = contexts_file()
    previous = os.umask(_UMASK)
    try:
        snapshot.save(path, contexts)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}); correct its owner, or name another file in {FILE_VARIABLE}"
        ) from None
    finally:
        os.umask(previous)


def choose(name: str | None, namesrv: str | None) -> Context | None:
    """Return the context that a command uses, by --context and -n. Raises: ConfigError, there is no such context."""
    if name:
        return load().named(name)
    if namesrv or os.environ.get(ADDRESSES_VARIABLE) or os.environ.get(DOMAIN_VARIABLE):
        return None
    contexts = load()
    return contexts.named(contexts.current) if contexts.current else None
