cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Out

cdef int COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ENTRY_BYTES, HARD_LIST_BYTES, TABLE_BYTES, EMITS, FAILS, MAY_END
cdef int _LONGEST_INTEGER
cdef bytes _NAME_LETTERS
cdef tuple _OF_A_CONNECTION
cdef list _FIXED
cdef In _STEPS, _NOTHING


@cython.final
cdef class Header:
    cdef readonly bytes name, value
    cdef readonly str key, text, fault
    cdef readonly bint is_pseudo
    cdef str name_fault

    cdef Py_ssize_t size(self) except -1


@cython.locals(header=Header)
cdef Header _header(bytes name, bytes value, Header like)
cdef str _name_fault(bytes name)


@cython.final
cdef class HeaderReader:
    cdef list _entered
    cdef Py_ssize_t _size, _most_bytes, _at, _end
    cdef Out _out
    cdef In _source

    @cython.locals(headers=list, list_bytes=Py_ssize_t, first=int, header=Header, size=int64_t)
    cpdef list read(self, In source, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(count=Py_ssize_t, fixed=Py_ssize_t)
    cdef Header _header_at(self, int64_t index)
    @cython.locals(index=int64_t, like=Header, name=bytes)
    cdef Header _literal(self, int mask)
    @cython.locals(count=Py_ssize_t, oldest=Header)
    cdef int _shrink(self) except -1
    cdef int _byte(self) except -1
    @cython.locals(number=int64_t, shift=int, byte=int64_t)
    cdef int64_t _integer(self, int mask) except -1
    @cython.locals(is_coded=bint, length=int64_t, begin=Py_ssize_t)
    cdef bytes _string(self)
    @cython.locals(source=In, out=Out, step=int, byte=int, shift=int, decoded=bytes)
    cdef bytes _plain(self, Py_ssize_t at, Py_ssize_t end)
