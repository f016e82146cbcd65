cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Longs, Out
from sparrowmq.kernel.records cimport Record, content_problem, next_problem

cdef int BODY_BEHIND_RECONSUME_TIMES, MIN_SIZE_BYTES, PHYSICAL_OFFSET_AT, PROPERTIES_SIZE_FIELD, PROPERTY_CRC_SIZE
cdef bytes CRC_NAME, _HIDDEN


@cython.final
cdef class Rows:
    cdef readonly In source
    cdef readonly Longs begins, ends, store_timestamp_at, body_at, body_end, topic_at, topic_end
    cdef int _fault
    cdef Py_ssize_t _fault_at

    @cython.locals(some=Rows, wanted=In)
    cpdef Rows selected(self, mask)
    cdef int add(self, Record record, int fault) except -1
    cdef int check(self) except -1
    @cython.locals(
        source=In, out=Out, row=Py_ssize_t, count=Py_ssize_t, host_at=Py_ssize_t, offset_at=Py_ssize_t
    )
    cpdef bytes offset_ids(self)


@cython.locals(rows=Rows, record=Record, at=Py_ssize_t, end=Py_ssize_t, fault=int)
cpdef Rows walk(records)
@cython.locals(
    rows=Rows, record=Record, first=Longs, last=Longs, row=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, fault=int
)
cpdef Rows place(records, begins, ends)


@cython.locals(
    source=In, first=Longs, last=Longs, out=Out, record=Record, row=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t,
    is_sound=bint,
)
cpdef bytes sound(records, begins, ends, int64_t place, bint checks_all)


@cython.final
cdef class Pairs:
    cdef In _source
    cdef readonly Longs names_at, names_end, values_end, firsts

    @cython.locals(source=In, hidden=bytes, row=Py_ssize_t, count=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t)
    cdef int _find(self, Longs begins, int shift, Longs ends, bint shows_crc) except -1
    cpdef tuple values(self, bytes name)
