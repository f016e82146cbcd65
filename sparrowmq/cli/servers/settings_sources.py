"""Settings from a command line: built in < file (-c) < environment < --set key=value and other options."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import click

from sparrowmq.cli.servers.proxy_file import ProxyFile
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.tls.tls_settings import FILE_KEY, SHARED_FILE, ClientTlsSettings, shared_file
from sparrowmq.settings import settings as config
from sparrowmq.settings.settings import Settings

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)
Source = tuple[str, Mapping[str, str]]

BROKER_VARIABLES: Final = "RMQ_BROKER_"  # how the environment names a broker's settings: RMQ_BROKER_listenPort

FILE_OPTION: Final = click.option(
    "-c", "--config", "--configFile", "file", metavar="FILE", help="Settings: a .properties or .toml file."
)
SET_OPTION: Final = click.option(
    "--set", "changes", metavar="KEY=VALUE", multiple=True, help="One setting; may be repeated."
)


def sources(
    file: str | None,
    environment: Mapping[str, str],
    changes: Sequence[str],
    typed: Mapping[str, str],
    proxy_file: str | None = None,
) -> list[Source]:
    """Return the sources of settings with their values, the strongest last.

    Args:
        changes: the values of --set, and those without an option.
        typed: the values of other options.
        proxy_file: a rmq-proxy.json, for the gRPC port of a broker.
    Raises:
        ConfigError: the file cannot be read, or a change has no value.
    """
    from_file = [(file, config.load(file))] if file else []
    if proxy_file:
        from_file.append((proxy_file, ProxyFile.load(proxy_file).broker_settings()))
    from_line = dict(map(_pair, changes)) | dict(typed)
    return [*from_file, ("the environment", environment), ("the command line", from_line)]


def merge(cls: type[S], given: Sequence[Source]) -> S:
    """Merge all sources; logs values without effect. Raises: ConfigError, a value is wrong."""
    settings = cls()
    for source, values in [*_of_tls(cls, given), *given]:
        settings, report = config.build(cls, values, source, settings)
        for sentence in report.sentences():
            log.warning("%s: %s", source, sentence)
    return settings


def _of_tls(cls: type[Settings], given: Sequence[Source]) -> list[Source]:
    """Return the TLS file that programs share, weaker than all settings of this one."""
    if not issubclass(cls, ClientTlsSettings):
        return []
    named = [values[FILE_KEY] for _, values in given if FILE_KEY in values]
    path = named[-1] if named else None
    said = shared_file(path)
    return [(path or str(SHARED_FILE), said)] if said else []


def _pair(change: str) -> tuple[str, str]:
    key, separator, value = change.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"{change!r} is no setting: write key=value, as in listenPort=10921")
    return key.strip(), value
