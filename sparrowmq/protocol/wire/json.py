"""JSON as RocketMQ's peers write it: the standard, and two dialects of Java's fastjson.

    {0: "10.0.0.1:10911"}                                    integer keys without quotes
    {{"brokerName": "b", "queueId": 0, "topic": "T"}: 12}    objects as keys; they are always message queues

Reading accepts all three. msgspec reads the standard; only a text that it refuses goes through the slower reader here.
Integer keys arrive as texts, queues as `MessageQueue`. In the dialects, null members count as absent.
Writing never puts a blank after ":" or ",", because the Go client splits routes as text. Integer keys are quoted unless
the caller wants bare ones. Maps keyed by queues have no standard form, and mqadmin needs fastjson's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from json.decoder import JSONDecodeError
from json.decoder import scanstring as _scan_string  # type: ignore[attr-defined]
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import msgspec

from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.wire.frame import FrameLimits

MAX_DEPTH: Final = 8  # the deepest body that Java sends has 6

T = TypeVar("T")


class NotJson(RemoteProtocolError, ValueError):
    """The bytes are neither JSON nor one of the dialects, or have the wrong members."""


def loads(raw: bytes | bytearray | memoryview | str) -> Any:
    """Parse to a plain value: dict, list, text, number, boolean or None.

    Raises: NotJson, names the place and the expected token.
    """
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Reader(raw).read()


def decode(raw: bytes | bytearray | memoryview | str, kind: type[T]) -> T:
    """Parse to `kind`, leniently: "7" is a number, "1" is true, unknown members are ignored.

    Raises: NotJson, as `loads`, or a member does not fit.
    """
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = _Reader(raw).read()
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise NotJson(f"the body is no {kind.__name__}: {error}") from None


def decode_quickly(raw: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """As `decode`, in a quarter of the time: all dialects but objects as keys, which no request has.

    Raises: NotJson, as `decode`.
    """
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value = msgspec.json.decode(_with_quoted_keys(str(raw, "utf-8")))
        return msgspec.convert(_without_null_members(value), kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(f"the body is no {kind.__name__} in JSON: {error}") from None


def decode_standard(raw: bytes | bytearray | memoryview | str, kind: type[T]) -> T:
    """As `decode`, but without the dialects. So a text that is refused costs no more than others.

    Raises: NotJson, as `decode`.
    """
    try:
        return _decoder(kind).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(f"the body is no {kind.__name__} in standard JSON: {error}") from None


def dumps(value: object, *, bare_integers: bool = False) -> bytes:
    """Write the value without blanks, in UTF-8. Structs are written in the order of names, without None members.

    Args:
        bare_integers: write integer keys as fastjson does, without quotes.
    """
    if not bare_integers:
        try:
            return _quote(_standard(value))
        except TypeError:  # keys that the standard does not allow
            pass
    parts: list[bytes] = []
    for _ in _writing(value, parts, bare_integers):
        pass
    return b"".join(parts)


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind, strict=False)
    return decoder


@dataclass(frozen=True, slots=True)
class Pairs:
    """The members of a table for `dumping`, which makes each of them when it writes it: so few exist at once."""

    members: Iterator[tuple[object, object]]


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a list for `dumping`, as `Pairs`."""

    members: Iterator[object]


def dumping(value: object) -> Steps[list[bytes]]:
    """Do `dumps` in steps, for tables of thousands of members. Return its pieces: joined, they are one long step.

    Raises: RemoteError, there is more than a frame may have.
    """
    pieces: list[bytes] = []
    size = 0
    parts: list[bytes] = []
    for _ in _writing(value, parts):
        if len(parts) > _MOST_PARTS:  # to join and free a million of them at the end would be one long step
            last = parts.pop()  # `_close` may replace it
            pieces.append(b"".join(parts))
            size += len(pieces[-1])
            parts[:] = (last,)
            if size > MOST_BYTES:
                raise RemoteError(ResponseCode.SYSTEM_ERROR, _TOO_LARGE)
        yield
    pieces.append(b"".join(parts))
    return pieces


_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}
_quote = msgspec.json.encode
_PLAIN: Final = (str, int, float, bool)
_MOST_PARTS: Final = 1000
MOST_BYTES: Final = FrameLimits().frame_bytes - 4096  # with room for the header
_TOO_LARGE: Final = f"the answer has more than {MOST_BYTES} bytes, which is more than clients read; ask for less"


