"""The two ends of TLS: the certificate of a server, loaded again when its files change, and the trust of a client.

    tls.server.certPath given     it and its key are loaded at the start. They are loaded again when a file has changed
                                  and then stayed the same for one look. An invalid pair is logged once, the old one
                                  stays, and each look tries again: the cause may pass by itself
    none given                    a self-signed certificate is made when the first client asks for TLS (self_signed.py)

The oldest version is TLS 1.2. Open connections keep the certificate with which they began.

A client loads changed files when its next connection begins: asyncio and sockets ask a context for each connection, and
a `ClientContext` looks at its files then. A pair that cannot be used is an error once it has stayed the same for one
look: before, perhaps only one of the two is replaced.

The end of a certificate is its field notAfter, read from the file without a library:

    Validity ::= SEQUENCE { notBefore, notAfter }

Source: TlsHelper, FileWatchService and TlsMode, Java 4.9.8; RFC 5280, sections 4.1 and 4.1.2.5.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.connection_errors import reason
from sparrowmq.remoting.tls.tls_settings import ClientAuth, ClientTlsSettings, ServerTlsSettings, TlsMode
from sparrowmq.settings.settings_files import ChangedFiles, Stamp, stamp

log = logging.getLogger(__name__)

_PEM_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_PEM_END: Final = "-----END CERTIFICATE-----"
# notBefore and notAfter: each is a UTCTime, with two digits of the year, or a GeneralizedTime. Before them are only the
# serial number, the algorithm and the names of the issuer, which no operator calls so.
_VALIDITY_PATTERN: Final = re.compile(
    rb"\x30[\x1e\x20\x22](?:\x17\x0d[0-9]{12}|\x18\x0f[0-9]{14})Z(?:\x17\x0d([0-9]{12})|\x18\x0f([0-9]{14}))Z"
)
_SOON_DAYS: Final = 14
_DAY_S: Final = 86_400
POLL_S: Final = 1.0  # seconds between two looks at the files (Java: 0.5)
LOG_AGAIN_S: Final = 60.0  # seconds after which repeated refusals of a client are logged again
MAX_LOGGED_PEERS: Final = 1000
_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


class ServerTls:
    """The encryption of one server. Raises: ConfigError, the files cannot be used, or the settings contradict each
    other.
    """

    def __init__(self, settings: ServerTlsSettings, clock: Clock) -> None:
        self.mode = settings.tls_mode  # the kinds of connections that are accepted
        self.context: ssl.SSLContext | None = None  # for new connections; None while there is no certificate
        self._settings = settings
        self._clock = clock
        self._context_in_making: asyncio.Future[ssl.SSLContext] | None = None
        self._logged_s: dict[tuple[str, str], float] = {}
        files = (settings.certificate, settings.key, settings.trust)
        self._files = [path for path in files if path is not None]
        self._changed = ChangedFiles(lambda: self._files)
        self._complaint = ""
        self.ends_at: datetime | None = None  # when the certificate of the file ends, if it says so
        self.refused = 0  # the number of connections that were refused
        _check_contradictions(settings)
        if self.mode is not TlsMode.DISABLED and settings.certificate is not None:
            self.context = server_context(settings)
            self.ends_at = ends_at(settings.certificate)

    @property
    def problem(self) -> str:
        """The problem of the certificate; "" if it has none, and does not end soon."""
        if self._complaint:
            return f"the changed TLS files are not used: {self._complaint}"
        file = self._settings.certificate
        if file is None or self.context is None:
            return ""
        return ends_soon(file, self.ends_at, self._clock.now_ms(), "clients refuse it")

    @property
    def admits_without_certificate(self) -> str:
        """Why clients need no certificate although a setting seems to say so; "" if none does."""
        settings = self._settings
        is_alone = settings.checks_client and settings.client_auth is ClientAuth.NONE
        if not is_alone or self.mode is TlsMode.DISABLED:
            return ""
        return (
            "tls.server.authClient=true without tls.server.need.client.auth asks no client for a certificate, and lets "
            "clients without one in, as Java's servers do"
        )

    @property
    def demands_certificates(self) -> bool:
        return self.mode is TlsMode.ENFORCING and self._settings.client_auth is ClientAuth.REQUIRE

    @property
    def makes_its_own(self) -> bool:
        return self._settings.certificate is None and self._settings.tls_test_mode is not False

    def ready(self, callback: Callable[[ssl.SSLContext | ConfigError], object]) -> None:
        """Call `callback` with the context: at once if there is one, otherwise when a certificate was made; or with the
        error.
        """
        if self.context is not None:
            callback(self.context)
            return
        if self._context_in_making is None:
            loop = asyncio.get_running_loop()
            self._context_in_making = loop.run_in_executor(None, self_signed_context, self._settings)
            self._context_in_making.add_done_callback(self._on_made)
        self._context_in_making.add_done_callback(lambda made: callback(_context_or_error(made)))

    async def watch(self) -> None:
        """Load the files when they have changed, until cancelled. The owner runs it in its task group."""
        while self._files and self.mode is not TlsMode.DISABLED:
            await self._clock.sleep(POLL_S)
            if await asyncio.to_thread(self._changed.has_changed):
                await self._load_again()

    def log_refusal(self, peer: str, reason: str) -> None:
        """Log that a peer was refused: one line for each of its reasons, and again after a minute."""
        self.refused += 1
        key, now = (peer.rpartition(":")[0], reason), self._clock.monotonic()
        if now - self._logged_s.get(key, -LOG_AGAIN_S) < LOG_AGAIN_S:
            return
        if len(self._logged_s) >= MAX_LOGGED_PEERS:
            self._logged_s.clear()
        self._logged_s[key] = now
        log.warning("refused the connection of %s: %s", peer, reason)

    async def _load_again(self) -> None:
        try:
            self.context = await asyncio.to_thread(server_context, self._settings)
        except ConfigError as error:
            self._changed.loaded = None
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.error("the changed TLS files are not used, new connections get the old ones: %s", error)
        else:
            self._complaint = ""
            if self._settings.certificate is not None:
                self.ends_at = await asyncio.to_thread(ends_at, self._settings.certificate)
            log.info("the TLS files have changed; new connections get %s", self._settings.certificate)

    def _on_made(self, future: asyncio.Future[ssl.SSLContext]) -> None:
        outcome = _context_or_error(future)
        if isinstance(outcome, ConfigError):
            self._context_in_making = None  # the next client tries again
            log.error("%s", outcome)
            return
        self.context = outcome
        log.warning(
            "TLS clients get a new self-signed certificate, which they cannot verify; "
            "give tls.server.certPath and tls.server.keyPath"
        )


def server_context(settings: ServerTlsSettings) -> ssl.SSLContext:
    context = _new_server_context()
    _load_pair(context, "tls.server", settings.certificate, settings.key, settings.key_password)
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    if settings.trust is not None:
        _load_trust(context, "tls.server", settings.trust)
    return context


def self_signed_context(settings: ServerTlsSettings) -> ssl.SSLContext:
    """Return the context of a server without a certificate file. Raises: ConfigError."""
    context = _new_server_context()
    from sparrowmq.remoting.tls import self_signed  # few servers make a certificate

    self_signed.load(context)
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    if settings.trust is not None:
        _load_trust(context, "tls.server", settings.trust)
    return context


def _new_server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client of TLS 1.2 could ask for one handshake after the other
    context.set_alpn_protocols(["h2"])  # gRPC clients demand it; others do not ask
    return context


class ClientContext(ssl.SSLContext):
    """A client's context; new connections get the files as they are then. `load` loads them into a context. Raises:
    ConfigError.
    """

    def __new__(cls, *_: object) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(
        self, load: Callable[[ssl.SSLContext], object], certificate: Path | None, *other_files: Path | None
    ) -> None:
        self._load = load
        self._certificate = certificate
        self._files = [path for path in (certificate, *other_files) if path is not None]
        self._loaded_stamp = stamp(self._files)
        self._failed_stamp: Stamp | None = None
        self._complaint = ""
        self._reloaded: ssl.SSLContext | None = None  # the context with the changed files
        load(self)
        self._ends_at = ends_at(certificate) if certificate is not None else None

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """As ssl.SSLContext does, with the files as they are now."""
        self._reload()
        return (
            super().wrap_bio(*arguments, **named)
            if self._reloaded is None
            else self._reloaded.wrap_bio(*arguments, **named)
        )

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        self._reload()
        newer = self._reloaded
        return super().wrap_socket(*arguments, **named) if newer is None else newer.wrap_socket(*arguments, **named)

    @property
    def ends_at(self) -> datetime | None:
        """The end of the certificate that new connections show; None if they show none."""
        self._reload()
        return self._ends_at

    def problem(self, now_ms: int) -> str:
        """The problem of the certificate; "" if there is none, or it has no problem and does not end soon."""
        end = self.ends_at
        if self._complaint:
            return f"the changed TLS files are not used: {self._complaint}"
        if self._certificate is None:
            return ""
        return ends_soon(self._certificate, end, now_ms, "other servers refuse it")

    def _reload(self) -> None:
        current_stamp = stamp(self._files)
        if current_stamp == self._loaded_stamp:
            self._complaint = ""
            return
        newer = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            self._load(newer)
        except ConfigError as error:
            if current_stamp == self._failed_stamp and str(error) != self._complaint:
                self._complaint = str(error)
                log.error("the changed TLS files are not used, other servers are shown the old ones: %s", error)
            self._failed_stamp = current_stamp
            return
        self._reloaded, self._loaded_stamp, self._complaint = newer, current_stamp, ""
        if self._certificate is not None:
            self._ends_at = ends_at(self._certificate)
        log.info("the TLS files have changed; other servers are shown %s", self._certificate or "none")


def client_context(settings: ClientTlsSettings) -> ClientContext:
    """Return a client's certificate and the servers that it trusts. Raises: ConfigError, a file cannot be used."""
    files = settings.client_certificate, settings.client_key, settings.client_trust
    return ClientContext(partial(_load_client, settings), *files)


