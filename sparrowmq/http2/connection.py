"""The receiving side of a connection: bytes in, calls of a `Receiver` out. No I/O and no clock of its own.

All frames of a chunk are handled in one go. What they cause to be sent collects in `output.pieces`, and leaves in one
write. A chunk with very many requests is handled in parts (`has_more`), so that other connections have their turn.

    the peer breaks a rule of a stream        RST_STREAM, other streams go on
    ... of the connection                     GOAWAY, and `fault` says why; the session closes it

Data that we received is given back to the peer's windows as follows. The window of the connection is always filled up
again. The window of a stream is filled up when the receiver has `consumed` its data, or `expects` a large message. So a
stream holds FIRST_WINDOW bytes of memory, or one message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from sparrowmq.http2 import frames
from sparrowmq.http2 import stream_states as states
from sparrowmq.http2.allowance import Allowance
from sparrowmq.http2.frames import (
    ENHANCE_YOUR_CALM,
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    HEAD_BYTES,
    LARGEST_FRAME,
    LARGEST_WINDOW,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    ConnectionFault,
    StreamFault,
)
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.output import Output
from sparrowmq.http2.request_headers import (
    BadHeaders,
    RequestHeaders,
    check_trailers,
    request_of,
)
from sparrowmq.http2.streams import Stream
from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.frame_layout import TABLE_BYTES
from sparrowmq.kernel.hpack import HeaderReader
from sparrowmq.remoting.budget import BURST_S

CONNECTION_WINDOW: Final = 4 * 1024 * 1024
STREAM_BYTES: Final = 4096  # the memory of a call, with its task
REMEMBERED_RESETS: Final = 1_000  # streams that we reset; the peer may have sent frames before it knew
SMALL_FRAME: Final = 1024  # bytes; a larger one may cost a millisecond
EARNED_BY_FRAME: Final = 4  # control frames that a frame of an answer allows: updates of two windows, and pings


class Receiver(Protocol):
    """The user of a connection. It may send in these calls."""

    def request(self, stream: Stream, request: RequestHeaders, is_end: bool) -> None:
        """A request begins."""

    def body(self, stream: Stream, data: bytes, is_end: bool) -> None:
        """Bytes of its body. The receiver reports by `consumed` when it holds them no more."""

    def ended(self, stream: Stream) -> None:
        """The stream has ended on both sides, or the peer or we reset it."""

    def drained(self, stream: Stream) -> None:
        """None of the stream's output waits any more."""


