"""Protobuf schemas, and a reader for Protobuf bodies from untrusted senders.

A registry has the text of a .proto file, or the base64 of a FileDescriptorProto. protoc, from the package grpcio-tools,
compiles text in a process of its own. The result is a FileDescriptorSet with all imports: workers read it without
protoc.

protobuf's own parser limits the depth and every length of a body; the reader here limits the number of values. A body
that is truncated, or belongs to another schema, often parses as fields that the schema does not have. So an unknown
field is an error, and no part of a body is dropped silently.

    Timestamp   datetime, in microseconds         Duration            Decimal, seconds
    wrappers    the value, or None                Struct and others   text: their JSON
    enum        its name, or its number as text   a message that contains itself: text, its JSON

A field with presence that is not set is None. A field without presence has its default value, as in every language.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sparrowmq.errors import ConfigError, InvalidBody, InvalidSchema
from sparrowmq.schemas.registry import PROTOBUF, Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_SCHEMA_FILE: Final = "schema.proto"
_PROTOC_TIMEOUT_S: Final = 60
_MAX_SCHEMA_BYTES: Final = 4 << 20
_INSTALL: Final = "pip install 'sparrowmq[schemas]'"
MAX_VALUES: Final = 1_000_000  # of a body
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION_CONTEXT: Final = Context(prec=40)
_GOOGLE_PREFIX: Final = "google.protobuf."
WRAPPERS: Final = frozenset(
    f"{_GOOGLE_PREFIX}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
AS_JSON: Final = frozenset(f"{_GOOGLE_PREFIX}{name}" for name in ("Struct", "Value", "ListValue"))
TIMESTAMP: Final = f"{_GOOGLE_PREFIX}Timestamp"
DURATION: Final = f"{_GOOGLE_PREFIX}Duration"


class ProtobufFile:
    """The messages of a compiled file: a FileDescriptorSet, in which the files that the last one imports come first."""

    def __init__(self, compiled: bytes) -> None:
        descriptor_pb2, descriptor_pool, decode_error = _protobuf()
        files = descriptor_pb2.FileDescriptorSet()
        pool = descriptor_pool.DescriptorPool()
        try:
            files.ParseFromString(compiled)
            for file in files.file:
                pool.Add(file)
        except (decode_error, ValueError, TypeError, KeyError) as error:
            raise InvalidSchema(f"it is no compiled Protobuf schema ({error})") from None
        if not files.file:
            raise InvalidSchema("it is a compiled Protobuf schema without a file")
        self._file = pool.FindFileByName(files.file[-1].name)
        self._pool = pool

    def message_at(self, indexes: Sequence[int]) -> Descriptor:
        """Return the message at a path of indexes. Raises: InvalidSchema, there is none."""
        messages = list(self._file.message_types_by_name.values())
        message = None
        for index in indexes:
            if not 0 <= index < len(messages):
                raise InvalidSchema(f"it has no message {'.'.join(map(str, indexes))}")
            message = messages[index]
            messages = list(message.nested_types)
        if message is None or message.GetOptions().map_entry:
            raise InvalidSchema(f"it has no message {'.'.join(map(str, indexes))}")
        return message

    def message_named(self, name: str | None) -> Descriptor:
        """Return a message by its name, with or without the package; None is the only one. Raises: ConfigError."""
        messages = list(_with_nested(self._file.message_types_by_name.values()))
        if name is None:
            messages = list(self._file.message_types_by_name.values())
        else:
            messages = [message for message in messages if name in (message.full_name, self._name_in_package(message))]
        if len(messages) == 1:
            return messages[0]
        known = ", ".join(message.full_name for message in _with_nested(self._file.message_types_by_name.values()))
        raise ConfigError(f"name one message of the schema (message); it has {known or 'none'}")

    def _name_in_package(self, message: Descriptor) -> str:
        package = self._file.package
        return str(message.full_name.removeprefix(f"{package}.") if package else message.full_name)


def _with_nested(messages: Any) -> Iterator[Descriptor]:
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _with_nested(message.nested_types)


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    outer = message.containing_type
    if outer is not None:
        return (*indexes_of(outer), [nested.name for nested in outer.nested_types].index(message.name))
    return (list(message.file.message_types_by_name).index(message.name),)


def compile_schema(schema: Schema) -> bytes:
    """Return a schema of a registry as a FileDescriptorSet. Raises: InvalidSchema; ConfigError, a package is absent."""
    if schema.kind != PROTOBUF:
        raise InvalidSchema(f"the schema is of the type {schema.kind}, not {PROTOBUF}")
    files = [*schema.references, (_SCHEMA_FILE, schema.text)]
    if sum(len(text) for _, text in files) > _MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"it has more than {_MAX_SCHEMA_BYTES >> 20} MiB")
    decoded = [_decoded(name, text) for name, text in files]
    if all(decoded):
        return _joined([file for file in decoded if file is not None])
    if any(decoded):
        raise InvalidSchema("some of its files are text, and some are base64; register all as text")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files:
            _write(Path(folder), name, text)
        return _compile(_SCHEMA_FILE, [Path(folder)])


def compile_file(path: Path) -> bytes:
    """Return a .proto file, or one that protoc has compiled (.desc), as a FileDescriptorSet. Raises: ConfigError."""
    try:
        if path.suffix != ".proto":
            compiled = path.read_bytes()
            ProtobufFile(compiled)
            return compiled
        path.read_bytes()
        return _compile(path.name, [path.absolute().parent])
    except OSError as error:
        raise ConfigError(f"the schema cannot be read ({error})") from None
    except InvalidSchema as error:
        raise ConfigError(f"{path}: {error}") from None


def _write(folder: Path, name: str, text: str) -> None:
    relative_path = PurePosixPath(name)
    if relative_path.is_absolute() or ".." in relative_path.parts or not relative_path.parts:
        raise InvalidSchema(f"its reference {name!r} is no relative path")
    target = folder / relative_path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    except (OSError, ValueError) as error:
        raise InvalidSchema(f"its reference {name!r} cannot be the name of a file ({error})") from None


def _compile(name: str, folders: Sequence[Path]) -> bytes:
    """Run protoc. Raises: InvalidSchema; ConfigError, it is not installed."""
    if find_spec("grpc_tools") is None:
        raise ConfigError(f"Protobuf needs the package grpcio-tools, which compiles schemas: {_INSTALL}")
    well_known = Path(str(find_spec("grpc_tools").origin)).parent / "_proto"  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        paths = [f"-I{path}" for path in (*folders, well_known)]
        arguments = [*paths, "--include_imports", f"--descriptor_set_out={out}", name]
        command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
        try:
            process = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_PROTOC_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"protoc did not compile it within {_PROTOC_TIMEOUT_S} s") from None
        if process.returncode or not out.exists():
            output = " ".join(process.stderr.split()) or f"protoc ended with {process.returncode}"
            raise InvalidSchema(f"it is no Protobuf schema ({output[:500]})")
        return out.read_bytes()


def _decoded(name: str, text: str) -> FileDescriptorProto | None:
    """Return the descriptor that a text is the base64 of, under a name; None if it is text of a .proto file."""
    descriptor_pb2, _, decode_error = _protobuf()
    try:
        serialized = base64.b64decode(text, validate=True)
        descriptor: FileDescriptorProto = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    except (binascii.Error, ValueError, decode_error):
        return None
    descriptor.name = name
    return descriptor


def _joined(files: Sequence[FileDescriptorProto]) -> bytes:
    descriptor_pb2, _, _ = _protobuf()
    file_set = descriptor_pb2.FileDescriptorSet()
    for name in sorted({name for file in files for name in file.dependency if name in _well_known()}):
        file_set.file.append(_well_known()[name])
    file_set.file.extend(files)
    return bytes(file_set.SerializeToString())


def _well_known() -> Mapping[str, FileDescriptorProto]:
    """The files of google/protobuf that need no other file, by name."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    modules = (
        any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2,
    )  # fmt: skip
    files = {}
    for module in modules:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        files[file.name] = file
    return files


