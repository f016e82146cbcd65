"""A message's properties as one string: name 0x01 value 0x02, for each.

    KEYS \\x01 order-7 \\x02 TAGS \\x01 paid \\x02

4.x brokers cut the last 0x02, 5.x brokers keep it. Records have the UTF-8 bytes after an int16 length. As in Java,
broken pairs are skipped: those without a separator, a name or a value.

A broker reads few of a message's many properties and changes fewer, so `Properties` stays one string. With an 0x02 at
both ends, every name is between 0x02 and 0x01, so one search finds it. `parse` and `render` convert all properties.
Source: MessageDecoder.string2messageProperties, Java 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrowmq.errors import InvalidMessage
from sparrowmq.kernel.records import parse_properties
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages.property_names import Property

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
MAX_SIZE_BYTES = 32767  # the record's length field is an int16


def mark(name: str) -> str:
    """The form of `name` in the string of `Properties`."""
    return f"\x02{name}\x01"


TIMERS: Final = "\x02TIMER_DEL"  # one search finds DELAY_SEC, DELAY_MS, DELIVER_MS and DEL_UNIQKEY
_TAGS: Final = mark(Property.TAGS)
_KEYS: Final = mark(Property.KEYS)
_UNIQUE_KEY: Final = mark(Property.UNIQ_KEY)
_WAITS_NOT: Final = f"{mark(Property.WAIT)}false{VALUE_END}"


class Properties:
    """The properties of one message, which can be read and changed without parsing all of them.

    Args:
        text: the string form, with or without its last 0x02.
    """

    __slots__ = ("_encoded", "_marked")

    def __init__(self, text: str = "") -> None:
        self._encoded: bytes | None = None
        self._marked = f"\x02{text}" if not text or text[-1] == VALUE_END else f"\x02{text}\x02"

    @staticmethod
    def decode(raw: bytes | bytearray | memoryview) -> Properties:
        """Decode the properties of a record or of a batch. Bytes that are not UTF-8 become U+FFFD."""
        return Properties(str(raw, "utf-8", "replace"))

    @property
    def size_chars(self) -> int:
        """The characters of the string form: at most as many as it has bytes."""
        return len(self._marked) - 1

    def get(self, name: str) -> str | None:
        """The property's value, the last one of a name; None if it is absent or empty."""
        return self.marked(mark(name))

    def marked(self, name_mark: str) -> str | None:
        """`get` by the prepared `mark` of a name."""
        text = self._marked
        at = text.rfind(name_mark)
        while at >= 0:
            start = at + len(name_mark)
            value = text[start : text.find(VALUE_END, start)]
            if value:
                return value
            at = text.rfind(name_mark, 0, at + 1)
        return None

    def has(self, name_mark: str) -> bool:
        """Whether there is a property with that `mark`, even an empty one."""
        return name_mark in self._marked

    def put(self, name: str, value: str) -> None:
        """Set a property. Replaces one of the same name."""
        self.remove(name)
        self.add(name + NAME_END + value + VALUE_END)

    def add(self, pair: str) -> None:
        """Add a new property, given in the string form."""
        self._marked += pair
        self._encoded = None

    def remove(self, name: str) -> None:
        """Remove a property, if it exists, with all its repetitions."""
        name_mark = mark(name)
        text = self._marked
        at = text.find(name_mark)
        if at < 0:
            return
        kept: list[str] = []  # one copy at the end: a copy for each repetition would be quadratic
        begin = 0
        while at >= 0:
            kept.append(text[begin:at])
            begin = text.find(VALUE_END, at + 1)
            at = text.find(name_mark, begin)
        kept.append(text[begin:])
        self._marked = "".join(kept)
        self._encoded = None

    def strike(self, pair: str) -> None:
        """Remove a property if it has this value. `pair` is its `mark`, the value, and 0x02."""
        self._marked = self._marked.replace(pair, VALUE_END, 1)
        self._encoded = None

    @property
    def tags(self) -> str | None:
        return self.marked(_TAGS)

    @property
    def tags_code(self) -> int:
        """The hash of the tags for the consume queue: Java's string hash, 0 without tags."""
        tags = self.marked(_TAGS)
        return 0 if tags is None else string_hash(tags)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which the message can be found, besides the unique key."""
        keys = self.marked(_KEYS)
        return tuple(keys.split()) if keys is not None else ()

    @property
    def unique_key(self) -> str | None:
        """The producer's id of the message."""
        return self.marked(_UNIQUE_KEY)

    @property
    def wants_safety(self) -> bool:
        """Whether the producer waits for the broker's durability (waitStoreMsgOK)."""
        return _WAITS_NOT not in self._marked

    def render(self) -> str:
        """The string form, with the last 0x02."""
        return self._marked[1:]

    def encode(self) -> bytes:
        """The string form, as in records."""
        encoded = self._encoded
        if encoded is None:
            encoded = self._encoded = self._marked[1:].encode("utf-8", "surrogatepass")
        return encoded

    def __repr__(self) -> str:
        return f"Properties({parse(self.render())!r})"


class Terms:
    """The terms of a message for queue and index, looked up once for several uses.

    Attributes:
        tags_code, keys, unique_key: as in `Properties`.
    """

    __slots__ = ("keys", "tags_code", "unique_key")

    def __init__(self, properties: Properties) -> None:
        self.tags_code = properties.tags_code
        self.keys = properties.keys
        self.unique_key = properties.unique_key


def parse(raw: str | bytes | bytearray | memoryview) -> dict[str, str]:
    """Parse the properties, in their order. Bytes that are not UTF-8 become U+FFFD."""
    return parse_properties(raw if isinstance(raw, str) else str(raw, "utf-8", "replace"))


def render(properties: Mapping[str, str]) -> str:
    """The string form, with the last 0x02. `check` also checks limits."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def check(properties: Mapping[str, str]) -> str:
    """Render properties after checking them.

    Raises: InvalidMessage, a name is empty, a text contains 0x01 or 0x02, or the whole is too long.
    """
    text = render(properties)
    if text.count(NAME_END) != len(properties) or text.count(VALUE_END) != len(properties):
        name = next(name for name, value in properties.items() if {*name, *value} & {NAME_END, VALUE_END})
        raise InvalidMessage(f"property {name!r} holds 0x01 or 0x02, which separate properties; encode it")
    if "" in properties:
        raise InvalidMessage("a property has an empty name")
    check_size(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))
    return text


def check_size(size_bytes: int) -> None:
    """Refuse a property string that a record cannot hold. Raises: InvalidMessage."""
    if size_bytes > MAX_SIZE_BYTES:
        raise InvalidMessage(
            f"the properties take {size_bytes} bytes, {MAX_SIZE_BYTES} are allowed; use the body instead"
        )
