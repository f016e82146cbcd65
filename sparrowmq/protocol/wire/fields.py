"""Convert `extFields` to a typed header and back.

Reading is as lenient as real clients need: any field accepts numbers, booleans and strings, "0" and "1" are booleans,
and unknown fields are ignored. Writing uses only strings, because Go's and C++'s clients fail on numbers (seen on the
wire).

Source: RemotingCommand.decodeCommandCustomHeader and makeCustomHeaderToNet, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from librt.strings import BytesWriter

from sparrowmq.errors import RemoteProtocolError

H = TypeVar("H", bound=msgspec.Struct)  # a Header; header.py imports this file
# bytes or msgspec.Raw, which mypy takes for bytes.
Raw: TypeAlias = Any

quote: Final = msgspec.json.encode
_values_of: Final = msgspec.structs.astuple
_Bytes: Final = msgspec.Raw
_plain_fields: Final = msgspec.json.Decoder(dict[str, str | int | float | bool | None] | None).decode
_DECODERS: Final[dict[type[Any], Callable[[Raw], Any]]] = {}


def from_json(kind: type[H], ext: Raw) -> H:
    """Decode the bytes of an `extFields` object into a typed header.

    Raises: RemoteProtocolError, a required field is absent or a value does not fit its field.
    """
    decode = _DECODERS.get(kind)
    if decode is None:
        decode = _DECODERS[kind] = msgspec.json.Decoder(kind, strict=False).decode
    try:
        return cast(H, decode(ext))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return from_fields(kind, fields_of_json(ext))


def header_of(kind: type[H], ext: Any, fields: dict[str, str] | None) -> H:
    """The typed header of a command. `ext` are its JSON bytes, or the decoded header; `fields` go before bytes.

    A header decoded with more fields than `kind`, such as a signature, stays as it is.

    Raises: RemoteProtocolError, as `from_json`.
    """
    if type(ext) is kind:
        return ext
    if fields is not None:
        return from_fields(kind, fields)
    if type(ext) is not _Bytes and isinstance(ext, msgspec.Struct):
        return ext if isinstance(ext, kind) else from_fields(kind, cast(Any, ext).ext_fields())
    return from_json(kind, ext or b"{}")


def from_fields(kind: type[H], fields: dict[str, str]) -> H:
    """Convert fields that are all text into a typed header. Raises: RemoteProtocolError, as `from_json`."""
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        missing = _first_missing(kind, fields)
        if missing is not None:
            # The words of Java 4.9.8: clients' tests look for them.
            raise RemoteProtocolError(f"the custom field <{missing}> is null") from None
        raise RemoteProtocolError(f"a header field has a wrong value: {error}") from None


def _first_missing(kind: type[Any], fields: dict[str, str]) -> str | None:
    for name, default in _names_of(kind):
        if default is msgspec.NODEFAULT and name not in fields:
            return name
    return None


def fields_of_json(ext: Raw) -> dict[str, str]:
    """All fields of an `extFields` object as text, without null ones. Absent or null `extFields` have no fields."""
    if not ext:
        return {}
    try:
        fields = _plain_fields(ext)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"extFields is no JSON object of texts: {error}") from None
    return {name: text_of(value) for name, value in (fields or {}).items() if value is not None}


class Written:
    """The header of a frequent reply, which writes itself at a third of the usual cost."""

    def write(self, out: BytesWriter) -> None:
        """Write the header, as `write_json` does for other headers."""
        raise NotImplementedError

    def ext_fields(self) -> dict[str, str]:
        raise NotImplementedError

    def header(self) -> Any:
        """The header, for a peer in this process."""
        raise NotImplementedError


class _Member:
    """The written form of one field of a header class."""

    def __init__(self, name: str, default: object) -> None:
        self.key = quote(name) + b":"
        self.default = default
        # Many fields have their default value: their whole text is prepared here.
        self.usual = self.key + quote(text_of(default))


_MEMBERS: Final[dict[type[Any], list[_Member]]] = {}


def to_json(header: msgspec.Struct) -> bytes:
    """Write the header as a JSON object with string values. A field that is None is left out."""
    out = BytesWriter()
    write_json(out, header)
    return out.getvalue()


def write_json(out: BytesWriter, header: msgspec.Struct) -> None:
    """Append `to_json` to `out`."""
    kind: type[Any] = type(header)
    members = _MEMBERS.get(kind) or _members_of(kind)
    values: tuple[Any, ...] = _values_of(header)
    separator = _OBJECT
    for member, value in zip(members, values):  # noqa: B905  both have the class's fields; the check costs a loop
        if value is None:
            continue
        out.append(separator)
        separator = _COMMA
        if value is member.default:
            out.write(member.usual)
            continue
        out.write(member.key)
        if type(value) is int:
            out.append(_QUOTE)
            out.write(str(value).encode())
            out.append(_QUOTE)
        else:
            text = value if type(value) is str else text_of(value)
            if text.isalnum() and text.isascii():  # nothing to escape, as in most of them
                out.append(_QUOTE)
                out.write(text.encode())
                out.append(_QUOTE)
            else:
                out.write(quote(text))
    if separator == _OBJECT:
        out.append(_OBJECT)
    out.append(_OBJECT_END)


_OBJECT, _OBJECT_END, _COMMA, _QUOTE = b'{},"'


def _members_of(kind: type[Any]) -> list[_Member]:
    members = _MEMBERS[kind] = [_Member(name, default) for name, default in _names_of(kind)]
    return members


def _names_of(kind: type[Any]) -> list[tuple[str, Any]]:
    """Each field's name on the wire with its default; NODEFAULT if it has none.

    `msgspec.structs.fields` gives the same, but leaves reference cycles, which a server seldom collects.
    """
    names, defaults = kind.__struct_encode_fields__, kind.__struct_defaults__  # those of the last fields
    missing = (msgspec.NODEFAULT,) * (len(names) - len(defaults))
    return list(zip(names, missing + defaults, strict=True))


def text_of(value: object) -> str:
    """A field's value as Java writes it: booleans are "true" and "false"."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
