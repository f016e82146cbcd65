"""Every function that reads what a stranger wrote: given nonsense it returns, or raises what it says, and soon.

spoiled example ── decoder ── a value, or an error of ours: all else is a fault
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.errors import SparrowError
from sparrowmq.filter import grammar
from sparrowmq.filter.tree import Texts
from sparrowmq.protocol import delay_levels, hosts, names, signature, subscription
from sparrowmq.protocol.messages import batch, compression, message_id, properties, record, trace
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Role
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire import json as wire_json
from sparrowmq.protocol.wire.frame import FrameReader
from tests.fuzz import nonsense
from tests.fuzz.body_kinds import BODY_KINDS
from tests.fuzz.frames import EXAMPLES, Frames, made
from tests.records import encoded

# A decoder that takes longer on a few hundred bytes is a way to stop a server.
SLOW_S: Final = 1.0
LONGEST_TOPIC: Final = "t" * 200
_RECORDS: Final = tuple(
    encoded(topic, 1, b"body" * 9, b"TAGS\x01a\x02KEYS\x01k\x02", queue_offset=3, crc=crc)
    for topic in ("T", LONGEST_TOPIC)
    for crc in (False, True)
)
_TEXTS: Final = tuple(text.encode("utf-8", "surrogatepass") for text in (*nonsense.TEXTS, *nonsense.NAMES))
_EXPRESSIONS: Final = (
    b"a > 5 AND b IS NULL OR c BETWEEN -1 AND 1e3",
    b"NOT (a NOT IN ('x', 'y''z') AND b = TRUE) OR c <> 0x1F",
    b"a CONTAINS 'x' AND b STARTSWITH 'y' OR 3.5 <= c",
)
_HANDLE: Final = str(RecallHandle("T", "broker-a", 1_800_000_000_000, "7F00000100002A9F0000000000000000")).encode()
_TRACES: Final = tuple(
    trace.encode(one).encode()
    for one in (
        trace.PubTrace(1, "g", "T", "id", "a", None, "127.0.0.1:10911", 3, 1, trace.TracedKind.NORMAL, "id", True),
        trace.SubBeforeTrace(1, "g", "r", "id", 0, "k"),
        trace.SubAfterTrace("r", "id", 1, True, "k", trace.Reaction.SUCCESS, 1, "g"),
        trace.EndTransactionTrace(1, "g", "T", "id", None, "k", "127.0.0.1:10911", None, "UNKNOW", False),
    )
)
_HEADERS: Final = tuple(row.header for row in ROWS if row.header is not None)


@dataclass(frozen=True)
class Decoder:
    """One function of one argument.

    Attributes:
        examples: what it can read; what it gets is one of these, spoiled.
    """

    name: str
    decode: Callable[[bytes], object]
    examples: Sequence[bytes]


@dataclass
class Tried:
    """What came of it: runs by decoder, how many of them were refused, and what must not be."""

    runs: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


def decoders(rng: random.Random) -> list[Decoder]:
    return [*_of_the_wire(rng), *_of_messages(rng), *_of_texts()]


def _of_the_wire(rng: random.Random) -> list[Decoder]:
    frames = Frames(rng, Role.BROKER)
    commands = [frames.next().frame for _ in range(200)]
    jsons = [*EXAMPLES[:3], *(made(rng, kind) for kind in BODY_KINDS for _ in range(3))]
    return [
        Decoder("frames", _frames, commands),
        Decoder("headers", lambda raw: _headers(rng, raw), commands),
        Decoder("json", wire_json.loads, jsons),
        Decoder("bodies", lambda raw: rng.choice(BODY_KINDS).decode(raw), jsons),
        Decoder("registration", RegisterBrokerBody.decode, [RegisterBrokerBody().encode(), *jsons]),
        Decoder("settings", settings_text.parse, [EXAMPLES[4], b"a=\\u00e4\n#x\nb : c"]),
    ]


def _of_messages(rng: random.Random) -> list[Decoder]:
    rows = b"".join(_RECORDS)
    kinds = (SysFlag.COMPRESSION_ZLIB, SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD)
    packed = [compression.compress(b"body" * 99, kind) for kind in kinds]

    def inflate(raw: bytes) -> bytes:
        return compression.decompress(raw, SysFlag.COMPRESSED | rng.randrange(8) << 8)

    return [
        Decoder("batch", batch.decode, [EXAMPLES[3]]),
        Decoder("record", record.decode, _RECORDS),
        Decoder(
            "records",
            lambda raw: [record.check(one) or record.outline(one) for one in record.walk(raw)],
            [rows],
        ),
        Decoder("starts", record.starts, [rows]),
        Decoder("properties", _properties, [b"TAGS\x01a\x02KEYS\x01k l\x02WAIT\x01true\x02", *_TEXTS]),
        Decoder("inflate", inflate, packed),
        Decoder("hosts", hosts.unpack, [hosts.pack("127.0.0.1:10911"), hosts.pack("[::1]:1")]),
    ]


def _of_texts() -> list[Decoder]:
    return [
        _of_text("message id", message_id.parse_offset_id, b"7F00000100002A9F0000000000000000"),
        _of_text("tags", subscription.parse_tags, b"a || b"),
        _of_text("topics", names.check_topic, b"orders"),
        _of_text("groups", names.group_of, b"%RETRY%billing"),
        _of_text("addresses", hosts.split_address, b"127.0.0.1:1", b"[::1]:10911", b"host:1"),
        _of_text("delay levels", delay_levels.DelayLevels.parse, b"1s 5s 10s 1m 2h 1d"),
        _of_text(
            "signature",
            lambda text: signature.SigningKey("secret").has_signed({"a": text, "Signature": text}, b""),
            b"a",
        ),
        _of_text("sql", _sql, *_EXPRESSIONS),
        _of_text("recall handle", RecallHandle.parse, _HANDLE),
        _of_text("trace", trace.decode, *_TRACES),
    ]


def _of_text(name: str, decode: Callable[[str], object], *examples: bytes) -> Decoder:
    """Few of the examples are nonsense themselves, or little of what follows a first check would be reached."""
    return Decoder(name, lambda raw: decode(raw.decode("utf-8", "replace")), [*examples * 60, *_TEXTS])


def try_all(seed: int, runs: int, tell: Callable[[int], None] = lambda done: None) -> Tried:
    """`runs` runs, in turn of all decoders."""
    rng = random.Random(seed)
    every = decoders(rng)
    tried = Tried()
    for done in range(0, runs, len(every)):
        for decoder in every:
            whole = rng.choice(decoder.examples)
            try_one(decoder, nonsense.spoiled(rng, whole) if rng.random() < 0.9 else whole, tried)
        if done // len(every) % 5000 == 0:
            tell(done)
        if len(tried.violations) >= 5:
            break
    return tried


def try_one(decoder: Decoder, raw: bytes, tried: Tried) -> None:
    """Run a decoder once, and note what must not be."""
    tried.runs[decoder.name] = tried.runs.get(decoder.name, 0) + 1
    began = time.perf_counter()
    try:
        decoder.decode(raw)
    except SparrowError:
        tried.refused[decoder.name] = tried.refused.get(decoder.name, 0) + 1
    except BaseException as error:
        tried.violations.append(f"{decoder.name} raised {error!r} for {raw[:400]!r}")
        if not isinstance(error, Exception):
            raise
    if (took := time.perf_counter() - began) > SLOW_S:
        tried.violations.append(f"{decoder.name} took {took:.1f} s for {len(raw)} bytes: {raw[:400]!r}")


def _frames(raw: bytes) -> None:
    for serializer, header, body in FrameReader().feed(raw):
        codec.decode(serializer, header, body)


def _headers(rng: random.Random, raw: bytes) -> None:
    for serializer, header, body in FrameReader().feed(raw):
        command = codec.decode(serializer, header, body)
        command.ext_fields()
        row = BY_CODE.get(command.code)
        command.header(row.header if row and row.header else rng.choice(_HEADERS))


def _sql(text: str) -> bool:
    parsed = grammar.parse(text)
    return parsed.matches(Texts([None, "5", "a", ""][: len(parsed.names)] + [None] * (len(parsed.names) - 4)))


def _properties(raw: bytes) -> Any:
    found = Properties.decode(raw)
    found.put("TAGS", "b")
    return properties.parse(raw), found.encode(), found.tags_code
