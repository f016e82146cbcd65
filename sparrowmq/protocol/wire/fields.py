"""Between `extFields` and a typed header.

Reading is as lenient as real clients need: numbers, booleans and strings are all accepted for any field, "0" and "1"
are booleans, unknown fields are ignored. What is written are strings alone: Go's and C++'s clients fail on numbers
(seen on the wire), whatever the type of the field.

Source: RemotingCommand.decodeCommandCustomHeader and makeCustomHeaderToNet, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from librt.strings import BytesWriter

from sparrowmq.errors import RemoteProtocolError

H = TypeVar("H", bound=msgspec.Struct)  # a Header; header.py stands on this file
# bytes or msgspec.Raw, of which mypy is told that it were bytes too: compiled code would believe it.
Raw: TypeAlias = Any

quote: Final = msgspec.json.encode
_values_of: Final = msgspec.structs.astuple
_Bytes: Final = msgspec.Raw
_DECODERS: Final[dict[type[Any], Callable[[Raw], Any]]] = {}


def from_json(kind: type[H], ext: Raw) -> H:
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


def header_of(kind: type[H], ext: Any, fields: dict[str, str] | None) -> H:
    """The typed header of a command: `ext` are its JSON bytes, unless it is decoded already; `fields` go before them.

    What was decoded with more than `kind` has, such as a signature, stays so.

    Raises:
        RemoteProtocolError: as `from_json`.
    """
    if type(ext) is kind:
        return ext
    if fields is not None:
        return from_fields(kind, fields)
    if type(ext) is not _Bytes and isinstance(ext, kind):
        return ext
    return from_json(kind, ext or b"{}")


def from_fields(kind: type[H], fields: dict[str, str]) -> H:
    """The typed header from fields that are all text.

    Raises:
        RemoteProtocolError: as `from_json`.
    """
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        missing = _first_missing(kind, fields)
        if missing is not None:
            # The words of Java 4.9.8: clients' tests look for them.
            raise RemoteProtocolError(f"the custom field <{missing}> is null") from None
        raise RemoteProtocolError(f"a header field has a wrong value: {error}") from None


def _first_missing(kind: type[Any], fields: dict[str, str]) -> str | None:
    """The first field that must be there and is not."""
    for name, default in _names_of(kind):
        if default is msgspec.NODEFAULT and name not in fields:
            return name
    return None


def fields_of_json(ext: Raw) -> dict[str, str]:
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


class Written:
    """The header of a reply that leaves by the thousand and writes itself, for a third of what others cost."""

    def write(self, out: BytesWriter) -> None:
        """Write it as `write_json` writes others."""
        raise NotImplementedError

    def ext_fields(self) -> dict[str, str]:
        """The fields by their wire names, as text."""
        raise NotImplementedError


class _Member:
    """How one field of a header class is written."""

    def __init__(self, name: str, default: object) -> None:
        self.key = quote(name) + b":"
        self.default = default
        # Many a field is what it is by default; all of it is here then.
        self.usual = self.key + quote(text_of(default))


_MEMBERS: Final[dict[type[Any], list[_Member]]] = {}


def to_json(header: msgspec.Struct) -> bytes:
    """The header as a JSON object whose values are all strings; a field that is None is left out."""
    out = BytesWriter()
    write_json(out, header)
    return out.getvalue()


def write_json(out: BytesWriter, header: msgspec.Struct) -> None:
    """`to_json`, at the end of `out`."""
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


# Literals, so that they are compiled in.
_OBJECT: Final = 0x7B  # {
_OBJECT_END: Final = 0x7D  # }
_COMMA: Final = 0x2C
_QUOTE: Final = 0x22


def _members_of(kind: type[Any]) -> list[_Member]:
    members = _MEMBERS[kind] = [_Member(name, default) for name, default in _names_of(kind)]
    return members


def _names_of(kind: type[Any]) -> list[tuple[str, Any]]:
    """Each field's name on the wire with its default, NODEFAULT if it has none.

    `msgspec.structs.fields` tells the same, and leaves cycles for the collector, which comes seldom to a server.
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
