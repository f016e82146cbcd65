"""A blocking connection to one address, on which any number of requests may be under way.

It is one socket around the sans-IO `Connection`: requests are sent at once, and replies are kept until `wait` asks for
them. A program that reads millions of messages asks for the next ones before the last ones have arrived.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from ssl import SSLContext, SSLError
from typing import Any, Final, TypeVar, cast

from sparrowmq.errors import BrokerUnreachable, ConfigError, ConnectionClosed, RequestTimeout
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.hosts import split_address, split_broker
from sparrowmq.protocol.signature import naming
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Connection, Sign
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.connect_errors import why_unconnected
from sparrowmq.remoting.remote_errors import remote_error
from sparrowmq.remoting.tls_errors import why_closed, why_not

R = TypeVar("R", bound=Header)

CALL_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 3.0
_CHUNK_BYTES: Final = 1 << 16  # the rest of a large answer is received where it stays
_LARGE_BYTES: Final = 1 << 16


class Link:
    """The connection. Use it in one thread."""

    def __init__(
        self,
        address: str,
        sign: Sign | None = None,
        tls: SSLContext | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """Connect. Raises: BrokerUnreachable."""
        self.address = address
        self.has_ended = False  # by either side, so that no request can be sent
        at, broker_name = split_broker(address)
        self._connection: Connection[None] = Connection(sign=naming(broker_name, sign))
        self._replies: dict[int, Command] = {}
        try:
            host, port = split_address(at)
            self._socket = _opened(host, port, tls, connect_timeout_s)
        except (OSError, ConfigError) as error:
            raise BrokerUnreachable(address, why_not(error) if tls else why_unconnected(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Request[Any], body: bytes = b"") -> int:
        """Send a request; the number is for `wait`. Raises: ConnectionClosed."""
        opaque, head = self._connection.request(request, body, None)
        if len(body) > _LARGE_BYTES:  # to copy it would cost more than another write
            self._send(head)
            self._send(body)
        else:
            self._send(head + body if body else head)
        return opaque

    def send_all(self, requests: Iterable[Request[Any]]) -> list[int]:
        """Send requests without bodies by one write. Raises: ConnectionClosed."""
        made = [self._connection.request(request, b"", None) for request in requests]
        self._send(b"".join(head for _, head in made))
        return [opaque for opaque, _ in made]

    def wait(self, opaque: int, timeout_s: float = CALL_TIMEOUT_S) -> Command:
        """Wait for the reply to a request, also after the end of the connection if the reply came before.

        Raises:
            RequestTimeout: it did not come in time. The link cannot be used any more.
            ConnectionClosed: the connection ended.
            RemoteProtocolError: the peer does not speak the protocol.
        """
        deadline = time.monotonic() + timeout_s
        while opaque not in self._replies:
            self._receive(deadline, timeout_s)
        return self._replies.pop(opaque)

    def wait_for_all(self, opaques: Iterable[int], timeout_s: float = CALL_TIMEOUT_S) -> Iterator[Command]:
        """Wait for replies, one after the other."""
        replies = self._replies
        for opaque in opaques:
            reply = replies.pop(opaque, None)
            yield self.wait(opaque, timeout_s) if reply is None else reply

    def call(self, request: Request[R], body: bytes = b"", timeout_s: float = CALL_TIMEOUT_S) -> tuple[R, bytes]:
        """Send a request, and return the header and body of its reply. Raises: RemoteError, unless it succeeded."""
        reply = self.wait(self.send(request, body), timeout_s)
        return answer(request, reply), reply.body

    def close(self) -> None:
        """Close the connection, and drop requests under way and replies that came."""
        self._replies.clear()
        self._hang_up()

    @property
    def is_idle(self) -> bool:
        """Return whether every request has its reply, and every reply was taken."""
        return not self._connection.in_flight and not self._replies

    def _send(self, frames: bytes) -> None:
        try:
            self._socket.settimeout(CALL_TIMEOUT_S)
            self._socket.sendall(frames)
        except OSError as error:
            raise self._ended(error) from None

    def _receive(self, deadline: float, timeout_s: float) -> None:
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            commands = self._received()
        except TimeoutError:
            self._hang_up()
            raise RequestTimeout(self.address, "a request", timeout_s) from None
        except OSError as error:
            raise self._ended(error) from None
        if commands is None:
            raise self._ended(None)
        for command in commands:
            # Requests of the broker to its clients (rebalance, transaction checks) do not concern this connection.
            if command.is_reply:
                self._connection.forget(command.opaque)
                self._replies[command.opaque] = command

    def _received(self) -> list[Command] | None:
        """The commands that the next bytes complete; None if the peer has ended the connection."""
        room = self._connection.room()
        if room is None:
            chunk = self._socket.recv(_CHUNK_BYTES)
            return self._connection.receive(chunk) if chunk else None
        with room:
            size_bytes = self._socket.recv_into(room)
        return self._connection.filled(size_bytes) if size_bytes else None

    def _ended(self, reason: object) -> ConnectionClosed:
        self._hang_up()
        return ConnectionClosed(self.address, why_closed(reason) if isinstance(reason, SSLError) else reason)

    def _hang_up(self) -> None:
        self.has_ended = True
        self._connection.abandon()
        self._socket.close()


def _opened(host: str, port: int, tls: SSLContext | None, timeout_s: float) -> socket.socket:
    plain = socket.create_connection((host, port), timeout_s)
    if tls is None:
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def answer(request: Request[R], reply: Command) -> R:
    """The reply's header. Raises: RemoteError, if its code is not success."""
    if reply.code != ResponseCode.SUCCESS:
        raise remote_error(reply.code, reply.remark)
    return cast(R, reply.header(type(request).Reply))
