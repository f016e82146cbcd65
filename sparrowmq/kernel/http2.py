"""The server's side of a connection of HTTP/2 with gRPC in it: bytes in, calls out; answers in, bytes out.

    feed      a chunk of the socket     the streams that something happened to: a call is whole, begins, goes on, ended
    answer, send, finish, fail          what the calls answer
    take      the bytes for one write

    0        3      4       5            9                0       1        5
    +--------+------+-------+------------+- - - - - -+    +-------+--------+- - - - - -+
    | length | kind | flags | stream     | payload   |    | flag  | length | message   |   in the payloads of DATA
    +--------+------+-------+------------+- - - - - -+    +-------+--------+- - - - - -+   flag 1: compressed

    the peer breaks a rule of a stream        RST_STREAM, other streams go on
    ... of the connection                     GOAWAY, and `fault` says why; the caller closes it
    ... of gRPC                               the call ends with a status
    a request that is no call of gRPC         is read to its end, and gets a status of HTTP

Data that we received is given back to the peer's windows as follows. The window of the connection is always filled up
again. The window of a stream is filled up when its messages were released, or when a large message needs it. So a
stream holds FIRST_WINDOW bytes of memory, or one message. answers.py has the sending side.

Source: RFC 9113; the protocol's description "gRPC over HTTP2".
"""

from __future__ import annotations

from sparrowmq.core.digits import whole_number
from sparrowmq.kernel.answer_blocks import NO_TABLE
from sparrowmq.kernel.answers import Answers, Stream
from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.frame_layout import (
    ACK,
    CONNECTION_WINDOW,
    CONTINUATION,
    DATA,
    DEADLINE_EXCEEDED,
    EARNED_BY_FRAME,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HAS_PRIORITY,
    HEAD_BYTES,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    INTERNAL,
    LARGEST_FRAME,
    LARGEST_WINDOW,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RESOURCE_EXHAUSTED,
    RST_STREAM,
    SETTINGS,
    SILENT,
    STREAM_BYTES,
    STREAM_CLOSED,
    STREAMING,
    TABLE_BYTES,
    UNARY,
    UNIMPLEMENTED,
    WINDOW_UPDATE,
    ConnectionFault,
    GrpcError,
    StreamFault,
)
from sparrowmq.kernel.hpack import Header, HeaderReader

_PREFIX_BYTES = 5  # before a message
_PSEUDO = (":method", ":scheme", ":path", ":authority")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_LONGEST_TIMEOUT = 8  # digits
_LARGE_OUTPUT = 64 * 1024  # room for output that is not kept for the next one
_TOGETHER = 64  # calls that end at once because of their time limits; peers may have thousands with the same limit
_LATE = "the time limit of the call is over"
_NOTHING = In(b"")