class _Shape:
    """The members of a kind of struct, in the order of their wire names.

    Attributes:
        members: the name on the wire and the attribute of each.
        read: reads all members at once.
        special: members that can be None, or more than a text or number.
        plain: without special members, makes a struct that msgspec writes in that order.
    """

    __slots__ = ("members", "names", "plain", "read", "special")

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        fields = sorted(msgspec.structs.fields(kind), key=lambda each: each.encode_name)
        self.names = [each.encode_name for each in fields]
        self.special = [each.encode_name for each in fields if each.type not in _PLAIN]
        attributes = [each.name for each in fields]
        self.read: Callable[[object], tuple[object, ...]] = (
            attrgetter(*attributes)
            if len(attributes) > 1
            else lambda value: tuple(getattr(value, name) for name in attributes)
        )
        self.members = list(zip(self.names, attributes, strict=True))
        renamed = dict(zip(attributes, self.names, strict=True))
        self.plain: type[Any] | None = (
            None if self.special else msgspec.defstruct(kind.__name__, attributes, rename=renamed, gc=False)
        )


_SHAPES: dict[type[msgspec.Struct], _Shape] = {}


def _shape_of(value: msgspec.Struct) -> _Shape:
    return _SHAPES.get(type(value)) or _SHAPES.setdefault(type(value), _Shape(type(value)))


def _standard(value: object) -> object:
    """The value as maps and lists only. msgspec writes these at once, in a fifth of the time for a table of topics."""
    if isinstance(value, msgspec.Struct):
        shape = _shape_of(value)
        if shape.plain is not None:
            return shape.plain(*shape.read(value))
        found = dict(zip(shape.names, shape.read(value), strict=True))
        for name in shape.special:
            if (member := found[name]) is None:
                del found[name]
            else:
                found[name] = _standard(member)
        return found
    if isinstance(value, dict | Mapping):
        return {key: _standard(member) for key, member in value.items()}
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, AbstractSet):
        return [_standard(each) for each in sorted(value)]
    if isinstance(value, list | tuple):
        return [_standard(each) for each in value]
    return value


def _is_table(value: object) -> bool:
    """Whether a value may have thousands of members, or has a member that may."""
    if isinstance(value, msgspec.Struct):
        shape = _shape_of(value)
        if shape.plain is not None:
            return False
        return any(map(_is_table, shape.read(value)))
    return isinstance(value, Mapping | list | tuple | AbstractSet | Pairs | Items)


def _writing(value: object, parts: list[bytes], bare: bool = False) -> Steps[None]:
    if not _is_table(value):
        parts.append(_quote(_standard(value)))
        return
    if isinstance(value, msgspec.Struct):
        shape = _shape_of(value)
        # Each is read when its turn comes: a table may change later ones while it is made.
        found = ((name, getattr(value, attribute)) for name, attribute in shape.members)
        members = ((_key(name, bare), member) for name, member in found if member is not None)
    elif isinstance(value, Mapping | Pairs):
        pairs = value.members if isinstance(value, Pairs) else value.items()
        members = ((_key(key, bare), member) for key, member in pairs)
    else:
        assert isinstance(value, list | tuple | AbstractSet | Items)
        parts.append(b"[")
        items = value.members if isinstance(value, Items) else value
        for item in sorted(items) if isinstance(value, AbstractSet) else items:
            yield from _writing(item, parts, bare)
            parts.append(b",")
            yield
        _close(parts, b"]")
        return
    parts.append(b"{")
    for key, member in members:
        if _is_table(member):
            parts.append(key)
            yield from _writing(member, parts, bare)
        else:
            parts.append(key + _quote(_standard(member)))
        parts.append(b",")
        yield
    _close(parts, b"}")


def _close(parts: list[bytes], closing: bytes) -> None:
    if parts[-1] == b",":
        parts[-1] = closing
    else:
        parts.append(closing)


def _key(key: object, bare: bool) -> bytes:
    if isinstance(key, str):
        return _quote(key) + b":"
    if isinstance(key, int):
        return b"%d:" % key if bare else b'"%d":' % key
    return _quote(_standard(key)) + b":"


# Each character is looked at once, also in a text without an end, or in blanks without a ":" behind them.
_TEXT = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))', re.DOTALL)
_BLANKS_OF_KEY = re.compile(r"(?<=[{,])[ \t\r\n]++|(?<![ \t\r\n])[ \t\r\n]++(?=:)")
_KEY_BEGIN = re.compile(r"(?<=[{,])(?=[\w$-]{1,100}:)")
_KEY_END = re.compile(r"(?<=[\w$]):")
_A_TEXT = "\0"


