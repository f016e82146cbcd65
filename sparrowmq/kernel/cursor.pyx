# cython: boundscheck=False, wraparound=False, nonecheck=True
"""The compiled form of cursor.py, and the only file with pointers. See there."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from sparrowmq.kernel.crc import crc32

cdef Py_ssize_t _FIRST_ROOM = 512
cdef Py_ssize_t _KEPT_ROOM = 1 << 20
cdef const char* _HEXADECIMAL = b"0123456789ABCDEF"
cdef const char* _NOTHING = b""
# From here on the processor's own instructions are quicker, with the call of a Python function.
cdef Py_ssize_t _LARGE = 512
cdef unsigned int _TABLES[16][256]
cdef bint _IS_TEXT[256]


cdef void _fill_tables() noexcept:
    """The tables of CRC-32 for 16 bytes at a time: entry `i` of table `n` is the CRC of byte `i` and `n` zeros."""
    cdef unsigned int value
    cdef int byte, step
    for byte in range(256):
        value = byte
        for step in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        _TABLES[0][byte] = value
    for step in range(1, 16):
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
    while size >= 16:
        value ^= data[0] | <unsigned int>data[1] << 8 | <unsigned int>data[2] << 16 | <unsigned int>data[3] << 24
        value = (
            _TABLES[15][value & 0xFF] ^ _TABLES[14][value >> 8 & 0xFF] ^ _TABLES[13][value >> 16 & 0xFF]
            ^ _TABLES[12][value >> 24] ^ _TABLES[11][data[4]] ^ _TABLES[10][data[5]] ^ _TABLES[9][data[6]]
            ^ _TABLES[8][data[7]] ^ _TABLES[7][data[8]] ^ _TABLES[6][data[9]] ^ _TABLES[5][data[10]]
            ^ _TABLES[4][data[11]] ^ _TABLES[3][data[12]] ^ _TABLES[2][data[13]] ^ _TABLES[1][data[14]]
            ^ _TABLES[0][data[15]]
        )
        data += 16
        size -= 16
    while size > 0:
        value = value >> 8 ^ _TABLES[0][(value ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return ~value


cdef int _fail() except -1:
    raise IndexError("beyond the end of the bytes")


cdef inline int _check(Py_ssize_t at, Py_ssize_t size, Py_ssize_t end) except -1:
    """Raise unless `size` bytes from `at` on are before `end`."""
    # `size > end - at`, as `at + size` could overflow.
    return _fail() if at < 0 or size < 0 or size > end - at else 0


cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    #define STEP 8
    #define FIRST_BYTE(bits) (__builtin_ctzll(bits) >> 3)
    #else
    #define STEP 1 << 30
    #define FIRST_BYTE(bits) 0
    #endif
    """
    const Py_ssize_t _STEP "STEP"
    int _first_byte "FIRST_BYTE"(unsigned long long bits) noexcept


