"""Request and reply headers: the base classes, and conversion from and to the `extFields` of a frame.

A header is a flat set of named values. Each request is a subclass of `Request`, which names its code and the header of
its reply; `headers.py` has them all.

Reading is as lenient as real clients need: any field accepts numbers, booleans and strings, "0" and "1" are booleans,
and unknown fields are ignored. Writing uses only strings, because Go's and C++'s clients fail on numbers (seen on the
wire).

Source: RemotingCommand.decodeCommandCustomHeader and makeCustomHeaderToNet, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.java_numbers import Long as Long

H = TypeVar("H", bound="Header")
R = TypeVar("R", bound="Header")
Q = TypeVar("Q", bound="Request[Any]")
Raw: TypeAlias = Any  # bytes or msgspec.Raw, which mypy takes for bytes

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_read_texts: Final = msgspec.json.Decoder(dict[str, str]).decode
_read_plain_fields: Final = msgspec.json.Decoder(dict[str, str | int | float | bool | None] | None).decode
_DECODERS: Final[dict[type[Any], Callable[[Raw], Any]]] = {}


class Header(msgspec.Struct, rename="camel", gc=False):
    """The fields of one request or reply. A field that is None is not sent."""

    def ext_fields(self) -> dict[str, str]:
        names = self.__struct_encode_fields__
        values = msgspec.structs.astuple(self)
        return {
            name: value if type(value) is str else text_of(value)
            for name, value in zip(names, values, strict=True)
            if value is not None
        }


class NoFields(Header):
    """The header of a reply without fields."""


class Request(Header, Generic[R]):
    """The header of a request. The type argument is the header of its reply.

    @request(RequestCode.GET_MAX_OFFSET)
    class GetMaxOffset(Request[GetMaxOffsetReply]):
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


def request(code: int) -> Callable[[type[Q]], type[Q]]:
    """Give a request its code."""

    def give(kind: type[Q]) -> type[Q]:
        kind.code = code
        return kind

    return give


def from_json(kind: type[H], ext: Raw) -> H:
    """Decode the bytes of an `extFields` object into a typed header.

    Raises: RemoteProtocolError, a required field is absent or a value does not fit its field.
    """
    decode = _DECODERS.get(kind)
    if decode is None:
        decode = _DECODERS[kind] = msgspec.json.Decoder(kind, strict=False).decode
    try:
        return cast(H, decode(ext))
    except _UNREADABLE:
        return from_fields(kind, fields_of_json(ext))


def from_fields(kind: type[H], fields: dict[str, str]) -> H:
    """Convert fields that are all text into a typed header. Raises: RemoteProtocolError, as `from_json`."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        names, defaults = kind.__struct_encode_fields__, kind.__struct_defaults__  # those of the last fields
        for name in names[: len(names) - len(defaults)]:
            if name not in fields:
                # The words of Java 4.9.8: clients' tests look for them.
                raise RemoteProtocolError(f"the custom field <{name}> is null") from None
        raise RemoteProtocolError(f"a header field has a wrong value: {error}") from None


def fields_of_json(ext: Raw) -> dict[str, str]:
    """All fields of an `extFields` object as text, without null ones. Absent or null `extFields` have no fields."""
    if not ext:
        return {}
    try:
        return _read_texts(ext)
    except _UNREADABLE:
        pass  # some are no text, or null
    try:
        fields = _read_plain_fields(ext)
    except _UNREADABLE as error:
        raise RemoteProtocolError(f"extFields is no JSON object of texts: {error}") from None
    return {name: text_of(value) for name, value in (fields or {}).items() if value is not None}


def text_of(value: object) -> str:
    """A field's value as Java writes it: booleans are "true" and "false"."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
