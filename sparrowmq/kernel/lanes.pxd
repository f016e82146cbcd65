cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.batches cimport PlainMessage, Scanner, add_entries, find_places, scan, write
from sparrowmq.kernel.cursor cimport In, Out
from sparrowmq.kernel.headers cimport Header
from sparrowmq.kernel.log_tail cimport LogTail, NewEntries, QueueTail
from sparrowmq.kernel.pulls cimport PullLanes, PullTaker
from sparrowmq.kernel.records cimport Record, RecordWriter
from sparrowmq.kernel.signing cimport Hmac

cdef int BORN_HOST_AT, BORN_TIMESTAMP_AT, FLAG_AT, PROPERTY_CRC_SIZE, SYS_FLAG_AT
cdef int _SEND_CODE, _SEND_BATCH_CODE, _END_CODE, _PULL_CODE, _ONE_WAY
cdef int _TRANSACTION_BITS, _PREPARED, _COMMIT, _ROLLBACK, _SENDER_BITS, _COMMA
cdef int _ACCESS_KEY, _ONS_CHANNEL, _TOKEN, _SIGNATURE, _SIGNED_FIELDS, _FIRST_LETTER
cdef int _GROUP, _TOPIC, _DEFAULT_TOPIC, _DEFAULT_QUEUES, _QUEUE_ID, _SYS_FLAG, _BORN_MS, _MESSAGE_FLAG, _PROPERTIES
cdef int _TRIES, _UNIT_MODE, _MAX_TRIES, _BATCH, _BROKER, _VALUE_END
cdef int _NEEDED_FIELDS
cdef int64_t _MAX_INT
cdef int _ENDING_GROUP, _HALF_QUEUE_OFFSET, _HALF_OFFSET, _END, _MESSAGE_ID, _TRANSACTION_ID, _FROM_CHECK
cdef int _NEEDED_BY_END, _HALF_PROPERTIES_ROOM, _MAX_KEPT_BYTES, _KEPT_BYTES, _END_TAGS_CODE
cdef bytes _HALF_MARK, _END_PROPERTIES, _REPLY_BEGIN, _REPLY_ID, _REPLY_QUEUE, _REPLY_OFFSET, _REPLY_FIELDS_END
cdef bytes _REPLY_REMARK, _REPLY_END, _REPLY_WITHOUT_FIELDS
cdef In _NOTHING


@cython.final
cdef class SendHeader:
    cdef int64_t born_ms, flag, queue_id, sys_flag
    cdef Py_ssize_t properties_at, properties_end, topic_at, topic_end
    cdef Py_ssize_t access_key_at, access_key_end, signature_at, signature_end
    cdef Out _places
    cdef bint is_batch

    @cython.locals(fields=int, field=int, number=Py_ssize_t)
    cdef bint read(self, Header header, In source) except -1
    @cython.locals(places=Out, field=int, number=Py_ssize_t, end=int)
    cdef int write_signed(self, Out out, Header header, In source, In properties) except -1
    @cython.locals(is_true=bint, number=int64_t)
    cdef bint _is_field_plain(self, In source, int field, Py_ssize_t at, Py_ssize_t end) except -1


@cython.locals(size=Py_ssize_t, letter=int)
cdef int _field(In source, Py_ssize_t at, Py_ssize_t end) except -2


@cython.final
cdef class EndHeader:
    cdef int64_t offset, queue_offset
    cdef Py_ssize_t group_at, group_end, id_at, id_end
    cdef bint is_commit

    @cython.locals(fields=int, field=int, number=Py_ssize_t)
    cdef bint read(self, Header header, In source) except -1
    @cython.locals(number=int64_t)
    cdef bint _is_field_plain(self, In source, int field, Py_ssize_t at, Py_ssize_t end) except -1


cdef int _end_field(In source, Py_ssize_t at, Py_ssize_t end) except -1


@cython.final
cdef class SendLane:
    cdef bytes topic
    cdef int64_t topic_hash
    cdef list addresses, queues


@cython.final
cdef class Half:
    cdef SendLane lane
    cdef Py_ssize_t queue_id
    cdef Record record


@cython.final
cdef class Parked:
    cdef bytes _store_host
    cdef Out _answers
    cdef readonly Py_ssize_t batch_count, count, end_count, message_count
    cdef readonly int64_t end

    @cython.locals(answers=Out, offset=int64_t)
    cdef int add(self, Header header, int64_t queue_id, int64_t queue_offset, list offsets, int64_t end) except -1
    @cython.locals(answers=In, out=Out, at=Py_ssize_t, begin=Py_ssize_t, id_at=Py_ssize_t, ids_end=Py_ssize_t)
    cpdef bytes replies(self, int64_t code=*, bytes remark=*, bint has_fields=*)


@cython.final
cdef class Sender:
    cdef bytes _born_host
    cdef Lanes _lanes
    cdef readonly Parked parked
    cdef readonly PullTaker pulls

    @cython.locals(header=Header, pulls=PullTaker, lanes=Lanes)
    cdef bint take(self, In source, Py_ssize_t at, Py_ssize_t body_at, Py_ssize_t end) except -1
    cpdef Parked take_parked(self)


