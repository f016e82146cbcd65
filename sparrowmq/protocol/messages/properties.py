"""A message's properties as one string: name 0x01 value 0x02, for each.

    KEYS \\x01 order-7 \\x02 TAGS \\x01 paid \\x02

4.x brokers cut the last 0x02, 5.x keep it; records hold the UTF-8 bytes after an int16 length. What is broken
is skipped, as Java does: pairs without a separator, without a name or without a value.
Source: MessageDecoder.string2messageProperties, Java 5.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrowmq.errors import InvalidMessage

NAME_END: Final = "\x01"
VALUE_END: Final = "\x02"
MAX_SIZE_BYTES = 32767  # the record's length field is an int16


def parse(raw: str | bytes | bytearray | memoryview) -> dict[str, str]:
    """The properties by name, in their order; bytes that are not UTF-8 become U+FFFD."""
    text = raw if isinstance(raw, str) else str(raw, "utf-8", "replace")
    if not text:
        return {}
    pairs = text.removesuffix(VALUE_END).split(VALUE_END)
    try:
        found = dict([pair.split(NAME_END, 1) for pair in pairs])
    except ValueError:  # a pair without separator
        found = dict(pair.split(NAME_END, 1) for pair in pairs if NAME_END in pair)
    if "" in found or "" in found.values():
        return {name: value for name, value in found.items() if name and value}
    return found


# Looking at few of many properties, without a dict: between marks, every name stands between 0x02 and 0x01.


def marked(text: str) -> str:
    """The string form with an 0x02 at both ends, for `value`."""
    return f"\x02{text}" if not text or text[-1] == VALUE_END else f"\x02{text}\x02"


def mark(name: str) -> str:
    """How `name` stands in a marked string."""
    return f"\x02{name}\x01"


def value(text: str, name_mark: str) -> str | None:
    """The property's value in a marked string, as `parse` would have it; None if it is absent or empty."""
    at = text.rfind(name_mark)
    if at < 0:
        return None
    start = at + len(name_mark)
    return text[start : text.find(VALUE_END, start)] or None


def render(properties: Mapping[str, str]) -> str:
    """The string form, with the last 0x02. The limits are `check`'s."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def check(properties: Mapping[str, str]) -> None:
    """Refuse what the string form cannot carry.

    Raises:
        InvalidMessage: a name is empty, a text holds 0x01 or 0x02, or all together are too long.
    """
    text = render(properties)
    if text.count(NAME_END) != len(properties) or text.count(VALUE_END) != len(properties):
        name = next(name for name, value in properties.items() if {*name, *value} & {NAME_END, VALUE_END})
        raise InvalidMessage(f"property {name!r} holds 0x01 or 0x02, which separate properties; encode it")
    if "" in properties:
        raise InvalidMessage("a property has an empty name")
    check_size(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))


def check_size(size_bytes: int) -> None:
    """Refuse a property string that a record cannot hold. Raises: InvalidMessage."""
    if size_bytes > MAX_SIZE_BYTES:
        raise InvalidMessage(
            f"the properties take {size_bytes} bytes, {MAX_SIZE_BYTES} are allowed; use the body instead"
        )
