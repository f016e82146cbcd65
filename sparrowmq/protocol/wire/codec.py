"""Commands to bytes and back, in both serialisations.

    JSON header    {"code":310,"extFields":{...},"flag":0,"language":"JAVA","opaque":7,"remark":null,"version":409}
    binary header  code int16 | language int8 | version int16 | opaque int32 | flag int32 | remark int32+n | ext int32+n
                   ext = { name int16+n | value int32+n } ...

Source: RemotingCommand and RocketMQSerializable, Java 4.9.8; tolerances seen from C++, Go and JavaScript clients.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, TypeAlias

import msgspec
from librt.strings import BytesWriter

from sparrowmq.errors import LocalProtocolError, RemoteProtocolError
from sparrowmq.protocol.wire import frame
from sparrowmq.protocol.wire.command import (
    LANGUAGE,
    LANGUAGES,
    ONEWAY_FLAG,
    PROTOCOL_VERSION,
    REPLY_FLAG,
    Command,
)
from sparrowmq.protocol.wire.fields import Written, quote, text_of, write_json
from sparrowmq.protocol.wire.frame import Serializer
from sparrowmq.protocol.wire.header import Header

ReplyHeader: TypeAlias = Header | Written | None

MAX_EXT_FIELDS: Final = 128
_MANY_FIELDS: Final = f"more than {MAX_EXT_FIELDS} extFields"
_LANGUAGE_BYTE = LANGUAGES.index(LANGUAGE)

_any_command: Final = msgspec.json.Decoder(Command, strict=False).decode
_field: Final[Any] = msgspec.field  # Any, because compiled code would trust the type of the default
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


_CODE_KEY: Final = b'{"code":'
_CODE_END: Final = len(_CODE_KEY) + 5  # digits of the longest code
_ZERO, _NINE = b"09"


class _OnePass:
    """Decodes requests of one code together with their header fields."""

    def __init__(self, code: int, header: type[Any]) -> None:
        self.code = code
        self.header = header
        self.begin = _CODE_KEY + b"%d," % code  # clients write the code first
        ext = ("ext", header | None, _field(name="extFields", default=None))
        kind = msgspec.defstruct("Whole", [ext], bases=(Command,), gc=False)
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind, strict=False).decode


_ONE_PASS: Final[dict[int, list[_OnePass]]] = {}


def decode_in_one_pass(code: int, header: type[Any]) -> None:
    """Decode frequent requests of a code together with their header.

    Their `ext` is the header then, and `header_of` returns it. If a code has two headers, the later one is tried first.
    """
    of_code = _ONE_PASS.setdefault(code, [])
    if not any(known.header is header for known in of_code):
        of_code.insert(0, _OnePass(code, header))


def decode(serializer: int, header: bytes, body: bytes) -> Command:
    """Decode the command of a frame.

    Raises: RemoteProtocolError, the header cannot be decoded. The next frame can still be read.
    """
    if serializer:
        return _decode_other(serializer, header, body)
    command = _decode_json(header)
    command.body = body
    command.fields = None
    return command


def _decode_json(header: bytes) -> Command:
    # Most headers are too short for so many, so they are not even counted.
    if len(header) > _SUSPECT_COMMAS < header.count(b",") and _has_many_fields(header):
        raise RemoteProtocolError(_MANY_FIELDS)
    of_code = _ONE_PASS.get(_leading_code(header))
    if of_code is not None:
        for known in of_code:
            command = _decode_whole(known, header) if header.startswith(known.begin) else None
            if command is not None:
                return command
    try:
        command = _any_command(header)
    except _UNREADABLE as error:
        raise RemoteProtocolError(f"the header is not a JSON command: {error}") from None
    command.raw = b""
    return command


# So many fields take no noticeable time. Only a header with more commas is searched for its fields.
_SUSPECT_COMMAS: Final = 8 * MAX_EXT_FIELDS
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)  # without an end, too: once for all
_MOST_TEXTS: Final = 2 * MAX_EXT_FIELDS + 16  # with those beside the fields


def _has_many_fields(header: bytes) -> bool:
    """Whether a header has more texts than the names and values of all fields that it may have."""
    return next(islice(_TEXT.finditer(header), _MOST_TEXTS, None), None) is not None


def _leading_code(header: bytes) -> int:
    """The digits in the place where clients write the code. The caller must check that they are the code."""
    code, at, end = 0, len(_CODE_KEY), min(len(header), _CODE_END)
    while at < end and _ZERO <= header[at] <= _NINE:
        code = code * 10 + header[at] - _ZERO
        at += 1
    return code


def _decode_whole(known: _OnePass, header: bytes) -> Command | None:
    """Decode in one pass. None if that fails: the general decoder is more lenient, or has the right error."""
    try:
        command: Command = known.decode(header)
    except _UNREADABLE:
        return None
    if command.code != known.code:
        return None  # it names a second code
    command.raw = header
    return command


class _Fields(Written):
    """A header with fields that its class does not have."""

    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields

    def write(self, out: BytesWriter) -> None:
        out.write(quote(self._fields))

    def ext_fields(self) -> dict[str, str]:
        return self._fields


def encode_request(
    header: Header,
    code: int,
    opaque: int,
    body_bytes: int = 0,
    *,
    oneway: bool = False,
    extra: dict[str, str] | None = None,
    serializer: Serializer = Serializer.JSON,
    version: int = PROTOCOL_VERSION,
) -> bytes:
    """Encode a request frame up to its body. `extra` adds extFields, as request signing does."""
    flag = ONEWAY_FLAG if oneway else 0
    out = BytesWriter()
    if serializer is Serializer.ROCKETMQ:
        _write_binary(out, code, opaque, flag, None, header.ext_fields() | (extra or {}), body_bytes, version)
    else:
        written = _Fields(header.ext_fields() | extra) if extra else header
        _write_json(out, code, opaque, flag, None, written, body_bytes, version)
    return out.getvalue()


def encode_reply(
    request: Command, code: int, header: ReplyHeader = None, remark: str | None = None, body_bytes: int = 0
) -> bytes:
    """Encode a reply frame up to its body, in the serialiser of its request."""
    out = BytesWriter()
    write_reply(out, request, code, header, remark, body_bytes)
    return out.getvalue()


def write_reply(
    out: BytesWriter,
    request: Command,
    code: int,
    header: ReplyHeader = None,
    remark: str | None = None,
    body_bytes: int = 0,
) -> None:
    """Append `encode_reply` to `out`, which takes many replies."""
    if request.fields is None:
        _write_json(out, code, request.opaque, REPLY_FLAG, remark, header, body_bytes, PROTOCOL_VERSION)
    else:
        fields = {} if header is None else header.ext_fields()
        _write_binary(out, code, request.opaque, REPLY_FLAG, remark, fields, body_bytes, PROTOCOL_VERSION)


_SUCCESS: Final = b'{"code":0,"extFields":'
# By the flag.
_MIDDLES: Final = [b',"flag":%d,"language":"%b","opaque":' % (flag, LANGUAGE.encode()) for flag in range(4)]
_DONE: Final = _SUCCESS + b"{}" + _MIDDLES[REPLY_FLAG]
_REMARK: Final = b',"remark":'


def _tail(version: int) -> bytes:
    return b',"serializeTypeCurrentRPC":"JSON","version":%d}' % version


_TAIL: Final = _tail(PROTOCOL_VERSION)


def _write_json(
    out: BytesWriter,
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    header: ReplyHeader,
    body_bytes: int,
    version: int,
) -> None:
    start = frame.begin(out)
    if header is None and code == 0 and flag == REPLY_FLAG:
        out.write(_DONE)
    else:
        out.write(_SUCCESS if code == 0 else b'{"code":%d,"extFields":' % code)
        if header is None:
            out.write(b"{}")
        elif isinstance(header, Written):
            header.write(out)
        else:
            write_json(out, header)
        out.write(_MIDDLES[flag])
    out.write(str(opaque).encode())
    if remark is not None:
        out.write(_REMARK)
        out.write(quote(remark))
    out.write(_TAIL if version == PROTOCOL_VERSION else _tail(version))
    frame.end(out, start, _JSON, body_bytes)


_JSON: Final = 0  # Serializer.JSON, a plain int: arithmetic on the members of an enum costs ten times as much.
_FIXED: Final = struct.Struct(">hbhiii")  # up to and with the remark's length
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


def _write_binary(
    out: BytesWriter,
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    fields: dict[str, str],
    body_bytes: int,
    version: int,
) -> None:
    if not -0x8000 <= code <= 0x7FFF:
        raise LocalProtocolError(f"code {code} does not fit the binary header's 16 bits; use the JSON header")
    words = (remark or "").encode()
    ext = b"".join(
        [
            _SHORT.pack(len(name)) + name + _INT.pack(len(value)) + value
            for name, value in [(name.encode(), text_of(value).encode()) for name, value in fields.items()]
        ]
    )
    fixed = _FIXED.pack(code, _LANGUAGE_BYTE, version, opaque, flag, len(words))
    start = frame.begin(out)
    out.write(fixed + words + _INT.pack(len(ext)) + ext)
    frame.end(out, start, Serializer.ROCKETMQ, body_bytes)


def _decode_other(serializer: int, header: bytes, body: bytes) -> Command:
    if serializer != Serializer.ROCKETMQ:
        raise RemoteProtocolError(f"unknown header serialiser {serializer}; 0 (JSON) and 1 (ROCKETMQ) are known")
    return _decode_binary(header, body)


def _decode_binary(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(header)
        position = _FIXED.size
        remark, position = _text(header, position, remark_bytes)
        (ext_bytes,) = _INT.unpack_from(header, position)
        fields = _binary_fields(header, position + 4, ext_bytes)
    except (struct.error, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"the binary header is damaged: {error}") from None
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        version=version,
        language=language,
        remark=remark or None,
        body=body,
        fields=fields,
    )


def _binary_fields(header: bytes, position: int, ext_bytes: int) -> dict[str, str]:
    end = position + ext_bytes
    if ext_bytes < 0 or end > len(header):
        raise RemoteProtocolError(f"extFields of {ext_bytes} bytes do not fit the header")
    fields: dict[str, str] = {}
    count = 0  # with repeated names
    while position < end:
        if count == MAX_EXT_FIELDS:
            raise RemoteProtocolError(_MANY_FIELDS)
        count += 1
        (name_bytes,) = _SHORT.unpack_from(header, position)
        name, position = _text(header, position + 2, name_bytes)
        (value_bytes,) = _INT.unpack_from(header, position)
        fields[name], position = _text(header, position + 4, value_bytes)
    return fields


def _text(header: bytes, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > len(header):
        raise RemoteProtocolError(f"a string of {size} bytes does not fit the binary header")
    return header[position:end].decode(), end