class Connection:
    """One connection of a client.

    Attributes:
        fault: the rule that the peer broke; None while all is well.
        has_more: received frames wait for `go_on`.
        is_settled: the peer's preface and first settings are here.
        held_bytes: of requests that are not handled yet, with their headers and streams.
        is_draining: new requests are refused.
    """

    def __init__(
        self,
        receiver: Receiver,
        limits: Limits,
        now: Callable[[], float],
        until: Callable[[float], float] = lambda now: now + BURST_S,
    ) -> None:
        self.fault: ConnectionFault | None = None
        self.has_more = False
        self.is_settled = False
        self.is_draining = False
        self.held_bytes = 0
        self.streams: dict[int, Stream] = {}
        self.output = Output(self._closed, receiver.drained)
        self._receiver = receiver
        self._limits = limits
        self._now = now
        self._until = until
        self._headers = HeaderReader()
        self._calm = Allowance(limits.control_frames, limits.control_frames_per_s)
        self._rest = bytearray()
        self._needed = len(PREFACE)
        self._has_preface = False
        self._last_id = 0
        self._window = CONNECTION_WINDOW
        self._resets: dict[int, None] = {}
        self._block = bytearray()
        self._block_id = 0  # 0: no header block is unfinished
        self._block_ends_stream = False
        self._block_fault: StreamFault | None = None
        first = {
            frames.MAX_CONCURRENT_STREAMS: limits.streams,
            frames.MAX_HEADER_LIST_SIZE: limits.header_list_bytes,
        }
        self.output.pieces.append(frames.settings_frame(first))
        self.output.pieces.append(frames.window_frame(0, CONNECTION_WINDOW - FIRST_WINDOW))

    @property
    def is_partial(self) -> bool:
        """Whether a frame or a header block is unfinished."""
        return not self.has_more and (len(self._rest) > 0 or self._block_id > 0)

    def receive(self, data: bytes) -> None:
        if self.fault is not None:
            return
        if self._rest or self.has_more:
            self._rest += data
            if self.has_more or (len(self._rest) < self._needed and self._has_preface):
                return
            data = bytes(self._rest)
            self._rest.clear()
        try:
            self._take(data)
        except ConnectionFault as fault:
            self._fail(fault)

    def go_on(self) -> None:
        """Handle frames that had to wait."""
        self.has_more = False
        self._needed = 0
        self.receive(b"")

    def consumed(self, stream: Stream, count: int) -> None:
        """Give `count` bytes of a stream back to its window: the receiver holds them no more."""
        if stream.is_closed:
            return
        stream.held_bytes -= count
        self.held_bytes -= count
        if not stream.has_peer_ended and stream.receive_window + stream.held_bytes < FIRST_WINDOW // 2:
            self._widen(stream, FIRST_WINDOW - stream.held_bytes)

    def keep(self, stream: Stream, count: int) -> None:
        """Count `count` bytes more of memory that a stream occupies besides its data; fewer, if negative."""
        if not stream.is_closed:
            stream.kept_bytes += count
            self.held_bytes += count

    def expects(self, stream: Stream, count: int) -> None:
        """Let the peer send `count` bytes more of a stream, because a message needs them."""
        if not stream.has_peer_ended and stream.receive_window < count:
            self._widen(stream, count)

    def refuse(self, stream: Stream, code: int) -> None:
        self._note_reset(stream.stream_id)
        self.output.reset(stream, code)

    def drain(self) -> None:
        """Ask the peer to begin no more requests here; those that are open go on."""
        if not self.is_draining and self.fault is None:
            self.is_draining = True
            self.output.pieces.append(frames.goaway_frame(self._last_id, frames.NO_ERROR, "it stops"))

    def end(self) -> None:
        """Forget all streams: the connection has ended."""
        for stream in list(self.streams.values()):
            self.output.forget(stream)

    # Frames ---------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        at = 0
        if not self._has_preface:
            if data[: len(PREFACE)] != PREFACE[: len(data)]:
                raise ConnectionFault(PROTOCOL_ERROR, "this is no HTTP/2 connection")
            if len(data) < len(PREFACE):
                self._rest += data
                return
            self._has_preface = True
            at = len(PREFACE)
        at = self._take_frames(data, at)
        if at < len(data):
            self._rest += data[at:]
        if self._window < CONNECTION_WINDOW // 2:
            self.output.pieces.append(frames.window_frame(0, CONNECTION_WINDOW - self._window))
            self._window = CONNECTION_WINDOW

    def _take_frames(self, data: bytes, at: int) -> int:
        """Handle the whole frames from `at` on. Returns where the rest begins."""
        end = len(data)
        count = 0
        until = 0.0
        self._needed = HEAD_BYTES
        while end - at >= HEAD_BYTES:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if size > LARGEST_FRAME:
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {size} bytes; {LARGEST_FRAME} are the most")
            start = at + HEAD_BYTES
            if start + size > end:
                self._needed = HEAD_BYTES + size
                break
            stream_id = int.from_bytes(data[at + 5 : start], "big") & 0x7FFFFFFF
            try:
                self._frame(data[at + 3], data[at + 4], stream_id, data[start : start + size])
            except StreamFault as fault:
                self._fail_stream(fault)
            at = start + size
            count += 1
            if count & 1 == 0 or size > SMALL_FRAME:  # a call has two frames
                now = self._now()
                if until == 0.0:
                    until = self._until(now)
                if now > until and end - at >= HEAD_BYTES:
                    self.has_more = True
                    break
        return at

    def _frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block_id and (kind != frames.CONTINUATION or stream_id != self._block_id):
            raise ConnectionFault(PROTOCOL_ERROR, "another frame inside a header block")
        if not self.is_settled and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == frames.DATA:
            self._take_body(flags, stream_id, payload)
        elif kind == frames.HEADERS:
            self._take_headers(flags, stream_id, payload)
        elif kind == frames.CONTINUATION:
            self._take_continuation(flags, stream_id, payload)
        else:
            self._take_control(kind, flags, stream_id, payload)

    def _take_control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self._stay_calm()
        if kind == frames.WINDOW_UPDATE:
            self._take_window_update(stream_id, payload)
        elif kind == frames.RST_STREAM:
            self._take_reset(stream_id, payload)
        elif kind == frames.SETTINGS:
            self._take_settings(flags, stream_id, payload)
        elif kind == frames.PING:
            self._take_ping(flags, stream_id, payload)
        elif kind == frames.PRIORITY:
            self._take_priority(stream_id, payload)
        elif kind == frames.GOAWAY:
            if stream_id != 0:
                raise ConnectionFault(PROTOCOL_ERROR, "GOAWAY for a stream")
            if len(payload) < 8:
                raise ConnectionFault(FRAME_SIZE_ERROR, "GOAWAY is too short")
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR, "a client may not push")

    def _stay_calm(self) -> None:
        sent, self.output.sent_frames = self.output.sent_frames, 0
        if sent:
            self._calm.earn(sent * EARNED_BY_FRAME)
        if not self._calm.take(self._now()):
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many frames that bring no call")

    def _take_body(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._check_not_idle(stream_id, "DATA")
        size = len(payload)
        self._window -= size
        if self._window < 0:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "more data than the window of the connection")
        is_end = flags & frames.END_STREAM != 0
        if size == 0 and not is_end:
            self._stay_calm()
        data = frames.without_padding(payload, flags)
        stream = self.streams.get(stream_id)
        if stream is None:
            self._stay_calm()
            if stream_id not in self._resets:
                raise StreamFault(stream_id, STREAM_CLOSED, "data for a stream that has ended")
            return
        if states.after(stream.state, states.GOT_DATA) == states.NONE:
            raise StreamFault(stream_id, STREAM_CLOSED, "data behind the end")
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamFault(stream_id, FLOW_CONTROL_ERROR, "more data than the window of the stream")
        stream.held_bytes += len(data)
        self.held_bytes += len(data)
        self._count_body(stream, len(data), is_end)
        if is_end:
            stream.state = states.after(stream.state, states.GOT_END)
        self._receiver.body(stream, data, is_end)

    def _count_body(self, stream: Stream, size: int, is_end: bool) -> None:
        if stream.body_bytes < 0:
            return
        stream.body_bytes -= size
        if stream.body_bytes < 0 or (is_end and stream.body_bytes > 0):
            raise StreamFault(stream.stream_id, PROTOCOL_ERROR, "the body is not as long as content-length says")

    def _take_window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "WINDOW_UPDATE has not 4 bytes")
        increment = frames.word(payload)
        if stream_id == 0:
            if increment == 0:
                raise ConnectionFault(PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            self.output.widen(None, increment)
            return
        self._check_not_idle(stream_id, "WINDOW_UPDATE")
        if increment == 0:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.output.widen(stream, increment)

    def _take_reset(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "RST_STREAM has not 4 bytes")
        self._check_not_idle(stream_id, "RST_STREAM")
        stream = self.streams.get(stream_id)
        if stream is not None:
            self.output.forget(stream)

    def _take_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id != 0:
            raise ConnectionFault(PROTOCOL_ERROR, "SETTINGS for a stream")
        if len(payload) % 6 or (flags & frames.ACK and payload):
            raise ConnectionFault(FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
        if flags & frames.ACK:
            return
        for name, value in frames.settings_in(payload).items():
            self._set(name, value)
        self.is_settled = True
        self.output.pieces.append(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))

    def _set(self, name: int, value: int) -> None:
        output = self.output
        if name == frames.INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, f"a first window of {value}")
            output.set_first_window(value, list(self.streams.values()))
        elif name == frames.MAX_FRAME_SIZE:
            if not LARGEST_FRAME <= value < 2**24:
                raise ConnectionFault(PROTOCOL_ERROR, f"a largest frame of {value}")
            # Larger ones would only let other streams wait for longer.
        elif name == frames.ENABLE_PUSH:
            if value > 1:
                raise ConnectionFault(PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        elif name == frames.HEADER_TABLE_SIZE and value < TABLE_BYTES:
            output.shrink_table()

    def _take_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id != 0:
            raise ConnectionFault(PROTOCOL_ERROR, "PING for a stream")
        if len(payload) != 8:
            raise ConnectionFault(FRAME_SIZE_ERROR, "PING has not 8 bytes")
        if not flags & frames.ACK:
            self.output.pieces.append(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _take_priority(self, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise ConnectionFault(PROTOCOL_ERROR, "PRIORITY without a stream")
        if len(payload) != 5:
            raise StreamFault(stream_id, FRAME_SIZE_ERROR, "PRIORITY has not 5 bytes")
        if frames.word(payload) == stream_id:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "a stream that depends on itself")

    def _check_not_idle(self, stream_id: int, kind: str) -> None:
        if stream_id == 0 or stream_id & 1 == 0 or stream_id > self._last_id:
            raise ConnectionFault(PROTOCOL_ERROR, f"{kind} for stream {stream_id}, which has not begun")

    # Requests -------------------------------------------------------------------------------------------------------

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id & 1 == 0:
            raise ConnectionFault(PROTOCOL_ERROR, f"HEADERS for stream {stream_id}")
        block = frames.without_padding(payload, flags)
        self._block_fault = None
        if flags & frames.HAS_PRIORITY:
            if len(block) < 5:
                raise ConnectionFault(FRAME_SIZE_ERROR, "HEADERS is too short")
            if frames.word(block) == stream_id:
                self._block_fault = StreamFault(stream_id, PROTOCOL_ERROR, "a stream that depends on itself")
            block = block[5:]
        self._block_ends_stream = flags & frames.END_STREAM != 0
        if flags & frames.END_HEADERS:
            self._take_block(stream_id, block)
            return
        self._block_id = stream_id
        self._block += block

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._block_id:
            raise ConnectionFault(PROTOCOL_ERROR, "CONTINUATION without HEADERS before it")
        self._block += payload
        if len(self._block) > self._limits.header_block_bytes:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a header block is too large")
        if not payload:
            self._stay_calm()
        if flags & frames.END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self._block_id = 0
            self._take_block(stream_id, block)

    def _take_block(self, stream_id: int, block: bytes) -> None:
        """Take a whole header block. It is decompressed in any case, as the next blocks depend on its table."""
        pairs = [(header.name, header.value) for header in self._headers.read(In(block), 0, len(block))]
        is_end = self._block_ends_stream
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._take_trailers(stream, pairs, is_end)
            return
        if stream_id <= self._last_id:
            self._stay_calm()
            if stream_id not in self._resets:
                raise ConnectionFault(STREAM_CLOSED, f"HEADERS for stream {stream_id}, which has ended")
            return
        self._last_id = stream_id
        if self._block_fault is not None:
            raise self._block_fault
        if len(self.streams) >= self._limits.streams or self.is_draining or self._is_full():
            raise StreamFault(stream_id, REFUSED_STREAM, "too many calls at the same time")
        try:
            request = request_of(pairs, self._limits.header_list_bytes)
        except BadHeaders as error:
            raise StreamFault(stream_id, PROTOCOL_ERROR, str(error)) from error
        if is_end and request.body_bytes > 0:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "the body is not as long as content-length says")
        self._begin(stream_id, request, is_end)

    def _is_full(self) -> bool:
        return self.output.pending_bytes > self._limits.unsent_bytes

    def _begin(self, stream_id: int, request: RequestHeaders, is_end: bool) -> None:
        stream = Stream(stream_id, self.output.first_window)
        stream.state = states.PEER_ENDED if is_end else states.OPEN
        stream.body_bytes = request.body_bytes
        self.streams[stream_id] = stream
        self.keep(stream, STREAM_BYTES + min(request.list_bytes, self._limits.header_list_bytes))
        self._receiver.request(stream, request, is_end)

    def _take_trailers(self, stream: Stream, pairs: list[tuple[bytes, bytes]], is_end: bool) -> None:
        if states.after(stream.state, states.GOT_HEADERS) == states.NONE:
            raise ConnectionFault(STREAM_CLOSED, f"HEADERS for stream {stream.stream_id} behind its end")
        if not is_end:
            raise StreamFault(stream.stream_id, PROTOCOL_ERROR, "trailers without END_STREAM")
        try:
            check_trailers(pairs)
        except BadHeaders as error:
            raise StreamFault(stream.stream_id, PROTOCOL_ERROR, str(error)) from error
        self._count_body(stream, 0, True)
        stream.state = states.after(stream.state, states.GOT_END)
        self._receiver.body(stream, b"", True)

    # Ends -----------------------------------------------------------------------------------------------------------

    def _fail_stream(self, fault: StreamFault) -> None:
        stream_id = fault.stream_id
        if stream_id > self._last_id:
            raise ConnectionFault(fault.code, fault.why)
        self._stay_calm()
        stream = self.streams.get(stream_id)
        self._note_reset(stream_id)
        if stream is None:
            self.output.pieces.append(frames.reset_frame(stream_id, fault.code))
        else:
            self.output.reset(stream, fault.code)

    def _note_reset(self, stream_id: int) -> None:
        self._resets[stream_id] = None
        if len(self._resets) > REMEMBERED_RESETS:
            del self._resets[next(iter(self._resets))]

    def _fail(self, fault: ConnectionFault) -> None:
        self.fault = fault
        self._rest.clear()
        self._block.clear()
        self.output.pieces.append(frames.goaway_frame(self._last_id, fault.code, fault.why))

    def _closed(self, stream: Stream, is_answered: bool) -> None:
        if stream.state == states.WE_ENDED:
            self._note_reset(stream.stream_id)
        stream.state = states.CLOSED
        self.streams.pop(stream.stream_id, None)
        self.held_bytes -= stream.held_bytes + stream.kept_bytes
        stream.held_bytes = stream.kept_bytes = 0
        if is_answered:
            self.output.sent_frames += 1
        self._receiver.ended(stream)

    def _widen(self, stream: Stream, size: int) -> None:
        self.output.pieces.append(frames.window_frame(stream.stream_id, size - stream.receive_window))
        stream.receive_window = size
