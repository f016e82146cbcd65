"""Reads Protobuf bodies that may be hostile: messages become Python's values, within limits.

protobuf's own parser limits how deep a body goes, and every length; the number of values is limited here. A body that
is cut off, or of another schema, often parses as fields that the schema does not have. So an unknown field is an error,
and nothing of a body is left out silently.

    Timestamp   datetime, in microseconds         Duration            Decimal, seconds
    wrappers    the value, or None                Struct and others   text: their JSON
    enum        its name, or its number as text   a message that contains itself: text, its JSON

A field with presence that is not set is None. A field without one has its default value, as in every language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sparrowmq.errors import InvalidBody

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

MOST_VALUES: Final = 1_000_000  # of a body

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
        self._values.left = MOST_VALUES
        try:
            found: dict[str, Any] = self._value(message)
        except UnicodeDecodeError:
            raise InvalidBody("a text is not UTF-8") from None
        return found, MOST_VALUES - self._values.left


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
        self.left = MOST_VALUES

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
            raise InvalidBody(f"it has more than {MOST_VALUES:,} values")

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
