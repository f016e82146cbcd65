"""Settings from a command line: built in < file (-c) < environment < --set key=value and other options."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

import click

from sparrowmq.errors import ConfigError
from sparrowmq.remoting.tls.tls_settings import FILE_KEY, SHARED_FILE, ClientTlsSettings, shared_file
from sparrowmq.settings import settings as config
from sparrowmq.settings.settings import Settings, keyed_fields
from sparrowmq.settings.settings_files import read_text, value_of
from sparrowmq.settings.user_settings import INNER_CREDENTIALS, UserSettings, named_secret

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Settings)
Source = tuple[str, Mapping[str, str]]

BROKER_VARIABLES: Final = "RMQ_BROKER_"  # how the environment names a broker's settings: RMQ_BROKER_listenPort

DEFAULT_GRPC_PORT: Final = "8081"
_BROKER_KEYS: Final = {
    "grpcServerPort": "grpcServerPort",
    "namesrvAddr": "namesrvAddr",
    "tlsTestModeEnable": "tls.test.mode.enable",
    "tlsCertPath": "tls.server.certPath",
    "tlsKeyPath": "tls.server.keyPath",
    **{key: key for field in keyed_fields(UserSettings) for key in field.metadata["keys"]},
}
_PROXY_OPTIONS: Final = {
    "grpcServerPort": "port",
    "namesrvAddr": "namesrv",
    "tlsCertPath": "certificate",
    "tlsKeyPath": "key",
    "metricsPromExporterPort": "metrics_port",
    "proxyMode": "mode",
    "brokerConfigPath": "broker_file",
}
_OTHER_KEYS: Final = ("metricsExporterType", INNER_CREDENTIALS, "authenticationEnabled", "remotingListenPort")
_TLS_KEYS: Final = ("tlsTestModeEnable", "tlsCertPath", "tlsKeyPath")

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

    `changes` are the values of --set, and those without an option; `typed` those of other options; `proxy_file` is a
    rmq-proxy.json, for the gRPC port of a broker. Raises: ConfigError, a file cannot be read, or a change has no value.
    """
    from_file = [(file, config.load(file))] if file else []
    if proxy_file:
        from_file.append((proxy_file, ProxyFile.load(proxy_file).broker_settings()))
    from_line = dict(map(_pair, changes)) | dict(typed)
    return [*from_file, ("the environment", environment), ("the command line", from_line)]


def merge(cls: type[S], values_by_source: Sequence[Source]) -> S:
    """Merge all sources; logs values without effect. Raises: ConfigError, a value is wrong."""
    settings = cls()
    for source, values in [*_tls_sources(cls, values_by_source), *values_by_source]:
        settings, report = config.build(cls, values, source, settings)
        for sentence in report.sentences():
            log.warning("%s: %s", source, sentence)
    return settings


def _tls_sources(cls: type[Settings], values_by_source: Sequence[Source]) -> list[Source]:
    """Return the TLS file that programs share, weaker than all settings of this one."""
    if not issubclass(cls, ClientTlsSettings):
        return []
    path = next((values[FILE_KEY] for _, values in reversed(values_by_source) if FILE_KEY in values), None)
    values = shared_file(path)
    return [(path or str(SHARED_FILE), values)] if values else []


def _pair(change: str) -> tuple[str, str]:
    key, separator, value = change.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"{change!r} is not key=value, as in listenPort=10921")
    return key.strip(), value


@dataclass(frozen=True)
class ProxyFile:
    """Apache's rmq-proxy.json (`-pc`): keys that the gRPC port of a broker has, too, or `mqproxy`.

        mqbroker --enable-proxy -pc FILE     settings of the broker, stronger than broker.conf
        mqproxy -pc FILE                     values of the options that the command line does not have

    One line of the log names the keys without effect. Source: ProxyStartup, ProxyConfig and AuthConfig, Java 5.3.3.
    """

    path: str
    values: Mapping[str, str]

    @classmethod
    def load(cls, path: str) -> Self:
        """Raises: ConfigError, it cannot be read, or is no object of JSON."""
        try:
            table = json.loads(read_text(Path(path).expanduser()))
            if not isinstance(table, dict):
                raise ValueError("it is not a JSON object")
        except OSError as error:
            raise ConfigError(f"cannot read {path} ({error.strerror}); check the path of -pc") from error
        except ValueError as error:
            raise ConfigError(f"{path} must be JSON, as Apache's rmq-proxy.json is: {error}") from error
        values = {key: _text(value, f"{path}: {key}") for key, value in table.items() if value is not None}
        if values.get("tlsTestModeEnable") == "true":  # then Java makes a certificate, and so does a port here
            values = {key: value for key, value in values.items() if key not in _TLS_KEYS}
        return cls(path, values)

    def broker_settings(self) -> dict[str, str]:
        self._warn({*_BROKER_KEYS, "proxyMode", "brokerConfigPath"})
        return {_BROKER_KEYS[key]: value for key, value in self.values.items() if key in _BROKER_KEYS}

    def options(self) -> dict[str, str]:
        """Return values of options of `mqproxy`, by the names of their parameters. Raises: ConfigError."""
        options = {_PROXY_OPTIONS[key]: value for key, value in self.values.items() if key in _PROXY_OPTIONS}
        if self.values.get("metricsExporterType", "").upper() == "PROM":
            options.setdefault("metrics_port", "5557")
        else:
            options.pop("metrics_port", None)
        if account := self.values.get(INNER_CREDENTIALS):
            options["access_key"], options["secret_key"] = named_secret(account, INNER_CREDENTIALS)
        return options

    def check_proxy(self, has_account: bool) -> None:
        """Log the keys that have no effect at `mqproxy`. Raises: ConfigError, clients cannot be checked as it says."""
        if self.values.get("authenticationEnabled") == "true" and not has_account:
            raise ConfigError(
                f"{self.path}: authenticationEnabled=true needs an account of the brokers, a Super user: give "
                "--access-key and --secret-key"
            )
        if "remotingListenPort" in self.values:
            log.warning("%s: mqproxy has no remotingListenPort: remoting clients connect to the brokers", self.path)
        tls_keys = _TLS_KEYS if "tlsCertPath" in self.values else ()
        self._warn({*_PROXY_OPTIONS, *tls_keys, *_OTHER_KEYS})

    def _warn(self, effective: Collection[str]) -> None:
        if ignored_keys := sorted(self.values.keys() - effective):
            log.warning("%s: these keys have no effect here: %s", self.path, ", ".join(ignored_keys))


def _text(value: object, place: str) -> str:
    return value_of(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), place)
