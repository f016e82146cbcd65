"""A broker's registration: its topics, as JSON or packed.

The packed form is zlib's of counted pieces, each with an int32 before it:

    length | {"counter":3,"timestamp":1700000000000}     the version of the topics
    count  | length | Orders 4 4 6 SINGLE_TAG            name, read queues, write queues, permission, filter type;
             length | ...                                5.x adds {"attribute":"value"}
    length | []                                          filter servers
    ...                                                  5.x adds queue mappings, which are not read

So `order` and `topicSysFlag` are lost on this way. Attributes are read and never written: a name server of 4.9 skips a
line with a sixth word, and so loses the topic, and no name server uses them. The header field `bodyCrc32` is the CRC-32
of the body as sent, without its highest bit. Source: RegisterBrokerBody and TopicConfig, Java 4.9.8 and 5.3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, Final

from msgspec import field

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.java_numbers import Long
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.wire import json
from sparrowmq.protocol.wire.body import REQUEST_BYTES, Body

MAX_INFLATED_BYTES = 16 << 20  # 50,000 topics take 3 MiB
_CHUNK: Final = 64 << 10
_SUMMED_BYTES: Final = 256 << 10

_COUNT = struct.Struct(">i")


class RegisterBrokerBody(Body):
    """A broker's registration, sent to name servers every 30 s."""

    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)
    filter_server_list: list[str] = field(default_factory=list)

    MOST_BYTES: ClassVar[int] = 16 << 20  # tens of thousands of topics

    @property
    def topics(self) -> TopicConfigTable:
        return self.topic_config_serialize_wrapper

    @classmethod
    def decode_in_steps(cls, raw: bytes) -> Steps[RegisterBrokerBody]:
        """Do `of_request` in steps. A large text has no blanks. Raises: RemoteProtocolError, as `of_request`."""
        if not REQUEST_BYTES < len(raw) <= cls.MOST_BYTES:
            return cls.of_request(raw)
        topics, rest = yield from pieces(raw)
        body = json.decode_standard(rest, cls)
        if body.topics.topic_config_table:
            raise json.NotJson("the registration has two tables of topics")
        body.topics.topic_config_table = topics
        return body

    @classmethod
    def unpack_in_steps(cls, raw: bytes | bytearray | memoryview) -> Steps[RegisterBrokerBody]:
        """From the packed form. Its JSON is in no dialect. Raises: RemoteProtocolError, it is damaged, or too large."""
        pieces = _Pieces((yield from _inflated(raw)))
        table = TopicConfigTable(json.decode_standard(pieces.next(), DataVersion))
        for _ in range(pieces.count()):
            topic = _parse_topic(pieces.next())
            table.topic_config_table[topic.topic_name] = topic
            yield
        return cls(table, json.decode_standard(pieces.next(), list[str]))

    def encode_in_steps(self) -> Steps[bytes]:
        """Do `encode` in steps."""
        topics = self.topics
        rest = RegisterBrokerBody(TopicConfigTable(topics.data_version), self.filter_server_list)
        return (yield from joined(topics.topic_config_table, rest.encode()))

    def pack_in_steps(self) -> Steps[bytes]:
        """Write the packed form."""
        topics = self.topics.topic_config_table
        packer = zlib.compressobj(9)
        parts = [packer.compress(_counted(self.topics.data_version.encode()) + _COUNT.pack(len(topics)))]
        for topic in list(topics.values()):
            if part := packer.compress(_counted(_topic_line(topic))):
                parts.append(part)
            yield
        parts.append(packer.compress(_counted(json.dumps(self.filter_server_list))))
        yield
        parts.append(packer.flush())
        return b"".join(parts)


def sum_in_steps(body: bytes) -> Steps[int]:
    """Return the value for `bodyCrc32` of the header; 7 MB take 4 ms."""
    total = 0
    for at in range(0, len(body), _SUMMED_BYTES):
        total = zlib.crc32(body[at : at + _SUMMED_BYTES], total)
        yield
    return total & 0x7FFFFFFF


