"""TLS on a server: the first byte of a connection decides, and then TLS is between its socket and its session.

    0x16   a TLS handshake      ── `Encryption` between the socket and the session, which gets decrypted bytes
    else   a RocketMQ frame     ── the session itself reads from the socket; TLS costs nothing more
           (its length: 0x16 would be one of 369 MB, which no client sends)

The session exists from the start. So a connection that sends nothing, or whose handshake does not end, loses its place
like any other.

A client that sends plain text where it is refused gets an answer that says so, unlike in Java, unless the server
demands client certificates.

`Encryption` is a protocol to the socket, and a transport to the session:

    socket ── data_received ── incoming ──┐            ┌── plain bytes ── session.data_received
                                          ├ SSLObject ─┤
    socket ── write ────────── outgoing ──┘            └── plain bytes ── session.write, once a turn

All calls of a session to a transport pass through, so its back-pressure works as without TLS.

asyncio's own TLS (`loop.start_tls`) is not used: it begins with bytes from the socket, of which the first were already
read, and it ends a refused handshake without the alert that tells the client why. Source:
NettyRemotingServer.HandshakeHandler, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from sparrowmq.errors import ConfigError, RemoteProtocolError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.wire.connection import Connection
from sparrowmq.protocol.wire.reply import Buffer, add_reply
from sparrowmq.remoting.connection_errors import why_refused
from sparrowmq.remoting.tls.contexts import ServerTls
from sparrowmq.remoting.tls.tls_settings import TlsMode

HANDSHAKE_S: Final = 10.0  # the limit of a handshake
GOODBYE_S: Final = 1.0  # the time for a refused client to read the reason
CHUNK_BYTES: Final = 256 * 1024  # the plain text that a session gets at once
TLS_BYTE: Final = 0x16
_ONLY_TLS: Final = (
    "this server takes encrypted connections only: connect by TLS (tls=True, --tls; Java: tls.enable=true)"
)


class PlainProtocol(Protocol):
    """The protocol behind the encryption, which reads and writes plain bytes: a session, or the link of a slave."""

    address: str  # the peer's

    def connection_made(self, transport: asyncio.Transport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def encrypted(self, transport: asyncio.Transport) -> None:
        """Write to `transport` from now on."""

    def certified(self, name: str) -> None:
        """Note the common name in the peer's verified certificate, before the first bytes."""


