cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Out
from sparrowmq.kernel.headers cimport Header
from sparrowmq.kernel.records cimport is_sound

cdef int ENTRY_BYTES, _CHOSEN, _LACKS_ENTRIES, _OTHERWISE, _SIZE_AT, _TAGS_CODE_AT, _GAP_SIZE, _MAX_MEAN_GAP_BYTES
cdef int _MAX_GAP_BYTES, _MAX_SHAPE_BYTES, _MAX_SHAPES, _MAX_UNKNOWN, _MAX_TAKEN
cdef int64_t _MAX_PLACE
cdef bytes _QUEUE_OFFSET, _COMMIT_OFFSET, _HEAD_BEGIN, _HEAD_MIN, _HEAD_MAX, _HEAD_OPAQUE, _HEAD_END
cdef In _NO_ENTRIES


@cython.locals(entries=In, at=Py_ssize_t, free=int64_t, place=int64_t, size=int64_t)
cpdef bint are_valid(bytes content) except -1


cdef class PullLane:
    cdef readonly int64_t begin, end, next_offset, count, size_bytes, max_scanned
    cdef public bint is_open
    cdef int64_t _first, _max_count, _max_bytes
    cdef Py_ssize_t _selected
    cdef In _entries
    cdef object _codes

    cpdef keep(self, int64_t first, bytes entries)
    cpdef drop(self)
    @cython.locals(entries=In, at=Py_ssize_t, free=int64_t, place=int64_t, size=int64_t, room=int64_t)
    cpdef int select(self, int64_t offset, int64_t end) except -1
    @cython.locals(
        entries=In, at=Py_ssize_t, copied=int64_t, run_begin=Py_ssize_t, run_end=Py_ssize_t, size=int64_t,
        begin=Py_ssize_t,
    )
    cpdef int copy_records(self, Out out, In records) except -1
    @cython.locals(entries=In, at=Py_ssize_t, checked=int64_t, place=int64_t, size=int64_t)
    cpdef bint are_sound(self, records, int64_t verified_from, int64_t crc_from) except -1


@cython.final
cdef class Pull:
    cdef readonly PullLane lane
    cdef readonly int64_t opaque, queue_offset, commit_offset
    cdef In _source
    cdef Py_ssize_t _at, _end


@cython.final
cdef class PullLanes:
    cdef public bint is_open
    cdef dict _by_shape
    cdef Out _shape
    cdef readonly dict unknown

    cpdef open(self, bytes shape, PullLane lane)
    @cython.locals(lane=PullLane)
    cpdef close(self)
    @cython.locals(
        commit_field=Py_ssize_t, commit_at=Py_ssize_t, commit_end=Py_ssize_t, queue_field=Py_ssize_t,
        queue_offset=int64_t, commit_offset=int64_t, shape=bytes, lane=PullLane,
    )
    cpdef Pull find(self, Header header, In source, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(out=Out, queue_at=Py_ssize_t, queue_end=Py_ssize_t)
    cdef bytes _shape_of(
        self, Header header, In source, Py_ssize_t at, Py_ssize_t end, Py_ssize_t commit_at, Py_ssize_t commit_end
    )


@cython.final
cdef class PullTaker:
    cdef PullLanes _lanes
    cdef public list taken_pulls

    @cython.locals(pull=Pull)
    cpdef bint take(self, Header header, In source, Py_ssize_t at, Py_ssize_t end) except -1


@cython.final
cdef class PullAnswers:
    cdef Out _out

    @cython.locals(out=Out, lane=PullLane, begin=Py_ssize_t, body_at=Py_ssize_t)
    cpdef int add(self, Pull pull, records, int64_t min_offset, int64_t max_offset) except -1
    cpdef bytes take(self)