def _protobuf() -> tuple[Any, Any, Any]:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ConfigError(f"Protobuf needs the package protobuf: {_INSTALL}") from None
    return descriptor_pb2, descriptor_pool, DecodeError


_Converter: TypeAlias = Callable[[Any], Any]


class ProtobufReader:
    """Reads the bodies of a message type."""

    def __init__(self, message: Descriptor) -> None:
        from google.protobuf import message_factory

        self._class = message_factory.GetMessageClass(message)
        self._converters = _Converters()
        self._convert = self._converters.fields_converter(message)

    def read(self, data: bytes) -> dict[str, Any]:
        """Return the fields of a body by name. Raises: InvalidBody."""
        return self.read_counted(data)[0]

    def read_counted(self, data: bytes) -> tuple[dict[str, Any], int]:
        """Return the fields, and how many values the body has. Raises: InvalidBody."""
        from google.protobuf.message import DecodeError

        try:
            message = self._class.FromString(data)
        except DecodeError:
            raise InvalidBody("the body is not of its Protobuf message: it is cut off, or damaged") from None
        self._converters.values_left = MAX_VALUES
        try:
            fields: dict[str, Any] = self._convert(message)
        except UnicodeDecodeError:
            raise InvalidBody("a text is not UTF-8") from None
        return fields, MAX_VALUES - self._converters.values_left


