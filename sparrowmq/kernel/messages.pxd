cimport cython
from libc.stdint cimport int64_t

from sparrowmq.kernel.cursor cimport In
from sparrowmq.kernel.records cimport Record

cdef int MAGIC_AT, MAGIC_V1, PROPERTIES_SIZE_FIELD, QUEUE_ID_AT, QUEUE_OFFSET_AT, SYS_FLAG_AT
cdef int TOPIC_SIZE_FIELD_V1, TOPIC_SIZE_FIELD_V2
cdef int _COMPRESSED, _SOUND, _NO_THREAD, _QUEUE_ID_END
cdef bytes _TAGS, _VALUE_END


cdef class HomeThread:
    cdef public int64_t thread


cdef class DoneCount:
    cdef public int64_t done


cdef class DeliveredMessage:
    cdef public int64_t offset, store_size, reconsume_times
    cdef public int64_t _sys_flag
    cdef public Py_ssize_t _body_at
    cdef public bint _is_spent
    cdef public object queue, _options, _owner, _receipt, _settle, _stored
    cdef public str _namespace
    cdef public bytes _stored_body, _rest
    cdef readonly bytes _body
    cdef DeliveredMessage _after, _before
    cdef public UnsettledMessages _holder

    cpdef _begin(self, int64_t offset, int64_t store_size, int64_t sys_flag, int64_t reconsume_times, bytes body)
    cdef Py_ssize_t _topic_at(self, In rest) except -1
    @cython.locals(begin=Py_ssize_t, topic_size=int)
    cdef Py_ssize_t _properties_at(self, In rest) except -1


@cython.locals(record=Record, source=In, at=Py_ssize_t, end=Py_ssize_t, fault=int, message=DeliveredMessage)
cpdef str receive(type kind, records, list messages, list damaged)
@cython.locals(message=DeliveredMessage)
cpdef deliver(messages, queue, settle, owner, str namespace, receipt=*)


cdef class UnsettledMessages:
    cdef public int64_t next_offset, unsettled_bytes
    cdef public Py_ssize_t unsettled_count
    cdef public bint is_owned, is_watched
    cdef public HomeThread home
    cdef public DoneCount stats
    cdef DeliveredMessage _first, _last

    @cython.locals(home=HomeThread)
    cpdef bint takes_acks(self, int64_t thread) except -1
    @cython.locals(message=DeliveredMessage, last=DeliveredMessage)
    cpdef add(self, messages)
    @cython.locals(before=DeliveredMessage, after=DeliveredMessage)
    cpdef bint remove(self, DeliveredMessage message) except -1
    @cython.locals(message=DeliveredMessage, count=Py_ssize_t)
    cpdef Py_ssize_t remove_all(self, messages) except -1


@cython.locals(thread=int64_t, message=DeliveredMessage, holder=UnsettledMessages, others=list)
cpdef list ack_at_once(messages)
@cython.locals(message=DeliveredMessage)
cpdef mark_spent(messages, bint is_spent)
@cython.locals(message=DeliveredMessage)
cpdef list unspent_of(messages)
@cython.locals(message=DeliveredMessage, runs=list, begin=Py_ssize_t, index=Py_ssize_t, offset=int64_t)
cpdef list runs_of(messages)