class _Pieces:
    """Reads counted pieces one after the other."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def count(self) -> int:
        if self._at + _COUNT.size > len(self._raw):
            raise RemoteProtocolError("the packed registration ends too early")
        (count,) = _COUNT.unpack_from(self._raw, self._at)
        self._at += _COUNT.size
        if not 0 <= count <= len(self._raw) - self._at:
            raise RemoteProtocolError(f"the packed registration has a length of {count} where less is left")
        return int(count)

    def next(self) -> bytes:
        start, end = self._at + _COUNT.size, self._at + _COUNT.size + self.count()
        self._at = end
        return self._raw[start:end]


def _inflated(raw: bytes | bytearray | memoryview) -> Steps[bytes]:
    stream, parts, size = zlib.decompressobj(), [], 0
    try:
        for at in range(0, len(raw), _CHUNK):
            packed = bytes(raw[at : at + _CHUNK])
            while packed and size <= MAX_INFLATED_BYTES:
                parts.append(stream.decompress(packed, 4 * _CHUNK))
                size += len(parts[-1])
                packed = stream.unconsumed_tail
                yield
    except zlib.error as error:
        raise RemoteProtocolError(f"the packed registration is damaged: {error}") from None
    if not stream.eof or size > MAX_INFLATED_BYTES:
        raise RemoteProtocolError(f"the packed registration is cut off, or holds more than {MAX_INFLATED_BYTES} bytes")
    return b"".join(parts)


def _parse_topic(line: bytes) -> TopicConfig:
    words = str(line, "utf-8", "replace").split(" ", 5)
    try:
        name, read_queues, write_queues, perm, filter_type = words[:5]
        topic = TopicConfig(name, int(read_queues), int(write_queues), int(perm), filter_type)
    except ValueError:
        raise RemoteProtocolError(f"{line[:100]!r} is no topic of a packed registration") from None
    if len(words) == 6:
        topic.attributes = json.decode_standard(words[5].encode(), dict[str, str])
    return topic


def _topic_line(topic: TopicConfig) -> bytes:
    words: Iterable[Any] = (
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type,
    )
    return " ".join(map(str, words)).encode()


def _counted(piece: bytes) -> bytes:
    return _COUNT.pack(len(piece)) + piece


class BrokerGroup(Body):
    """The addresses of the brokers of one name, by broker id. (Java: BrokerMemberGroup)"""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[Long, str] = field(default_factory=dict)


class BrokerMembers(Body):
    """(Java: GetBrokerMemberGroupResponseBody)"""

    broker_member_group: BrokerGroup = field(default_factory=BrokerGroup)


# A large registration in JSON is read and written in pieces of 16 KB: 7 MB for 50,000 topics are too much for one step.
#
#     {"filterServerList":[],"topicConfigSerializeWrapper":{...,"topicConfigTable":{"Orders":{...},"Bills":{...}, ...}}}
#     rest                                                                        ^ piece         ^ piece       ^ rest
#
# msgspec reads a whole text only, and holds the interpreter lock meanwhile, so a thread would not help. But a table can
# be cut wherever a member ends. A cut is right if the members before it, with "{" and "}" around them, are JSON: the
# reader of the whole text would be between two members there, too. The end of a topic looks like `},"`, and so does the
# end of its attributes. So some cuts are wrong, find no JSON, and the next place is tried.
# Brokers write JSON without blanks. A large registration that has some cannot be cut, and is refused.


PIECE_BYTES: Final = 16 << 10
_TABLE_BEGIN: Final = b'"topicConfigTable":{'
_BETWEEN_MEMBERS: Final = b'},"'  # two members
_LAST_MEMBER_END: Final = b"}}"  # the last member, and the table
_MAX_TRIES: Final = 16  # a topic has two such places, if it has attributes, and more only in odd texts
_FAR_BYTES: Final = 4 * PIECE_BYTES  # the end of a table is looked for in this part of its rest
_BACKSLASH: Final = b"\\"
_TOPICS_PER_STEP: Final = 100  # topics

Topics = dict[str, TopicConfig]


def pieces(raw: bytes) -> Steps[tuple[Topics, bytes]]:
    """Read the topics of a registration. Return them, and the text with an empty table in their place. Raises: NotJson,
    the text cannot be cut.
    """
    begin = raw.find(_TABLE_BEGIN) + len(_TABLE_BEGIN)
    if begin < len(_TABLE_BEGIN) or raw[begin - len(_TABLE_BEGIN) - 1 : begin - len(_TABLE_BEGIN)] == _BACKSLASH:
        raise _not_cut_error(0)
    topics: Topics = {}
    at, is_end = begin, raw[begin : begin + 1] == b"}"
    while not is_end:
        topics_found, at, is_end = yield from _read_piece(raw, at)
        topics.update(topics_found)
    return topics, raw[:begin] + raw[at:]


def joined(topics: Topics, rest: bytes) -> Steps[bytes]:
    """Write the topics into the text of a registration that has none, as `pieces` returns it."""
    begin = rest.index(_TABLE_BEGIN) + len(_TABLE_BEGIN)
    parts, members = [rest[:begin]], iter(list(topics.items()))
    while members_of_step := dict(islice(members, _TOPICS_PER_STEP)):
        if len(parts) > 1:
            parts.append(b",")
        parts.append(json.dumps(members_of_step)[1:-1])
        yield
    parts.append(rest[begin:])
    return b"".join(parts)


def _read_piece(raw: bytes, at: int) -> Steps[tuple[Topics, int, bool]]:
    """Read some topics from `at` on. Return them, the place of the next one, and whether there is none."""
    for cut, is_end in _possible_ends(raw, at):
        topics = _read_topics(raw, at, cut)
        yield
        if topics is not None:
            return topics, cut if is_end else cut + 1, is_end
    raise _not_cut_error(at)


def _possible_ends(raw: bytes, at: int) -> Iterator[tuple[int, bool]]:
    """Yield the places after a member at which the piece from `at` may end, and whether its table ends there, too."""
    place = at + PIECE_BYTES
    for _ in range(_MAX_TRIES):
        place = raw.find(_BETWEEN_MEMBERS, place) + 1
        if not place:
            break
        yield place, False
    place = at
    while place := raw.find(_LAST_MEMBER_END, place, at + _FAR_BYTES) + 1:
        yield place, True


def _read_topics(raw: bytes, at: int, cut: int) -> Topics | None:
    try:
        return json.decode_standard(b"{%b}" % raw[at:cut], Topics)
    except json.NotJson:
        return None


def _not_cut_error(at: int) -> json.NotJson:
    return json.NotJson(
        f"this large registration cannot be read in pieces from byte {at} on: write its topics as JSON without blanks"
    )
