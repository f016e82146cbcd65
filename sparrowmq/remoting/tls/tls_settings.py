"""The settings of TLS, by the keys of Apache's servers and clients.

They are read with all other settings (broker.conf, namesrv.conf, the environment, the command line). Several programs
can share a file for them, as with Apache's: `tls.config.file`, or /etc/rocketmq/tls.properties. Other sources override
that file.

    tls.server.mode        disabled     TLS is refused
                           permissive   the first byte of a connection decides
                           enforcing    plain text is refused
    tls.server.*           the certificate of a server, and the clients that it accepts
    tls.enable             whether a client (a broker towards its name servers, too) encrypts
    tls.client.*           the certificate of a client, and the servers that it trusts

Unlike Java: a given certificate is shown even if `tls.test.mode.enable` is not switched off, and a client checks its
server unless a setting says otherwise. Java's clients trust every server until two settings are changed.
Source: TlsSystemConfig and TlsHelper, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final

from sparrowmq.settings.setting_kinds import BOOLEAN, PATH, SECRET, choice
from sparrowmq.settings.settings import Settings, build, load, setting

FILE_KEY: Final = "tls.config.file"
SHARED_FILE: Final = Path("/etc/rocketmq/tls.properties")


class TlsMode(Enum):
    """The connections that a server accepts."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether clients must show a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, kw_only=True)
class ClientTlsSettings(Settings):
    # An operator who sets one relies on its protection, so no unknown setting is ignored.
    REFUSED: ClassVar[Mapping[str, str]] = {
        "tls*": "no setting of TLS is called so; docs/operate/security.md has them all"
    }

    tls_enabled: bool | None = setting("tls.enable", None, BOOLEAN, also=("useTLS",))
    """Connect to name servers by TLS. By default a broker does so if tls.server.mode=enforcing."""
    client_trust: Path | None = setting("tls.client.trustCertPath", None, PATH)
    """File of CA certificates (PEM) for other servers. By default those of the system."""
    client_certificate: Path | None = setting("tls.client.certPath", None, PATH)
    """Certificate (PEM) to show to other servers."""
    client_key: Path | None = setting("tls.client.keyPath", None, PATH)
    """Private key (PEM) of tls.client.certPath."""
    client_key_password: str | None = setting("tls.client.keyPassword", None, SECRET, secret=True)
    """Password of tls.client.keyPath."""
    checks_server: bool = setting("tls.client.authServer", True, BOOLEAN)
    """Check the certificates of other servers."""
    checks_server_name: bool = setting("tls.client.checkName", True, BOOLEAN)
    """Check that a certificate belongs to the address that was connected to."""
    tls_file: Path | None = setting(FILE_KEY, None, PATH)
    """File with TLS settings that several programs share."""
    tls_test_mode: bool | None = setting("tls.test.mode.enable", None, BOOLEAN)
    """true: trust every server. false: refuse TLS if no certificate is given."""


@dataclass(frozen=True, kw_only=True)
class ServerTlsSettings(ClientTlsSettings):
    """The TLS settings of a server. Towards other servers it is a client."""

    tls_mode: TlsMode = setting("tls.server.mode", TlsMode.PERMISSIVE, choice(TlsMode))
    """Connections to accept: disabled only plain, permissive both, enforcing only TLS."""
    certificate: Path | None = setting("tls.server.certPath", None, PATH)
    """Certificate (PEM, with its chain) to show. By default a self-signed one is made."""
    key: Path | None = setting("tls.server.keyPath", None, PATH)
    """Private key (PEM) of tls.server.certPath."""
    key_password: str | None = setting("tls.server.keyPassword", None, SECRET, secret=True)
    """Password of tls.server.keyPath."""
    client_auth: ClientAuth = setting("tls.server.need.client.auth", ClientAuth.NONE, choice(ClientAuth))
    """Whether clients must show a certificate."""
    trust: Path | None = setting("tls.server.trustCertPath", None, PATH)
    """File of CA certificates (PEM) for clients."""
    checks_client: bool | None = setting("tls.server.authClient", None, BOOLEAN)
    """Check the certificates that need.client.auth asks for. Without that it has no effect."""

    @property
    def talks_tls(self) -> bool:
        return self.tls_mode is TlsMode.ENFORCING if self.tls_enabled is None else self.tls_enabled


def shared_file(path: str | None) -> Mapping[str, str]:
    """Return the settings in the file of TLS; none if no file is named and the usual one does not exist. Raises:
    ConfigError, the file cannot be read.
    """
    if path is None and not SHARED_FILE.is_file():
        return {}
    values = load(path or SHARED_FILE)
    return {key: value for key, value in values.items() if key.lower().startswith("tls.")}


def read_client_tls(path: Path) -> ClientTlsSettings:
    """Return the client settings of a tls.properties file, which may contain a server's too. Raises: ConfigError, the
    file cannot be read, or a value is wrong.
    """
    settings, _ = build(ServerTlsSettings, load(path), str(path))
    return settings
