"""What a request or reply header is, and how its fields travel.

A header is a flat set of named values that travel as strings in the frame's `extFields`. Each request is one `Request`
subclass, which names its code and the header of its reply; `headers.py` holds them all. The base here turns fields to
`extFields` and back, as leniently as real clients need: numbers, booleans and strings are all accepted for
any field, "0" and "1" are booleans, unknown fields are ignored (Java:
RemotingCommand.decodeCommandCustomHeader, 4.9.8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar, cast, get_args, get_origin

import msgspec

from sparrowmq.errors import RemoteProtocolError

H = TypeVar("H", bound="Header")
R = TypeVar("R", bound="Header")

_quote = msgspec.json.encode


class Header(msgspec.Struct, rename="camel", gc=False):
    """The fields of one request or reply; a field that is None does not travel."""

    def ext_json(self) -> bytes:
        """The fields as a JSON object whose values are all strings.

        Go's and C++'s clients fail on numbers here (seen on the wire), whatever the type of the field.
        """
        parts = []
        for key, value in zip(_json_keys(type(self)), msgspec.structs.astuple(self), strict=True):
            kind = type(value)
            if kind is int:
                parts.append(b'%b"%d"' % (key, value))
            elif value is not None:
                parts.append(key + _quote(value if kind is str else text_of(value)))
        return b"{%b}" % b",".join(parts)

    def ext_fields(self) -> dict[str, str]:
        """The fields by their wire names, as text."""
        names = self.__struct_encode_fields__
        values = msgspec.structs.astuple(self)
        return {name: text_of(value) for name, value in zip(names, values, strict=True) if value is not None}


class NoFields(Header):
    """The header of a reply that has none."""


class Request(Header, Generic[R]):
    """A header that starts a conversation; the type argument is the header of its reply.

    class GetMaxOffset(Request[GetMaxOffsetReply]):
        code: ClassVar[int] = RequestCode.GET_MAX_OFFSET
        topic: str
        queue_id: int
    """

    code: ClassVar[int]
    Reply: ClassVar[type[Header]] = NoFields

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is Request and isinstance(reply := get_args(base)[0], type):
                cls.Reply = reply


def text_of(value: object) -> str:
    """A field's value as Java writes it: booleans are "true" and "false"."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


_JSON_KEYS: dict[type[Header], tuple[bytes, ...]] = {}
_DECODERS: dict[type[Header], Callable[[msgspec.Raw | bytes], Any]] = {}


def _json_keys(kind: type[Header]) -> tuple[bytes, ...]:
    keys = _JSON_KEYS.get(kind)
    if keys is None:
        keys = _JSON_KEYS[kind] = tuple(_quote(name) + b":" for name in kind.__struct_encode_fields__)
    return keys


def from_json(kind: type[H], ext: msgspec.Raw | bytes) -> H:
    """The typed header from the bytes of an `extFields` object.

    Raises:
        RemoteProtocolError: a required field is absent or a value does not fit its field.
    """
    decode = _DECODERS.get(kind)
    if decode is None:
        decode = _DECODERS[kind] = msgspec.json.Decoder(kind, strict=False).decode
    try:
        return cast(H, decode(ext))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return from_fields(kind, fields_of_json(ext))


def from_fields(kind: type[H], fields: dict[str, str]) -> H:
    """The typed header from fields that are all text.

    Raises:
        RemoteProtocolError: as `from_json`.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        missing = [
            name.encode_name
            for name in msgspec.structs.fields(kind)
            if name.required and name.encode_name not in fields
        ]
        if missing:
            # The words of Java 4.9.8: clients' tests look for them.
            raise RemoteProtocolError(f"the custom field <{missing[0]}> is null") from None
        raise RemoteProtocolError(f"a header field has a wrong value: {error}") from None


def fields_of_json(ext: msgspec.Raw | bytes) -> dict[str, str]:
    """All fields of an `extFields` object as text; null ones are left out. Absent or null `extFields` are no fields."""
    if not ext:
        return {}
    try:
        fields = msgspec.json.decode(ext)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"extFields is not JSON: {error}") from None
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise RemoteProtocolError("extFields is not a JSON object")
    return {name: text_of(value) for name, value in fields.items() if value is not None}
