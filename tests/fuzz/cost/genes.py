"""Requests as trees whose nodes have counts, so that one change makes a list, a text or a batch longer.

A text is a row of pieces, each repeated; `{i}` in a piece is the number of the repetition. All nodes are plain lists,
so a request can be kept as JSON and played again.

    ["lit", value]            a number, a Boolean, or nothing
    ["text", [[n, piece], ..]]
    ["items", n, node]        a JSON list
    ["table", n, node]        a JSON object with n names
    ["object", {name: node}]
    ["deep", n, piece]        JSON nested n times
    ["raw", node]             a body that is a text and no JSON
    ["batch", n, size, node]  messages of a batch, each with a body of that size and these properties
    ["copies", n, size, node] the same with born times
    ["packed", n, version, topic, filters]  a packed registration with n topics
"""

from __future__ import annotations

import random
import struct
import types
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from sparrowmq.protocol.requests import registration_bodies
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Role
from tests.fuzz.body_kinds import BODY_KINDS, kinds_in
from tests.fuzz.frames import frame

Node = list[Any]
Gene = dict[str, Any]  # of one request: code, fields by name, body

TOPIC: Final = "Fuzz"
WIDE: Final = "wide"
GROUP: Final = "fuzzers"
CLIENT: Final = "fuzz@1"
CODES: Final = tuple(int(row.code) for row in ROWS if row.served_by & Role.BROKER)
NAMESRV_CODES: Final = tuple(int(row.code) for row in ROWS if row.served_by & Role.NAMESRV)
MOST_COUNT: Final = 1 << 20
_KINDS: Final = {kind.__name__: kind for kind in (*BODY_KINDS, *kinds_in(registration_bodies))}
_WANTED: Final = {
    34: "Heartbeat",
    41: "LockQueues",
    42: "LockQueues",
    46: "ClientConfigCheck",
    103: "RegisterBrokerBody",
    200: "GroupConfig",
}
_SENDS: Final = frozenset({10, 310, 324, 325})
_BATCHES: Final = frozenset({320, 32001})
_UNIQUE: Final = "UNIQ_KEY\x01{i}{i}\x02"
# Beginnings, things to repeat, and ends. What is cheap to parse and dear to use is found by combining them.
PIECES: Final = (
    "x", "{i},", "{i} ", "ä", "\x01", "\x02", "\\", '"', "%", "9", "0", "-1", "[", "{", "(", ")", "NOT ", "k{i} ",
    "{i}||",
    "a||", "*", "a = 1", "a CONTAINS 'x' AND ", "a NOT CONTAINS 'x' OR ", "a{i} IS NULL OR ", "a = {i} AND ",
    "a IN ('x', '{i}') OR ", "a STARTSWITH 'x' AND ", "a BETWEEN {i} AND 9 OR ", "REAL_QID\x01\x02", "DELAY\x013\x02",
    "KEYS\x01k{i}\x02", "p{i}\x01v\x02", "TAGS\x01t\x02", "TRAN_MSG\x01true\x02", "TIMER_DELAY_MS\x019999999\x02",
    "TIMER_DEL_UNIQKEY\x01k\x02", "REPLY_TO_CLIENT\x01fuzz@1\x02", "INNER_MULTI_DISPATCH\x01q{i}\x02",
    "RETRY_TOPIC\x01\x02",
    "INNER_MULTI_DISPATCH\x01", "KEYS\x01", _UNIQUE, "a=1\n", "{i}=1;", "orders=PUB,", "127.0.0.{i},", "?", "{i}",
    "a\x01",
)  # fmt: skip
_NUMBERS: Final = (0, 0, 1, 2, 3, 4, 7, 16, 32, 800, 65_535, (1 << 31) - 1, (1 << 63) - 1, -1)
_ESCAPED: Final = 2  # bytes of a character, as a guess


def seed_of(rng: random.Random, code: int) -> Gene:
    """A small and well-formed request."""
    header = BY_CODE[code].header
    fields = {
        each.encode_name: _node(rng, each.name, each.type, 0)
        for each in (_fields(header) if header else ())
        if each.required or rng.random() < 0.4
    }
    return {"code": code, "fields": fields, "body": _body(rng, code)}


