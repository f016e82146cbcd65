cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.answers cimport Answers, Stream
from sparrowmq.kernel.cursor cimport In
from sparrowmq.kernel.hpack cimport Header, HeaderReader

cdef int ACK, CONNECTION_WINDOW, CONTINUATION, DATA, DEADLINE_EXCEEDED, EARNED_BY_FRAME, ENABLE_PUSH, END_HEADERS
cdef int END_STREAM, ENHANCE_YOUR_CALM, FIRST_WINDOW, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, GOAWAY, HAS_PRIORITY
cdef int HEAD_BYTES, HEADER_TABLE_SIZE, HEADERS, INITIAL_WINDOW_SIZE, INTERNAL, LARGEST_FRAME, MAX_CONCURRENT_STREAMS
cdef int MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE, NO_ERROR, PADDED, PING, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE
cdef int REFUSED_STREAM, RESOURCE_EXHAUSTED, RST_STREAM, SETTINGS, SILENT, STREAM_BYTES, STREAM_CLOSED, STREAMING
cdef int TABLE_BYTES, UNARY, UNIMPLEMENTED, WINDOW_UPDATE
cdef int64_t LARGEST_WINDOW
cdef int _PREFIX_BYTES, _LONGEST_TIMEOUT, _TOGETHER
cdef bytes PREFACE, NO_TABLE
cdef tuple _PSEUDO
cdef dict _UNITS
cdef str _LATE
cdef In _NOTHING


@cython.final
cdef class Http2(Answers):
    cdef readonly object fault
    cdef readonly bint has_more, is_settled, is_draining
    cdef readonly double due
    cdef dict _kinds
    cdef int64_t _most_streams, _list_bytes, _block_bytes, _message_bytes, _unsent_bytes, _block_id, _window, _first_window
    cdef double _calm_most, _calm_left, _calm_per_s, _calm_at, _now
    cdef HeaderReader _reader
    cdef In _source
    cdef Py_ssize_t _at
    cdef bint _has_preface, _block_ends_stream
    cdef bytearray _block
    cdef object _block_fault

    @cython.locals(noted=list, rest=Py_ssize_t)
    cpdef list feed(self, bytes data, double now, int64_t most)
    @cython.locals(size=Py_ssize_t)
    cdef bint _take_preface(self) except -1
    @cython.locals(source=In, end=Py_ssize_t, work=int64_t, at=Py_ssize_t, size=Py_ssize_t, stream_id=int64_t)
    cdef _take_frames(self, int64_t most)
    cdef _take_frame(self, int kind, int flags, int64_t stream_id, Py_ssize_t at, Py_ssize_t end)
    cdef int _padding(self, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(left=double)
    cdef _stay_calm(self)
    @cython.locals(stream=Stream)
    cdef _take_control(self, int kind, int flags, int64_t stream_id, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(increment=int64_t, stream=Stream)
    cdef _take_window_update(self, int64_t stream_id, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(settings=dict)
    cdef _take_settings(self, int flags, int64_t stream_id, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(change=int64_t, stream=Stream)
    cdef _set(self, int name, int64_t value)
    cdef _check_not_idle(self, int64_t stream_id, str kind)
    cdef _take_headers(self, int flags, int64_t stream_id, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(block=bytes)
    cdef _take_continuation(self, int flags, int64_t stream_id, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(headers=list, is_end=bint, stream=Stream)
    cdef _take_block(self, int64_t stream_id, In source, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(stream=Stream, header=Header, is_regular=bint, size=int64_t, found=dict, pseudo=dict)
    cdef Stream _request(self, int64_t stream_id, list headers)
    @cython.locals(headers=dict, kind=int, encoding=str, limit=str)
    cdef _begin(self, Stream stream)
    @cython.locals(header=Header)
    cdef _take_trailers(self, Stream stream, list headers, bint is_end)
    @cython.locals(size=int64_t, is_end=bint, stream=Stream)
    cdef _take_data(self, int flags, int64_t stream_id, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(size=int64_t)
    cdef _take_body(self, Stream stream, Py_ssize_t at, Py_ssize_t end, bint is_end)
    @cython.locals(source=In, message_end=Py_ssize_t)
    cdef _received(self, Stream stream, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(length=int64_t)
    cdef Py_ssize_t _message_end(self, In source, Py_ssize_t at, Py_ssize_t end) except? -2
    @cython.locals(flag=int)
    cdef bytes _cut(self, Stream stream, In source, Py_ssize_t at, Py_ssize_t end)
    cdef _check_length(self, int64_t length)
    @cython.locals(body=bytearray, prefix=In)
    cdef int64_t _next_end(self, Stream stream) except -1
    cdef int64_t _missing(self, Stream stream) except -1
    @cython.locals(missing=int64_t)
    cdef _make_room(self, Stream stream)
    @cython.locals(body=bytearray, end=int64_t)
    cpdef bytes next_message(self, Stream stream)
    @cython.locals(count=int64_t)
    cpdef release(self, Stream stream)
    cdef _give_back(self, Stream stream, int64_t count)
    cdef _widen(self, Stream stream, int64_t size)
    @cython.locals(ended=list, count=int, stream=Stream)
    cpdef list overdue(self, double now)
    @cython.locals(found=list, has_begun=bint, stream=Stream)
    cpdef list unfinished(self)
    cpdef drain(self)
    cpdef ping(self)
    cpdef end(self)
    cdef _fail_connection(self, object fault)
    @cython.locals(stream_id=int64_t, stream=Stream)
    cdef _fail_stream(self, object fault)
