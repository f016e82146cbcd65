cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In, Out

cdef int BODY_BEHIND_RECONSUME_TIMES, BODY_CRC_AT, BODY_SIZE_BEHIND_PREPARED_OFFSET, BODY_SIZE_FIELD, BORN_HOST_AT
cdef int BORN_TIMESTAMP_AT, FLAG_AT, HOST_BITS_AT, MAGIC_AT, MAGIC_V1, MAGIC_V2, MAX_TOPIC_BYTES_V1, MIN_SIZE_BYTES
cdef int PHYSICAL_OFFSET_AT, PROPERTIES_SIZE_FIELD, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT, TOPIC_SIZE_FIELD_V1
cdef int TOPIC_SIZE_FIELD_V2, PROPERTY_CRC_SIZE, CRC_MASK
cdef int _CRC_NAME_SIZE, _ZERO, _PROPERTY_END, _TRANSACTION_BITS, _COMMIT, _HOST_BITS, _BORN_V6, _STORE_V6
cdef int _V6_HOST_SIZE, _STORE_TIMESTAMP_AT, _BODY_SIZE_AT, _V6_SHIFT
cdef int _SOUND, _SHORT, _MAGIC, _SIZE, _HOSTS, _BODY, _TOPIC, _PARTS
cdef bytes CRC_NAME


@cython.final
cdef class Record:
    cdef readonly In source
    cdef readonly Py_ssize_t at, size, end, store_timestamp_at, body_at, body_end, topic_at, properties_at
    cdef readonly int magic

    @cython.locals(source=In, bits=int, shift=int, topic_field=int, topic_size=int, body_size=int)
    cpdef int find(self, Py_ssize_t at, Py_ssize_t limit) except -1
    cpdef bint is_whole(self, int fault) except -1
    @cython.locals(source=In)
    cpdef bint has_sound_body(self) except -1
    cpdef bint has_property_crc(self) except -1
    @cython.locals(source=In, crc_at=Py_ssize_t, same=int, i=int)
    cpdef bint resembles_property_crc(self) except -1
    @cython.locals(source=In, crc_at=Py_ssize_t, digit_at=Py_ssize_t, number=int64_t, digit=int)
    cpdef bint has_right_property_crc(self) except -1
    cpdef bint is_unfinished(self) except -1
    cpdef int64_t store_timestamp_ms(self) except? -1
    cpdef int64_t offset(self) except? -1
    cpdef int64_t prepared_offset(self) except? -1
    cpdef bint is_commit(self) except -1
    cpdef int reconsume_times(self) except? -1
    cpdef bytes topic(self)
    @cython.locals(source=In, at=Py_ssize_t, store_at=Py_ssize_t)
    cpdef tuple fields(self)


@cython.final
cdef class Passed:
    cdef public Py_ssize_t count
    cdef public int64_t last_ms
    cdef public set finished_halves


@cython.locals(record=Record)
cpdef str shape_problem(bytes raw)
@cython.locals(record=Record)
cpdef str check(bytes raw, int64_t place=*, bint needs_crc=*)
@cython.locals(record=Record)
cpdef bint is_sound(content, Py_ssize_t begin, Py_ssize_t size, int64_t place, bint needs_crc) except -1
@cython.locals(record=Record, at=Py_ssize_t)
cpdef Py_ssize_t pass_sound(
    content, int64_t place, int64_t crc_from, Passed passed, Py_ssize_t begin=*, Py_ssize_t end=*
) except? -1
@cython.locals(record=Record, at=Py_ssize_t, end=Py_ssize_t, fault=int)
cpdef Py_ssize_t collect_prepared(content, set prepared) except? -1
@cython.locals(record=Record, at=Py_ssize_t, end=Py_ssize_t, fault=int, found=list)
cpdef tuple starts(records)
@cython.locals(properties=dict, pair=str, name=str, value=str)
cpdef dict parse_properties(str text)
@cython.final
cdef class RecordWriter:
    cdef readonly Out out
    cdef readonly bint crc
    cdef bytes _topic, _born_host, _store_host
    cdef int _queue_id, _sys_flag, _reconsume_times
    cdef int64_t _born_timestamp_ms, _store_timestamp_ms, _prepared_offset
    cdef Py_ssize_t _fixed_size

    cpdef int share(
        self,
        bytes topic,
        int queue_id,
        int sys_flag,
        int64_t born_ms,
        bytes born_host,
        int64_t store_timestamp_ms,
        int64_t prepared_offset=*,
    ) except -1
    @cython.locals(out=Out, topic=bytes)
    cpdef int begin(
        self,
        int64_t queue_offset,
        int64_t offset,
        int64_t flag,
        In content,
        Py_ssize_t body_at,
        Py_ssize_t body_end,
        Py_ssize_t properties_size,
    ) except -1
    cpdef int end(self, Py_ssize_t begin) except -1


@cython.locals(writer=RecordWriter, is_cut=bint)
cpdef bytes encode(
    tuple shared, int64_t queue_offset, int64_t offset, int64_t flag, body, bytes properties, bint crc
)
@cython.locals(record=Record, out=Out)
cpdef bytes seal_copy(bytes raw)
@cython.locals(out=Out)
cpdef bytes property_crc(unsigned int crc)
@cython.locals(number=cython.uint, digits=int64_t, _=int)
cdef int _put_property_crc(Out out, unsigned int crc) except -1
cpdef str content_problem(Record record, int64_t place, bint needs_crc)
@cython.locals(at=Py_ssize_t)
cpdef str next_problem(Record record, int fault, Py_ssize_t end)
cdef str _shape_problem(Record record, int fault, Py_ssize_t size)
