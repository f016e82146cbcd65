"""Bodies with a type: the bytes that a program sends for a value, and the value that a handler gets for them.

    value                                               bytes      content type
    a dataclass, a Struct, a dict, a list               JSON       application/json
    a model or dataclass of pydantic                    its JSON   application/json
    str                                                 UTF-8      text/plain; charset=utf-8
    bytes, bytearray, memoryview                        as it is   none

The content type is the property `contentType`, as Spring's starter for RocketMQ has it. Handlers do not look at it:
their annotation decides. Source: RocketMQUtil.convertToRocketMessage of rocketmq-spring 2.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol, TypeAlias

import msgspec
from msgspec.inspect import CustomType, type_info

from sparrowmq.errors import ConfigError, InvalidMessage

CONTENT_TYPE: Final = "contentType"
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

_MADE_OF_JSON: Final = (dict, list, str, int, float, bool, type(None))
_FIELDS_OF: Final = ("__dataclass_fields__", "__attrs_attrs__", "__pydantic_serializer__")


class Dataclass(Protocol):
    """An instance of a dataclass, for type checkers."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class PydanticModel(Protocol):
    """An instance of a model of pydantic, for type checkers."""

    def model_dump_json(self) -> str: ...


Body: TypeAlias = (
    bytes | bytearray | memoryview | str | Dataclass | msgspec.Struct | PydanticModel | Mapping[str, object] | list[Any]
)


def encode(body: object) -> tuple[bytes, str]:
    """Return the bytes of a body, and their content type, "" for bytes.

    Raises: InvalidMessage, no handler could take such a value, or a part of it cannot be written.
    """
    kind = type(body)
    try:
        if isinstance(body, bytes | bytearray | memoryview):
            return bytes(body), ""
        if isinstance(body, str):
            return body.encode(), TEXT
        if hasattr(kind, "__pydantic_serializer__"):
            return _by_pydantic(body), JSON
        if isinstance(body, dict | list | msgspec.Struct) or any(hasattr(kind, name) for name in _FIELDS_OF):
            return _ENCODER.encode(body), JSON
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidMessage(
            f"the body is {kind.__name__}, which cannot be written: {error}; correct the value, or give bytes"
        ) from None
    raise InvalidMessage(
        f"the body is {kind.__name__}; give bytes, text, a dict, a list, a dataclass, a Struct or a model of pydantic"
    )


def decoder(body_type: Any) -> Callable[[bytes], object]:
    """A function that makes a value of a type from JSON: pydantic's, if a part of the type is a model of pydantic.

    Raises: ConfigError, no value of the type can be made from JSON.
    """
    if own := getattr(body_type, "model_validate_json", None):
        validate: Callable[[bytes], object] = own
        return validate
    try:
        foreign = list(_foreign(type_info(body_type), set()))
        if any(hasattr(each, "__pydantic_validator__") for each in foreign):
            by_pydantic: Callable[[bytes], object] = import_module("pydantic").TypeAdapter(body_type).validate_json
            return by_pydantic
        json = msgspec.json.Decoder(body_type)
    except (TypeError, RuntimeError) as error:  # Those of msgspec, and of pydantic.
        raise ConfigError(f"no handler can take {body_type}: {error}") from error
    if foreign:
        raise ConfigError(
            f"no handler can take {body_type}: nothing makes a {foreign[0].__name__} from JSON; "
            "annotate a dataclass, a TypedDict, a Struct or a model of pydantic"
        )
    return json.decode


def _foreign(info: object, seen: set[int]) -> Iterator[type]:
    """The classes in a type that msgspec cannot make from JSON, and those that pydantic must check."""
    if id(info) in seen or not isinstance(info, msgspec.Struct | tuple):
        return
    seen.add(id(info))  # Types may contain themselves.
    kind: Any = getattr(info, "cls", None)
    if isinstance(info, CustomType) and not any(issubclass(each, info.cls) for each in _MADE_OF_JSON):
        yield info.cls
    elif hasattr(kind, "__pydantic_validator__"):
        yield kind
    for part in info if isinstance(info, tuple) else msgspec.structs.astuple(info):
        yield from _foreign(part, seen)


def _by_pydantic(value: Any) -> bytes:
    """The JSON of a model or dataclass of pydantic, by the names that it is read by."""
    json: bytes = type(value).__pydantic_serializer__.to_json(value, by_alias=True)
    return json


def _part_by_pydantic(part: Any) -> msgspec.Raw:
    """The JSON of a part that msgspec cannot write. Raises: TypeError, pydantic cannot either."""
    if not hasattr(type(part), "__pydantic_serializer__"):
        raise TypeError(f"JSON has no form for a {type(part).__name__}")
    return msgspec.Raw(_by_pydantic(part))


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_part_by_pydantic)
