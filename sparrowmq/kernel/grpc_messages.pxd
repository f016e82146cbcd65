cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Out
from sparrowmq.kernel.records cimport Record

cdef int BORN_HOST_AT, BORN_TIMESTAMP_AT, PHYSICAL_OFFSET_AT, PROPERTIES_SIZE_FIELD, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT
cdef int _VARINT, _BYTES, _MAX_INT32, _MAX_KEYS, _MAX_ID_BYTES, _MAX_PROPERTIES, _MAX_PROPERTIES_BYTES
cdef int _IDENTITY, _GZIP, _NORMAL, _FIFO, _DELAY, _TRANSACTION
cdef int _COMPRESSED, _COMPRESSION, _ZLIB, _TRANSACTION_BITS, _HOST_BITS
cdef tuple _DELAYS
cdef int64_t _LAST_MS, _LAST_SECOND
cdef bytes _MD5_HEAD, _NO_TEXT
cdef In _NOTHING


@cython.final
cdef class _Fields:
    cdef In source
    cdef Py_ssize_t begin, end, _at, _last
    cdef int64_t number, value, seen
    cdef int kind

    cdef _Fields read(self, In source, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(key=int64_t)
    cdef bint next(self) except -1
    @cython.locals(at=Py_ssize_t, end=Py_ssize_t)
    cdef bytes text(self)
    @cython.locals(fields=_Fields)
    cdef _Fields inner(self)
    cdef int64_t once(self, int last) except -1
    cdef int64_t small(self) except -1
    @cython.locals(number=int64_t, shift=int, byte=int64_t)
    cdef int64_t _varint(self) except -1


@cython.final
cdef class _Sent:
    cdef tuple topic
    cdef bytes message_id, tag, born_host, checksum, trace_context, body
    cdef list keys
    cdef set names
    cdef Out out
    cdef int64_t born_ms, digest, properties_bytes


@cython.locals(call=_Fields, sent=_Sent, out=Out)
cpdef tuple sent_message(bytes raw, frozenset reserved)
cdef _property(Out out, bytes name, bytes value)
@cython.locals(number=int64_t)
cdef _read_message(_Sent sent, _Fields fields, frozenset reserved)
@cython.locals(name=bytes, value=bytes)
cdef _read_property(_Sent sent, _Fields entry, frozenset reserved)
@cython.locals(number=int64_t)
cdef _read_system_properties(_Sent sent, _Fields fields)
cdef _read_digest(_Sent sent, _Fields fields)
@cython.locals(seconds=int64_t, nanos=int64_t)
cdef int64_t _ms(_Fields fields) except -1
@cython.locals(namespace=bytes, name=bytes)
cdef tuple _resource(_Fields fields)
@cython.locals(group=tuple, topic=tuple, message_id=bytes, handle=bytes, call=_Fields, entry=_Fields, number=int64_t)
cpdef tuple acked_message(bytes raw)
@cython.locals(out=Out)
cpdef bytes field(int number, bytes raw)
@cython.locals(out=Out)
cpdef bytes number_field(int number, int64_t value)
@cython.locals(out=Out, seconds=int64_t, rest_ms=int64_t)
cpdef bytes time_of(int64_t ms)
cdef _put_varint(Out out, int64_t value)
cdef _put(Out out, int64_t number, bytes raw)
cdef _put_text(Out out, int64_t number, str text)
cdef _put_number(Out out, int64_t number, int64_t value)
cdef _put_time(Out out, int64_t number, int64_t ms)
@cython.final
cdef class PoppedRecords:
    cdef readonly Py_ssize_t at
    cdef readonly list handles
    cdef Record _record
    cdef str _topic
    cdef bytes _raw_topic
    cdef dict _handle_starts
    cdef frozenset _hidden, _tags
    cdef int64_t _invisible_ms, _max_attempts

    @cython.locals(
        record=Record,
        source=In,
        answers=list,
        at=Py_ssize_t,
        store_at=Py_ssize_t,
        properties=dict,
        queue_id=int,
        offset=int64_t,
        place=int64_t,
        handle=str,
        born_host=bytes,
        store_host=bytes,
        message_id=str,
        texts=tuple,
        numbers=tuple,
        body=bytes,
        out=Out,
    )
    cpdef list take_plain(self)
    @cython.locals(record=Record, at=Py_ssize_t, end=Py_ssize_t)
    cpdef bytes take_record(self)
    @cython.locals(record=Record, source=In, flag=int)
    cdef bint _is_plain(self) except -1


@cython.locals(source=In)
cdef str _host(bytes raw)
@cython.locals(out=Out, name=str, value=str)
cpdef bytes message(str topic, dict properties, frozenset hidden, tuple texts, tuple numbers, bytes body)
@cython.locals(
    out=Out, tags=str, keys=str, key=str, digest=str, due_ms=int64_t, topic=str, message_id=str, priority=int64_t
)
cdef bytes _system_properties(dict properties, tuple texts, tuple numbers, bytes body)
@cython.locals(name=str)
cdef int _message_type(dict properties, int sys_flag) except -1
@cython.locals(text=str)
cdef int64_t _number(dict properties, str name) except? -2