def trusting_context(keys: str, trust: Path | None, certificate: Path | None, key: Path | None) -> ClientContext:
    """Return the context of a client of other servers than RocketMQ's, whose certificates are always checked. `keys` is
    the prefix of the settings of these files. Raises: ConfigError, a file cannot be used.
    """

    def load(context: ssl.SSLContext) -> None:
        _load_servers(context, keys, trust)
        if certificate is not None:
            _load_pair(context, keys, certificate, key, None)

    return ClientContext(load, certificate, key, trust)


def _load_client(settings: ClientTlsSettings, context: ssl.SSLContext) -> None:
    if not settings.checks_server or settings.tls_test_mode:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.check_hostname = settings.checks_server_name
        _load_servers(context, "tls.client", settings.client_trust)
    if settings.client_certificate is not None:
        _load_pair(
            context, "tls.client", settings.client_certificate, settings.client_key, settings.client_key_password
        )


def _load_servers(context: ssl.SSLContext, keys: str, trust: Path | None) -> None:
    if trust is not None:
        _load_trust(context, keys, trust)
    else:
        context.load_default_certs()


def _check_contradictions(settings: ServerTlsSettings) -> None:
    if settings.tls_mode is TlsMode.DISABLED:
        return
    asks_for_certificate = settings.client_auth is not ClientAuth.NONE
    if asks_for_certificate and settings.checks_client is False:
        raise ConfigError(
            f"tls.server.need.client.auth={settings.client_auth.value} with tls.server.authClient=false lets everybody "
            "in who shows any certificate: set tls.server.authClient=true and tls.server.trustCertPath"
        )
    if asks_for_certificate and settings.trust is None:
        raise ConfigError(
            f"tls.server.need.client.auth={settings.client_auth.value} needs tls.server.trustCertPath, the "
            "certificates that vouch for clients"
        )
    if settings.certificate is None and settings.tls_test_mode is False and settings.tls_mode is TlsMode.ENFORCING:
        raise ConfigError(
            "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath, or "
            "tls.test.mode.enable=true for a certificate that proves nothing"
        )


