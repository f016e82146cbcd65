# cython: boundscheck=False, wraparound=False, nonecheck=True
"""The compiled form of cursor.py, and the only file with pointers. See there."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

from sparrowmq.kernel.crc import crc32

cdef Py_ssize_t _FIRST_ROOM = 512
cdef Py_ssize_t _KEPT_ROOM = 1 << 20
cdef const char* _HEXADECIMAL = b"0123456789ABCDEF"
cdef const char* _NOTHING = b""
# From here on the processor's own instructions are quicker, with the call of a Python function.
cdef Py_ssize_t _LARGE = 512
cdef unsigned int _TABLES[8][256]
cdef bint _IS_TEXT[256]


cdef void _fill_tables() noexcept:
    """The tables of CRC-32 for eight bytes at a time: entry `i` of table `n` is the CRC of byte `i` and `n` zeros."""
    cdef unsigned int value
    cdef int byte, step
    for byte in range(256):
        value = byte
        for step in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        _TABLES[0][byte] = value
    for step in range(1, 8):
        for byte in range(256):
            value = _TABLES[step - 1][byte]
            _TABLES[step][byte] = value >> 8 ^ _TABLES[0][value & 0xFF]


_fill_tables()


cdef void _fill_texts() noexcept:
    cdef int byte
    for byte in range(256):
        _IS_TEXT[byte] = byte >= 0x20 and byte < 0x7F and byte != 0x22 and byte != 0x5C


_fill_texts()


cdef unsigned int _crc(const unsigned char* data, Py_ssize_t size) except? 1:
    cdef unsigned int value = 0xFFFFFFFF
    if size >= _LARGE:
        return crc32(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))
    while size >= 8:
        value ^= data[0] | <unsigned int>data[1] << 8 | <unsigned int>data[2] << 16 | <unsigned int>data[3] << 24
        value = (
            _TABLES[7][value & 0xFF] ^ _TABLES[6][value >> 8 & 0xFF] ^ _TABLES[5][value >> 16 & 0xFF]
            ^ _TABLES[4][value >> 24] ^ _TABLES[3][data[4]] ^ _TABLES[2][data[5]] ^ _TABLES[1][data[6]]
            ^ _TABLES[0][data[7]]
        )
        data += 8
        size -= 8
    while size > 0:
        value = value >> 8 ^ _TABLES[0][(value ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return ~value


@cython.final
cdef class In:
    def __cinit__(self, data):
        PyObject_GetBuffer(data, &self._buffer, PyBUF_SIMPLE)
        self._is_exported = True
        self._data = <const unsigned char*>self._buffer.buf
        self.size = self._buffer.len

    def __dealloc__(self):
        if self._is_exported:
            PyBuffer_Release(&self._buffer)

    cdef int _check(self, Py_ssize_t at, Py_ssize_t size) except -1:
        # `size > self.size - at`, as `at + size` could overflow.
        if at < 0 or size < 0 or size > self.size - at:
            raise IndexError("beyond the end of the bytes")
        return 0

    cpdef int u8(self, Py_ssize_t at) except -1:
        self._check(at, 1)
        return self._data[at]

    cpdef int u16(self, Py_ssize_t at) except -1:
        self._check(at, 2)
        return self._data[at] << 8 | self._data[at + 1]

    cpdef int i16(self, Py_ssize_t at) except? -1:
        self._check(at, 2)
        return <short>(self._data[at] << 8 | self._data[at + 1])

    cpdef int i32(self, Py_ssize_t at) except? -1:
        self._check(at, 4)
        return <int>_u32(self._data + at)

    cpdef int64_t i64(self, Py_ssize_t at) except? -1:
        self._check(at, 8)
        return <long long>(<unsigned long long>_u32(self._data + at) << 32 | _u32(self._data + at + 4))

    cpdef bytes slice(self, Py_ssize_t at, Py_ssize_t end):
        self._check(at, end - at)
        return self._data[at:end]

    cpdef unsigned int crc(self, Py_ssize_t at, Py_ssize_t end) except? 1:
        self._check(at, end - at)
        return _crc(self._data + at, end - at)

    cpdef bint is_at(self, bytes text, Py_ssize_t at) except -1:
        self._check(at, len(text))
        return memcmp(self._data + at, <const char*>text, len(text)) == 0

    cpdef Py_ssize_t text_end(self, Py_ssize_t at, Py_ssize_t end) except -1:
        self._check(at, end - at)
        while at < end and _IS_TEXT[self._data[at]]:
            at += 1
        return at

    cpdef int64_t number(self, Py_ssize_t at, Py_ssize_t end) except -2:
        cdef int64_t total = 0
        cdef int digit
        self._check(at, end - at)
        if end == at or end - at > 18 or (self._data[at] == 48 and end - at > 1):
            return -1
        while at < end:
            digit = self._data[at] - 48
            if digit < 0 or digit > 9:
                return -1
            total = total * 10 + digit
            at += 1
        return total


cdef inline unsigned int _u32(const unsigned char* data) noexcept:
    return <unsigned int>data[0] << 24 | <unsigned int>data[1] << 16 | <unsigned int>data[2] << 8 | data[3]


@cython.final
cdef class Out:
    def __cinit__(self):
        self._data = NULL  # until something is written
        self._room = 0
        self._views = 0
        self.size = 0

    def __dealloc__(self):
        PyMem_Free(self._data)

    cdef unsigned char* _grow(self, Py_ssize_t more) except NULL:
        """Return where the next `more` bytes belong. They count as made."""
        cdef Py_ssize_t room
        cdef unsigned char* data
        self._check_unviewed()
        if more > self._room - self.size:
            room = max(_FIRST_ROOM, self.size + more, 2 * self._room)
            data = <unsigned char*>PyMem_Realloc(self._data, room)
            if data is NULL:
                raise MemoryError()
            self._data = data
            self._room = room
        data = self._data + self.size
        self.size += more
        return data

    cpdef int u8(self, int64_t value) except -1:
        if value < 0 or value > 0xFF:
            raise OverflowError(f"{value} does not fit a byte")
        self._grow(1)[0] = <unsigned char>value
        return 0

    cpdef int i16(self, int64_t value) except -1:
        cdef unsigned char* data
        if value < -0x8000 or value > 0x7FFF:
            raise OverflowError(f"{value} does not fit 16 bits")
        data = self._grow(2)
        data[0] = <unsigned char>(value >> 8 & 0xFF)
        data[1] = <unsigned char>(value & 0xFF)
        return 0

    cpdef int i32(self, int64_t value) except -1:
        if value < -0x80000000LL or value > 0x7FFFFFFFLL:
            raise OverflowError(f"{value} does not fit 32 bits")
        _put_u32(self._grow(4), <unsigned int>(value & 0xFFFFFFFFLL))
        return 0

    cpdef int i64(self, int64_t value) except -1:
        cdef unsigned char* data = self._grow(8)
        _put_u32(data, <unsigned int>(value >> 32 & 0xFFFFFFFFLL))
        _put_u32(data + 4, <unsigned int>(value & 0xFFFFFFFFLL))
        return 0

    cpdef int copy(self, In source, Py_ssize_t at, Py_ssize_t end) except -1:
        source._check(at, end - at)
        memcpy(self._grow(end - at), source._data + at, end - at)
        return 0

    cpdef int raw(self, data) except -1:
        cdef Py_buffer buffer
        if type(data) is bytes:
            memcpy(self._grow(len(<bytes>data)), <const char*>(<bytes>data), len(<bytes>data))
            return 0
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            memcpy(self._grow(buffer.len), buffer.buf, buffer.len)
        finally:
            PyBuffer_Release(&buffer)
        return 0

    cpdef unsigned int crc(self, Py_ssize_t at) except? 1:
        if at < 0 or at > self.size:
            raise IndexError("beyond the end of the bytes")
        return _crc(self._data + at, self.size - at)

    cdef int _check_unviewed(self) except -1:
        if self._views > 0:
            raise BufferError("a view of the bytes is in use")
        return 0

    cpdef int put_i32(self, Py_ssize_t at, int64_t value) except -1:
        if at < 0 or at > self.size - 4:
            raise IndexError("beyond the end of the bytes")
        if value < -0x80000000LL or value > 0x7FFFFFFFLL:
            raise OverflowError(f"{value} does not fit 32 bits")
        _put_u32(self._data + at, <unsigned int>(value & 0xFFFFFFFFLL))
        return 0

    cpdef int decimal(self, int64_t value) except -1:
        cdef unsigned char digits[20]
        cdef int at = 20
        cdef unsigned long long rest = <unsigned long long>value
        if value < 0:
            rest = 0 - rest
        while True:
            at -= 1
            digits[at] = <unsigned char>(48 + rest % 10)
            rest //= 10
            if rest == 0:
                break
        if value < 0:
            self._grow(1)[0] = 45
        memcpy(self._grow(20 - at), digits + at, 20 - at)
        return 0

    cpdef int hexadecimal(self, int64_t value) except -1:
        cdef unsigned char* data = self._grow(16)
        cdef unsigned long long rest = <unsigned long long>value
        cdef int at = 16
        while at > 0:
            at -= 1
            data[at] = <unsigned char>_HEXADECIMAL[rest & 15]
            rest >>= 4
        return 0

    cpdef int cut(self, Py_ssize_t size) except -1:
        if size < 0 or size > self.size:
            raise IndexError("beyond the end of the bytes")
        self._check_unviewed()
        self.size = size
        if size == 0 and self._room > _KEPT_ROOM:
            PyMem_Free(self._data)
            self._data = NULL
            self._room = 0
        return 0

    cpdef bytes content(self):
        return self._data[: self.size] if self.size > 0 else b""

    cpdef bytes take(self):
        made = self.content()
        self.cut(0)
        return made

    cpdef object view(self):
        return memoryview(self)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self._data if self.size > 0 else <unsigned char*>_NOTHING, self.size, 1, flags)
        self._views += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self._views -= 1


cdef inline void _put_u32(unsigned char* data, unsigned int value) noexcept:
    data[0] = <unsigned char>(value >> 24)
    data[1] = <unsigned char>(value >> 16)
    data[2] = <unsigned char>(value >> 8)
    data[3] = <unsigned char>value
