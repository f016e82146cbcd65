cimport cython


@cython.final
cdef class Hmac:
    cdef object _inner, _outer

    cpdef object begin(self, bytes prefix)
    cpdef bytes finish(self, unfinished_hash)
    cpdef bytes digest(self, bytes content)
    cpdef bytes sign(self, bytes content)
    cpdef bint has_signed(self, bytes content, bytes signature) except -1


@cython.locals(difference=int, index=Py_ssize_t)
cpdef bint is_same(bytes one, bytes other) except -1