class Encryption(asyncio.Transport):
    """The encrypted form of one connection."""

    def __init__(
        self,
        transport: asyncio.Transport,
        session: PlainProtocol,
        context: ssl.SSLContext,
        clock: Clock,
        on_refused: Callable[[BaseException], object],
    ) -> None:
        super().__init__()
        self._transport = transport
        self._session = session
        self._on_refused = on_refused
        self._clock = clock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self._is_over = False
        self._is_paused = False
        self._error: Exception | None = None
        self._time_limit = clock.call_later(HANDSHAKE_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._incoming.write(data)
        if not self._is_open:
            self._shake_hands()
        if self._is_open:
            self._read()

    def eof_received(self) -> bool:
        if not self._is_open and not self._is_over:
            self._end_with(ConnectionResetError())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._time_limit.cancel()
        if not self._is_open and not self._is_over:
            self._on_refused(exc or ConnectionResetError())
        self._is_over = True
        self._session.connection_lost(self._error or exc)

    def pause_writing(self) -> None:
        self._session.pause_writing()

    def resume_writing(self) -> None:
        self._session.resume_writing()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_over or not self._is_open:
            return
        with memoryview(data) as remaining:
            written = 0
            while written < len(remaining):
                written += self._tls.write(remaining[written:])
        self._send()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
            asyncio.get_running_loop().call_soon(self._read)  # bytes that came before the pause took effect

    def close(self) -> None:
        """Say goodbye, and end the connection when everything is sent. It does not wait for the peer's goodbye."""
        if self._is_open and not self._is_over:
            with contextlib.suppress(ssl.SSLError):  # it wants the peer's goodbye, and has sent ours
                self._tls.unwrap()
            self._send()
        self._is_over = True
        self._transport.close()

    def abort(self) -> None:
        self._is_over = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_over or self._transport.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
        except (ssl.SSLError, ValueError) as error:
            self._end_with(error)
        else:
            self._is_open = True
            self._time_limit.cancel()
            name = name_in(self._tls.getpeercert())
            if name:
                self._session.certified(name)
            self._send()

    def _read(self) -> None:
        while not self._is_paused and not self._is_over:
            plain = self._decrypt()
            if not plain:
                return
            self._session.data_received(plain)

    def _decrypt(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            while size < CHUNK_BYTES:
                piece = self._tls.read(CHUNK_BYTES)  # one record of at most 16 KiB
                if not piece:  # it said goodbye
                    asyncio.get_running_loop().call_soon(self.close)  # after the bytes that it sent before
                    break
                pieces.append(piece)
                size += len(piece)
        except ssl.SSLWantReadError:
            self._send()  # an answer to a key update, if it was one
        except ssl.SSLError as error:
            self._end_with(error)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _send(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _end_with(self, error: Exception) -> None:
        """End the connection, and let the peer read the alert that says why. A socket that is closed with unread bytes
        would discard the bytes that it has sent. So it is closed a little later, and bytes that still arrive are thrown
        away.
        """
        self._time_limit.cancel()
        self._on_refused(error)
        self._error = error
        self._is_over = True
        self._send()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._clock.call_later(GOODBYE_S, self._transport.abort)

    def _give_up(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_refused(TimeoutError(f"no handshake within {HANDSHAKE_S:g} s"))
            self._transport.abort()


def name_in(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name of a certificate as `getpeercert` gives it; "" if it has none, or several. `getpeercert`
    gives nothing for a certificate that was not verified.
    """
    subject = certificate.get("subject", ()) if certificate else ()
    names = [value for relative in subject for key, value in relative if key == "commonName"]
    return names[0] if len(names) == 1 else ""


class Opening:
    """The protocol of a new connection. `session` replaces it."""

    def __init__(self, session: PlainProtocol, tls: ServerTls, clock: Clock, *, is_silent: bool = False) -> None:
        self._session = session
        self._is_silent = is_silent or tls.demands_certificates
        self._tls = tls
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._first_bytes = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._session.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._first_bytes:  # it was read before the pause took effect
            self._first_bytes += data
        elif data[0] == TLS_BYTE:
            self._open_tls(data)
        elif self._tls.mode is TlsMode.ENFORCING:
            self._refuse(f"it speaks plain text, and tls.server.mode is {self._tls.mode.value} here", data)
        elif self._transport is not None:
            self._transport.set_protocol(self._session)  # type: ignore[arg-type]  # it has all methods of a protocol
            self._session.data_received(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.connection_lost(exc)

    def pause_writing(self) -> None:
        self._session.pause_writing()

    def resume_writing(self) -> None:
        self._session.resume_writing()

    def _open_tls(self, data: bytes) -> None:
        if self._tls.mode is TlsMode.DISABLED:
            self._refuse("it speaks TLS, and tls.server.mode is disabled here")
        elif self._tls.context is None and not self._tls.makes_its_own:
            self._refuse("it speaks TLS, and there is no tls.server.certPath here")
        elif self._transport is not None:
            self._first_bytes = data
            self._transport.pause_reading()
            self._tls.ready(self._encrypt)

    def _encrypt(self, context: ssl.SSLContext | ConfigError) -> None:
        """Put TLS between the socket and the session, and let it begin with the bytes that arrived already."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if isinstance(context, ConfigError):
            self._refuse("it speaks TLS, and there is no certificate here (see above)")
            return
        encryption = Encryption(transport, self._session, context, self._clock, self._on_handshake_error)
        transport.set_protocol(encryption)  # type: ignore[arg-type]  # of a protocol it has all methods
        self._session.encrypted(encryption)
        transport.resume_reading()
        encryption.data_received(self._first_bytes)
        self._first_bytes = b""

    def _on_handshake_error(self, error: BaseException) -> None:
        self._tls.log_refusal(self._session.address, why_refused(error))

    def _refuse(self, reason: str, request: bytes = b"") -> None:
        if self._transport is not None:
            self._tls.log_refusal(self._session.address, reason)
            if request and not self._is_silent:
                self._transport.write(_refusal_reply(request))
            self._transport.close()


def _refusal_reply(data: bytes) -> bytes:
    """Return an answer to the first request in some bytes, if it is whole and wants one."""
    pieces: list[Buffer] = []
    try:
        for request in Connection[None]().receive(data)[:1]:
            add_reply(pieces, request, ResponseCode.SYSTEM_ERROR, None, _ONLY_TLS)
    except RemoteProtocolError:
        pass  # it is no RocketMQ client
    return b"".join(pieces)
