"""Codecs for bodies with the schemas of a registry, in Confluent's wire format.

    Avro       00  schema id: 4 bytes, big endian  body
    Protobuf   00  schema id: 4 bytes, big endian  path of the message in its file  body

The path is a count and that many indexes, as zigzag varints: 2 1 0 is the first message inside the second message. The
first message, 1 0, is written as a single 0.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from sparrowmq.errors import InvalidBody
from sparrowmq.schemas.avro import AvroReader, normal_form, parse_schema
from sparrowmq.schemas.protobuf import indexes_of
from sparrowmq.schemas.registry import AVRO, PROTOBUF, Reference, RegistryClient, Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.message import Message

MAGIC: Final = 0
_HEAD_BYTES: Final = 5
_MAX_INDEXES: Final = 32
_MAX_VARINT_BYTES: Final = 5


def frame_body(schema_id: int, body: bytes, indexes: Sequence[int] | None = None) -> bytes:
    """Return a body behind its schema's id, and, for Protobuf, behind its message's indexes."""
    return b"".join((b"\0", schema_id.to_bytes(4, "big"), _encode_indexes(indexes), body))


def read_schema_id(body: bytes | None) -> int:
    """Return the id of a body's schema. Raises: InvalidBody."""
    if not body:
        raise InvalidBody("the body is empty")
    if body[0] != MAGIC:
        raise InvalidBody(f"the body begins with the byte {body[0]}, not with 0 and the id of a schema")
    if len(body) < _HEAD_BYTES:
        raise InvalidBody("the body ends within the id of its schema")
    return int.from_bytes(body[1:_HEAD_BYTES], "big")


def avro_payload(body: bytes) -> bytes:
    """Return what follows the id, which `read_schema_id` has read."""
    return body[_HEAD_BYTES:]


def protobuf_payload(body: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the indexes of the message, and what follows them. Raises: InvalidBody."""
    count, position = _varint(body, _HEAD_BYTES)
    if count == 0:
        return (0,), body[position:]
    if not 0 < count <= _MAX_INDEXES:
        raise InvalidBody(f"the body names its message by {count} indexes; the most is {_MAX_INDEXES}")
    indexes = []
    for _ in range(count):
        index, position = _varint(body, position)
        if index < 0:
            raise InvalidBody(f"the body names a message by the index {index}")
        indexes.append(index)
    return tuple(indexes), body[position:]


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Return a zigzag number, and the place behind it. Raises: InvalidBody."""
    number = 0
    for place in range(_MAX_VARINT_BYTES):
        if position >= len(body):
            raise InvalidBody("the body ends within the indexes of its message")
        byte = body[position]
        position += 1
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise InvalidBody("an index of the body's message is too large")


def _encode_indexes(indexes: Sequence[int] | None) -> bytes:
    if indexes is None:
        return b""
    if tuple(indexes) == (0,):
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _zigzag(number: int) -> bytes:
    rest = number << 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


M = TypeVar("M", bound="Message")


class Registry(RegistryClient):
    """A schema registry with Confluent's API; its methods block until it has answered."""

    def avro(
        self, subject: str, schema: str | Mapping[str, Any] | Sequence[Any], *, registers: bool = True
    ) -> AvroCodec:
        """Return a codec for a schema, which becomes a version of the subject if `registers`, and it is none."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        avro_schema = Schema(AVRO, text)
        normal, _ = normal_form(avro_schema)
        return AvroCodec(self, self.register(subject, avro_schema, looks_only=not registers), normal)

    def protobuf(self, subject: str, message: type[M], *, registers: bool = True) -> ProtobufCodec[M]:
        """Return a codec for a generated message class; its file, and those that it imports, are registered.

        An imported file becomes a version of a subject with the file's own name. Args and errors: as `avro`.
        """
        file = message.DESCRIPTOR.file
        references = self._registered_imports(file, looks_only=not registers)
        schema_id = self.register(subject, _descriptor_schema(file), references, looks_only=not registers)
        return ProtobufCodec(schema_id, message)

    def _registered_imports(self, file: FileDescriptor, *, looks_only: bool) -> list[Reference]:
        registered = []
        for imported_file in file.dependencies:
            if not imported_file.name.startswith("google/protobuf/"):
                references = self._registered_imports(imported_file, looks_only=looks_only)
                self.register(imported_file.name, _descriptor_schema(imported_file), references, looks_only=looks_only)
                version = self.version_of(imported_file.name, _descriptor_schema(imported_file), references)
                registered.append(Reference(imported_file.name, imported_file.name, version))
        return registered


class AvroCodec:
    """Values of one schema to bodies, and bodies of any schema of the registry to values."""

    def __init__(self, registry: Registry, schema_id: int, schema: Any) -> None:
        self.schema_id = schema_id
        self._registry = registry
        self._schema = schema
        self._readers: dict[int, AvroReader] = {}

    def encode(self, value: Any) -> bytes:
        """Return the body for a value. Raises: InvalidBody, it is no value of the schema."""
        from fastavro import schemaless_writer

        out = io.BytesIO()
        try:
            schemaless_writer(out, self._schema, value, strict_allow_default=True)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, IndexError) as error:
            raise InvalidBody(f"the value does not fit the schema ({type(error).__name__}: {error})") from None
        return frame_body(self.schema_id, out.getvalue())

    def decode(self, body: bytes) -> Any:
        """Return the value of a body, read with the schema of its writer. Raises: InvalidBody; as `schema`."""
        schema_id = read_schema_id(body)
        reader = self._readers.get(schema_id)
        if reader is None:
            reader = self._readers[schema_id] = AvroReader(parse_schema(self._registry.schema(schema_id)))
        return reader.read(avro_payload(body))


class ProtobufCodec(Generic[M]):
    """Messages of one class to bodies, and back. Fields of a newer version are kept as unknown ones."""

    def __init__(self, schema_id: int, message: type[M]) -> None:
        self.schema_id = schema_id
        self._message_class = message
        self._indexes = indexes_of(message.DESCRIPTOR)

    def encode(self, message: M) -> bytes:
        """Return the body for a message. Raises: InvalidBody, a required field is missing."""
        from google.protobuf.message import EncodeError

        try:
            return frame_body(self.schema_id, message.SerializeToString(), self._indexes)
        except EncodeError as error:
            raise InvalidBody(f"the message is incomplete ({error})") from None

    def decode(self, body: bytes) -> M:
        """Return the message of a body; its own schema is not asked for. Raises: InvalidBody, it is damaged."""
        from google.protobuf.message import DecodeError

        read_schema_id(body)
        indexes, data = protobuf_payload(body)
        if indexes != self._indexes:
            raise InvalidBody(f"the body is of message {indexes} of its file, not of {self._indexes}")
        try:
            message: M = self._message_class.FromString(data)
            return message
        except DecodeError as error:
            raise InvalidBody(f"the body is no {self._message_class.DESCRIPTOR.full_name} ({error})") from None


def _descriptor_schema(file: FileDescriptor) -> Schema:
    from google.protobuf import descriptor_pb2

    descriptor = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(descriptor)
    return Schema(PROTOBUF, base64.b64encode(descriptor.SerializeToString()).decode())
