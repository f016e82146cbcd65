cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Out
from sparrowmq.kernel.log_tail cimport KeyHashes, NewEntries, QueueTail
from sparrowmq.kernel.records cimport RecordWriter
from sparrowmq.kernel.string_hash cimport positive

cdef int HEAD_BYTES, MAX_COUNT, PLACE_BYTES, TERM_BYTES
cdef int _BODY_END_AT, _END_AT, _FLAG_AT, _KEYS_AT, _KEYS_END, _UNIQUE_AT, _UNIQUE_END, _WAIT_AT
cdef int _FLAG_IN_HEAD, _BODY_SIZE_IN_HEAD, _NAME_END, _VALUE_END, _WAIT_PAIR_BYTES
cdef bytes _TAGS, _KEYS, _UNIQUE_KEY, _WAIT, _TRUE, _HALF_MARK, _GROUP


@cython.locals(
    source=In, out=Out, at=Py_ssize_t, end=Py_ssize_t, count=int, body_size=int, body_end=Py_ssize_t,
    properties_size=int, following=Py_ssize_t,
)
cpdef bytes find_places(bytes content)
@cython.locals(source=In, spots=In, scanner=Scanner, out=Out, at=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t)
cpdef bytes scan(bytes content, bytes places, tuple not_plain, Py_ssize_t max_bytes)


@cython.final
cdef class Scanner:
    cdef tuple _not_plain
    cdef bytes _letters
    cdef int64_t tags_code
    cdef Py_ssize_t keys_at, keys_end, unique_at, unique_end, wait_at, group_at, group_end
    cdef bint waits_otherwise, is_half

    @cython.locals(at=Py_ssize_t, pair_end=Py_ssize_t, name_end=Py_ssize_t)
    cdef bint is_plain(self, In source, Py_ssize_t begin, Py_ssize_t end) except -1
    cdef int write(self, Out out) except -1
    cdef int read(self, In terms, Py_ssize_t at) except -1
    @cython.locals(key_hash=int64_t)
    cdef int add_keys(self, KeyHashes keys, int64_t topic_hash, In source, int64_t offset, int64_t stored_ms) except -1
    cdef bint _leads_elsewhere(self, In source, Py_ssize_t begin, Py_ssize_t end) except -1
    cdef int _keep(
        self, In source, Py_ssize_t name_at, Py_ssize_t name_end, Py_ssize_t begin, Py_ssize_t end
    ) except -1


@cython.locals(source=In, at=Py_ssize_t)
cpdef bint have_unique_keys(bytes terms) except -1

@cython.final
cdef class PlainMessage:
    cdef In content, properties
    cdef Py_ssize_t body_at, body_end, begin, end, wait_at
    cdef int64_t flag

    @cython.locals(
        properties=In, out=Out, behind=Py_ssize_t, before_size=Py_ssize_t, size=Py_ssize_t, is_cut=bint,
        record_at=Py_ssize_t,
    )
    cdef int write(self, RecordWriter writer, int64_t queue_offset, int64_t offset, bytes suffix) except -1


cpdef tuple encode(
    RecordWriter writer, bytes content, bytes places, bytes terms, bytes suffix, int64_t queue_offset, int64_t offset
)
@cython.locals(
    source=In, spots=In, found=In, out=Out, message=PlainMessage, index=Py_ssize_t, count=Py_ssize_t, at=Py_ssize_t,
    offsets=list,
)
cpdef list write(
    RecordWriter writer, bytes content, bytes places, bytes terms, bytes suffix, int64_t queue_offset, int64_t offset
)
@cython.locals(
    source=In, found=In, scanner=Scanner, index=Py_ssize_t, count=Py_ssize_t, offset=int64_t, size=int64_t
)
cpdef int add_entries(
    NewEntries entries, QueueTail queue, bytes content, bytes terms, list offsets, int64_t end, int64_t topic_hash,
    int64_t stored_ms
) except -1
