"""What can be said about TLS, and where."""

from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.settings_sources import merge
from sparrowmq.errors import ConfigError
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.remoting.tls.tls_settings import (
    ClientAuth,
    ServerTlsSettings,
    TlsMode,
    read_client_tls,
    shared_file,
)
from sparrowmq.settings.settings import build

APACHES = """\
tls.test.mode.enable=false
tls.server.need.client.auth=require
tls.server.keyPath=/opt/server.key
tls.server.keyPassword=secret word
tls.server.certPath=/opt/server.pem
tls.server.authClient=true
tls.server.trustCertPath=/opt/ca.pem
tls.client.keyPath=/opt/client.key
tls.client.certPath=/opt/client.pem
tls.client.authServer=true
tls.client.trustCertPath=/opt/ca.pem
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    path = tmp_path / "tls.properties"
    path.write_text(APACHES)
    return path


@pytest.mark.parametrize("kind", [BrokerSettings, NamesrvSettings])
def test_apaches_keys_are_honoured(kind: type[ServerTlsSettings]) -> None:
    given = dict(line.split("=", 1) for line in APACHES.splitlines()) | {"tls.server.mode": "Enforcing"}
    settings, report = build(kind, given, "file")
    assert (report.unknown, report.without_effect) == ({}, {})
    assert (settings.tls_mode, settings.client_auth) == (TlsMode.ENFORCING, ClientAuth.REQUIRE)
    assert (settings.certificate, settings.client_trust) == (Path("/opt/server.pem"), Path("/opt/ca.pem"))
    assert settings.key_password == "secret word" and settings.checks_client is True


def test_a_password_is_not_shown() -> None:
    settings, _ = build(BrokerSettings, {"tls.server.keyPassword": "hush", "tls.client.keyPassword": "hush"}, "f")
    assert "hush" not in repr(settings) and "hush" not in str(settings.as_properties())
    assert settings.as_properties()["tls.server.keyPassword"] == "(hidden)"


def test_as_apaches_a_server_offers_tls_unless_it_is_told_otherwise() -> None:
    settings = ServerTlsSettings()
    assert settings.tls_mode is TlsMode.PERMISSIVE and settings.client_auth is ClientAuth.NONE
    assert settings.checks_server and not settings.talks_tls, "and unlike Apache's it believes nobody"


def test_a_broker_that_enforces_tls_talks_it_too() -> None:
    assert ServerTlsSettings(tls_mode=TlsMode.ENFORCING).talks_tls
    assert not ServerTlsSettings(tls_mode=TlsMode.ENFORCING, tls_enabled=False).talks_tls
    settings, _ = build(BrokerSettings, {"useTLS": "true"}, "broker.conf")
    assert settings.talks_tls


def test_the_file_of_tls_is_weaker_than_what_is_said_to_one_program(shared: Path) -> None:
    named = ("broker.conf", {"tls.config.file": str(shared), "tls.server.certPath": "/my/own.pem"})
    settings = merge(BrokerSettings, [named, ("the command line", {"brokerName": "b"})])
    assert settings.certificate == Path("/my/own.pem") and settings.key == Path("/opt/server.key")
    assert settings.name == "b" and settings.tls_test_mode is False


def test_of_the_file_of_tls_only_what_concerns_tls_is_read(shared: Path) -> None:
    shared.write_text(APACHES + "listenPort=1\n")
    assert merge(BrokerSettings, [("x", {"tls.config.file": str(shared)})]).port == 10911
    assert len(shared_file(str(shared))) == len(APACHES.splitlines())


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the settings file"):
        shared_file(str(tmp_path / "none"))
    assert shared_file(None) == {} or Path("/etc/rocketmq/tls.properties").exists()


def test_a_client_reads_its_part_of_the_file(shared: Path) -> None:
    settings = read_client_tls(shared)
    assert (settings.client_certificate, settings.client_key) == (
        Path("/opt/client.pem"),
        Path("/opt/client.key"),
    )
    shared.write_text("tls.client.authServer=perhaps")
    with pytest.raises(ConfigError, match="must be true or false"):
        read_client_tls(shared)
