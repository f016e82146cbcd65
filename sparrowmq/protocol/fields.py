"""From `extFields` to a typed header, as leniently as real clients need: numbers, booleans and strings are all accepted
for any field, "0" and "1" are booleans, unknown fields are ignored.

Source: RemotingCommand.decodeCommandCustomHeader, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import msgspec

from sparrowmq.errors import RemoteProtocolError

if TYPE_CHECKING:
    from sparrowmq.protocol.header import Header

H = TypeVar("H", bound="Header")
# bytes or msgspec.Raw, of which mypy is told that it were bytes too: compiled code would believe it.
Raw: TypeAlias = Any

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


def text_of(value: object) -> str:
    """A field's value as Java writes it: booleans are "true" and "false"."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
