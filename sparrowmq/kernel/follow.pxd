cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.batches cimport Scanner
from sparrowmq.kernel.cursor cimport In
from sparrowmq.kernel.log_tail cimport KeyHashes, NewEntries, QueueTail
from sparrowmq.kernel.records cimport Record

cdef int PROPERTIES_SIZE_FIELD, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT
cdef int _PREPARED, _ROLLBACK, _TRANSACTION_BITS, _SEPARATOR


@cython.final
cdef class Reader:
    cdef In source
    cdef Record record
    cdef Scanner scanner
    cdef bytes topic
    cdef int64_t topic_hash, offset
    cdef int transaction

    @cython.locals(source=In, record=Record, topic_at=Py_ssize_t, topic_end=Py_ssize_t, topic=bytes)
    cdef bint read(self, Py_ssize_t at) except -1
    @cython.locals(stored_ms=int64_t)
    cdef int add_keys(self, KeyHashes keys) except -1


cdef class Follower(NewEntries):
    cdef public dict deleted
    cdef public int64_t followed_ms
    cdef dict _known_queues
    cdef tuple _other_topics

    @cython.locals(reader=Reader, record=Record, topic=bytes, queues=dict)
    cpdef Py_ssize_t take(
        self, bytes content, Py_ssize_t at, int64_t indexed, dict last_offsets=*, int64_t dispatched=*
    ) except -1
    cdef dict _queues_of(self, bytes topic)
    @cython.locals(source=In, record=Record, queue=QueueTail)
    cdef bint _add_plain(self, Reader reader, dict queues, dict last_offsets, int64_t dispatched) except -1


@cython.locals(reader=Reader)
cpdef Py_ssize_t add_keys(bytes content, Py_ssize_t at, KeyHashes keys) except -1
