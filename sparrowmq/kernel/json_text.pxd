from sparrowmq.kernel.cursor cimport In

cdef int _QUOTE


cpdef Py_ssize_t quoted_end(In source, Py_ssize_t at, Py_ssize_t end) except -2