def _load_pair(
    context: ssl.SSLContext, keys: str, certificate: Path | None, key: Path | None, password: str | None
) -> None:
    assert certificate is not None, "checked by the caller"
    _check_readable(f"{keys}.certPath", certificate)
    if key is not None:
        _check_readable(f"{keys}.keyPath", key)
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password or "")
    except (OSError, ValueError) as error:  # also a file that was deleted just now
        why = reason(error) if isinstance(error, OSError) else error
        raise ConfigError(
            f"{keys}.certPath = {certificate} and {keys}.keyPath = {key} cannot be used ({why}): both must be PEM, "
            f"the key must be that of the certificate, and {keys}.keyPassword its password if it has one"
        ) from error


def _load_trust(context: ssl.SSLContext, keys: str, trust: Path) -> None:
    _check_readable(f"{keys}.trustCertPath", trust)
    try:
        context.load_verify_locations(trust)
    except OSError as error:
        raise ConfigError(f"{keys}.trustCertPath = {trust} holds no certificate in PEM ({reason(error)})") from error


def _check_readable(key: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{key} = {path} cannot be read ({error.strerror})") from error


def _context_or_error(future: asyncio.Future[ssl.SSLContext]) -> ssl.SSLContext | ConfigError:
    if future.cancelled():
        return ConfigError("the server is stopping")
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, ConfigError):
        raise error
    return error


def ends_at(certificate: Path) -> datetime | None:
    """Return when the first certificate in a PEM file ends; None if the file has none that can be read."""
    try:
        text = certificate.read_text(errors="replace")
        begin = text.index(_PEM_BEGIN)
        pem = text[begin : text.index(_PEM_END, begin) + len(_PEM_END)]
        validity = _VALIDITY_PATTERN.search(ssl.PEM_cert_to_DER_cert(pem))
        if validity is None:
            return None
        year = "%y" if validity[1] else "%Y"
        end = (validity[1] or validity[2]).decode("ascii")
        return datetime.strptime(end, f"{year}%m%d%H%M%S").replace(tzinfo=UTC)
    except (OSError, ValueError):
        return None


def ends_soon(certificate: Path, end: datetime | None, now_ms: int, effect: str) -> str:
    """Return a sentence if a certificate ends within 14 days or has ended, with the effect of that; "" otherwise."""
    if end is None:
        return ""
    days = (end.timestamp() - now_ms / 1000) / _DAY_S
    if days > _SOON_DAYS:
        return ""
    moment = f"{end:%Y-%m-%d %H:%M} UTC"
    return f"{certificate} ended at {moment}; {effect}" if days < 0 else f"{certificate} ends at {moment}"
