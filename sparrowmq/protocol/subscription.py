"""Subscriptions: which messages of a topic a group wants, and the hash by which brokers compare tags.

A tag expression is "*" (all) or tags joined by "||": "TagA || TagB". Brokers keep only a 32-bit hash of each message's
tag, so they let through a few messages too many ("Aa" and "BB" have the same hash), and consumers compare the tag
itself. SQL92 expressions are kept as text here; `sparrowmq.filter` understands them.
Source: FilterAPI and SubscriptionData, Java 4.9.8.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from operator import mul
from typing import Final

import msgspec
from msgspec.structs import force_setattr

from sparrowmq.errors import InvalidMessage

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
SEPARATOR: Final = "||"


_WIRE: Final = {
    "expression": "subString",
    "tags": "tagsSet",
    "codes": "codeSet",
    "version": "subVersion",
    "kind": "expressionType",
    "class_filter": "classFilterMode",
}


class Subscription(msgspec.Struct, frozen=True, rename=_WIRE):
    """What a group wants of one topic. In a heartbeat all but the topic may be missing.

    Attributes:
        tags: the tags of a tag expression; empty for "*" and for SQL92.
        codes: the hashes of the tags. Both are always computed here: the C++ client sends zeros.
        version: grows with each change; nanoseconds from Go, milliseconds from others.
        kind: TAG or SQL92.
    """

    topic: str
    expression: str = ALL
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0
    kind: str = TAG
    class_filter: bool = False

    def __post_init__(self) -> None:
        tags: frozenset[str] = frozenset()
        if not self.kind:
            force_setattr(self, "kind", TAG)
        if self.kind == TAG and self.expression in ("", ALL):
            force_setattr(self, "expression", ALL)
        elif self.kind == TAG:
            tags = parse_tags(self.expression)
        force_setattr(self, "tags", tags)
        force_setattr(self, "codes", frozenset(map(java_hash, tags)))

    @classmethod
    def build(
        cls, topic: str, expression: str | None = ALL, kind: str | None = TAG, version: int = 0
    ) -> Subscription:
        """From an expression as an application or a pull request gives it; none at all means everything.

        Raises:
            InvalidMessage: a tag expression without a tag, such as "||".
        """
        return cls(topic, expression or "", version=version, kind=kind or TAG)

    @property
    def takes_all(self) -> bool:
        return self.kind == TAG and self.expression == ALL

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """What a broker may filter its queue by; None when every entry has to be looked at or let through."""
        return None if self.kind != TAG or self.expression == ALL else self.codes

    def wants(self, tag: str | None) -> bool:
        """Whether a consumer takes a message with this tag. SQL92 was decided by the broker."""
        return not self.tags or tag in self.tags


def parse_tags(expression: str) -> frozenset[str]:
    """The tags of an expression such as "TagA || TagB".

    Raises:
        InvalidMessage: there is none.
    """
    tags = frozenset(tag for part in expression.split(SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise InvalidMessage(
            f"the tag expression {expression!r} has no tag; write '*' for all, or 'TagA || TagB'"
        )
    return tags


def string_hash(text: str) -> int:
    """Java's String.hashCode: sum of unit x 31^(units after it) over the UTF-16 units, as a signed 32-bit number."""
    if text.isascii():
        units: bytes | memoryview = text.encode("ascii")
    else:
        units = memoryview(text.encode(_UTF16, "surrogatepass")).cast("H")
    total = 0
    for start in range(0, len(units), _CHUNK):
        part = units[start : start + _CHUNK]
        total = total * _POWERS[_CHUNK - len(part)] + sum(map(mul, part, _POWERS[_CHUNK - len(part) + 1 :]))
    return (total + 0x80000000 & 0xFFFFFFFF) - 0x80000000


@lru_cache(maxsize=16384)
def java_hash(text: str) -> int:
    """`string_hash` for texts that come again, such as tags. Message keys are all different: hash those uncached."""
    return string_hash(text)


_UTF16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_CHUNK = 256
_POWERS = [pow(31, exponent, 1 << 32) for exponent in range(_CHUNK, -1, -1)]  # _POWERS[_CHUNK - n] is 31^n
