cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Longs, Out

cdef int _MAX_BYTES, _MAX_FIELDS, _VALUE_BEHIND_NAME, _QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _BACKSLASH
cdef int _ESCAPE_BYTES, _NAME_END_DIGIT, _VALUE_END_DIGIT
cdef int _CODE, _FIELDS, _FLAG, _LANGUAGE, _OPAQUE, _SERIALIZER, _VERSION, _REMARK, _NEEDED
cdef bytes _ESCAPE


@cython.final
cdef class Header:
    cdef Longs _places
    cdef Py_ssize_t _begin
    cdef readonly int64_t code, flag, opaque
    cdef readonly Py_ssize_t opaque_at, opaque_end, count, escaped, name_at, name_end, value_at, value_end

    @cython.locals(place=int64_t)
    cpdef int find_field(self, Py_ssize_t number) except -1
    @cython.locals(found=Py_ssize_t, number=Py_ssize_t)
    cpdef Py_ssize_t find_named(self, In source, bytes name) except -2
    @cython.locals(members=int, name_end=Py_ssize_t, member=int, byte=int)
    cpdef bint read(self, In source, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(text_end=Py_ssize_t, number_end=Py_ssize_t, number=int64_t)
    cdef Py_ssize_t _value(self, In source, int member, Py_ssize_t at, Py_ssize_t end) except -2
    @cython.locals(
        name_at=Py_ssize_t, name_end=Py_ssize_t, value_at=Py_ssize_t, value_end=Py_ssize_t, byte=int,
    )
    cdef Py_ssize_t _fields(self, In source, Py_ssize_t at, Py_ssize_t end) except -2
    @cython.locals(digit=int)
    cdef Py_ssize_t _escaped_end(self, In source, Py_ssize_t at, Py_ssize_t end) except -2
    @cython.locals(escape_at=Py_ssize_t)
    cpdef int copy_unescaped(self, Out out, In source, Py_ssize_t at, Py_ssize_t end) except -1


@cython.locals(size=Py_ssize_t)
cdef int _member(In source, Py_ssize_t at, Py_ssize_t end) except -1
