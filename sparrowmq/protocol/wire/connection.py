"""One connection without its socket: convert bytes to commands and requests to bytes, and match replies to waiters.

Both sides can send requests: a broker pushes requests to its clients on the same connection. Replies come in any order;
only `opaque` connects them to their request. The caller does the I/O: it passes chunks to `receive`, and writes the
result of `request`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec

from sparrowmq.kernel.lanes import Sender
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import (
    LANGUAGE,
    ONEWAY_FLAG,
    PROTOCOL_VERSION,
    SIGNED_QUERY_VERSION,
    Command,
)
from sparrowmq.protocol.wire.frame import FrameLimits, FrameReader, Serializer
from sparrowmq.protocol.wire.header import Request

W = TypeVar("W")

# From the extFields and the body of a request to extFields that are added to it.
Sign = Callable[[dict[str, str], bytes], dict[str, str]]

_MAX_OPAQUE = 0x7FFFFFFF
_MOST_LONG: Final = (1 << 63) - 1
_LEAST_LONG: Final = -(1 << 63)
_values_of: Final = msgspec.structs.astuple


class Connection(FrameReader, Generic[W]):
    """The protocol state of one connection. `W` represents a waiting caller: a future or a callback."""

    __slots__ = ("_opaque", "_serializer", "_sign", "_waiting")

    def __init__(
        self, limits: FrameLimits | None = None, serializer: Serializer = Serializer.JSON, sign: Sign | None = None
    ) -> None:
        super().__init__(limits)
        self._serializer = serializer
        self._sign = sign
        self._opaque = 0
        self._waiting: dict[int, W] = {}

    def receive(self, chunk: bytes, sender: Sender | None = None) -> list[Command]:
        """The commands that `chunk` completes, requests and replies in order of arrival, without the requests that
        `sender` takes.

        Raises: RemoteProtocolError, the peer does not speak the protocol; close the connection.
        """
        return [codec.decode(*frame) for frame in self.feed(chunk, sender)]

    def received(self, size_bytes: int) -> list[Command]:
        """The command that so many bytes in the `room` complete. Raises: as `receive`."""
        return [codec.decode(*frame) for frame in self.filled(size_bytes)]

    def request(self, request: Request[Any], body: bytes, waiter: W) -> tuple[int, bytes]:
        """The opaque of a new request and its frame up to the body. `claim` returns `waiter` for the reply."""
        opaque = self._next_opaque()
        frame = self._encode(request, body, opaque, oneway=False)
        self._waiting[opaque] = waiter
        return opaque, frame

    def oneway(self, request: Request[Any], body: bytes) -> bytes:
        """The frame up to the body of a request that wants no reply."""
        return self._encode(request, body, self._next_opaque(), oneway=True)

    def command(self, request: Request[Any], body: bytes, waiter: W | None) -> Command:
        """A new request for a peer in this process, which needs no bytes. Without a waiter it wants no reply."""
        opaque = self._next_opaque()
        extra, version = self._added(request, body)
        flag = ONEWAY_FLAG if waiter is None else 0
        # Numbers that Java does not have go as bytes: the peer's decoder refuses them.
        ext: Any = request if _has_javas_numbers(request) else msgspec.Raw(msgspec.json.encode(request.ext_fields()))
        fields = None if extra is None else request.ext_fields() | extra
        if waiter is not None:
            self._waiting[opaque] = waiter
        return Command(request.code, opaque, flag, version, LANGUAGE, None, ext, body, fields)

    def claim(self, reply: Command) -> W | None:
        """Return and forget the waiter for this reply; None if there is none (any more)."""
        return self._waiting.pop(reply.opaque, None)

    def forget(self, opaque: int) -> None:
        self._waiting.pop(opaque, None)

    def expired(self, is_late: Callable[[W], bool]) -> list[W]:
        """Forget and return the waiters that have waited too long."""
        late = [opaque for opaque, waiter in self._waiting.items() if is_late(waiter)]
        return [self._waiting.pop(opaque) for opaque in late]

    def abandon(self) -> list[W]:
        """Forget and return all waiters, because the connection has ended."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        return waiting

    @property
    def waiting(self) -> Iterable[W]:
        """All waiters for a reply."""
        return self._waiting.values()

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def _encode(self, request: Request[Any], body: bytes, opaque: int, *, oneway: bool) -> bytes:
        extra, version = self._added(request, body)
        return codec.encode_request(
            request,
            request.code,
            opaque,
            len(body),
            oneway=oneway,
            extra=extra,
            serializer=self._serializer,
            version=version,
        )

    def _added(self, request: Request[Any], body: bytes) -> tuple[dict[str, str] | None, int]:
        """The extFields that sign a request, if it is signed, and its version."""
        if self._sign is None:
            return None, PROTOCOL_VERSION
        is_query = request.code == RequestCode.QUERY_MESSAGE
        return self._sign(request.ext_fields(), body), SIGNED_QUERY_VERSION if is_query else PROTOCOL_VERSION

    def _next_opaque(self) -> int:
        self._opaque = self._opaque + 1 & _MAX_OPAQUE
        return self._opaque


def _has_javas_numbers(request: Request[Any]) -> bool:
    for value in _values_of(request):  # noqa: SIM110  a generator costs more
        if type(value) is int and not _LEAST_LONG <= value <= _MOST_LONG:
            return False
    return True
