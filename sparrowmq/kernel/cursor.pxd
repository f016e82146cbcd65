cimport cython
from libc.stdint cimport int64_t

cdef class Longs


@cython.final
cdef class In:
    cdef const unsigned char* _data
    cdef readonly Py_ssize_t size
    cdef Py_buffer _buffer
    cdef bint _is_exported

    cdef int _check_all(self, Longs places) except -1
    cpdef int u8(self, Py_ssize_t at) except -1
    cpdef int u16(self, Py_ssize_t at) except -1
    cpdef int i16(self, Py_ssize_t at) except? -1
    cpdef int i32(self, Py_ssize_t at) except? -1
    cpdef int64_t i64(self, Py_ssize_t at) except? -1
    cpdef bytes slice(self, Py_ssize_t at, Py_ssize_t end)
    cpdef bytes without(self, Py_ssize_t at, Py_ssize_t from_, Py_ssize_t to, Py_ssize_t end)
    cpdef unsigned int crc(self, Py_ssize_t at, Py_ssize_t end) except? 1
    cpdef bint is_at(self, bytes text, Py_ssize_t at) except -1
    cpdef bint equals(self, bytes text, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef Py_ssize_t text_end(self, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef Py_ssize_t quoted_end(self, Py_ssize_t at, Py_ssize_t end) except -2
    cpdef Py_ssize_t find(self, int byte, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef bint is_ascii(self, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef int64_t hash31(self, Py_ssize_t at, Py_ssize_t end, int64_t start) except? -1
    cpdef int64_t number(self, Py_ssize_t at, Py_ssize_t end) except -2
    cpdef int pairs(
        self, Py_ssize_t at, Py_ssize_t end, bytes hidden, Longs names_at, Longs names_end, Longs values_end
    ) except -1
    cpdef tuple values(self, bytes name, Longs names_at, Longs names_end, Longs values_end, Longs firsts)
    cpdef bytes numbers(self, Longs places, int shift, int size)
    cpdef tuple cut(self, Longs begins, int begin_shift, Longs ends, int end_shift)


@cython.final
cdef class Out:
    cdef unsigned char* _data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t _room
    cdef int _views

    cdef int _check_unviewed(self) except -1
    cdef unsigned char* _grow(self, Py_ssize_t more) except NULL
    cdef int _make_room(self, Py_ssize_t more) except -1
    cpdef int u8(self, int64_t value) except -1
    cpdef int i16(self, int64_t value) except -1
    cpdef int i32(self, int64_t value) except -1
    cpdef int i64(self, int64_t value) except -1
    cpdef int raw(self, data) except -1
    cpdef int copy(self, In source, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef int copy_hexadecimal(self, In source, Py_ssize_t at, Py_ssize_t end) except -1
    cpdef unsigned int crc(self, Py_ssize_t at) except? 1
    cpdef int put_i32(self, Py_ssize_t at, int64_t value) except -1
    cpdef int zeros(self, Py_ssize_t count) except -1
    cpdef int put(self, Py_ssize_t at, bytes content) except -1
    cpdef bytes piece(self, Py_ssize_t begin, Py_ssize_t end)
    cpdef int i32_at(self, Py_ssize_t at) except? -1
    cpdef int decimal(self, int64_t value) except -1
    cpdef int hexadecimal(self, int64_t value) except -1
    cpdef int cut(self, Py_ssize_t size) except -1
    cpdef bytes content(self)
    cpdef bytes take(self)
    cpdef object view(self)


@cython.final
cdef class Longs:
    cdef int64_t* _data
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t _room

    cdef int _make_room(self, Py_ssize_t count) except -1
    cdef int _put(self, int64_t value) except -1
    cpdef int append(self, int64_t value) except -1
    cpdef int cut(self, Py_ssize_t size) except -1
    cpdef int64_t get(self, Py_ssize_t index) except? -1
    cpdef Longs selected(self, In mask)
    cpdef bytes native(self)
    cpdef bytes native_i32(self)
