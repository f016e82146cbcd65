cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Out

cdef int ENTRY_BYTES, KEY_BYTES, PART_BITS, SLOT_BYTES, _OFFSET_IN_KEY, _TIME_IN_KEY, _PREVIOUS_IN_ENTRY
cdef int64_t _MAX_SECONDS


@cython.final
cdef class IndexSlots:
    cdef Py_ssize_t _count
    cdef Out _numbers, _changed
    cdef readonly Py_ssize_t used

    cpdef load(self, Py_ssize_t at, bytes content)
    cpdef int newest(self, Py_ssize_t slot) except? -1
    @cython.locals(
        source=In, out=Out, numbers=Out, at=Py_ssize_t, number=int64_t, key_hash=int64_t, stored_ms=int64_t,
        slot_at=Py_ssize_t, previous=int64_t, seconds=int64_t,
    )
    cpdef bytes link(self, bytes keys, int64_t first, int64_t begin_ms)
    @cython.locals(source=In, at=Py_ssize_t, previous=int)
    cpdef unlink(self, bytes entries)
    @cython.locals(source=In, at=Py_ssize_t, number=int64_t, slot=Py_ssize_t, slot_at=Py_ssize_t)
    cpdef link_again(self, bytes entries, int64_t first)
    @cython.locals(part=Py_ssize_t)
    cpdef list take_changed(self)
    @cython.locals(part=Py_ssize_t)
    cpdef note_changed(self, list parts)
    @cython.locals(begin=Py_ssize_t)
    cpdef bytes part(self, Py_ssize_t number)
    cpdef bytes content(self)


@cython.locals(source=In, at=Py_ssize_t, count=Py_ssize_t)
cpdef Py_ssize_t count_used(bytes slots) except -1