def contains_itself(message: Descriptor) -> bool:
    """Whether messages of this type can be nested without end."""
    visited: set[str] = set()
    waiting = list(_field_messages(message))
    while waiting:
        candidate = waiting.pop()
        if candidate.full_name == message.full_name:
            return True
        if candidate.full_name not in visited:
            visited.add(candidate.full_name)
            waiting += _field_messages(candidate)
    return False


def _field_messages(message: Descriptor) -> Iterator[Descriptor]:
    return (field.message_type for field in message.fields if field.message_type is not None)


def is_text(message: Descriptor) -> bool:
    """Whether messages of this type become text, their JSON."""
    return message.full_name in AS_JSON or contains_itself(message)


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


class _Converters:
    """Makes a function for each message type of a schema, and counts the values of a body."""

    def __init__(self) -> None:
        self.values_left = MAX_VALUES

    def fields_converter(self, message: Descriptor) -> _Converter:
        """A function that makes a dict of a message."""
        from google.protobuf.unknown_fields import UnknownFieldSet

        fields = [(field.name, self._field_converter(field)) for field in message.fields]
        name = message.full_name

        def convert(message: Any) -> dict[str, Any]:
            if unknown := UnknownFieldSet(message):
                numbers = ", ".join(sorted({str(field.field_number) for field in unknown}))
                raise InvalidBody(f"{name} has no field {numbers[:100]}; the body is damaged, or of another schema")
            self.count_values(len(fields))
            return {name: read(message) for name, read in fields}

        return convert

    def count_values(self, values: int) -> None:
        self.values_left -= values
        if self.values_left < 0:
            raise InvalidBody(f"it has more than {MAX_VALUES:,} values")

    def _field_converter(self, field: FieldDescriptor) -> _Converter:
        """A function that makes a value of the message that has the field."""
        name = field.name
        if is_map(field):
            return self._map_converter(field)
        convert = self._item_converter(field)
        if field.is_repeated:
            return self._list_converter(name, convert)
        if not field.has_presence:
            return lambda message: convert(getattr(message, name))
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None

    def _list_converter(self, name: str, convert_item: _Converter) -> _Converter:
        def convert(message: Any) -> list[Any]:
            many = getattr(message, name)
            self.count_values(len(many))
            return [convert_item(item) for item in many]

        return convert

    def _map_converter(self, field: FieldDescriptor) -> _Converter:
        name, convert_value = field.name, self._item_converter(field.message_type.fields_by_name["value"])

        def convert(message: Any) -> dict[Any, Any]:
            entries = getattr(message, name)
            self.count_values(len(entries))
            return {key: convert_value(entries[key]) for key in entries}

        return convert

    def _item_converter(self, field: FieldDescriptor) -> _Converter:
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number) or str(number)
        if field.message_type is None:
            return lambda value: value
        return self._message_converter(field.message_type)

    def _message_converter(self, message: Descriptor) -> _Converter:
        if message.full_name == TIMESTAMP:
            return _timestamp
        if message.full_name == DURATION:
            return _duration
        if message.full_name in WRAPPERS:
            return lambda message: message.value
        if is_text(message):
            return _json
        return self.fields_converter(message)


def _timestamp(message: Any) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        raise InvalidBody(f"{message.seconds} seconds after 1970 is not in the years 1 to 9999") from None


def _duration(message: Any) -> Decimal:
    return Decimal(message.seconds) + Decimal(message.nanos).scaleb(-9, _DURATION_CONTEXT)


def _json(message: Any) -> str:
    from google.protobuf.json_format import Error, MessageToJson

    try:
        return str(MessageToJson(message, preserving_proto_field_name=True, indent=None))
    except (Error, TypeError, ValueError, RecursionError) as error:
        raise InvalidBody(f"{message.DESCRIPTOR.full_name} has no JSON ({error})") from None
