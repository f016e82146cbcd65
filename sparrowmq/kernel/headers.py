"""Headers of requests as clients write them: JSON without spaces, each name once, texts in ASCII without escapes.

    {"code":310,"extFields":{"a":"group","b":"orders","i":"KEYS\\u0001k1\\u0002"},"flag":0,"language":"JAVA","opaque":7}
     members: a number, a text, or null; and the fields, which are texts

One field, the properties of a message, may have their separators as escapes: \\u0001 and \\u0002. Any other header is
not plain, and takes the long way.
"""

from __future__ import annotations

from sparrowmq.kernel.cursor import In, Out

_MAX_FIELDS = 32
_PLACE_BYTES = 16  # of a field: begin and end of its name, begin and end of its value
_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _BACKSLASH = 0x22, 0x2C, 0x3A, 0x7B, 0x7D, 0x5C
_ESCAPE = b"\\u000"
_ESCAPE_BYTES = 6
_NAME_END_DIGIT, _VALUE_END_DIGIT = 0x31, 0x32
# Members, as bits.
_CODE, _FIELDS, _FLAG, _LANGUAGE, _OPAQUE, _SERIALIZER, _VERSION, _REMARK = 1, 2, 4, 8, 16, 32, 64, 128
_NEEDED = 1 | 2 | 16


class Header:
    """The header of one request. Its fields have the numbers from 0 on, in their order. `read` sets the attributes.

    Attributes:
        code, flag, opaque: its numbers.
        opaque_at, opaque_end: the place of the digits of `opaque`.
        count: the number of its fields.
        escaped: the number of the field whose value has escapes; -1 without one.
    """

    __slots__ = ("_places", "code", "count", "escaped", "flag", "opaque", "opaque_at", "opaque_end")

    def __init__(self) -> None:
        self.code = self.flag = self.opaque = self.opaque_at = self.opaque_end = self.count = 0
        self.escaped = -1
        self._places = Out()
        self._places.zeros(_MAX_FIELDS * _PLACE_BYTES)

    def name_at(self, field: int) -> int:
        return self._places.i32_at(field * _PLACE_BYTES)

    def name_end(self, field: int) -> int:
        return self._places.i32_at(field * _PLACE_BYTES + 4)

    def value_at(self, field: int) -> int:
        return self._places.i32_at(field * _PLACE_BYTES + 8)

    def value_end(self, field: int) -> int:
        return self._places.i32_at(field * _PLACE_BYTES + 12)

    def read(self, source: In, at: int, end: int) -> bool:
        """Read the header from `at` to `end`. Returns False if it is not plain."""
        self.count, self.escaped, self.flag = 0, -1, 0
        members = 0
        if at >= end or source.u8(at) != _OPEN:
            return False
        while True:
            name_end = _text_end(source, at + 1, end)
            if name_end < 0 or end - name_end < 2 or source.u8(name_end + 1) != _COLON:
                return False
            member = _member(source, at + 2, name_end)
            if member == 0 or members & member:
                return False
            members |= member
            at = self._value(source, member, name_end + 2, end)
            if at < 0 or at >= end:
                return False
            if source.u8(at) == _CLOSE:
                return at + 1 == end and members & _NEEDED == _NEEDED
            if source.u8(at) != _COMMA:
                return False

    def _value(self, source: In, member: int, at: int, end: int) -> int:
        """Read the value of a member. Returns its end; -1 if it is not plain."""
        if member == _FIELDS:
            return self._fields(source, at, end)
        if member in (_LANGUAGE, _SERIALIZER):
            text_end = _text_end(source, at, end)
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
            name_end = _text_end(source, at + 1, end)
            if name_end < 0 or end - name_end < 2 or source.u8(name_end + 1) != _COLON:
                return -1
            value_end = self._field_end(source, name_end + 2, end)
            if value_end < 0 or value_end + 1 >= end:
                return -1
            place = self.count * _PLACE_BYTES
            self._places.put_i32(place, at + 2)
            self._places.put_i32(place + 4, name_end)
            self._places.put_i32(place + 8, name_end + 3)
            self._places.put_i32(place + 12, value_end)
            self.count += 1
            at = value_end + 1
            if source.u8(at) == _CLOSE:
                return at + 1
            if source.u8(at) != _COMMA:
                return -1
        return -1

    def _field_end(self, source: In, at: int, end: int) -> int:
        """The end, at its other quote, of the value of the next field; -1 if it is not plain."""
        if at >= end or source.u8(at) != _QUOTE:
            return -1
        at += 1
        while True:
            at = source.text_end(at, end)
            if at >= end or source.u8(at) == _QUOTE:
                return at if at < end else -1
            if source.u8(at) != _BACKSLASH or end - at < _ESCAPE_BYTES or not source.is_at(_ESCAPE, at):
                return -1
            digit = source.u8(at + 5)
            if (digit != _NAME_END_DIGIT and digit != _VALUE_END_DIGIT) or self.escaped not in (-1, self.count):
                return -1
            self.escaped = self.count
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


def _text_end(source: In, at: int, end: int) -> int:
    """The end, at its other quote, of the text whose quote is at `at`; -1 if it is not plain."""
    if at >= end or source.u8(at) != _QUOTE:
        return -1
    at = source.text_end(at + 1, end)
    return at if at < end and source.u8(at) == _QUOTE else -1


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
