"""Commands to bytes and back, in both serialisations.

    JSON header    {"code":310,"extFields":{...},"flag":0,"language":"JAVA","opaque":7,"remark":null,"version":409}
    binary header  code int16 | language int8 | version int16 | opaque int32 | flag int32 | remark int32+n | ext int32+n
                   ext = { name int16+n | value int32+n } ...

Source: RemotingCommand and RocketMQSerializable, Java 4.9.8; tolerances seen from C++, Go and JavaScript clients.
"""

from __future__ import annotations

import re
import struct
from itertools import islice
from typing import Final

import msgspec

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
from sparrowmq.protocol.wire.frame import Serializer
from sparrowmq.protocol.wire.header import Header, text_of

MAX_EXT_FIELDS: Final = 128
_MANY_FIELDS: Final = f"more than {MAX_EXT_FIELDS} extFields"
_LANGUAGE_BYTE: Final = LANGUAGES.index(LANGUAGE)


class _JsonHeader(msgspec.Struct, gc=False):
    """The members of a JSON header, in their order on the wire."""

    code: int
    ext: dict[str, str] = msgspec.field(name="extFields")
    flag: int
    language: str
    opaque: int
    remark: str | msgspec.UnsetType
    serializer: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_read_json: Final = msgspec.json.Decoder(Command, strict=False).decode
_write_json: Final = msgspec.json.encode


def decode(serializer: int, header: bytes, body: bytes) -> Command:
    """Decode the command of a frame.

    Raises: RemoteProtocolError, the header cannot be decoded. The next frame can still be read.
    """
    if serializer == Serializer.ROCKETMQ:
        return _decode_binary(header, body)
    if serializer != Serializer.JSON:
        raise RemoteProtocolError(f"unknown header serialiser {serializer}; 0 (JSON) and 1 (ROCKETMQ) are known")
    # Most headers are too short for so many, so they are not even counted.
    if len(header) > _SUSPECT_COMMAS < header.count(b",") and _has_many_fields(header):
        raise RemoteProtocolError(_MANY_FIELDS)
    try:
        command = _read_json(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the header is not a JSON command: {error}") from None
    command.body = body
    command.fields = None
    return command


# So many fields take no noticeable time. Only a header with more commas is searched for its fields.
_SUSPECT_COMMAS: Final = 8 * MAX_EXT_FIELDS
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)  # without an end, too: once for all
_MOST_TEXTS: Final = 2 * MAX_EXT_FIELDS + 16  # with those beside the fields


def _has_many_fields(header: bytes) -> bool:
    """Whether a header has more texts than the names and values of all fields that it may have."""
    return next(islice(_TEXT.finditer(header), _MOST_TEXTS, None), None) is not None


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
    flag, fields = ONEWAY_FLAG if oneway else 0, header.ext_fields()
    if extra:
        fields |= extra
    return _encode(serializer, code, opaque, flag, None, fields, body_bytes, version)


def encode_reply(
    request: Command, code: int, header: Header | None = None, remark: str | None = None, body_bytes: int = 0
) -> bytes:
    """Encode a reply frame up to its body, in the serialiser of its request."""
    fields = {} if header is None else header.ext_fields()
    return _encode(request.serializer, code, request.opaque, REPLY_FLAG, remark, fields, body_bytes, PROTOCOL_VERSION)


def _encode(
    serializer: Serializer,
    code: int,
    opaque: int,
    flag: int,
    remark: str | None,
    fields: dict[str, str],
    body_bytes: int,
    version: int,
) -> bytes:
    if serializer is Serializer.ROCKETMQ:
        header = _encode_binary(code, opaque, flag, remark, fields, version)
    else:
        words = msgspec.UNSET if remark is None else remark
        header = _write_json(_JsonHeader(code, fields, flag, LANGUAGE, opaque, words, "JSON", version))
    return frame.lengths(serializer, len(header), body_bytes) + header


_FIXED: Final = struct.Struct(">hbhiii")  # up to and with the remark's length
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


def _encode_binary(
    code: int, opaque: int, flag: int, remark: str | None, fields: dict[str, str], version: int
) -> bytes:
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
    return fixed + words + _INT.pack(len(ext)) + ext


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
