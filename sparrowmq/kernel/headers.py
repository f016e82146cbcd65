"""Headers of requests as clients write them: JSON without spaces, each name once, texts in ASCII without escapes.

    {"code":310,"extFields":{"a":"group","b":"orders","i":"KEYS\\u0001k1\\u0002"},"flag":0,"language":"JAVA","opaque":7}
     members: a number, a text, or null; and the fields, which are texts

One field, the properties of a message, may have their separators as escapes: \\u0001 and \\u0002. Any other header is
not plain, and takes the long way.
"""

from __future__ import annotations

from sparrowmq.kernel.cursor import In, Longs, Out

_MAX_BYTES = 0xFFFF
_MAX_FIELDS = 32
_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _BACKSLASH = 0x22, 0x2C, 0x3A, 0x7B, 0x7D, 0x5C
_VALUE_BEHIND_NAME = 3  # behind its quote, a colon, and the quote of the value
_ESCAPE = b"\\u000"
_ESCAPE_BYTES = 6
_NAME_END_DIGIT, _VALUE_END_DIGIT = 0x31, 0x32
# Members, as bits.
_CODE, _FIELDS, _FLAG, _LANGUAGE, _OPAQUE, _SERIALIZER, _VERSION, _REMARK = 1, 2, 4, 8, 16, 32, 64, 128
_NEEDED = 1 | 2 | 16