class Http2(Answers):
    """One connection of a client.

    Args:
        kinds: of the methods, by their paths.
        limits: as `Limits.of_connection` lists them.
    Attributes:
        fault: the rule that the peer broke; None while all is well.
        has_more: received frames wait for the next `feed`.
        is_settled: the peer's preface and first settings are here.
        is_draining: new requests are refused.
        due: the earliest time limit of a call, or an earlier time; 0 without one.
    """

    def __init__(self, kinds: dict[str, int], limits: tuple[float, ...]) -> None:
        super().__init__()
        self._kinds = kinds
        self._most_streams, self._list_bytes, self._block_bytes = int(limits[0]), int(limits[1]), int(limits[2])
        self._message_bytes, self._unsent_bytes = int(limits[3]), int(limits[4])
        self._calm_most = self._calm_left = float(limits[5])
        self._calm_per_s = float(limits[6])
        self._calm_at = self._now = self.due = 0.0
        self.fault: ConnectionFault | None = None
        self.has_more = self.is_settled = self.is_draining = False
        self._reader = HeaderReader()
        self._source, self._at = _NOTHING, 0
        self._has_preface = self._block_ends_stream = False
        self._block = bytearray()
        self._block_id = 0  # 0: no header block is unfinished
        self._block_fault: StreamFault | None = None
        self._first_window = FIRST_WINDOW
        self._window = CONNECTION_WINDOW
        self._frame(12, SETTINGS, 0, 0)
        self._out.i16(MAX_CONCURRENT_STREAMS)
        self._out.i32(self._most_streams)
        self._out.i16(MAX_HEADER_LIST_SIZE)
        self._out.i32(self._list_bytes)
        self._widen_window(0, CONNECTION_WINDOW - FIRST_WINDOW)

    @property
    def is_partial(self) -> bool:
        """Whether a frame or a header block is unfinished."""
        return not self.has_more and (self._at < self._source.size or self._block_id > 0)

    # What was received ----------------------------------------------------------------------------------------------

    def feed(self, data: bytes, now: float, most: int) -> list[Stream]:
        """Handle the whole frames of a chunk, and of what came before it.

        Args:
            data: may be empty, to go on with frames that had to wait.
            most: frames, or kilobytes of them, after which the others wait.
        Returns: the streams that something happened to, in that order. A call may be there more than once.
        """
        self._now = now
        noted: list[Stream] = []
        if self.fault is not None:
            return noted
        self._noted = noted
        if data:
            rest = self._source.size - self._at
            self._source = In(self._source.slice(self._at, self._at + rest) + data if rest > 0 else data)
            self._at = 0
        try:
            if self._has_preface or self._take_preface():
                self._take_frames(most)
                if self._window < CONNECTION_WINDOW // 2:
                    self._widen_window(0, CONNECTION_WINDOW - self._window)
                    self._window = CONNECTION_WINDOW
        except ConnectionFault as fault:
            self._fail_connection(fault)
        if self._at == self._source.size:
            self._source, self._at = _NOTHING, 0
        elif not self.has_more and self._at > 0:
            self._source, self._at = In(self._source.slice(self._at, self._source.size)), 0
        self._noted = None
        return noted

    def _take_preface(self) -> bool:
        size = min(self._source.size, len(PREFACE))
        if not self._source.is_at(PREFACE[:size], 0):
            raise ConnectionFault(PROTOCOL_ERROR, "this is no HTTP/2 connection")
        if size < len(PREFACE):
            return False
        self._has_preface = True
        self._at = size
        return True

    def _take_frames(self, most: int) -> None:
        source, end, work = self._source, self._source.size, 0
        self.has_more = False
        while end - self._at >= HEAD_BYTES:
            at = self._at
            size = source.u8(at) << 16 | source.u16(at + 1)
            if size > LARGEST_FRAME:
                raise ConnectionFault(FRAME_SIZE_ERROR, f"a frame of {size} bytes; {LARGEST_FRAME} are the most")
            if size > end - at - HEAD_BYTES:
                break
            if work >= most:
                self.has_more = True
                break
            self._at = at + HEAD_BYTES + size
            stream_id = source.i32(at + 5) & 0x7FFFFFFF
            try:
                self._take_frame(source.u8(at + 3), source.u8(at + 4), stream_id, at + HEAD_BYTES, self._at)
            except StreamFault as fault:
                self._fail_stream(fault)
            work += 1 + (size >> 10)

    def _take_frame(self, kind: int, flags: int, stream_id: int, at: int, end: int) -> None:
        if self._block_id and (kind != CONTINUATION or stream_id != self._block_id):
            raise ConnectionFault(PROTOCOL_ERROR, "another frame inside a header block")
        if not self.is_settled and (kind != SETTINGS or flags & ACK):
            raise ConnectionFault(PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == DATA:
            self._take_data(flags, stream_id, at, end)
        elif kind == HEADERS:
            self._take_headers(flags, stream_id, at, end)
        elif kind == CONTINUATION:
            self._take_continuation(flags, stream_id, at, end)
        else:
            self._take_control(kind, flags, stream_id, at, end)

    def _padding(self, at: int, end: int) -> int:
        """The bytes of padding at the end of a payload, whose first byte says so."""
        if at == end or self._source.u8(at) >= end - at:
            raise ConnectionFault(PROTOCOL_ERROR, "the padding is longer than its frame")
        return self._source.u8(at)

    def _stay_calm(self) -> None:
        """Count a frame that costs work and brings no call."""
        left = self._calm_left + self._sent_frames * EARNED_BY_FRAME
        self._sent_frames = 0
        if self._now > self._calm_at:
            left += (self._now - self._calm_at) * self._calm_per_s
            self._calm_at = self._now
        self._calm_left = min(self._calm_most, left) - 1.0
        if self._calm_left < 0.0:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "too many frames that bring no call")

    def _take_control(self, kind: int, flags: int, stream_id: int, at: int, end: int) -> None:
        self._stay_calm()
        if kind == WINDOW_UPDATE:
            self._take_window_update(stream_id, at, end)
        elif kind == RST_STREAM:
            if end - at != 4:
                raise ConnectionFault(FRAME_SIZE_ERROR, "RST_STREAM has not 4 bytes")
            self._check_not_idle(stream_id, "RST_STREAM")
            stream = self.streams.get(stream_id)
            if stream is not None:
                self._close(stream)
        elif kind == SETTINGS:
            self._take_settings(flags, stream_id, at, end)
        elif kind == PING:
            if stream_id != 0:
                raise ConnectionFault(PROTOCOL_ERROR, "PING for a stream")
            if end - at != 8:
                raise ConnectionFault(FRAME_SIZE_ERROR, "PING has not 8 bytes")
            if not flags & ACK:
                self._frame(8, PING, ACK, 0)
                self._out.copy(self._source, at, end)
        elif kind == PRIORITY:
            if stream_id == 0:
                raise ConnectionFault(PROTOCOL_ERROR, "PRIORITY without a stream")
            if end - at != 5:
                raise StreamFault(stream_id, FRAME_SIZE_ERROR, "PRIORITY has not 5 bytes")
            if self._source.i32(at) & 0x7FFFFFFF == stream_id:
                raise StreamFault(stream_id, PROTOCOL_ERROR, "a stream that depends on itself")
        elif kind == GOAWAY:
            if stream_id != 0:
                raise ConnectionFault(PROTOCOL_ERROR, "GOAWAY for a stream")
            if end - at < 8:
                raise ConnectionFault(FRAME_SIZE_ERROR, "GOAWAY is too short")
        elif kind == PUSH_PROMISE:
            raise ConnectionFault(PROTOCOL_ERROR, "a client may not push")

    def _take_window_update(self, stream_id: int, at: int, end: int) -> None:
        if end - at != 4:
            raise ConnectionFault(FRAME_SIZE_ERROR, "WINDOW_UPDATE has not 4 bytes")
        increment = self._source.i32(at) & 0x7FFFFFFF
        if stream_id == 0:
            if increment == 0:
                raise ConnectionFault(PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            self._send_window += increment
            if self._send_window > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of the connection is too large")
            return
        self._check_not_idle(stream_id, "WINDOW_UPDATE")
        if increment == 0:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.send_window += increment
            if stream.send_window > LARGEST_WINDOW:
                raise StreamFault(stream_id, FLOW_CONTROL_ERROR, "the window of a stream is too large")

    def _take_settings(self, flags: int, stream_id: int, at: int, end: int) -> None:
        if stream_id != 0:
            raise ConnectionFault(PROTOCOL_ERROR, "SETTINGS for a stream")
        if (end - at) % 6 or (flags & ACK and end > at):
            raise ConnectionFault(FRAME_SIZE_ERROR, f"SETTINGS of {end - at} bytes")
        if flags & ACK:
            return
        settings: dict[int, int] = {}  # the last value of a name counts
        while at < end:
            settings[self._source.u16(at)] = self._source.i32(at + 2) & 0xFFFFFFFF
            at += 6
        for name, value in settings.items():
            self._set(name, value)
        self.is_settled = True
        self._frame(0, SETTINGS, ACK, 0)

    def _set(self, name: int, value: int) -> None:
        if name == INITIAL_WINDOW_SIZE:
            if value > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, f"a first window of {value}")
            change = value - self._first_window
            self._first_window = value
            for stream in self.streams.values():  # it holds for open streams, too
                stream.send_window += change
                if stream.send_window > LARGEST_WINDOW:
                    raise ConnectionFault(FLOW_CONTROL_ERROR, "a new first window makes another one too large")
        elif name == MAX_FRAME_SIZE:
            if not LARGEST_FRAME <= value < 1 << 24:
                raise ConnectionFault(PROTOCOL_ERROR, f"a largest frame of {value}")
            # Larger ones would only let other streams wait for longer.
        elif name == ENABLE_PUSH:
            if value > 1:
                raise ConnectionFault(PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        elif name == HEADER_TABLE_SIZE and value < TABLE_BYTES:
            # The peer wants a smaller table of headers than usual. We use none, and the next block says so.
            self._prefix = NO_TABLE
            self._uses_table = False

    def _check_not_idle(self, stream_id: int, kind: str) -> None:
        if stream_id == 0 or stream_id & 1 == 0 or stream_id > self._last_id:
            raise ConnectionFault(PROTOCOL_ERROR, f"{kind} for stream {stream_id}, which has not begun")

    # Requests -------------------------------------------------------------------------------------------------------

    def _take_headers(self, flags: int, stream_id: int, at: int, end: int) -> None:
        if stream_id & 1 == 0:
            raise ConnectionFault(PROTOCOL_ERROR, f"HEADERS for stream {stream_id}")
        if flags & PADDED:
            end -= self._padding(at, end)
            at += 1
        self._block_fault = None
        if flags & HAS_PRIORITY:
            if end - at < 5:
                raise ConnectionFault(FRAME_SIZE_ERROR, "HEADERS is too short")
            if self._source.i32(at) & 0x7FFFFFFF == stream_id:
                self._block_fault = StreamFault(stream_id, PROTOCOL_ERROR, "a stream that depends on itself")
            at += 5
        self._block_ends_stream = flags & END_STREAM != 0
        if flags & END_HEADERS:
            self._take_block(stream_id, self._source, at, end)
            return
        self._block_id = stream_id
        self._block += self._source.slice(at, end)

    def _take_continuation(self, flags: int, stream_id: int, at: int, end: int) -> None:
        if not self._block_id:
            raise ConnectionFault(PROTOCOL_ERROR, "CONTINUATION without HEADERS before it")
        self._block += self._source.slice(at, end)
        if len(self._block) > self._block_bytes:
            raise ConnectionFault(ENHANCE_YOUR_CALM, "a header block is too large")
        if at == end:
            self._stay_calm()
        if flags & END_HEADERS:
            block = bytes(self._block)
            self._block = bytearray()
            self._block_id = 0
            self._take_block(stream_id, In(block), 0, len(block))

    def _take_block(self, stream_id: int, source: In, at: int, end: int) -> None:
        """Take a whole header block. It is decompressed in any case, as the next blocks depend on its table."""
        headers = self._reader.read(source, at, end)
        is_end = self._block_ends_stream
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._take_trailers(stream, headers, is_end)
            return
        if stream_id <= self._last_id:
            self._stay_calm()
            if stream_id not in self._resets:
                raise ConnectionFault(STREAM_CLOSED, f"HEADERS for stream {stream_id}, which has ended")
            return
        self._last_id = stream_id
        if self._block_fault is not None:
            raise self._block_fault
        if len(self.streams) >= self._most_streams or self.is_draining or self.pending_bytes > self._unsent_bytes:
            raise StreamFault(stream_id, REFUSED_STREAM, "too many calls at the same time")
        stream = self._request(stream_id, headers)
        if is_end and stream.body_bytes > 0:
            raise StreamFault(stream_id, PROTOCOL_ERROR, "the body is not as long as content-length says")
        stream.send_window = self._first_window
        stream.changed_at = self._now
        self.streams[stream_id] = stream
        self.keep(stream, STREAM_BYTES + min(stream.list_bytes, self._list_bytes))
        stream.has_peer_ended = is_end
        try:
            self._begin(stream)
            if is_end:
                self._received(stream, 0, 0)
        except GrpcError as error:
            self.fail(stream, error.code, error.message)

    def _request(self, stream_id: int, headers: list[Header]) -> Stream:
        """The stream of a request. Headers above the limit are counted and checked, but not kept."""
        stream, is_regular, size = Stream(), False, 0
        stream.stream_id = stream_id
        found = stream.headers
        pseudo: dict[str, str] = {}
        for header in headers:
            size += header.size()
            if header.is_pseudo:
                if is_regular or header.key in pseudo or header.key not in _PSEUDO:
                    why = f"the header {header.name!r} is unknown, repeated, or behind others"
                    raise StreamFault(stream_id, PROTOCOL_ERROR, why)
                pseudo[header.key] = header.text
                continue
            is_regular = True
            if header.fault is not None:
                raise StreamFault(stream_id, PROTOCOL_ERROR, header.fault)
            if size <= self._list_bytes:
                if header.key == "content-length":
                    if "content-length" in found:
                        raise StreamFault(stream_id, PROTOCOL_ERROR, "content-length is repeated")
                    number = whole_number(header.text)
                    if number is None:
                        raise StreamFault(stream_id, PROTOCOL_ERROR, f"content-length is {header.text[:60]!r}")
                    stream.body_bytes = number
                found[header.key] = header.text
        stream.list_bytes = size
        stream.method, stream.path = pseudo.get(":method", ""), pseudo.get(":path", "")
        stream.authority = pseudo.get(":authority", "")
        if not stream.method or not stream.path or not pseudo.get(":scheme"):
            raise StreamFault(stream_id, PROTOCOL_ERROR, "one of :method, :scheme and :path is missing")
        return stream

    def _begin(self, stream: Stream) -> None:
        """See what answers a request. Raises: GrpcError."""
        headers = stream.headers
        if stream.list_bytes > self._list_bytes:
            stream.status, stream.text = 431, "the headers are too large"
        elif stream.method != "POST":
            stream.status, stream.text = 405, "gRPC calls are sent by POST"
        elif not headers.get("content-type", "").startswith("application/grpc"):
            stream.status, stream.text = 415, "the content type is not application/grpc"
        if stream.status:
            return
        kind = self._kinds.get(stream.path, 0)
        if not kind:
            raise GrpcError(UNIMPLEMENTED, f"there is no method {stream.path[:200]} here")
        encoding = headers.get("grpc-encoding", "identity")
        if encoding not in ("identity", "gzip"):
            raise GrpcError(UNIMPLEMENTED, f"grpc-encoding {encoding[:20]}; identity and gzip are known")
        stream.is_gzip = encoding == "gzip"
        limit = headers.get("grpc-timeout")
        if limit is not None:
            stream.deadline = self._now + timeout_s(limit)
            if self.due == 0.0 or stream.deadline < self.due:
                self.due = stream.deadline
        stream.kind = kind
        if kind != UNARY:
            stream.has_message = kind == SILENT
            self._note(stream)

    def _take_trailers(self, stream: Stream, headers: list[Header], is_end: bool) -> None:
        if stream.has_peer_ended:
            raise ConnectionFault(STREAM_CLOSED, f"HEADERS for stream {stream.stream_id} behind its end")
        if not is_end:
            raise StreamFault(stream.stream_id, PROTOCOL_ERROR, "trailers without END_STREAM")
        for header in headers:
            if header.is_pseudo:
                why = f"a header may not be called {header.name[:60]!r} here"
                raise StreamFault(stream.stream_id, PROTOCOL_ERROR, why)
            if header.fault is not None:
                raise StreamFault(stream.stream_id, PROTOCOL_ERROR, header.fault)
        self._take_body(stream, 0, 0, True)

    def _take_data(self, flags: int, stream_id: int, at: int, end: int) -> None:
        self._check_not_idle(stream_id, "DATA")
        size = end - at
        self._window -= size
        if self._window < 0:
            raise ConnectionFault(FLOW_CONTROL_ERROR, "more data than the window of the connection")
        is_end = flags & END_STREAM != 0
        if size == 0 and not is_end:
            self._stay_calm()
        if flags & PADDED:
            end -= self._padding(at, end)
            at += 1
        stream = self.streams.get(stream_id)
        if stream is None:
            self._stay_calm()
            if stream_id not in self._resets:
                raise StreamFault(stream_id, STREAM_CLOSED, "data for a stream that has ended")
            return
        if stream.has_peer_ended:
            raise StreamFault(stream_id, STREAM_CLOSED, "data behind the end")
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamFault(stream_id, FLOW_CONTROL_ERROR, "more data than the window of the stream")
        self._take_body(stream, at, end, is_end)

    def _take_body(self, stream: Stream, at: int, end: int, is_end: bool) -> None:
        size = end - at
        stream.held_bytes += size
        self.held_bytes += size
        if stream.body_bytes >= 0:
            stream.body_bytes -= size
            if stream.body_bytes < 0 or (is_end and stream.body_bytes > 0):
                why = "the body is not as long as content-length says"
                raise StreamFault(stream.stream_id, PROTOCOL_ERROR, why)
        stream.has_peer_ended = is_end
        stream.changed_at = self._now
        try:
            self._received(stream, at, end)
        except GrpcError as error:
            self.fail(stream, error.code, error.message)

    def _received(self, stream: Stream, at: int, end: int) -> None:
        """More of a request is here, from `at` to `end`. Raises: GrpcError."""
        if stream.kind == 0:
            self._give_back(stream, end - at)
            if stream.has_peer_ended:
                raise GrpcError(INTERNAL, stream.text)
        elif stream.kind == UNARY and stream.has_peer_ended:
            source = self._source
            if stream.body is not None:
                stream.body += source.slice(at, end)
                source, at, end = In(stream.body), 0, len(stream.body)
            message_end = self._message_end(source, at, end)
            if message_end >= 0:
                stream.message = self._cut(stream, source, at, message_end)
            if message_end != end:
                raise GrpcError(INTERNAL, "the request is not exactly one message")
            stream.body = None
            self._note(stream)
        else:
            if stream.body is None:
                stream.body = bytearray()
            stream.body += self._source.slice(at, end)
            if stream.kind != UNARY:
                self._note(stream)
            self._make_room(stream)

    def _message_end(self, source: In, at: int, end: int) -> int:
        """The end of the message at `at`, -1 if it is not whole. Raises: GrpcError, it is too large."""
        if end - at < _PREFIX_BYTES:
            return -1
        length = source.i32(at + 1) & 0xFFFFFFFF
        self._check_length(length)
        return at + _PREFIX_BYTES + length if length <= end - at - _PREFIX_BYTES else -1

    def _check_length(self, length: int) -> None:
        if length > self._message_bytes:
            why = f"a message is larger than {self._message_bytes} bytes; send smaller ones"
            raise GrpcError(RESOURCE_EXHAUSTED, why)

    def _cut(self, stream: Stream, source: In, at: int, end: int) -> bytes:
        """The message from `at` to `end`. Raises: GrpcError, it is compressed in an unknown way."""
        flag = source.u8(at)
        if flag and (flag != 1 or not stream.is_gzip):
            encoding = "gzip" if stream.is_gzip else "identity"
            raise GrpcError(INTERNAL, f"a message has the flag {flag} and the encoding {encoding}")
        stream.is_compressed = flag == 1
        return source.slice(at + _PREFIX_BYTES, end)

    def _next_end(self, stream: Stream) -> int:
        """The end in the body of the next message with its prefix, as far as is known."""
        body = stream.body
        if body is None or len(body) < _PREFIX_BYTES:
            return _PREFIX_BYTES
        prefix = In(bytes(body[:_PREFIX_BYTES]))
        return _PREFIX_BYTES + (prefix.i32(1) & 0xFFFFFFFF)

    def _missing(self, stream: Stream) -> int:
        """The bytes that the next message still needs, as far as is known; 0 if it is whole."""
        return max(0, self._next_end(stream) - (0 if stream.body is None else len(stream.body)))

    def _make_room(self, stream: Stream) -> None:
        """Let the peer send the rest of a large message. Raises: GrpcError, it is too large."""
        self._check_length(self._next_end(stream) - _PREFIX_BYTES)
        missing = self._missing(stream)
        if not stream.has_peer_ended and stream.receive_window < missing:
            self._widen(stream, missing)

    def next_message(self, stream: Stream) -> bytes | None:
        """The next message of a stream; None if it is not whole yet, or at the end (`has_peer_ended`).

        Raises: GrpcError, it is too large, ends too soon, or is compressed in an unknown way.
        """
        self._make_room(stream)
        body, end = stream.body, self._next_end(stream)
        if body is not None and len(body) >= end:
            self._cut(stream, In(bytes(body[:_PREFIX_BYTES])), 0, _PREFIX_BYTES)
            with memoryview(body) as view:  # one copy
                message = bytes(view[_PREFIX_BYTES:end])
            del body[:end]
            stream.handed_bytes += end
            stream.has_message = True
            return message
        if stream.has_peer_ended and body:
            raise GrpcError(INTERNAL, "the last message of the request is not whole")
        return None

    def release(self, stream: Stream) -> None:
        """Give the bytes of the messages so far back to the stream's window: they are handled."""
        self.keep(stream, STREAM_BYTES + min(stream.list_bytes, self._list_bytes) - stream.kept_bytes)
        count, stream.handed_bytes = stream.handed_bytes, 0
        self._give_back(stream, count)

    def _give_back(self, stream: Stream, count: int) -> None:
        if stream.is_closed:
            return
        stream.held_bytes -= count
        self.held_bytes -= count
        if not stream.has_peer_ended and stream.receive_window + stream.held_bytes < FIRST_WINDOW // 2:
            self._widen(stream, FIRST_WINDOW - stream.held_bytes)

    def _widen(self, stream: Stream, size: int) -> None:
        self._widen_window(stream.stream_id, size - stream.receive_window)
        stream.receive_window = size

    def overdue(self, now: float) -> list[Stream]:
        """End calls whose time limit is over, and find the next limit: `due`. Returns those that `feed` returned."""
        ended: list[Stream] = []
        self.due, count = 0.0, 0
        for stream in list(self.streams.values()):
            if stream.deadline == 0.0:
                continue
            if stream.deadline <= now and count < _TOGETHER:
                count += 1
                stream.deadline = 0.0
                self.fail(stream, DEADLINE_EXCEEDED, _LATE)
                if stream.is_known:
                    ended.append(stream)
            elif self.due == 0.0 or stream.deadline < self.due:
                self.due = stream.deadline
        return ended

    def unfinished(self) -> list[Stream]:
        """The calls whose peer owes the rest of a message, or the first one of a call that may not be silent."""
        found: list[Stream] = []
        for stream in self.streams.values():
            if stream.kind == STREAMING or stream.kind == SILENT:
                has_begun = bool(stream.body) or not stream.has_message
                if stream.has_peer_ended or not has_begun or self._missing(stream) == 0:
                    continue
            elif stream.has_peer_ended:
                continue
            found.append(stream)
        return found

    def drain(self) -> None:
        """Ask the peer to begin no more requests here; those that are open go on."""
        if not self.is_draining and self.fault is None:
            self.is_draining = True
            self._goaway(NO_ERROR, "it stops")

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._frame(8, PING, 0, 0)
        self._out.i64(0)

    def end(self) -> None:
        """Forget all streams: the connection has ended."""
        for stream in list(self.streams.values()):
            self._close(stream)

    def _fail_connection(self, fault: ConnectionFault) -> None:
        self.fault = fault
        self.has_more = False
        self._source, self._at = _NOTHING, 0
        self._block = bytearray()
        self._goaway(fault.code, fault.why)

    def _fail_stream(self, fault: StreamFault) -> None:
        stream_id = fault.stream_id
        if stream_id > self._last_id:
            raise ConnectionFault(fault.code, fault.why)
        self._stay_calm()
        self._reset(stream_id, fault.code)
        stream = self.streams.get(stream_id)
        if stream is not None:
            self._close(stream)


def timeout_s(text: str) -> float:
    """Return the seconds in grpc-timeout. Raises: GrpcError, it is none."""
    number, unit = whole_number(text[:-1], _LONGEST_TIMEOUT), text[-1:]
    if unit not in _UNITS or number is None:
        raise GrpcError(INTERNAL, f"grpc-timeout is {text[:20]!r}; it is up to 8 digits and one of H M S m u n")
    return number * _UNITS[unit]
