cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In

cdef int64_t _BITS, _SIGN


@cython.locals(character=cython.Py_UCS4, total=int64_t, unit=int64_t)
cpdef int64_t string_hash(str text) except? -1
@cython.locals(total=int64_t, at=Py_ssize_t)
cpdef int64_t ascii_hash(In source, Py_ssize_t begin, Py_ssize_t end, int64_t start=*) except? -1
cpdef int64_t positive(int64_t string_hash) except? -1
