"""A large registration in JSON, read and written in pieces of 16 KB: 7 MB for 50,000 topics are too much for one step.

    {"filterServerList":[],"topicConfigSerializeWrapper":{...,"topicConfigTable":{"Orders":{...},"Bills":{...}, ... }}}
    rest                                                                        ^ piece         ^ piece       ^ rest

msgspec reads a whole text only, and holds the interpreter lock meanwhile, so a thread would not help. But a table can
be cut wherever a member ends. A cut is right if the members before it, with "{" and "}" around them, are JSON: the
reader of the whole text would be between two members there, too. The end of a topic looks like `},"`, as the end of its
attributes does, so some cuts are wrong, and the next place is tried. A wrong cut finds no JSON, never other topics.

Brokers write JSON without blanks. A large registration that has some cannot be cut, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.wire import json

PIECE_BYTES: Final = 16 << 10
_BEGIN: Final = b'"topicConfigTable":{'
_BETWEEN: Final = b'},"'  # two members
_LAST: Final = b"}}"  # the last member, and the table
_TRIES: Final = 16  # a topic has two such places, if it has attributes, and more only in odd texts
_FAR_BYTES: Final = 4 * PIECE_BYTES  # the end of a table is looked for in this part of its rest
_BACKSLASH: Final = b"\\"
_WRITTEN_AT_ONCE: Final = 100  # topics

Topics = dict[str, TopicConfig]


def pieces(raw: bytes) -> Steps[tuple[Topics, bytes]]:
    """Read the topics of a registration. Return them, and the text with an empty table in their place.

    Raises: NotJson, the text cannot be cut.
    """
    begin = raw.find(_BEGIN) + len(_BEGIN)
    if begin < len(_BEGIN) or raw[begin - len(_BEGIN) - 1 : begin - len(_BEGIN)] == _BACKSLASH:
        raise _uncut(0)
    topics: Topics = {}
    at, is_end = begin, raw[begin : begin + 1] == b"}"
    while not is_end:
        found, at, is_end = yield from _piece(raw, at)
        topics.update(found)
    return topics, raw[:begin] + raw[at:]


def joined(topics: Topics, rest: bytes) -> Steps[bytes]:
    """Write the topics into the text of a registration that has none, as `pieces` returns it."""
    begin = rest.index(_BEGIN) + len(_BEGIN)
    parts, members = [rest[:begin]], iter(list(topics.items()))
    while some := dict(islice(members, _WRITTEN_AT_ONCE)):
        if len(parts) > 1:
            parts.append(b",")
        parts.append(json.dumps(some)[1:-1])
        yield
    parts.append(rest[begin:])
    return b"".join(parts)


def _piece(raw: bytes, at: int) -> Steps[tuple[Topics, int, bool]]:
    """Read some topics from `at` on. Return them, the place of the next one, and whether there is none."""
    for cut, is_end in _places(raw, at):
        found = _read(raw, at, cut)
        yield
        if found is not None:
            return found, cut if is_end else cut + 1, is_end
    raise _uncut(at)


def _places(raw: bytes, at: int) -> Iterator[tuple[int, bool]]:
    """Yield the places after a member at which the piece from `at` may end, and whether its table ends there, too."""
    place = at + PIECE_BYTES
    for _ in range(_TRIES):
        place = raw.find(_BETWEEN, place) + 1
        if not place:
            break
        yield place, False
    place = at
    while place := raw.find(_LAST, place, at + _FAR_BYTES) + 1:
        yield place, True


def _read(raw: bytes, at: int, cut: int) -> Topics | None:
    try:
        return json.decode_standard(b"{%b}" % raw[at:cut], Topics)
    except json.NotJson:
        return None


def _uncut(at: int) -> json.NotJson:
    return json.NotJson(
        f"this large registration cannot be read in pieces from byte {at} on: write its topics as JSON without blanks"
    )
