"""A message as pages show it: its body as indented JSON, as text or as hexadecimal bytes, and its times.

JSON paths select bodies. A path names a place, and may compare its value:

    $.order.items[0].price >= 10        == != > >= < <= ~ (contains); a number, "a text", true, false or null
    order["a b"]                        exists, with any value

A body that is not UTF-8 is shown as bytes. Everything here has a limit, as any producer chooses the body: JSON is read
up to 128 KiB, and laid out only if that makes no more than 2 MiB. (Indented, 128 KiB may become 100 MiB.)
Times are in the zone of this machine.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.core.safe_text import printable_text
from sparrowmq.protocol.messages.property_names import Property

MAX_SHOWN_BYTES: Final = 256 << 10  # bytes of a body that are shown
MAX_JSON_BYTES: Final = 128 << 10  # bytes of a body that are read as JSON: up to 10 ms of the event loop
MAX_LINE_LENGTH: Final = 120  # characters of a body in a table
BEGINNING: Final = 4 * MAX_LINE_LENGTH + 1  # bytes of a body from which `short` makes them
_MAX_LAID_OUT_BYTES: Final = 2 << 20
_BYTES_PER_LINE: Final = 16  # bytes in a line of digits
FORMS: Final = ("json", "text", "hex")
_NOTHING: Final = object()
_MAX_PATH_LENGTH: Final = 1000
_STEP: Final = re.compile(r"""\.?([A-Za-z_$][\w$-]*)|\[([0-9]{1,9})\]|\[("(?:[^"\\]|\\.)*")\]""")
_COMPARISON: Final = re.compile(r"\s*(==|!=|>=|<=|>|<|~)\s*(.+?)\s*")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "~": lambda value, expected: str(expected) in value if isinstance(value, str) else expected in value,
}


def form_of(body: bytes) -> str:
    """The form that suits a body best."""
    if (text := printable_text(_beginning(body, MAX_SHOWN_BYTES))) is None:
        return "hex"
    return "json" if text.lstrip()[:1] in ("{", "[") and _json(body) is not _NOTHING else "text"


def body_text(body: bytes, form: str) -> str:
    """A body in a form, or in another one if that is impossible; a very long body is cut."""
    rest = f"\n… {len(body) - MAX_SHOWN_BYTES:,} bytes more" if len(body) > MAX_SHOWN_BYTES else ""
    value = _json(body) if form == "json" else _NOTHING
    if value is not _NOTHING and _laid_out_size(value, len(body)) <= _MAX_LAID_OUT_BYTES:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    if form != "hex" and (text := printable_text(_beginning(body, MAX_SHOWN_BYTES))) is not None:
        return text + rest
    return hex_of(body[:MAX_SHOWN_BYTES]) + rest


def _laid_out_size(value: Any, size_bytes: int) -> int:
    """The most bytes that JSON of this size can have once it is indented."""
    lines, depth, level = 1, 0, [value]
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
        lines += 2 * len(level)  # Its own line, and the one that may close it.
    return size_bytes + lines * (2 * depth + 2)


def _children(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
    return ()


def one_line(body: bytes) -> str:
    """One line for a body, of which the first `BEGINNING` bytes are enough."""
    is_whole = len(body) < BEGINNING
    text = printable_text(_beginning(body, BEGINNING - 1))
    if text is None:
        return f"{len(body) if is_whole else f'over {BEGINNING - 1}'} bytes {body[:24].hex(' ')}"
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE_LENGTH and is_whole else line[: MAX_LINE_LENGTH - 1] + "…"


def hex_of(body: bytes) -> str:
    """Lines with an offset, sixteen bytes, and their printable characters."""
    lines = []
    for at in range(0, len(body), _BYTES_PER_LINE):
        row = body[at : at + _BYTES_PER_LINE]
        printed = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):<{3 * _BYTES_PER_LINE}} {printed}")
    return "\n".join(lines)


def _beginning(body: bytes, size_bytes: int) -> bytes:
    """The beginning of a body; of a text, without the character that would be cut."""
    part = body[:size_bytes]
    is_cut = len(body) > size_bytes and _is_cut(part)
    return part.decode("utf-8", "ignore").encode() if is_cut else part


def _is_cut(part: bytes) -> bool:
    try:
        part.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A place in JSON and the value to compare with; without a `sign` any value matches."""

    steps: tuple[str | int, ...]
    sign: str = ""
    value: Any = None

    @staticmethod
    def parse(text: str) -> JsonPath:
        """Raises: ValueError, the text is not a JSON path."""
        if len(text) > _MAX_PATH_LENGTH:
            raise ValueError(f"a JSON path has at most {_MAX_PATH_LENGTH} characters")
        rest = text.strip().removeprefix("$")
        steps: list[str | int] = []
        while match := _STEP.match(rest):
            name, index, quoted = match.groups()
            steps.append(int(index) if index else msgspec.json.decode(quoted) if quoted else name)
            rest = rest[match.end() :]
        if not steps:
            raise ValueError(f"{text!r} is not a JSON path; write one as $.order.price > 10")
        if not rest.strip():
            return JsonPath(tuple(steps))
        comparison = _COMPARISON.fullmatch(rest)
        if comparison is None:
            raise ValueError(f"{rest.strip()!r} in the JSON path is not understood; write one as $.order.price > 10")
        return JsonPath(tuple(steps), comparison[1], _literal(comparison[2]))

    def fits(self, body: bytes) -> bool:
        """Return whether a body of at most 128 KiB is JSON that matches; a value that cannot be compared does not."""
        value = _value_at(_json(body), self.steps)
        if value is _NOTHING:
            return False
        if not self.sign:
            return True
        if isinstance(value, bool) != isinstance(self.value, bool) and self.sign not in ("!=", "~"):
            return False
        try:
            return bool(_OPERATORS[self.sign](value, self.value))
        except TypeError:
            return False


def _literal(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # a word needs no quotes


def _value_at(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        match value, step:
            case dict(), str() if step in value:
                value = value[step]
            case list(), int() if step < len(value):
                value = value[step]
            case _:
                return _NOTHING
    return value


def _json(body: bytes) -> Any:
    if len(body) > MAX_JSON_BYTES:
        return _NOTHING
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOTHING


def original_topic(letter: ReceivedMessage) -> str:
    """The topic that a dead letter was sent to."""
    return letter.stored.properties.get(Property.RETRY_TOPIC, "an unknown topic")


def time_text(timestamp_ms: int) -> str:
    """A message's time, to the millisecond."""
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def parse_time(text: str | None, name: str) -> datetime | None:
    """A time of a form; None where nothing is in it. Raises: ValueError."""
    if not text or not text.strip():
        return None
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ValueError(f"{name}: {text!r} is not a time; write it as 2026-11-20 08:00") from None