@cython.final
cdef class Lanes:
    cdef readonly bytes store_host
    cdef public Py_ssize_t max_body_bytes
    cdef LogTail _log
    cdef NewEntries _entries
    cdef bytes _suffix
    cdef Py_ssize_t _max_properties
    cdef public bint needs_signature
    cdef readonly int64_t taken_count
    cdef dict _lanes, _senders
    cdef tuple _not_plain
    cdef Scanner _scanner
    cdef RecordWriter _writer
    cdef PlainMessage _message
    cdef readonly Header header
    cdef SendHeader _send_header
    cdef Out _properties, _signed
    cdef EndHeader _end_header
    cdef SendLane _half_lane, _end_lane
    cdef Scanner _half_scanner, _terms
    cdef dict _halves, _new_halves
    cdef int64_t _halves_bytes
    cdef public int64_t begun_count
    cdef public list ended

    @cython.locals(lane=SendLane)
    cpdef open_send(self, bytes topic, Py_ssize_t queue_count, Py_ssize_t queue_id, QueueTail queue)
    cpdef open_sender(self, bytes access_key, bytes topic, Hmac key)
    cpdef open_transactions(
        self, bytes half_topic, bytes end_topic, QueueTail half_queue, QueueTail end_queue, tuple not_plain
    )
    @cython.locals(lane=SendLane, begin=Py_ssize_t)
    cpdef keep_half(self, bytes topic, Py_ssize_t queue_id, int64_t queue_offset, int64_t offset)
    @cython.locals(half=Half)
    cpdef forget_half(self, int64_t queue_offset)
    @cython.locals(begun=list, half=Half, record=Record)
    cpdef list take_begun(self)
    cpdef close(self)
    cdef int _forget_halves(self) except -1
    @cython.locals(
        send=SendHeader, log=LogTail, lane=SendLane, queue=QueueTail, burst_size=Py_ssize_t, offsets=list,
        is_half=bint, scanner=Scanner, target=SendLane, suffix=bytes, queue_offset=int64_t,
    )
    cpdef bint take(
        self, Header header, In source, Py_ssize_t body_at, Py_ssize_t end, bytes born_host, Parked parked
    ) except -1
    @cython.locals(
        ending=EndHeader, log=LogTail, lane=SendLane, half=Half, queue=QueueTail, end_queue=QueueTail, burst=Out,
        burst_size=Py_ssize_t, begin=int64_t, commit_size=Py_ssize_t, size=Py_ssize_t, topic_hash=int64_t,
    )
    cpdef bint take_end(self, Header header, In source, Parked parked) except -1
    @cython.locals(header=SendHeader)
    cdef bint _may_begin(self, Scanner scanner, Py_ssize_t suffix_size) except -1
    @cython.locals(header=EndHeader, record=Record, terms=Scanner, found=In, group=bytes, id_of_end=bytes)
    cdef bint _may_end(self, Half half, In source) except -1
    cdef Py_ssize_t _properties_end(self, Record record) except -1
    @cython.locals(record=Record, half=Half)
    cdef Half _keep(self, SendLane lane, Py_ssize_t queue_id, int64_t queue_offset, Py_ssize_t begin)
    @cython.locals(message=PlainMessage, record=Record, log=LogTail, source=In, sys_flag=int, born_ms=int64_t)
    cdef int _write_commit(self, Half half, int64_t queue_offset) except -1
    @cython.locals(writer=RecordWriter, now_ms=int64_t, body=In, begin=Py_ssize_t)
    cdef int _write_end(self, SendLane lane, int64_t queue_offset, int64_t offset) except -1
    @cython.locals(header=SendHeader, out=Out, access_key=bytes, key=Hmac)
    cdef bint _is_signed(self, In source, Py_ssize_t body_at, Py_ssize_t end) except -1
    @cython.locals(header=SendHeader, sys_flag=int)
    cdef int _share(self, SendLane lane, Py_ssize_t queue_id, bytes born_host) except -1
    @cython.locals(message=PlainMessage)
    cdef int _set_body(self, In source, Py_ssize_t body_at, Py_ssize_t end) except -1
    @cython.locals(message=PlainMessage, log=LogTail, burst_size=Py_ssize_t, offset=int64_t, size=int64_t)
    cdef list _put_message(self, SendLane lane, QueueTail queue, Scanner scanner, bytes suffix)
    @cython.locals(
        log=LogTail, burst_size=Py_ssize_t, begin=int64_t, places=bytes, terms=bytes, offsets=list,
    )
    cdef list _put_batch(self, SendLane lane, QueueTail queue, bytes content)
    @cython.locals(
        header=SendHeader, out=Out, message=PlainMessage, properties=In,
    )
    cdef bint _is_plain(self, In source, Scanner scanner) except -1
