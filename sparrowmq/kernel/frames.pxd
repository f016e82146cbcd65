cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In
from sparrowmq.kernel.lanes cimport Sender

cdef int _LENGTHS_BYTES, _HEADER_LENGTH_MASK, _COST_OF_BINARY


@cython.locals(
    source=In, at=Py_ssize_t, size=Py_ssize_t, frames=list, header_total=int64_t, total=int64_t, header_bytes=int,
    max_frame=int64_t, max_header=int64_t, max_frames=int64_t, max_headers=int64_t, end=Py_ssize_t, body_at=Py_ssize_t,
    serializer=int,
)
cpdef tuple cut(bytes chunk, tuple limits, Sender sender)