def mutated(rng: random.Random, genes: list[Gene], other: Callable[[], Gene]) -> list[Gene]:
    """The requests with one to three changes; what `other` returns may be added as one more."""
    found: list[Gene] = msgspec.json.decode(msgspec.json.encode(genes))  # a deep copy, in a tenth of the time
    for _ in range(rng.choice((1, 1, 2, 3))):
        chosen = rng.random()
        if chosen < 0.06 and len(found) < 3:
            found.insert(rng.randrange(len(found) + 1), other())
        elif chosen < 0.09 and len(found) > 1:
            del found[rng.randrange(len(found))]
        elif chosen < 0.15:
            gene = rng.choice(found)
            gene["fields"][f"x{rng.randrange(9)}"] = _text(rng, 1, rng.choice(PIECES))
        else:
            nodes = [node for gene in found for node in _nodes(gene)]
            _change(rng, rng.choice(nodes))
    return found


def size_of(genes: list[Gene]) -> int:
    """About how many bytes the requests take, without making them."""
    return sum(_size(node) + len(name) for gene in genes for name, node in gene["fields"].items()) + sum(
        _size(gene["body"]) for gene in genes
    )


def frames_of(genes: list[Gene], first: int = 1) -> list[bytes]:
    """The requests as frames; their opaques are `first`, `first` + 1, ..."""
    return [_frame(gene, opaque) for opaque, gene in enumerate(genes, first)]


def _frame(gene: Gene, opaque: int) -> bytes:
    fields = {name: _plain(_made(node)) for name, node in gene["fields"].items()}
    header = {"code": gene["code"], "language": "JAVA", "version": 409, "opaque": opaque, "flag": 0}
    return frame(0, msgspec.json.encode({**header, "extFields": fields}), _bytes(gene["body"]))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _bytes(node: Node) -> bytes:
    if node[0] in ("batch", "copies"):
        kind, count, size, properties = node
        texts = (_made(properties, number) for number in range(count))
        parts = b"".join(_part(b"b" * size, str(text).encode()) for text in texts)
        return parts if kind == "batch" else struct.pack(">i", count) + bytes(12 * count) + parts
    if node[0] == "packed":
        _, count, version, topic, filters = node
        lines = b"".join(_counted(_plain(_made(topic, number)).encode()) for number in range(count))
        ends = [_counted(_plain(_made(each)).encode()) for each in (version, filters)]
        return zlib.compress(ends[0] + struct.pack(">i", count) + lines + ends[1], 1)
    value = _made(node[1] if node[0] == "raw" else node)
    return value.encode("utf-8", "replace") if node[0] == "raw" else msgspec.json.encode(value)


def _part(body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, 0, len(body))
    return head + body + struct.pack(">H", len(properties) & 0xFFFF) + properties


def _counted(piece: bytes) -> bytes:
    return struct.pack(">i", len(piece)) + piece


def _made(node: Node, number: int = 0) -> Any:
    """A node as JSON has it."""
    kind = node[0]
    if kind == "lit":
        return node[1]
    if kind == "text":
        return "".join(_repeated(count, piece, number) for count, piece in node[1])
    if kind == "items":
        return [_made(node[2], each) for each in range(node[1])]
    if kind == "table":
        return {f"{each}": _made(node[2], each) for each in range(node[1])}
    if kind == "object":
        return {name: _made(each, number) for name, each in node[1].items()}
    return msgspec.Raw(str(node[2]).encode() * node[1])


def _repeated(count: int, piece: str, number: int) -> str:
    if "{i}" not in piece:
        return piece * count
    if count == 1:
        return piece.replace("{i}", str(number))
    return "".join([piece.replace("{i}", str(each)) for each in range(count)])


def _size(node: Node) -> int:
    kind: str = node[0]
    if kind == "text":
        return int(sum(count * len(piece) * _ESCAPED for count, piece in node[1])) + 2
    if kind in ("items", "table"):
        return int(node[1]) * (_size(node[2]) + 2) + 2
    if kind == "object":
        return sum(len(name) + 4 + _size(each) for name, each in node[1].items()) + 2
    if kind == "packed":
        return int(node[1]) * (4 + _size(node[3])) + _size(node[2]) + _size(node[4])
    if kind in ("batch", "copies"):
        return int(node[1]) * (int(node[2]) + 22 + _size(node[3]))
    if kind == "raw":
        return _size(node[1])
    return int(node[1]) * len(node[2]) if kind == "deep" else 8


# Seeds ----------------------------------------------------------------------------------------------------------------


