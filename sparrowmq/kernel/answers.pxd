cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport Out

cdef int CONTINUATION, DATA, END_HEADERS, END_STREAM, FIRST_WINDOW, GOAWAY, HEADERS, LARGEST_FRAME, NEWEST, NO_ERROR
cdef int READY_BYTES, REMEMBERED_RESETS, RST_STREAM, WINDOW_UPDATE
cdef int _PREFIX_BYTES, _LARGE_OUTPUT
cdef bytes FIRST_HEADERS, FIRST_TRAILERS, GRPC_HEADERS, OK_TRAILERS, STATUS_200


@cython.final
cdef class Stream:
    cdef readonly int64_t stream_id, body_bytes, list_bytes, held_bytes, kept_bytes, handed_bytes
    cdef readonly int64_t receive_window, send_window
    cdef readonly int kind, status
    cdef readonly str method, path, authority, text
    cdef readonly dict headers
    cdef readonly bytes message, end_block
    cdef readonly bytearray body, pending
    cdef readonly bint is_closed, has_peer_ended, is_known, is_gzip, is_compressed, has_headers, has_message
    cdef readonly double changed_at, deadline


cdef class Answers:
    cdef readonly dict streams
    cdef readonly bint has_output
    cdef public bint is_stopped
    cdef readonly int64_t held_bytes, pending_bytes, sent_bytes
    cdef Out _out
    cdef int64_t _send_window, _ready_bytes, _sent_frames, _last_id
    cdef dict _waiting, _resets
    cdef list _noted
    cdef bint _uses_table
    cdef bytes _prefix, _headers_block, _trailers_block

    cpdef answer(self, Stream stream, bytes message)
    @cython.locals(message=bytes, size=int64_t, out=Out, pending=bytearray)
    cpdef send(self, Stream stream, tuple messages)
    cpdef finish(self, Stream stream)
    @cython.locals(block=bytes, raw=bytes)
    cpdef fail(self, Stream stream, int code, str message)
    cpdef keep(self, Stream stream, int64_t count)
    @cython.locals(made=bytes)
    cpdef bytes take(self)
    @cython.locals(out=Out)
    cdef _frame(self, int64_t size, int kind, int flags, int64_t stream_id)
    cdef _widen_window(self, int64_t stream_id, int64_t increment)
    cdef _reset(self, int64_t stream_id, int code)
    @cython.locals(raw=bytes)
    cdef _goaway(self, int code, str why)
    cdef _note(self, Stream stream)
    cdef _close(self, Stream stream)
    cdef bint _may_leave(self, Stream stream, int64_t size) except -1
    cdef _data(self, Stream stream, int64_t size)
    cdef _wait(self, Stream stream, int64_t size)
    @cython.locals(moved=int64_t, stream=Stream)
    cdef bint _flush(self) except -1
    @cython.locals(pending=bytearray, size=int64_t, block=bytes)
    cdef int64_t _advance(self, Stream stream) except -1
    cdef _end(self, Stream stream, bytes block)
    cdef _send_headers(self, Stream stream)
    cdef bytes _shortened(self, bytes block)
    @cython.locals(kind=int, flags=int, at=Py_ssize_t, end=Py_ssize_t)
    cdef _block_frames(self, int64_t stream_id, bytes block, bint is_end)
