"""Subscriptions: the messages of a topic that a group wants, and the hash that brokers compare instead of tags.

A tag expression is "*" (all) or tags joined by "||": "TagA || TagB". Brokers keep only a 32-bit hash of each message's
tag, so they send a few messages too many ("Aa" and "BB" have the same hash). Consumers compare the tag itself. SQL92
expressions are plain text here; `sparrowmq.filter` parses them.
Source: FilterAPI and SubscriptionData, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import force_setattr

from sparrowmq.errors import InvalidMessage, RemoteProtocolError
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.java_numbers import Long

ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
SEPARATOR: Final = "||"
MOST_TAGS: Final = 2500  # of one subscription: it is read in one piece


_WIRE_NAMES: Final = {
    "expression": "subString",
    "tags": "tagsSet",
    "codes": "codeSet",
    "version": "subVersion",
    "kind": "expressionType",
    "class_filter": "classFilterMode",
}


class Subscription(msgspec.Struct, frozen=True, rename=_WIRE_NAMES):
    """The subscription of a group to one topic. In a heartbeat, all fields but the topic may be absent."""

    topic: str
    expression: str = ALL
    tags: frozenset[str] = frozenset()  # the tags of a tag expression; empty for "*" and for SQL92
    # The hashes of the tags. Always computed here, as the tags are: the C++ client sends zeros.
    codes: frozenset[Long] = frozenset()
    version: int = 0  # grows with each change; nanoseconds from Go, milliseconds from others
    kind: str = TAG  # TAG or SQL92
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
        force_setattr(self, "codes", frozenset(map(string_hash, tags)))

    @property
    def filter_text(self) -> str:
        """The filter in a form that is the same for the same tags in another order."""
        return f" {SEPARATOR} ".join(sorted(self.tags)) or self.expression

    @classmethod
    def build(cls, topic: str, expression: str | None = ALL, kind: str | None = TAG, version: int = 0) -> Subscription:
        """Parse the expression of an application or a pull request. No expression means all messages. Raises:
        InvalidMessage, a tag expression without a tag, such as "||".
        """
        return cls(topic, expression or "", version=version, kind=kind or TAG)

    def wants(self, tag: str | None) -> bool:
        """Whether a consumer takes a message with this tag. The broker decides about SQL92."""
        return not self.tags or tag in self.tags


def parse_tags(expression: str) -> frozenset[str]:
    """The tags of an expression such as "TagA || TagB". Raises: InvalidMessage, it has none, or too many."""
    if expression.count(SEPARATOR) > MOST_TAGS:
        raise InvalidMessage(f"a subscription may have at most {MOST_TAGS} tags; filter by fewer")
    tags = frozenset(tag for part in expression.split(SEPARATOR) if (tag := part.strip()))
    if not tags:
        raise InvalidMessage(f"the tag expression {expression!r} has no tag; write '*' for all, or 'TagA || TagB'")
    return tags


def check_tags(expression: str) -> None:
    """Check that an application's tag expression can match a message.

    Other clients may send brokers any expression, as to Apache's brokers.

    Raises: InvalidMessage, the expression has another operator than "||", or as `parse_tags`.
    """
    parse_tags(expression)
    if "&&" in expression or "|" in expression.replace(SEPARATOR, ""):
        tags = [tag for part in expression.split("|") for tag_part in part.split("&&") if (tag := tag_part.strip())]
        raise InvalidMessage(
            f"the tag expression {expression!r} matches no message: a message has one tag, and '||' is the only "
            f"operator; write {' || '.join(tags)!r} for messages with any of these tags"
        )


# The limits of one heartbeat, which a broker decodes in one piece. A client of an application has a few dozen groups.
HEARTBEAT_BYTES: Final = 512 * 1024
HEARTBEAT_OBJECTS: Final = 2000  # the client, its groups and their subscriptions
HEARTBEAT_MEMBERS: Final = 25_000  # the fields of these, and the tags and hashes of subscriptions


def with_subscriptions(raw: bytes | bytearray | memoryview, request: str) -> bytes:
    """The body of a request that has subscriptions. Raises: RemoteProtocolError, it is too large. Signs are counted
    before the JSON is read. A sign inside a text counts too, which is harmless below the limits.
    """
    body = bytes(raw)
    if (
        len(body) > HEARTBEAT_BYTES
        or body.count(b"{") > HEARTBEAT_OBJECTS
        or body.count(b",") > HEARTBEAT_MEMBERS
        or body.count(SEPARATOR.encode()) > MOST_TAGS
    ):
        raise RemoteProtocolError(
            f"the {request} is too large: at most {HEARTBEAT_BYTES} bytes, {HEARTBEAT_OBJECTS} groups and subscriptions"
            f" together, and {MOST_TAGS} tags; use several clients for more"
        )
    return body
