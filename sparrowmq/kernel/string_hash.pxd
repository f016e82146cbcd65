cimport cython
from libc.stdint cimport int64_t

cdef int64_t _BITS, _SIGN


@cython.locals(character=cython.Py_UCS4, total=int64_t, unit=int64_t)
cpdef int64_t string_hash(str text) except? -1
cpdef int64_t positive(int64_t string_hash) except? -1
