"""A client's own connection to one broker, and the requests and answers that go on through mqproxy.

Brokers know clients by their connections, on which they send check-backs and changes of groups. So each client has a
connection of its own to each broker. All fields and the body of a request stay, so the signature of a client stays
valid. Only the opaque changes, because each connection counts its own; no signature covers it.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BrokerUnreachable, ConfigError, ConnectionClosed, RemoteProtocolError, RequestTimeout
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import Command, language_name
from sparrowmq.protocol.wire.frame import ANSWER_LIMITS, FrameReader
from sparrowmq.remoting.connection_errors import why_unconnected
from sparrowmq.remoting.session import MUTE_S

CONNECT_S: Final = 3.0
ANSWER_S: Final = 30.0  # beyond the wait that the request asks for; clients give up before
MAX_WAIT_S: Final = 90.0
_WAIT_FIELDS: Final = ("suspendTimeoutMillis", "pollTime")  # of pulls, and of pops and notifications
CHUNK_BYTES: Final = 256 * 1024
UNREAD_POLL_S: Final = 0.02
MAX_UNREAD_POLL_S: Final = 0.16  # many clients that do not read must cost little
CLOSE_TIMEOUT_S: Final = 5.0  # for the last bytes to a broker that does not read
_MAX_OPAQUE: Final = 0x7FFFFFFF
_MAX_WAIT_DIGITS: Final = 19
_LENGTHS: Final = struct.Struct(">ii")  # the second one has serialiser 0, JSON, in its first byte
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(address: str, tls: ssl.SSLContext | None, clock: Clock) -> Streams:
    """Raises: BrokerUnreachable."""
    try:
        host, port = split_address(address)
        stream_opening = asyncio.open_connection(host, port, ssl=tls, limit=CHUNK_BYTES)
        return await clock.wait_for(stream_opening, CONNECT_S)
    except (OSError, UnicodeError) as error:
        reason = why_unconnected(error) or f"no answer within {CONNECT_S:g} s"
        raise BrokerUnreachable(address, reason) from None
    except ConfigError as error:  # a name server gave an invalid address
        raise BrokerUnreachable(address, error) from None


def answer_limit_s(fields: Mapping[str, str]) -> float:
    """The time limit of an answer. It is short, as requests to a broker that hangs fill the client's memory limit."""
    wait = next((fields[name] for name in _WAIT_FIELDS if name in fields), "")
    wait_s = (whole_number(wait, _MAX_WAIT_DIGITS) or 0) / 1000
    return ANSWER_S + min(wait_s, MAX_WAIT_S)


class BrokerLink:
    """An open connection. Its owner runs `read` in a task, whose end closes it. `on_push` gets requests."""

    def __init__(
        self, name: str, address: str, streams: Streams, clock: Clock, on_push: Callable[[BrokerLink, Command], object]
    ) -> None:
        self.name = name
        self.address = address
        self.is_closed = False
        self._reader, self._writer = streams
        self._clock = clock
        self._on_push = on_push
        self._answers_by_opaque: dict[int, asyncio.Future[Command | None]] = {}
        # Of waiting requests that a broker answers at once, the oldest first.
        self._sent_s_by_opaque: dict[int, float] = {}
        self._last_read_s = clock.monotonic()
        self._opaque = 0

    @property
    def is_mute(self) -> bool:
        """Whether no byte has come for a second although a request that is answered at once has waited longer."""
        age = self._clock.age
        oldest_sent_s = next(iter(self._sent_s_by_opaque.values()), None)
        return oldest_sent_s is not None and age(oldest_sent_s) >= MUTE_S and age(self._last_read_s) >= MUTE_S

    async def call(self, request: Command) -> Command:
        """Send a request, and return its answer. Raises: ConnectionClosed, RequestTimeout."""
        opaque = self._opaque = self._opaque + 1 & _MAX_OPAQUE
        answer: asyncio.Future[Command | None] = asyncio.get_running_loop().create_future()
        self._answers_by_opaque[opaque] = answer
        fields = request.ext_fields()
        limit_s = answer_limit_s(fields)
        if limit_s == ANSWER_S:
            self._sent_s_by_opaque[opaque] = self._clock.monotonic()
        try:
            await self._write(frame_of(request, opaque, fields))
            reply = await self._clock.wait_for(answer, limit_s)
        except TimeoutError:
            raise RequestTimeout(self.name, f"request {request.code}", limit_s) from None
        finally:
            self._answers_by_opaque.pop(opaque, None)
            self._sent_s_by_opaque.pop(opaque, None)
        if reply is None:
            raise ConnectionClosed(self.name)
        return reply

    async def send(self, command: Command, opaque: int = 0) -> None:
        """Send a request whose answer is not awaited, or the answer to a request. Raises: ConnectionClosed."""
        await self._write(frame_of(command, opaque))

    async def read(self, is_full: Callable[[], bool]) -> None:
        """Handle what the broker sends until the connection ends. Nothing more is read while the client `is_full`."""
        frames = FrameReader(ANSWER_LIMITS)
        try:
            while chunk := await self._reader.read(CHUNK_BYTES):
                self._last_read_s = self._clock.monotonic()
                for parts in frames.feed(chunk):
                    self._on_command(codec.decode(*parts))
                pause_s = UNREAD_POLL_S
                while is_full():
                    await self._clock.sleep(pause_s)
                    pause_s = min(2 * pause_s, MAX_UNREAD_POLL_S)
        except (OSError, RemoteProtocolError):
            pass  # the connection cannot be used any more; what waits gets an error
        finally:
            self.close()

    def close(self) -> None:
        """End the connection; what waits for answers gets ConnectionClosed."""
        self.is_closed = True
        transport = self._writer.transport
        if transport.get_write_buffer_size() and not transport.is_closing():
            self._clock.call_later(CLOSE_TIMEOUT_S, transport.abort)
        self._writer.close()
        for answer in self._answers_by_opaque.values():
            if not answer.done():
                answer.set_result(None)

    def _on_command(self, command: Command) -> None:
        if not command.is_reply:
            self._on_push(self, command)
            return
        answer = self._answers_by_opaque.get(command.opaque)
        if answer is not None and not answer.done():
            answer.set_result(command)

    async def _write(self, frame: bytes) -> None:
        if self.is_closed:
            raise ConnectionClosed(self.name)
        self._writer.write(frame)
        try:
            await self._clock.wait_for(self._writer.drain(), ANSWER_S)
        except OSError:
            self.close()
            raise ConnectionClosed(self.name) from None


def frame_of(command: Command, opaque: int, fields: Mapping[str, str] | None = None) -> bytes:
    """The frame of a command with another opaque, and with `fields` in the place of its own."""
    header = {
        "code": command.code,  # first, as readers expect
        "extFields": command.ext_fields() if fields is None else fields,
        "flag": command.flag,
        "language": language_name(command.language),
        "opaque": opaque,
        "remark": command.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version or 0,
    }
    raw = msgspec.json.encode(header)
    return _LENGTHS.pack(4 + len(raw) + len(command.body), len(raw)) + raw + command.body


def size_of(command: Command) -> int:
    """The bytes that a received command occupies, about. Words of its header that have no meaning are dropped."""
    size = len(command.body) + len(command.remark or "")
    if isinstance(command.language, str):
        size += len(command.language)
    if command.fields is not None:
        size += sum(len(name) + len(value) for name, value in command.fields.items())
    else:
        command.ext = command.ext.copy()  # a Raw keeps the whole header
        size += len(bytes(command.ext))
    return size
