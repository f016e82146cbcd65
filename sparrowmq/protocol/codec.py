"""Commands to bytes and back, in both serialisations.

    JSON header    {"code":310,"extFields":{...},"flag":0,"language":"JAVA","opaque":7,"remark":null,"version":409}
    binary header  code int16 | language int8 | version int16 | opaque int32 | flag int32 | remark int32+n | ext int32+n
                   ext = { name int16+n | value int32+n } ...

Source: RemotingCommand and RocketMQSerializable, Java 4.9.8; tolerances seen from C++, Go and JavaScript clients.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from sparrowmq.errors import LocalProtocolError, RemoteProtocolError
from sparrowmq.protocol import frame
from sparrowmq.protocol.command import LANGUAGE, LANGUAGES, ONEWAY_FLAG, PROTOCOL_VERSION, REPLY_FLAG, Command
from sparrowmq.protocol.fields import text_of
from sparrowmq.protocol.frame import Serializer
from sparrowmq.protocol.header import Header

MAX_EXT_FIELDS = 128
_LANGUAGE_BYTE = LANGUAGES.index(LANGUAGE)

_decode_json: Final = msgspec.json.Decoder(Command, strict=False).decode


def decode(serializer: int, header: bytes, body: bytes) -> Command:
    """The command in a frame.

    Raises:
        RemoteProtocolError: the header cannot be read. The frame's borders are known, so the stream may go on.
    """
    if serializer:
        return _decode_other(serializer, header, body)
    try:
        command = _decode_json(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the header is not a JSON command: {error}") from None
    command.body = body
    command.fields = None
    return command


def encode_request(
    header: Header,
    code: int,
    opaque: int,
    body_bytes: int = 0,
    *,
    oneway: bool = False,
    extra: dict[str, str] | None = None,
    serializer: Serializer = Serializer.JSON,
) -> bytes:
    """A request frame up to its body. `extra` adds extFields, as request signing does."""
    flag = ONEWAY_FLAG if oneway else 0
    if serializer is Serializer.ROCKETMQ:
        fields = header.ext_fields() | (extra or {})
        return frame.join(Serializer.ROCKETMQ, _encode_binary(code, opaque, flag, None, fields), body_bytes)
    ext = msgspec.json.encode(header.ext_fields() | extra) if extra else header.ext_json()
    head = _REQUEST % (code, ext, flag, opaque)
    return frame.join(_JSON, head, body_bytes)


def encode_reply(
    request: Command, code: int, header: Header | None = None, remark: str | None = None, body_bytes: int = 0
) -> bytes:
    """A reply frame up to its body, in the serialiser of its request."""
    if request.fields is not None:
        fields = {} if header is None else header.ext_fields()
        head = _encode_binary(code, request.opaque, REPLY_FLAG, remark, fields)
        return frame.join(Serializer.ROCKETMQ, head, body_bytes)
    ext = b"{}" if header is None else header.ext_json()
    if remark is None:
        head = _REPLY % (code, ext, request.opaque)
    else:
        head = _REPLY_WITH_REMARK % (code, ext, request.opaque, msgspec.json.encode(remark))
    return frame.join(_JSON, head, body_bytes)


_JSON: Final = int(
    Serializer.JSON
)  # A plain int: arithmetic on the members of an enum costs ten times as much.
_TAIL: Final = b'"serializeTypeCurrentRPC":"JSON","version":%d}' % PROTOCOL_VERSION
_REQUEST: Final = (
    b'{"code":%d,"extFields":%b,"flag":%d,"language":"' + LANGUAGE.encode() + b'","opaque":%d,' + _TAIL
)
_REPLY: Final = (
    b'{"code":%d,"extFields":%b,"flag":1,"language":"' + LANGUAGE.encode() + b'","opaque":%d,' + _TAIL
)
_REPLY_WITH_REMARK: Final = (
    b'{"code":%d,"extFields":%b,"flag":1,"language":"'
    + LANGUAGE.encode()
    + b'","opaque":%d,"remark":%b,'
    + _TAIL
)

_FIXED: Final = struct.Struct(">hbhiii")  # up to and with the remark's length
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


def _encode_binary(code: int, opaque: int, flag: int, remark: str | None, fields: dict[str, str]) -> bytes:
    if not -0x8000 <= code <= 0x7FFF:
        raise LocalProtocolError(f"code {code} does not fit the binary header's 16 bits; use the JSON header")
    words = (remark or "").encode()
    ext = b"".join(
        [
            _SHORT.pack(len(name)) + name + _INT.pack(len(value)) + value
            for name, value in [(name.encode(), text_of(value).encode()) for name, value in fields.items()]
        ]
    )
    fixed = _FIXED.pack(code, _LANGUAGE_BYTE, PROTOCOL_VERSION, opaque, flag, len(words))
    return fixed + words + _INT.pack(len(ext)) + ext


def _decode_other(serializer: int, header: bytes, body: bytes) -> Command:
    if serializer != Serializer.ROCKETMQ:
        raise RemoteProtocolError(
            f"unknown header serialiser {serializer}; 0 (JSON) and 1 (ROCKETMQ) are known"
        )
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
    while position < end:
        (name_bytes,) = _SHORT.unpack_from(header, position)
        name, position = _text(header, position + 2, name_bytes)
        (value_bytes,) = _INT.unpack_from(header, position)
        fields[name], position = _text(header, position + 4, value_bytes)
        if len(fields) > MAX_EXT_FIELDS:
            raise RemoteProtocolError(f"more than {MAX_EXT_FIELDS} extFields")
    return fields


def _text(header: bytes, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if size < 0 or end > len(header):
        raise RemoteProtocolError(f"a string of {size} bytes does not fit the binary header")
    return header[position:end].decode(), end