def _with_quoted_keys(text: str) -> str:
    """Quote the keys that have no quotes. The texts are taken out meanwhile, so that only keys have a ":" behind."""
    parts = _TEXT.split(text)
    outside = _BLANKS_OF_KEY.sub("", _A_TEXT.join(parts[::2]))
    outside = _KEY_END.sub('":', _KEY_BEGIN.sub('"', outside))
    found = outside.split(_A_TEXT)
    if len(found) != len(parts[::2]):
        raise NotJson("the JSON has a zero byte outside of its texts")
    parts[::2] = found
    return "".join(parts)


def _without_null_members(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_null_members(member) for name, member in value.items() if member is not None}
    return [_without_null_members(each) for each in value] if isinstance(value, list) else value


_BLANK = " \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*")
# The shortest text of a double has 17 digits, and up to five zeros before them.
_NUMBER = re.compile(r"-?[0-9]{1,20}(?![0-9.eE])|-?[0-9]{1,20}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_WORD = re.compile(r"-?[0-9]{1,20}|[A-Za-z_$][\w$]{0,99}")
_CONSTANTS = {"true": True, "false": False, "null": None}


class _Reader:
    """Reads the dialects by recursive descent. Each method moves `at` past the text that it read."""

    def __init__(self, raw: bytes | bytearray | memoryview | str) -> None:
        try:
            self.text = raw if isinstance(raw, str) else str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise NotJson(f"the JSON is not UTF-8: {error.reason} at byte {error.start}") from None
        self.at = 0

    def read(self) -> Any:
        if not self.text.strip():
            raise NotJson("the text is empty where JSON is expected")
        value = self._value(0)
        self._skip()
        if self.at != len(self.text):
            raise self._wrong("the end")
        return value

    def _value(self, depth: int) -> Any:
        self._skip()
        start = self.text[self.at : self.at + 1]
        if start == '"':
            return self._string()
        if start and start in "{[":
            if depth == MAX_DEPTH:
                raise NotJson(f"the JSON is nested more than {MAX_DEPTH} deep at character {self.at}")
            return self._object(depth + 1) if start == "{" else self._array(depth + 1)
        if match := _NUMBER.match(self.text, self.at):
            self.at = match.end()
            word = match[0]
            return int(word) if word.lstrip("-").isdigit() else float(word)
        match = _WORD.match(self.text, self.at)
        if match and match[0] in _CONSTANTS:
            self.at = match.end()
            return _CONSTANTS[match[0]]
        raise self._wrong("a value")

    def _object(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        self.at += 1
        if self._accept("}"):
            return found
        while True:
            key = self._object_key(depth)
            self._expect(":")
            value = self._value(depth)
            if value is not None:
                found[key] = value
            if self._ends("}"):
                return found

    def _object_key(self, depth: int) -> str | MessageQueue:
        self._skip()
        start = self.text[self.at : self.at + 1]
        if start == '"':
            return self._string()
        if start == "{":
            return self._queue(depth)
        if match := _WORD.match(self.text, self.at):
            self.at = match.end()
            return match[0]
        raise self._wrong("a key")

    def _queue(self, depth: int) -> MessageQueue:
        start, value = self.at, self._value(depth)
        try:
            return msgspec.convert(value, MessageQueue, strict=False)
        except msgspec.ValidationError as error:
            raise NotJson(f"the key at character {start} is no message queue: {error}") from None

    def _array(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        if self._accept("]"):
            return found
        while True:
            found.append(self._value(depth))
            if self._ends("]"):
                return found

    def _string(self) -> str:
        try:
            text, self.at = cast(tuple[str, int], _scan_string(self.text, self.at + 1, False))
        except JSONDecodeError as error:
            raise NotJson(f"the JSON has a broken text: {error}") from None
        # Java writes half of a surrogate pair as "?", too. With it, neither a page nor a terminal could show the text.
        return text if text.isascii() else text.encode(errors="replace").decode()

    def _skip(self) -> None:
        if self.text[self.at : self.at + 1] in _BLANK:  # most values have none before them
            match = _BLANKS.match(self.text, self.at)
            self.at = match.end() if match else self.at

    def _accept(self, character: str) -> bool:
        self._skip()
        if self.text.startswith(character, self.at):
            self.at += 1
            return True
        return False

    def _ends(self, closing: str) -> bool:
        """Read what follows a member: return True at the end, and False if there are more."""
        self._skip()
        found = self.text[self.at : self.at + 1]
        if found not in (closing, ","):
            raise self._wrong(repr(","))
        self.at += 1
        return found == closing

    def _expect(self, character: str) -> None:
        if not self._accept(character):
            raise self._wrong(repr(character))

    def _wrong(self, expected: str) -> NotJson:
        rest = self.text[self.at : self.at + 20]
        found = f"has {rest!r}" if rest else "ends"
        return NotJson(f"the JSON {found} at character {self.at} where {expected} is expected")