def _node(rng: random.Random, name: str, kind: Any, depth: int) -> Node:
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is Annotated:  # an int within bounds
        kind = get_args(kind)[0]
    if get_origin(kind) in (list, set, frozenset):
        return ["items", 1, _node(rng, name, get_args(kind)[0], depth + 1)]
    if get_origin(kind) is dict:
        return ["table", 1, _node(rng, name, get_args(kind)[1], depth + 1)]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = _hints(kind)
        members = _fields(kind) if depth < 5 else ()
        return ["object", {
            each.encode_name: _node(rng, each.name, hints.get(each.name, each.type), depth + 1) for each in members
        }]  # fmt: skip
    if kind is bool:
        return ["lit", rng.random() < 0.5]
    if kind in (int, float):
        return ["lit", {"sys_flag": 4}.get(name, rng.choice((0, 0, 1, 8)))]
    return _text(rng, 1, _name(rng, name))


_fields = cache(msgspec.structs.fields)
_hints = cache(get_type_hints)


def _name(rng: random.Random, name: str) -> str:
    if "topic" in name:
        return rng.choice((TOPIC, TOPIC, WIDE))
    if "group" in name:
        return rng.choice((GROUP, GROUP, "g{i}"))
    if "client" in name:
        return CLIENT
    if name == "kind" or "expression_type" in name:
        return rng.choice(("TAG", "SQL92"))
    if "sub" in name or "expression" in name:
        return rng.choice(("*", "a CONTAINS 'x'"))
    if "broker" in name:
        return "broker-0"
    return {"properties": _UNIQUE, "key": "key", "run": "run-1", "writer": "w{i}"}.get(name, "x")


def _text(rng: random.Random, count: int, piece: str) -> Node:
    return ["text", [[count, piece]]]


def _body(rng: random.Random, code: int) -> Node:
    if code in _SENDS:
        return ["raw", _text(rng, 9, "b")]
    if code in _BATCHES:
        return ["batch", 2, 4, _text(rng, 1, _UNIQUE)]
    if code == 32007:
        return ["copies", 2, 4, _text(rng, 1, _UNIQUE)]
    if code == 103 and rng.random() < 0.5:
        line = _text(rng, 1, "t{i} 8 8 6 SINGLE_TAG")
        return ["packed", 2, _node(rng, "", _KINDS["DataVersion"], 0), line, ["items", 1, _text(rng, 1, "x")]]
    if code == 32002:
        count = ["lit", 1]
        return ["object", {"attempts": ["table", 1, count], "others": ["table", 1, ["table", 1, count]]}]
    if code == 25:
        return ["raw", _text(rng, 1, "a=1\n")]
    kind = _WANTED.get(code)
    if kind is None and rng.random() < 0.7:
        return ["raw", ["text", []]]
    return _node(rng, "", _KINDS[kind or rng.choice(sorted(_KINDS))], 0)


# Changes --------------------------------------------------------------------------------------------------------------


def _nodes(gene: Gene) -> Iterator[Node]:
    for node in (*gene["fields"].values(), gene["body"]):
        yield from _below(node)


def _below(node: Node) -> Iterator[Node]:
    yield node
    children = {
        "items": (2,),
        "table": (2,),
        "raw": (1,),
        "batch": (3,),
        "copies": (3,),
        "packed": (2, 3, 4),
    }.get(node[0], ())
    for at in children:
        yield from _below(node[at])
    if node[0] == "object":
        for each in node[1].values():
            yield from _below(each)


def _change(rng: random.Random, node: Node) -> None:
    kind = node[0]
    if kind in ("items", "table", "deep", "batch", "copies", "packed"):
        node[1] = _count(rng, node[1])
        if kind in ("batch", "copies") and rng.random() < 0.3:
            node[2] = _count(rng, node[2])
    elif kind == "text":
        _change_text(rng, node[1])
    elif kind == "lit":
        node[1] = rng.choice(_NUMBERS)
    elif rng.random() < 0.1 and kind == "object":
        node[:] = ["deep", 8, rng.choice(("[", '{"a":', "[[],"))]


def _change_text(rng: random.Random, pieces: list[list[Any]]) -> None:
    chosen = rng.random()
    if not pieces or (chosen < 0.25 and len(pieces) < 6):
        pieces.insert(rng.randrange(len(pieces) + 1), [1, rng.choice(PIECES)])
    elif chosen < 0.35:
        del pieces[rng.randrange(len(pieces))]
    elif chosen < 0.55:
        rng.choice(pieces)[1] = rng.choice(PIECES)
    else:
        piece = rng.choice(pieces)
        piece[0] = _count(rng, piece[0])


def _count(rng: random.Random, count: int) -> int:
    grown = count * rng.choice((2, 2, 4, 10, 100)) if rng.random() < 0.8 else count // 2
    return min(max(1, grown), MOST_COUNT)
