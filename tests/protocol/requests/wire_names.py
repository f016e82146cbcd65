"""How header classes are compared with the fields of Java's, as javap shows them for 4.9.8."""

from typing import Any

import msgspec

from sparrowmq.protocol.wire.header import Header, from_fields, from_json

SAMPLES: dict[object, Any] = {str: "名 x", int: 7, bool: True}


def fields_of(kind: type[Header]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def required_of(kind: type[Header]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind) if field.required}


def sample(kind: type[Header]) -> Header:
    """A header with all of its fields set."""
    values = {}
    for field in msgspec.structs.fields(kind):
        plain = getattr(field.type, "__args__", (field.type,))[0]
        plain = getattr(plain, "__origin__", plain)  # an int within bounds
        values[field.encode_name] = SAMPLES[plain]
    return msgspec.convert(values, kind)


def comes_back(kind: type[Header]) -> bool:
    """Whether all fields survive both serialisers, and none of them travels as anything but text."""
    header = sample(kind)
    texts = header.ext_fields()
    assert set(texts) == fields_of(kind) and all(type(text) is str for text in texts.values())
    assert header.ext_fields() == texts
    return from_json(kind, msgspec.json.encode(texts)) == header == from_fields(kind, texts)