class Header:
    """The header of one request. `read` sets the first attributes, and `find_field` the others.

    Attributes:
        code, flag, opaque: its numbers.
        opaque_at, opaque_end: the place of the digits of `opaque`.
        count: the number of its fields, which have the numbers from 0 on.
        escaped: the number of the field whose value has escapes; -1 without one.
        name_at, name_end, value_at, value_end: the places of a field.
    """

    __slots__ = (
        "_begin",
        "_places",
        "code",
        "count",
        "escaped",
        "flag",
        "name_at",
        "name_end",
        "opaque",
        "opaque_at",
        "opaque_end",
        "value_at",
        "value_end",
    )

    def __init__(self) -> None:
        self.code = self.flag = self.opaque = self.opaque_at = self.opaque_end = self.count = self._begin = 0
        self.name_at = self.name_end = self.value_at = self.value_end = 0
        self.escaped = -1
        self._places = Longs()  # of each field: where its name begins, and the sizes of name and value, 16 bits each

    def find_field(self, number: int) -> None:
        """Find the places of a field."""
        place = self._places.get(number)
        self.name_at = self._begin + (place >> 32)
        self.name_end = self.name_at + (place >> 16 & 0xFFFF)
        self.value_at = self.name_end + _VALUE_BEHIND_NAME
        self.value_end = self.value_at + (place & 0xFFFF)

    def find_named(self, source: In, name: bytes) -> int:
        """Find the places of the field with a name. Returns its number; -1 if there is none, or more than one."""
        found = -1
        for number in range(self.count):
            self.find_field(number)
            if source.equals(name, self.name_at, self.name_end):
                if found >= 0:
                    return -1
                found = number
        if found >= 0:
            self.find_field(found)
        return found

    def read(self, source: In, at: int, end: int) -> bool:
        """Read the header from `at` to `end`. Returns False if it is not plain."""
        self.count, self.escaped, self.flag, self._begin = 0, -1, 0, at
        self._places.cut(0)
        members = 0
        if at >= end or end - at > _MAX_BYTES or source.u8(at) != _OPEN:
            return False
        while True:
            name_end = source.quoted_end(at + 1, end)
            if name_end < 0 or end - name_end < 2 or source.u8(name_end + 1) != _COLON:
                return False
            member = _member(source, at + 2, name_end)
            if member == 0 or members & member:
                return False
            members |= member
            at = self._value(source, member, name_end + 2, end)
            if at < 0 or at >= end:
                return False
            byte = source.u8(at)
            if byte == _CLOSE:
                return at + 1 == end and members & _NEEDED == _NEEDED
            if byte != _COMMA:
                return False

    def _value(self, source: In, member: int, at: int, end: int) -> int:
        """Read the value of a member. Returns its end; -1 if it is not plain."""
        if member == _FIELDS:
            return self._fields(source, at, end)
        if member in (_LANGUAGE, _SERIALIZER):
            text_end = source.quoted_end(at, end)
            return -1 if text_end < 0 else text_end + 1
        if member == _REMARK:
            return at + 4 if end - at > 4 and source.is_at(b"null", at) else -1
        number_end = at
        while number_end < end and 0x30 <= source.u8(number_end) <= 0x39:
            number_end += 1
        number = source.number(at, number_end)
        if number < 0:
            return -1
        if member == _CODE:
            self.code = number
        elif member == _FLAG:
            self.flag = number
        elif member == _OPAQUE:
            self.opaque, self.opaque_at, self.opaque_end = number, at, number_end
        return number_end

    def _fields(self, source: In, at: int, end: int) -> int:
        """Read the fields, as `_value`."""
        if at >= end or source.u8(at) != _OPEN:
            return -1
        while self.count < _MAX_FIELDS:
            name_at = at + 2
            name_end = source.quoted_end(at + 1, end)
            if name_end < 0 or end - name_end < 2 or source.u8(name_end + 1) != _COLON:
                return -1
            value_at = name_end + _VALUE_BEHIND_NAME
            value_end = source.quoted_end(value_at - 1, end)
            if value_end < 0:
                value_end = self._escaped_end(source, value_at, end)
            if value_end < 0 or value_end + 1 >= end:
                return -1
            self._places.append(name_at - self._begin << 32 | name_end - name_at << 16 | value_end - value_at)
            self.count += 1
            at = value_end + 1
            byte = source.u8(at)
            if byte == _CLOSE:
                return at + 1
            if byte != _COMMA:
                return -1
        return -1

    def _escaped_end(self, source: In, at: int, end: int) -> int:
        """The end, at its other quote, of the next field's value, which has escapes; -1 if it is not plain."""
        if self.escaped >= 0 or at > end or source.u8(at - 1) != _QUOTE:
            return -1
        self.escaped = self.count
        while True:
            at = source.text_end(at, end)
            if at >= end or source.u8(at) == _QUOTE:
                return at if at < end else -1
            if source.u8(at) != _BACKSLASH or end - at < _ESCAPE_BYTES or not source.is_at(_ESCAPE, at):
                return -1
            digit = source.u8(at + 5)
            if digit != _NAME_END_DIGIT and digit != _VALUE_END_DIGIT:
                return -1
            at += _ESCAPE_BYTES

    def copy_unescaped(self, out: Out, source: In, at: int, end: int) -> None:
        """Append the text of a value from `at` to `end`, with bytes in place of its escapes."""
        while at < end:
            escape_at = source.text_end(at, end)
            out.copy(source, at, escape_at)
            if escape_at == end:
                break
            out.u8(source.u8(escape_at + 5) - 0x30)
            at = escape_at + _ESCAPE_BYTES


def _member(source: In, at: int, end: int) -> int:
    """The member with the name from `at` to `end`; 0 for others."""
    size = end - at
    if size == 4:
        return _CODE if source.is_at(b"code", at) else _FLAG if source.is_at(b"flag", at) else 0
    if size == 6:
        return _OPAQUE if source.is_at(b"opaque", at) else _REMARK if source.is_at(b"remark", at) else 0
    if size == 7:
        return _VERSION if source.is_at(b"version", at) else 0
    if size == 8:
        return _LANGUAGE if source.is_at(b"language", at) else 0
    if size == 9:
        return _FIELDS if source.is_at(b"extFields", at) else 0
    if size == 23:
        return _SERIALIZER if source.is_at(b"serializeTypeCurrentRPC", at) else 0
    return 0
