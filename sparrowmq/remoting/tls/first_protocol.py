"""The first protocol of a connection, until its first byte has come: TLS or plain text on one port.

    0x16   a TLS handshake      ── encryption.py between the socket and the session, which gets decrypted bytes
    else   a RocketMQ frame     ── the session itself reads from the socket; TLS costs nothing more
           (its length: 0x16 would be one of 369 MB, which no client sends)

The session exists from the start. So a connection that sends nothing counts as any other, and loses its place like any
other. The same is true for one whose handshake does not end.

A client that sends plain text where it is refused gets an answer that says so, before the connection ends. Unlike Java,
which closes it without an answer. A server that demands client certificates sends no answer either.
Source: NettyRemotingServer.HandshakeHandler, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from sparrowmq.errors import ConfigError, RemoteProtocolError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.wire.connection import Connection
from sparrowmq.protocol.wire.reply import Buffer, add_reply
from sparrowmq.remoting.tls.encryption import Encryption, Plain
from sparrowmq.remoting.tls.tls_contexts import ServerTls
from sparrowmq.remoting.tls.tls_settings import TlsMode
from sparrowmq.remoting.tls_errors import why_refused

TLS_BYTE: Final = 0x16
_ONLY_TLS: Final = (
    "this server takes encrypted connections only: connect by TLS (tls=True, --tls; Java: tls.enable=true)"
)


class Opening:
    """The protocol of a new connection. `session` replaces it.

    Args:
        is_silent: whether a refused peer gets no answer.
    """

    def __init__(self, session: Plain, tls: ServerTls, clock: Clock, *, is_silent: bool = False) -> None:
        self._session = session
        self._is_silent = is_silent or tls.demands_certificates
        self._tls = tls
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._first = b""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._session.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._first:  # it was read before the pause took effect
            self._first += data
        elif data[0] == TLS_BYTE:
            self._open_tls(data)
        elif self._tls.mode is TlsMode.ENFORCING:
            self._refuse(f"it speaks plain text, and tls.server.mode is {self._tls.mode.value} here", data)
        elif self._transport is not None:
            self._transport.set_protocol(self._session)  # type: ignore[arg-type]  # see session.protocol_of
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
            self._first = data
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
        encryption = Encryption(transport, self._session, context, self._clock, self._not_shaken)
        transport.set_protocol(encryption)  # type: ignore[arg-type]  # of a protocol it has all methods
        self._session.encrypted(encryption)
        transport.resume_reading()
        encryption.data_received(self._first)
        self._first = b""

    def _not_shaken(self, error: BaseException) -> None:
        self._tls.tell(self._session.address, why_refused(error))

    def _refuse(self, reason: str, request: bytes = b"") -> None:
        if self._transport is not None:
            self._tls.tell(self._session.address, reason)
            if request and not self._is_silent:
                self._transport.write(_refusal(request))
            self._transport.close()


def _refusal(data: bytes) -> bytes:
    """Return an answer to the first request in some bytes, if it is whole and wants one."""
    pieces: list[Buffer] = []
    try:
        for request in Connection[None]().receive(data)[:1]:
            add_reply(pieces, request, ResponseCode.SYSTEM_ERROR, None, _ONLY_TLS)
    except RemoteProtocolError:
        pass  # it is no RocketMQ client
    return b"".join(pieces)
