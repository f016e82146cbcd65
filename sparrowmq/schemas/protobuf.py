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
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_OWN: Final = "schema.proto"
_TIMEOUT_S: Final = 60
_MAX_SCHEMA_BYTES: Final = 4 << 20
_INSTALL: Final = "pip install 'sparrowmq[schemas]'"
MAX_VALUES: Final = 1_000_000  # of a body
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE: Final = Context(prec=40)
_PREFIX: Final = "google.protobuf."
WRAPPERS: Final = frozenset(
    f"{_PREFIX}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
AS_JSON: Final = frozenset(f"{_PREFIX}{name}" for name in ("Struct", "Value", "ListValue"))
TIMESTAMP: Final = f"{_PREFIX}Timestamp"
DURATION: Final = f"{_PREFIX}Duration"


class ProtobufFile:
    """The messages of a compiled file.

    Args:
        compiled: a FileDescriptorSet; the last file is the schema, the others are those that it imports.
    """

    def __init__(self, compiled: bytes) -> None:
        descriptor_pb2, descriptor_pool, decode_error = _protobuf()
        files = descriptor_pb2.FileDescriptorSet()
        pool = descriptor_pool.DescriptorPool()
        try:
            files.ParseFromString(compiled)
            for each in files.file:
                pool.Add(each)
        except (decode_error, ValueError, TypeError, KeyError) as error:
            raise InvalidSchema(f"it is no compiled Protobuf schema ({error})") from None
        if not files.file:
            raise InvalidSchema("it is a compiled Protobuf schema without a file")
        self._file = pool.FindFileByName(files.file[-1].name)
        self._pool = pool

    def message_at(self, indexes: Sequence[int]) -> Descriptor:
        """Return the message at a path of indexes. Raises: InvalidSchema, there is none."""
        inner = list(self._file.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(inner):
                raise InvalidSchema(f"it has no message {'.'.join(map(str, indexes))}")
            found = inner[index]
            inner = list(found.nested_types)
        if found is None or found.GetOptions().map_entry:
            raise InvalidSchema(f"it has no message {'.'.join(map(str, indexes))}")
        return found

    def message_named(self, name: str | None) -> Descriptor:
        """Return a message by its name, with or without the package; None is the only one. Raises: ConfigError."""
        messages = list(_all(self._file.message_types_by_name.values()))
        if name is None:
            messages = list(self._file.message_types_by_name.values())
        else:
            messages = [each for each in messages if name in (each.full_name, self._in_package(each))]
        if len(messages) == 1:
            return messages[0]
        known = ", ".join(each.full_name for each in _all(self._file.message_types_by_name.values()))
        raise ConfigError(f"name one message of the schema (message); it has {known or 'none'}")

    def _in_package(self, message: Descriptor) -> str:
        package = self._file.package
        return str(message.full_name.removeprefix(f"{package}.") if package else message.full_name)


def _all(messages: Any) -> Iterator[Descriptor]:
    for each in messages:
        if not each.GetOptions().map_entry:
            yield each
            yield from _all(each.nested_types)


def indexes_of(message: Descriptor) -> tuple[int, ...]:
    above = message.containing_type
    if above is not None:
        return (*indexes_of(above), [each.name for each in above.nested_types].index(message.name))
    return (list(message.file.message_types_by_name).index(message.name),)


def compile_schema(schema: Schema) -> bytes:
    """Return a schema of a registry as a FileDescriptorSet.

    Raises:
        InvalidSchema: it cannot be compiled. ConfigError: a package is not installed.
    """
    if schema.kind != PROTOBUF:
        raise InvalidSchema(f"the schema is of the type {schema.kind}, not {PROTOBUF}")
    files = [*schema.references, (_OWN, schema.text)]
    if sum(len(text) for _, text in files) > _MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"it has more than {_MAX_SCHEMA_BYTES >> 20} MiB")
    ready = [_decoded(name, text) for name, text in files]
    if all(ready):
        return _joined([each for each in ready if each is not None])
    if any(ready):
        raise InvalidSchema("some of its files are text, and some are base64; register all as text")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files:
            _write(Path(folder), name, text)
        return _compile(_OWN, [Path(folder)])


def compile_file(path: Path) -> bytes:
    """Return a .proto file, or one that protoc has compiled (.desc), as a FileDescriptorSet.

    Raises: ConfigError, it cannot be read, or compiled.
    """
    try:
        if path.suffix != ".proto":
            found = path.read_bytes()
            ProtobufFile(found)
            return found
        path.read_bytes()
        return _compile(path.name, [path.absolute().parent])
    except OSError as error:
        raise ConfigError(f"the schema cannot be read ({error})") from None
    except InvalidSchema as error:
        raise ConfigError(f"{path}: {error}") from None


def _write(folder: Path, name: str, text: str) -> None:
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts or not place.parts:
        raise InvalidSchema(f"its reference {name!r} is no relative path")
    target = folder / place
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
        paths = [f"-I{each}" for each in (*folders, well_known)]
        arguments = [*paths, "--include_imports", f"--descriptor_set_out={out}", name]
        command = [sys.executable, "-m", "grpc_tools.protoc", *arguments]
        try:
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"protoc did not compile it within {_TIMEOUT_S} s") from None
        if ended.returncode or not out.exists():
            why = " ".join(ended.stderr.split()) or f"protoc ended with {ended.returncode}"
            raise InvalidSchema(f"it is no Protobuf schema ({why[:500]})")
        return out.read_bytes()


