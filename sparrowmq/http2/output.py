"""The sending side of a connection: frames for the next write, within the windows that the peer gives.

    answer fits into both windows    its headers, data and trailers go into `pieces`, which leave in one write
    it does not                      the rest waits in its stream; streams take turns, one frame each, when
                                     WINDOW_UPDATE opens a window or the socket takes bytes again

Messages that wait are joined, so many small ones leave in few frames. Trailers wait behind the data of their stream.
Other frames never wait, as the number of them is limited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.http2 import stream_states as states
from sparrowmq.http2.frames import (
    DATA,
    FIRST_WINDOW,
    FLOW_CONTROL_ERROR,
    LARGEST_FRAME,
    LARGEST_WINDOW,
    NO_ERROR,
    ConnectionFault,
    StreamFault,
    frame,
    header_frames,
    reset_frame,
)
from sparrowmq.http2.response_headers import NO_TABLE, ClientTable
from sparrowmq.http2.streams import Stream

READY_BYTES: Final = 512 * 1024  # of bodies in one write; more waits in the streams until that has left


class Output:
    """The output of one connection.

    Args:
        closed: called with a stream whose answer is complete (True) or that was reset (False). It sets the state.
        drained: called with a stream when none of its output waits any more.
    Attributes:
        pieces: frames to write.
        ready_bytes: of bodies in `pieces`; who writes them calls `written`.
        pending_bytes: of all streams, waiting for windows.
        is_stopped: the socket takes no more; data waits in the streams.
        largest_frame, first_window: of the peer's settings.
        sent_bytes: of bodies, in `pieces` so far.
        sent_frames: of bodies, and ends of answers, since the connection last set it to 0.
    """

    def __init__(self, closed: Callable[[Stream, bool], object], drained: Callable[[Stream], object]) -> None:
        self.pieces: list[bytes] = []
        self.pending_bytes = 0
        self.is_stopped = False
        self.largest_frame = LARGEST_FRAME
        self.first_window = FIRST_WINDOW
        self.window = FIRST_WINDOW
        self.ready_bytes = 0
        self.sent_bytes = 0
        self.sent_frames = 0
        self._closed = closed
        self._drained = drained
        self._waiting: dict[int, Stream] = {}
        self._block_prefix = b""
        self._table = ClientTable()

    @property
    def is_waiting(self) -> bool:
        """Whether output waits for a window."""
        return len(self._waiting) > 0

    def shrink_table(self) -> None:
        """The peer wants a smaller table of headers than usual. We use none, and the next block says so."""
        self._block_prefix = NO_TABLE
        self._table.is_used = False

    def headers(self, stream: Stream, block: bytes) -> None:
        if stream.state != states.CLOSED:
            self._block(stream.stream_id, block, False)

    def message(self, stream: Stream, payload: bytes) -> None:
        """Send bytes of the body, or let them wait."""
        if stream.state == states.CLOSED or not payload:
            return
        size = len(payload)
        if (
            not stream.pending
            and size <= stream.send_window
            and size <= self.window
            and size <= self.largest_frame
            and self.ready_bytes < READY_BYTES
            and not self.is_stopped
        ):
            stream.send_window -= size
            self.window -= size
            self.ready_bytes += size
            self.sent_bytes += size
            self.sent_frames += 1
            self.pieces.append(frame(DATA, 0, stream.stream_id, payload))
            return
        stream.pending += payload
        self.pending_bytes += size
        self._waiting[stream.stream_id] = stream
        if not self.is_stopped and self.ready_bytes < READY_BYTES:
            self._advance(stream)

    def end(self, stream: Stream, block: bytes) -> None:
        """Send the trailers, behind the data."""
        if stream.state == states.CLOSED:
            return
        if stream.pending:
            stream.end_block = block
        else:
            self._end(stream, block)

    def reset(self, stream: Stream, code: int) -> None:
        """End a stream at once."""
        if stream.state != states.CLOSED:
            self.pieces.append(reset_frame(stream.stream_id, code))
            self.forget(stream)

    def forget(self, stream: Stream) -> None:
        """Drop the waiting output of a stream that was reset."""
        self._drop(stream)
        self._closed(stream, False)

    def widen(self, stream: Stream | None, increment: int) -> None:
        """Take a WINDOW_UPDATE: for a stream, or for the connection.

        Raises: ConnectionFault, StreamFault, the window would become too large.
        """
        if stream is None:
            self.window += increment
            if self.window > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "the window of the connection is too large")
            return
        stream.send_window += increment
        if stream.send_window > LARGEST_WINDOW:
            raise StreamFault(stream.stream_id, FLOW_CONTROL_ERROR, "the window of a stream is too large")

    def set_first_window(self, size: int, streams: list[Stream]) -> None:
        """Take another SETTINGS_INITIAL_WINDOW_SIZE, which changes the windows of open streams too.

        Raises: ConnectionFault, a window would become too large.
        """
        change = size - self.first_window
        self.first_window = size
        for stream in streams:
            stream.send_window += change
            if stream.send_window > LARGEST_WINDOW:
                raise ConnectionFault(FLOW_CONTROL_ERROR, "a new first window makes another one too large")

    def written(self) -> None:
        """The pieces are written: the next ones may come."""
        self.pieces.clear()
        self.ready_bytes = 0

    def flush(self) -> bool:
        """Put waiting data into `pieces`, as far as windows and one write allow. Returns whether more could go."""
        while self._waiting and self.window > 0 and not self.is_stopped:
            moved = 0
            for stream in list(self._waiting.values()):
                if self.ready_bytes >= READY_BYTES:
                    return True
                moved += self._advance(stream)
            if moved == 0:
                break
        return False

    def _advance(self, stream: Stream) -> int:
        """Send one frame of a stream's waiting data. Returns its size."""
        size = min(stream.send_window, self.window, self.largest_frame, len(stream.pending))
        if size <= 0:
            return 0
        piece = bytes(stream.pending[:size])
        del stream.pending[:size]  # moves no byte of the rest
        stream.send_window -= size
        self.window -= size
        self.pending_bytes -= size
        self.ready_bytes += size
        self.sent_bytes += size
        self.sent_frames += 1
        self.pieces.append(frame(DATA, 0, stream.stream_id, piece))
        if not stream.pending:
            del self._waiting[stream.stream_id]
            block = stream.end_block
            if block is None:
                self._drained(stream)
            else:
                self._end(stream, block)
        else:  # behind the others
            self._waiting[stream.stream_id] = self._waiting.pop(stream.stream_id)
        return size

    def _end(self, stream: Stream, block: bytes) -> None:
        self._block(stream.stream_id, block, True)
        stream.state = states.after(stream.state, states.SENT_END)
        if stream.state != states.CLOSED:  # it need not send the rest of its request
            self.pieces.append(reset_frame(stream.stream_id, NO_ERROR))
        self._closed(stream, True)

    def _block(self, stream_id: int, block: bytes, is_end: bool) -> None:
        block = self._table.shortened(block)
        if self._block_prefix:
            block, self._block_prefix = self._block_prefix + block, b""
        self.pieces.append(header_frames(stream_id, block, is_end, self.largest_frame))

    def _drop(self, stream: Stream) -> None:
        self.pending_bytes -= len(stream.pending)
        stream.pending.clear()
        stream.end_block = None
        self._waiting.pop(stream.stream_id, None)