cdef inline int _count_text(const unsigned char* data) noexcept:
    """How many of eight bytes come before the first that is no text which JSON writes as it is."""
    cdef unsigned long long word, ones = 0x0101010101010101ULL, quotes, slashes
    memcpy(&word, data, 8)
    quotes, slashes = word ^ 0x22 * ones, word ^ 0x5C * ones
    # Each test sets the highest bit of the first byte that is not text, and perhaps those of bytes behind it.
    word = (word - 0x20 * ones | quotes - ones | slashes - ones | word + ones | word) & 0x80 * ones
    return 8 if word == 0 else _first_byte(word)


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

    cdef int _check_all(self, Longs places) except -1:
        cdef Py_ssize_t index
        for index in range(places.size):
            _check(places._data[index], 0, self.size)
        return 0

    cpdef int u8(self, Py_ssize_t at) except -1:
        _check(at, 1, self.size)
        return self._data[at]

    cpdef int u16(self, Py_ssize_t at) except -1:
        _check(at, 2, self.size)
        return self._data[at] << 8 | self._data[at + 1]

    cpdef int i16(self, Py_ssize_t at) except? -1:
        _check(at, 2, self.size)
        return <short>(self._data[at] << 8 | self._data[at + 1])

    cpdef int i32(self, Py_ssize_t at) except? -1:
        _check(at, 4, self.size)
        return <int>_u32(self._data + at)

    cpdef int64_t i64(self, Py_ssize_t at) except? -1:
        _check(at, 8, self.size)
        return <long long>(<unsigned long long>_u32(self._data + at) << 32 | _u32(self._data + at + 4))

    cpdef bytes slice(self, Py_ssize_t at, Py_ssize_t end):
        _check(at, end - at, self.size)
        return self._data[at:end]

    cpdef bytes without(self, Py_ssize_t at, Py_ssize_t from_, Py_ssize_t to, Py_ssize_t end):
        cdef bytes made
        cdef char* data
        _check(at, from_ - at, self.size)
        _check(to, end - to, self.size)
        # A new object, that nothing else has seen, may be written.
        made = PyBytes_FromStringAndSize(NULL, from_ - at + end - to)
        data = PyBytes_AS_STRING(made)
        memcpy(data, self._data + at, from_ - at)
        memcpy(data + (from_ - at), self._data + to, end - to)
        return made

    cpdef unsigned int crc(self, Py_ssize_t at, Py_ssize_t end) except? 1:
        _check(at, end - at, self.size)
        return _crc(self._data + at, end - at)

    cpdef bint is_at(self, bytes text, Py_ssize_t at) except -1:
        _check(at, len(text), self.size)
        return memcmp(self._data + at, <const char*>text, len(text)) == 0

    cpdef bint equals(self, bytes text, Py_ssize_t at, Py_ssize_t end) except -1:
        return end - at == len(text) and self.is_at(text, at)

    cpdef Py_ssize_t text_end(self, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef int count
        _check(at, end - at, self.size)
        while end - at >= _STEP:
            count = _count_text(self._data + at)
            at += count
            if count < 8:
                return at
        while at < end and _IS_TEXT[self._data[at]]:
            at += 1
        return at

    cpdef Py_ssize_t find(self, int byte, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef const unsigned char* found
        _check(at, end - at, self.size)
        found = <const unsigned char*>memchr(self._data + at, byte, end - at) if end > at else NULL
        return end if found is NULL else found - self._data

    cpdef bint is_ascii(self, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef unsigned long long word, bits = 0
        _check(at, end - at, self.size)
        while end - at >= 8:
            memcpy(&word, self._data + at, 8)
            bits |= word
            at += 8
        while at < end:
            bits |= self._data[at]
            at += 1
        return bits & 0x8080808080808080ULL == 0

    cpdef int64_t hash31(self, Py_ssize_t at, Py_ssize_t end, int64_t start) except? -1:
        cdef unsigned int total = <unsigned int>start
        _check(at, end - at, self.size)
        while at < end:
            total = total * 31 + self._data[at]
            at += 1
        return <int>total

    cpdef Py_ssize_t quoted_end(self, Py_ssize_t at, Py_ssize_t end) except -2:
        if at >= end:
            return -1
        _check(at, end - at, self.size)
        if self._data[at] != 0x22:
            return -1
        at = self.text_end(at + 1, end)
        return at if at < end and self._data[at] == 0x22 else -1

    cpdef int64_t number(self, Py_ssize_t at, Py_ssize_t end) except -2:
        cdef int64_t total = 0
        cdef int digit
        _check(at, end - at, self.size)
        if end == at or end - at > 18 or (self._data[at] == 48 and end - at > 1):
            return -1
        while at < end:
            digit = self._data[at] - 48
            if digit < 0 or digit > 9:
                return -1
            total = total * 10 + digit
            at += 1
        return total

    cpdef int pairs(
        self, Py_ssize_t at, Py_ssize_t end, bytes hidden, Longs names_at, Longs names_end, Longs values_end
    ) except -1:
        cdef const unsigned char* data = self._data
        cdef const unsigned char* found
        cdef Py_ssize_t name_end, value_end
        _check(at, end - at, self.size)
        while at < end:
            found = <const unsigned char*>memchr(data + at, 2, end - at)
            value_end = end if found is NULL else found - data
            found = <const unsigned char*>memchr(data + at, 1, value_end - at)
            name_end = at if found is NULL else found - data
            if at < name_end and name_end + 1 < value_end:
                if name_end - at != len(hidden) or memcmp(data + at, <const char*>hidden, name_end - at) != 0:
                    names_at._put(at)
                    names_end._put(name_end)
                    values_end._put(value_end)
            at = value_end + 1
        return 0

    cpdef tuple values(self, bytes name, Longs names_at, Longs names_end, Longs values_end, Longs firsts):
        cdef Longs value_begins = Longs(), value_ends = Longs()
        cdef Py_ssize_t row, number, following, at, value_begin, value_end, size = len(name), count = names_at.size
        number = max(0, firsts._data[0]) if firsts.size else 0
        if names_end.size != count or values_end.size != count:
            raise ValueError("as many of each place")
        for row in range(firsts.size):
            if firsts._data[row] > count:
                raise IndexError("beyond the end of the numbers")
        self._check_all(names_at)
        self._check_all(names_end)
        for row in range(firsts.size - 1):
            following = firsts._data[row + 1]
            value_begin = value_end = -1
            while number < following:
                at = names_at._data[number]
                if names_end._data[number] - at == size:
                    if memcmp(self._data + at, <const char*>name, size) == 0:
                        value_begin, value_end = names_end._data[number] + 1, values_end._data[number]
                number += 1
            value_begins._put(value_begin)
            value_ends._put(value_end)
        return value_begins, value_ends

    cpdef bytes numbers(self, Longs places, int shift, int size):
        cdef bytes made
        cdef char* target
        cdef Py_ssize_t at
        cdef Py_ssize_t row
        cdef int32_t narrow
        cdef int64_t wide
        if size != 4 and size != 8:
            raise ValueError(f"numbers have 4 or 8 bytes, not {size}")
        made = PyBytes_FromStringAndSize(NULL, places.size * size)
        target = <char*>made
        for row in range(places.size):
            _check(places._data[row], 0, self.size)
            at = places._data[row] + shift
            _check(at, size, self.size)
            if size == 4:
                narrow = <int32_t>_u32(self._data + at)
                memcpy(target, &narrow, 4)
            else:
                wide = <long long>(<unsigned long long>_u32(self._data + at) << 32 | _u32(self._data + at + 4))
                memcpy(target, &wide, 8)
            target += size
        return made

    cpdef tuple cut(self, Longs begins, int begin_shift, Longs ends, int end_shift):
        cdef bytes content, bounds, validity
        cdef unsigned char* target
        cdef unsigned char* bits
        cdef char* bound
        cdef Py_ssize_t at, piece, row, count = begins.size, total = 0, missing = 0
        cdef int32_t sum = 0
        if ends.size != count:
            raise ValueError("as many ends as begins")
        for row in range(count):
            if begins._data[row] == -1:
                missing += 1
                continue
            _check(begins._data[row], 0, self.size)
            _check(ends._data[row], 0, self.size)
            at = begins._data[row] + begin_shift
            piece = ends._data[row] + end_shift - at
            _check(at, piece, self.size)
            total += piece
            if total > INT32_MAX:
                raise OverflowError("the pieces have more than 2 GiB")
        content = PyBytes_FromStringAndSize(NULL, total)
        bounds = PyBytes_FromStringAndSize(NULL, (count + 1) * 4)
        validity = PyBytes_FromStringAndSize(NULL, (count + 7) // 8 if missing else 0)
        target, bound, bits = <unsigned char*>content, <char*>bounds, <unsigned char*>validity
        memset(bits, 0, len(validity))
        memcpy(bound, &sum, 4)
        for row in range(count):
            bound += 4
            if begins._data[row] != -1:
                at = begins._data[row] + begin_shift
                piece = ends._data[row] + end_shift - at
                memcpy(target + sum, self._data + at, piece)
                sum += <int32_t>piece
                if missing:
                    bits[row >> 3] |= <unsigned char>(1 << (row & 7))
            memcpy(bound, &sum, 4)
        return missing, validity if missing else None, bounds, content


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
        PyMem_RawFree(self._data)

    cdef unsigned char* _grow(self, Py_ssize_t more) except NULL:
        """Return where the next `more` bytes belong. They count as made."""
        if self._views > 0 or more > self._room - self.size:
            self._make_room(more)
        self.size += more
        return self._data + self.size - more

    cdef int _make_room(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room
        cdef unsigned char* data
        self._check_unviewed()
        room = max(_FIRST_ROOM, self.size + more, 2 * self._room)
        data = <unsigned char*>PyMem_RawRealloc(self._data, room)
        if data is NULL:
            raise MemoryError()
        self._data = data
        self._room = room
        return 0

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
        _check(at, end - at, source.size)
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

    cpdef int copy_hexadecimal(self, In source, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef unsigned char* data
        _check(at, end - at, source.size)
        data = self._grow(2 * (end - at))
        while at < end:
            data[0] = <unsigned char>_HEXADECIMAL[source._data[at] >> 4]
            data[1] = <unsigned char>_HEXADECIMAL[source._data[at] & 15]
            data += 2
            at += 1
        return 0

    cpdef unsigned int crc(self, Py_ssize_t at) except? 1:
        _check(at, 0, self.size)
        return _crc(self._data + at, self.size - at)

    cdef int _check_unviewed(self) except -1:
        if self._views > 0:
            raise BufferError("a view of the bytes is in use")
        return 0

    cpdef int put_i32(self, Py_ssize_t at, int64_t value) except -1:
        _check(at, 4, self.size)
        if value < -0x80000000LL or value > 0x7FFFFFFFLL:
            raise OverflowError(f"{value} does not fit 32 bits")
        _put_u32(self._data + at, <unsigned int>(value & 0xFFFFFFFFLL))
        return 0

    cpdef int zeros(self, Py_ssize_t count) except -1:
        if self._data is not NULL or count < 0:
            raise ValueError("zeros come first")
        self._data = <unsigned char*>PyMem_RawCalloc(max(count, 1), 1)
        if self._data is NULL:
            raise MemoryError()
        self._room = self.size = count
        return 0

    cpdef int put(self, Py_ssize_t at, bytes content) except -1:
        _check(at, len(content), self.size)
        memcpy(self._data + at, <const char*>content, len(content))
        return 0

    cpdef bytes piece(self, Py_ssize_t begin, Py_ssize_t end):
        _check(begin, end - begin, self.size)
        return self._data[begin:end] if end > begin else b""

    cpdef int i32_at(self, Py_ssize_t at) except? -1:
        _check(at, 4, self.size)
        return <int>_u32(self._data + at)

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
        _check(0, size, self.size)
        self._check_unviewed()
        self.size = size
        if size == 0 and self._room > _KEPT_ROOM:
            PyMem_RawFree(self._data)
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


@cython.final
cdef class Longs:
    def __cinit__(self, data=None):
        cdef Py_buffer buffer
        self._data = NULL
        self._room = self.size = 0
        if data is None:
            return
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            if buffer.len % 8:
                raise ValueError("bytes length not a multiple of item size")
            self._make_room(buffer.len // 8)
            if buffer.len:
                memcpy(self._data, buffer.buf, buffer.len)
            self.size = buffer.len // 8
        finally:
            PyBuffer_Release(&buffer)

    def __dealloc__(self):
        PyMem_RawFree(self._data)

    cdef int _make_room(self, Py_ssize_t count) except -1:
        """Have room for `count` numbers."""
        cdef int64_t* data
        if count > self._room:
            data = <int64_t*>PyMem_RawRealloc(self._data, count * sizeof(int64_t))
            if data is NULL:
                raise MemoryError()
            self._data = data
            self._room = count
        return 0

    cdef inline int _put(self, int64_t value) except -1:
        if self.size == self._room:
            self._make_room(max(64, 2 * self._room))
        self._data[self.size] = value
        self.size += 1
        return 0

    cpdef int append(self, int64_t value) except -1:
        return self._put(value)

    cpdef int cut(self, Py_ssize_t size) except -1:
        if size < 0 or size > self.size:
            raise IndexError("beyond the end of the numbers")
        self.size = size
        return 0

    cpdef int64_t get(self, Py_ssize_t index) except? -1:
        if index < 0 or index >= self.size:
            raise IndexError("beyond the end of the numbers")
        return self._data[index]

    cpdef Longs selected(self, In mask):
        cdef Longs some = Longs()
        cdef Py_ssize_t index
        if mask.size != self.size:
            raise ValueError("a byte of the mask for each number")
        for index in range(self.size):
            if mask._data[index]:
                some.append(self._data[index])
        return some

    cpdef bytes native(self):
        return (<char*>self._data)[: self.size * 8] if self.size else b""

    cpdef bytes native_i32(self):
        cdef bytes made = PyBytes_FromStringAndSize(NULL, self.size * 4)
        cdef char* target = <char*>made
        cdef Py_ssize_t index
        cdef int32_t value
        for index in range(self.size):
            if self._data[index] < INT32_MIN or self._data[index] > INT32_MAX:
                raise OverflowError(f"{self._data[index]} does not fit 32 bits")
            value = <int32_t>self._data[index]
            memcpy(target + 4 * index, &value, 4)
        return made