def _decoded(name: str, text: str) -> FileDescriptorProto | None:
    """Return the descriptor that a text is the base64 of, under a name; None if it is text of a .proto file."""
    descriptor_pb2, _, decode_error = _protobuf()
    try:
        serialized = base64.b64decode(text, validate=True)
        found: FileDescriptorProto = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    except (binascii.Error, ValueError, decode_error):
        return None
    found.name = name
    return found


def _joined(files: Sequence[FileDescriptorProto]) -> bytes:
    descriptor_pb2, _, _ = _protobuf()
    found = descriptor_pb2.FileDescriptorSet()
    for name in sorted({name for each in files for name in each.dependency if name in _well_known()}):
        found.file.append(_well_known()[name])
    found.file.extend(files)
    return bytes(found.SerializeToString())


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
    found = {}
    for module in modules:
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found[file.name] = file
    return found


def _protobuf() -> tuple[Any, Any, Any]:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError
    except ImportError:
        raise ConfigError(f"Protobuf needs the package protobuf: {_INSTALL}") from None
    return descriptor_pb2, descriptor_pool, DecodeError


_Value: TypeAlias = Callable[[Any], Any]


class ProtobufReader:
    """Reads the bodies of a message type."""

    def __init__(self, message: Descriptor) -> None:
        from google.protobuf import message_factory

        self._class = message_factory.GetMessageClass(message)
        self._values = _Values()
        self._value = self._values.of_fields(message)

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
        self._values.left = MAX_VALUES
        try:
            found: dict[str, Any] = self._value(message)
        except UnicodeDecodeError:
            raise InvalidBody("a text is not UTF-8") from None
        return found, MAX_VALUES - self._values.left


def contains_itself(message: Descriptor) -> bool:
    """Whether messages of this type can be nested without end."""
    seen: set[str] = set()
    waiting = list(_inner(message))
    while waiting:
        each = waiting.pop()
        if each.full_name == message.full_name:
            return True
        if each.full_name not in seen:
            seen.add(each.full_name)
            waiting += _inner(each)
    return False


def _inner(message: Descriptor) -> Iterator[Descriptor]:
    return (field.message_type for field in message.fields if field.message_type is not None)


def is_text(message: Descriptor) -> bool:
    """Whether messages of this type become text, their JSON."""
    return message.full_name in AS_JSON or contains_itself(message)


def is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


class _Values:
    """Makes a function for each message type of a schema, and counts the values of a body."""

    def __init__(self) -> None:
        self.left = MAX_VALUES

    def of_fields(self, message: Descriptor) -> _Value:
        """A function that makes a dict of a message."""
        from google.protobuf.unknown_fields import UnknownFieldSet

        fields = [(field.name, self._of(field)) for field in message.fields]
        name = message.full_name

        def value(message: Any) -> dict[str, Any]:
            if unknown := UnknownFieldSet(message):
                numbers = ", ".join(sorted({str(each.field_number) for each in unknown}))
                raise InvalidBody(f"{name} has no field {numbers[:100]}; the body is damaged, or of another schema")
            self.count(len(fields))
            return {name: read(message) for name, read in fields}

        return value

    def count(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise InvalidBody(f"it has more than {MAX_VALUES:,} values")

    def _of(self, field: FieldDescriptor) -> _Value:
        """A function that makes a value of the message that has the field."""
        name = field.name
        if is_map(field):
            return self._of_map(field)
        one = self._of_one(field)
        if field.is_repeated:
            return self._of_many(name, one)
        if not field.has_presence:
            return lambda found: one(getattr(found, name))
        return lambda found: one(getattr(found, name)) if found.HasField(name) else None

    def _of_many(self, name: str, one: _Value) -> _Value:
        def value(message: Any) -> list[Any]:
            many = getattr(message, name)
            self.count(len(many))
            return [one(each) for each in many]

        return value

    def _of_map(self, field: FieldDescriptor) -> _Value:
        name, one = field.name, self._of_one(field.message_type.fields_by_name["value"])

        def value(message: Any) -> dict[Any, Any]:
            entries = getattr(message, name)
            self.count(len(entries))
            return {key: one(entries[key]) for key in entries}

        return value

    def _of_one(self, field: FieldDescriptor) -> _Value:
        if field.enum_type is not None:
            return _of_enum(field.enum_type)
        if field.message_type is None:
            return _same
        return self._of_message(field.message_type)

    def _of_message(self, message: Descriptor) -> _Value:
        if message.full_name == TIMESTAMP:
            return _timestamp
        if message.full_name == DURATION:
            return _duration
        if message.full_name in WRAPPERS:
            return lambda found: found.value
        if is_text(message):
            return _json
        return self.of_fields(message)


def _same(value: Any) -> Any:
    return value


def _of_enum(kind: EnumDescriptor) -> _Value:
    names = {number: each.name for number, each in kind.values_by_number.items()}
    return lambda number: names.get(number) or str(number)


def _timestamp(message: Any) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        raise InvalidBody(f"{message.seconds} seconds after 1970 is not in the years 1 to 9999") from None


def _duration(message: Any) -> Decimal:
    return Decimal(message.seconds) + Decimal(message.nanos).scaleb(-9, _WIDE)


def _json(message: Any) -> str:
    from google.protobuf.json_format import Error, MessageToJson

    try:
        return str(MessageToJson(message, preserving_proto_field_name=True, indent=None))
    except (Error, TypeError, ValueError, RecursionError) as error:
        raise InvalidBody(f"{message.DESCRIPTOR.full_name} has no JSON ({error})") from None
