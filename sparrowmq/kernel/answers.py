"""The sending side of a connection of HTTP/2: frames for the next write, within the windows that the peer gives.

    answer fits into both windows    its headers, data and trailers go into `take`, and leave in one write
    it does not                      the rest waits in its stream; streams take turns, one frame each, when
                                     WINDOW_UPDATE opens a window or the socket takes bytes again

Messages that wait are joined, so many small ones leave in few frames. Trailers wait behind the data of their stream.
Other frames never wait, as the number of them is limited.
"""

from __future__ import annotations

from sparrowmq.kernel.answer_blocks import (
    FIRST_HEADERS,
    FIRST_TRAILERS,
    GRPC_HEADERS,
    NEWEST,
    OK_TRAILERS,
    STATUS_200,
    plain,
    trailers,
)
from sparrowmq.kernel.cursor import Out
from sparrowmq.kernel.frame_layout import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    FIRST_WINDOW,
    GOAWAY,
    HEADERS,
    LARGEST_FRAME,
    NO_ERROR,
    READY_BYTES,
    REMEMBERED_RESETS,
    RST_STREAM,
    WINDOW_UPDATE,
)

_PREFIX_BYTES = 5  # before a message
_LARGE_OUTPUT = 64 * 1024  # room for output that is not kept for the next one


class Stream:
    """A request and its answer.

    Attributes:
        kind: of its method, as in frame_layout; 0 for a request that is no call.
        headers: by their lower-case names. Of a repeated name the last value counts, as in Java: the client of
            RocketMQ 5 for Go signs each retry of a send once more.
        message: of a unary call, once it is whole.
        is_compressed: the last message is.
        changed_at, deadline: times of the clock of `feed`; 0 for a call without a time limit.
        kept_bytes: memory of the request besides its data: the stream itself, its headers, its messages that grew.
        held_bytes: received and not released yet.
        pending: output that waits.
        send_window: the bytes that the peer takes; negative after its settings made windows smaller.
    """

    def __init__(self) -> None:
        self.stream_id = self.kind = self.status = 0
        self.method = self.path = self.authority = self.text = ""
        self.headers: dict[str, str] = {}
        self.message: bytes | None = None
        self.body: bytearray | None = None
        self.pending: bytearray | None = None
        self.end_block: bytes | None = None
        self.is_closed = self.has_peer_ended = self.is_known = False
        self.is_gzip = self.is_compressed = self.has_headers = self.has_message = False
        self.body_bytes = -1  # the announced rest of the body; -1 if nothing is announced
        self.list_bytes = self.held_bytes = self.kept_bytes = self.handed_bytes = 0
        self.receive_window = self.send_window = FIRST_WINDOW
        self.changed_at = self.deadline = 0.0

    @property
    def unread_bytes(self) -> int:
        """The bytes of the request that belong to no message that was taken."""
        return 0 if self.body is None else len(self.body)

    @property
    def pending_bytes(self) -> int:
        return 0 if self.pending is None else len(self.pending)


