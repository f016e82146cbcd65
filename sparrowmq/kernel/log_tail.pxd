cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Out
from sparrowmq.kernel.string_hash cimport positive

cdef int KEY_BYTES, _SPACE


cdef class LogTail:
    cdef public Out burst
    cdef public int64_t end, limit, now_ms

    cpdef int append(self, bytes record) except -1


cdef class QueueTail:
    cdef public Out unwritten
    cdef public int64_t next_offset, added_bytes

    @cython.locals(unwritten=Out)
    cpdef int add(self, int64_t offset, int64_t size, int64_t tags_code) except -1


@cython.final
cdef class KeyHashes:
    cdef readonly Out columns

    @cython.locals(columns=Out)
    cpdef int add(self, int64_t key_hash, int64_t offset, int64_t stored_ms) except -1
    @cython.locals(at=Py_ssize_t, word_at=Py_ssize_t)
    cpdef int add_words(
        self, int64_t topic_hash, In source, Py_ssize_t begin, Py_ssize_t end, int64_t offset, int64_t stored_ms
    ) except -1


cdef class NewEntries:
    cdef public list queues_to_write
    cdef public KeyHashes keys
    cdef public int64_t added, added_bytes
    cdef public bint has_keys

    cpdef int add(self, QueueTail queue, int64_t offset, int64_t size, int64_t tags_code) except -1


cpdef bint is_space(int byte) except -1
