cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class In:
    cdef const unsigned char* _data
    cdef readonly Py_ssize_t size
    cdef Py_buffer _buffer
    cdef bint _is_exported

    cdef int _check(self, Py_ssize_t at, Py_ssize_t size) except -1
    cpdef int u8(self, Py_ssize_t at) except -1
    cpdef int u16(self, Py_ssize_t at) except -1
    cpdef int i16(self, Py_ssize_t at) except? -1
    cpdef int i32(self, Py_ssize_t at) except? -1
    cpdef int64_t i64(self, Py_ssize_t at) except? -1
    cpdef bytes slice(self, Py_ssize_t at, Py_ssize_t end)
    cpdef unsigned int crc(self, Py_ssize_t at, Py_ssize_t end) except? 1
    cpdef bint is_at(self, bytes text, Py_ssize_t at) except -1
    cpdef Py_ssize_t text_end(self, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef int64_t number(self, Py_ssize_t at, Py_ssize_t end) except -2


@cython.final
cdef class Out:
    cdef unsigned char* _data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t _room
    cdef int _views

    cdef int _check_unviewed(self) except -1
    cdef unsigned char* _grow(self, Py_ssize_t more) except NULL
    cpdef int u8(self, int64_t value) except -1
    cpdef int i16(self, int64_t value) except -1
    cpdef int i32(self, int64_t value) except -1
    cpdef int i64(self, int64_t value) except -1
    cpdef int raw(self, data) except -1
    cpdef int copy(self, In source, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef unsigned int crc(self, Py_ssize_t at) except? 1
    cpdef int put_i32(self, Py_ssize_t at, int64_t value) except -1
    cpdef int decimal(self, int64_t value) except -1
    cpdef int hexadecimal(self, int64_t value) except -1
    cpdef int cut(self, Py_ssize_t size) except -1
    cpdef bytes content(self)
    cpdef bytes take(self)
    cpdef object view(self)