class Answers:
    """The answers of one connection.

    Attributes:
        streams: that have not ended, by their numbers.
        has_output: more could leave after what `take` returned.
        is_stopped: the socket takes no more; data waits in the streams.
        held_bytes: of requests that are not handled yet, with their headers and streams.
        pending_bytes: of answers that wait for windows.
        sent_bytes: of bodies so far.
    """

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.has_output = self.is_stopped = False
        self.held_bytes = self.pending_bytes = self.sent_bytes = 0
        self._out = Out()
        self._send_window = FIRST_WINDOW
        self._ready_bytes = self._sent_frames = self._last_id = 0
        self._waiting: dict[int, Stream] = {}
        self._resets: dict[int, None] = {}
        self._noted: list[Stream] | None = None  # while `feed` runs
        self._uses_table = True
        self._prefix = self._headers_block = self._trailers_block = b""

    @property
    def is_waiting(self) -> bool:
        """Whether output waits for a window."""
        return len(self._waiting) > 0

    def answer(self, stream: Stream, message: bytes) -> None:
        """Answer a unary call."""
        self.send(stream, (message,))
        self.finish(stream)

    def send(self, stream: Stream, messages: tuple[bytes, ...]) -> None:
        """Send messages, in as few frames as they need, or let them wait."""
        if stream.is_closed:
            return
        self._send_headers(stream)
        size = 0
        for message in messages:
            size += _PREFIX_BYTES + len(message)
        out, pending = self._out, stream.pending
        if pending is None and self._may_leave(stream, size):
            self._data(stream, size)
            for message in messages:
                out.u8(0)
                out.i32(len(message))
                out.raw(message)
            return
        if pending is None:
            stream.pending = pending = bytearray()
        for message in messages:
            pending += b"\0" + len(message).to_bytes(4, "big")
            pending += message
        self._wait(stream, size)

    def finish(self, stream: Stream) -> None:
        """End a call that went well, behind its messages."""
        if not stream.is_closed:
            self._send_headers(stream)
            self._end(stream, OK_TRAILERS)

    def fail(self, stream: Stream, code: int, message: str) -> None:
        """End a call with an error; a request that is no call, with its status and this text."""
        if stream.is_closed:
            return
        block = trailers(code, message)
        if stream.status:
            self._block_frames(stream.stream_id, plain(stream.status), False)
            raw = message.encode() + b"\n"
            if self._may_leave(stream, len(raw)):
                self._data(stream, len(raw))
                self._out.raw(raw)
            else:
                stream.pending = bytearray(raw)
                self._wait(stream, len(raw))
        elif not stream.has_headers:
            block = GRPC_HEADERS + block
        self._end(stream, block)

    def keep(self, stream: Stream, count: int) -> None:
        """Count `count` bytes more of memory that a stream occupies besides its data; fewer, if negative."""
        if not stream.is_closed:
            stream.kept_bytes += count
            self.held_bytes += count

    def take(self) -> bytes:
        """The bytes to write, with waiting data as far as windows and one write allow."""
        self.has_output = self._flush() if self._waiting else False
        self._ready_bytes = 0
        made = self._out.take()
        if len(made) > _LARGE_OUTPUT:
            self._out = Out()
        return made

    # Frames ----------------------------------------------------------------------------------------------------------

    def _frame(self, size: int, kind: int, flags: int, stream_id: int) -> None:
        """Write the head of a frame."""
        out = self._out
        out.i32(size << 8 | kind)
        out.u8(flags)
        out.i32(stream_id)

    def _widen_window(self, stream_id: int, increment: int) -> None:
        self._frame(4, WINDOW_UPDATE, 0, stream_id)
        self._out.i32(increment)

    def _reset(self, stream_id: int, code: int) -> None:
        self._resets[stream_id] = None
        if len(self._resets) > REMEMBERED_RESETS:
            del self._resets[next(iter(self._resets))]
        self._frame(4, RST_STREAM, 0, stream_id)
        self._out.i32(code)

    def _goaway(self, code: int, why: str) -> None:
        raw = why.encode()
        self._frame(8 + len(raw), GOAWAY, 0, 0)
        self._out.i32(self._last_id)
        self._out.i32(code)
        self._out.raw(raw)

    def _note(self, stream: Stream) -> None:
        """Have `feed` return a stream."""
        stream.is_known = True
        if self._noted is not None and not (self._noted and self._noted[len(self._noted) - 1] is stream):
            self._noted.append(stream)

    def _close(self, stream: Stream) -> None:
        stream.is_closed = True
        if stream.pending is not None:
            self.pending_bytes -= len(stream.pending)
            stream.pending = None
            self._waiting.pop(stream.stream_id, None)
        stream.body = stream.end_block = None
        self.streams.pop(stream.stream_id, None)
        self.held_bytes -= stream.held_bytes + stream.kept_bytes
        stream.held_bytes = stream.kept_bytes = 0
        if stream.is_known:
            self._note(stream)

    def _may_leave(self, stream: Stream, size: int) -> bool:
        return (
            size <= stream.send_window
            and size <= self._send_window
            and size <= LARGEST_FRAME
            and self._ready_bytes < READY_BYTES
            and not self.is_stopped
        )

    def _data(self, stream: Stream, size: int) -> None:
        """Count bytes of a body that leave, and write the head of their frame."""
        stream.send_window -= size
        self._send_window -= size
        self._ready_bytes += size
        self.sent_bytes += size
        self._sent_frames += 1
        self._frame(size, DATA, 0, stream.stream_id)

    def _wait(self, stream: Stream, size: int) -> None:
        """Count bytes that were added to what waits."""
        self.pending_bytes += size
        self._waiting[stream.stream_id] = stream
        if not self.is_stopped and self._ready_bytes < READY_BYTES:
            self._advance(stream)

    def _flush(self) -> bool:
        """Write waiting data, as far as windows and one write allow. Returns whether more could go."""
        while self._waiting and self._send_window > 0 and not self.is_stopped:
            moved = 0
            for stream in list(self._waiting.values()):
                if self._ready_bytes >= READY_BYTES:
                    return True
                moved += self._advance(stream)
            if moved == 0:
                break
        return False

    def _advance(self, stream: Stream) -> int:
        """Write one frame of a stream's waiting data. Returns its size."""
        pending = stream.pending
        if pending is None:
            return 0
        size = min(stream.send_window, self._send_window, LARGEST_FRAME, len(pending))
        if size <= 0:
            return 0
        self._data(stream, size)
        self._out.raw(bytes(pending[:size]))
        del pending[:size]  # moves no byte of the rest
        self.pending_bytes -= size
        del self._waiting[stream.stream_id]
        if pending:
            self._waiting[stream.stream_id] = stream  # behind the others
            return size
        stream.pending = None
        block = stream.end_block
        if block is not None:
            self._end(stream, block)
        return size

    def _end(self, stream: Stream, block: bytes) -> None:
        """Write the trailers, behind the data."""
        if stream.pending is not None:
            stream.end_block = block
            return
        self._block_frames(stream.stream_id, block, True)
        self._sent_frames += 1
        if not stream.has_peer_ended:  # it need not send the rest of its request
            self._reset(stream.stream_id, NO_ERROR)
        self._close(stream)

    def _send_headers(self, stream: Stream) -> None:
        if not stream.has_headers:
            stream.has_headers = True
            self._block_frames(stream.stream_id, GRPC_HEADERS, False)

    def _shortened(self, block: bytes) -> bytes:
        """The block as the peer's table allows: the headers of a call that goes well are entered once.

        The table then has the three headers of our answers: those of the headers, and the one of the trailers.
        """
        if not self._uses_table:
            return block
        if block is GRPC_HEADERS:
            if self._headers_block:
                return self._headers_block
            self._headers_block = STATUS_200 + bytes((NEWEST + 1, NEWEST))
            if self._trailers_block:
                self._trailers_block = bytes((NEWEST + 2,))
            return FIRST_HEADERS
        if block is OK_TRAILERS:
            if self._trailers_block:
                return self._trailers_block
            self._trailers_block = bytes((NEWEST,))
            if self._headers_block:
                self._headers_block = STATUS_200 + bytes((NEWEST + 2, NEWEST + 1))
            return FIRST_TRAILERS
        return block

    def _block_frames(self, stream_id: int, block: bytes, is_end: bool) -> None:
        """Write a header block as HEADERS, and as CONTINUATION what does not fit into one frame."""
        block = self._shortened(block)
        if self._prefix:
            block, self._prefix = self._prefix + block, b""
        kind, flags, at, end = HEADERS, END_STREAM if is_end else 0, 0, len(block)
        while end - at > LARGEST_FRAME:
            self._frame(LARGEST_FRAME, kind, flags, stream_id)
            self._out.raw(block[at : at + LARGEST_FRAME])
            kind, flags, at = CONTINUATION, 0, at + LARGEST_FRAME
        self._frame(end - at, kind, flags | END_HEADERS, stream_id)
        self._out.raw(block[at:] if at > 0 else block)
