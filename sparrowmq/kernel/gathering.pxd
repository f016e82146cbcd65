cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport Out

cdef int ADDED, ATTEND, HEAD_BYTES, LONG_WAY, MAX_PROPERTIES_BYTES, NEEDS_IDS, OVERHEAD_BYTES, RESERVED
cdef int _OVERHEAD_PER_MESSAGE_BYTES, _MAX_LEARNED, _MAX_KEY_CHARS
cdef bytes _KEYS, _VALUE_END


@cython.final
cdef class ReservedIds:
    cdef str _head
    cdef int _counter
    cdef public int left

    @cython.locals(counter=int)
    cpdef str next(self)


@cython.final
cdef class Window:
    cdef public int64_t accumulated, accumulated_bytes, in_flight, in_flight_bytes, size, size_bytes
    cdef public int64_t waiting, waiting_bytes, waiting_limit_bytes
    cdef public bint is_shut

    cpdef bint has_room_for_waiting(self, int64_t cost_bytes) except -1


@cython.final
cdef class Batch:
    cdef readonly str topic
    cdef readonly double timeout_s
    cdef Out _out
    cdef readonly bytes content
    cdef readonly list msg_ids, futures
    cdef readonly int64_t size_bytes, body_bytes

    @cython.locals(out=Out, raw_id=bytes, body_size=int64_t, properties_size=int64_t, frame_size=int64_t)
    cpdef append(self, bytes body, bytes head, str msg_id, future)
    cpdef bytes encoded(self)
    @cython.locals(is_one_record=bint, index=Py_ssize_t, offset=int64_t)
    cpdef succeed(self, make, list offset_ids, queue, int64_t first_offset, status)


cdef class Gather:
    cdef Window _window
    cdef double _timeout_s
    cdef int64_t _max_batch, _max_bytes, _max_body_bytes
    cdef dict _full_topics, _heads, _open_batches
    cdef ReservedIds _ids
    cdef readonly list ready

    @cython.locals(window=Window, size=int64_t, head=bytes, full_topic=str, msg_id=str, has_open=bint, batch=Batch)
    cpdef int put(self, topic, body, dict arguments, bint is_awaited, future) except -1
    cpdef use_ids(self, ReservedIds ids)
    cpdef learn(self, str topic, str full_topic, tag, bytes head)
    @cython.locals(outcome=int, batch=Batch)
    cpdef int add(self, str full_topic, bytes body, bytes head, str msg_id, double timeout_s, future) except -1
    cpdef bint has_open_batches(self) except -1
    @cython.locals(batch=Batch, count=int64_t)
    cpdef close_topic(self, str full_topic)
    cpdef close_all(self)


cdef bint _is_plain_key(str key) except -1
