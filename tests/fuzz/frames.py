"""Requests of the table as frames: well formed, with fields and bodies spoiled, or nothing that a peer would send.

What a well-formed request holds is read off its header's struct, so a new row of the table is fuzzed from its first
day. The frames are made without the product's encoder, which would refuse most of them.
"""

from __future__ import annotations

import random
import struct
import types
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

import msgspec

from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.message import PullFlag
from sparrowmq.protocol.requests.request_table import ROWS, Role, Row
from sparrowmq.protocol.requests.settings_text import render
from sparrowmq.protocol.wire import json as wire_json
from sparrowmq.protocol.wire.body import Body
from tests.fuzz import nonsense
from tests.fuzz.body_kinds import BODY_KINDS

REPLY: Final = 1
ONE_WAY: Final = 2
PULLS: Final = (11, 361)
LONG_POLL_MS: Final = 10_000
_JSON: Final = msgspec.json.encode
_HEARTBEAT: Final = {
    "clientID": "fuzz@1",
    "producerDataSet": [{"groupName": "fuzzers"}],
    "consumerDataSet": [{
        "groupName": "fuzzers", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [{"topic": "Fuzz", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}],
    }],
}  # fmt: skip
_LOCK: Final = {
    "consumerGroup": "fuzzers",
    "clientId": "fuzz@1",
    "mqSet": [{"topic": "Fuzz", "brokerName": "broker-a", "queueId": 0}],
}
_REGISTRATION: Final = {
    "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 1, "timestamp": 1},
        "topicConfigTable": {"Fuzz": {"topicName": "Fuzz", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}},
    },
    "filterServerList": [],
}
EXAMPLES: Final = (
    _JSON(_HEARTBEAT),
    _JSON(_LOCK),
    _JSON({"groupName": "fuzzers", "retryMaxTimes": 3}),
    batch.encode([batch.BatchPart(b"one", b"TAGS\x01t\x02"), batch.BatchPart(b"two", b"KEYS\x01k\x02")]),
    render({"maxMessageSize": "4194304", "nothing": "1"}),
    _JSON(_REGISTRATION),
    _JSON({"counter": 1, "timestamp": 1}),
    b"a body of no form",
)
# Which of them a request wants.
_WANTED: Final = {34: 0, 41: 1, 42: 1, 200: 2, 320: 3, 25: 4, 318: 4, 103: 5, 322: 6}


class Sent(NamedTuple):
    """One frame; its peer owes an answer unless it is one-way, or a pull that may be held."""

    code: int
    frame: bytes
    opaque: int
    one_way: bool
    may_be_held: bool

    @property
    def answered(self) -> bool:
        return not self.one_way and not self.may_be_held


class Frames:
    """An endless, repeatable row of requests for one server.

    Args:
        role: whose requests are two thirds of all; the others are there too.
    """

    def __init__(self, rng: random.Random, role: Role) -> None:
        self._rng = rng
        self._served = [row for row in ROWS if row.served_by & role]
        self._opaque = 0

    def next(self) -> Sent:
        rng = self._rng
        row = rng.choice(self._served) if rng.random() < 0.67 else rng.choice(ROWS)
        return self.request(row)

    def request(self, row: Row) -> Sent:
        """A request of one row: a third as it should be, the others spoiled here and there."""
        rng = self._rng
        self._opaque += 1
        faults = 0.0 if rng.random() < 0.33 else rng.choice((0.1, 0.5))
        fields = self._fields(row, faults)
        one_way = rng.random() < 0.05
        body = self._body(row, faults)
        header = {
            "code": int(row.code),
            "language": "JAVA",
            "version": rng.choice((0, 317, 409, 479)),
            "opaque": self._opaque,
        }
        command = {**header, "flag": ONE_WAY if one_way else 0, "extFields": fields}
        if rng.random() < 0.2:
            encoded, serializer = binary(command), 1
        else:
            encoded, serializer = _JSON(command), 0
        # A broker holds pops and notifications for up to a minute, longer than the test waits for an answer.
        held = (row.code in PULLS and _as_int(fields.get("sysFlag")) & PullFlag.SUSPEND != 0) or _as_int(
            fields.get("pollTime")
        ) > LONG_POLL_MS
        return Sent(row.code, frame(serializer, encoded, body), self._opaque, one_way, held)

    def answer(self, opaque: int) -> bytes:
        """What a client says that a broker has asked, since it believes that we consume."""
        rng = self._rng
        header = {
            "code": rng.choice((0, 0, 0, 1, 207)),
            "opaque": opaque,
            "flag": REPLY,
            "language": "GO",
            "version": 1,
        }
        body = made(rng, rng.choice(BODY_KINDS)) if rng.random() < 0.7 else nonsense.some_bytes(rng)
        return frame(0, _JSON(header), body)

    def garbage(self) -> bytes:
        """What ends a connection, or a frame that never ends."""
        whole = self.next().frame
        return nonsense.spoiled(self._rng, whole) if self._rng.random() < 0.7 else nonsense.some_bytes(self._rng)

    def _fields(self, row: Row, faults: float) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if row.header is None:
            return {nonsense.text(self._rng): nonsense.text(self._rng) for _ in range(self._rng.randrange(3))}
        hints = msgspec.structs.fields(row.header)
        for known in hints:
            if self._rng.random() >= faults:
                if known.required or self._rng.random() < 0.5:
                    fields[known.encode_name] = self._fitting(known.name, known.type, row)
            elif self._rng.random() < 0.7:
                fields[known.encode_name] = self._any()
        return fields

    def _fitting(self, name: str, kind: Any, row: Row) -> str:
        kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
        kinds = tuple(getattr(each, "__origin__", each) for each in kinds)  # an int within bounds
        if name == row.topic:
            return self._rng.choice(nonsense.TOPICS)
        if name == row.group or "group" in name:
            return self._rng.choice(nonsense.GROUPS)
        if name in ("client_id", "reply_to_client"):
            return "fuzz@1"
        if "addr" in name:
            return "127.0.0.1:10911"
        if name in ("broker_name", "cluster_name"):
            return "broker-a"
        if name == "body_crc32":
            return "0"  # unchecked
        if bool in kinds:
            return self._rng.choice(("true", "false"))
        if int in kinds:
            # What waits, and what is made: neither for ever, nor without end.
            return str(self._rng.randrange(9)) if self._rng.random() < 0.7 else str(nonsense.number(self._rng))
        return nonsense.text(self._rng)

    def _any(self) -> object:
        rng = self._rng
        return rng.choice(
            (str(nonsense.number(rng)), nonsense.text(rng), nonsense.number(rng), None, True, [], {"a": 1})
        )

    def _body(self, row: Row, faults: float) -> bytes:
        rng = self._rng
        chosen = rng.random()
        if chosen < 0.15 and faults:
            return b""
        if chosen < 0.5 or faults == 0:
            wanted = _WANTED.get(row.code)
            whole = rng.choice(EXAMPLES) if wanted is None else EXAMPLES[wanted]
        elif chosen < 0.8:
            whole = made(rng, rng.choice(BODY_KINDS))
        else:
            return nonsense.some_bytes(rng)
        return nonsense.spoiled(rng, whole) if rng.random() < faults else whole


def frame(serializer: int, header: bytes, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), serializer << 24 | len(header)) + header + body


def binary(command: dict[str, Any]) -> bytes:
    """A header as RocketMQ's own serialiser writes it; a code above 32767 loses its upper half, as Java's does."""
    ext = b"".join(
        _counted(name.encode(), 2) + _counted(_shown(value).encode(errors="replace"), 4)
        for name, value in command["extFields"].items()
    )
    head = struct.pack(">hBhii", _short(command["code"]), 0, command["version"], command["opaque"], command["flag"])
    return head + struct.pack(">i", 0) + struct.pack(">i", len(ext)) + ext


def made(rng: random.Random, kind: type[Body]) -> bytes:
    """A body whose members have the right names, and any values."""
    members = {field.encode_name: _member(rng, 0) for field in msgspec.structs.fields(kind)}
    return wire_json.dumps(members, bare_integers=rng.random() < 0.5)


def _member(rng: random.Random, depth: int) -> Any:
    chosen = rng.randrange(8 if depth < 3 else 5)
    if chosen < 2:
        return nonsense.text(rng)
    if chosen < 4:
        return rng.choice((nonsense.number(rng), rng.random(), True, None))
    if chosen == 4:
        return rng.randrange(9)
    if chosen == 5:
        return [_member(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {nonsense.text(rng): _member(rng, depth + 1) for _ in range(rng.randrange(3))}


def _counted(part: bytes, width: int) -> bytes:
    return (len(part) & 0x7FFF if width == 2 else len(part)).to_bytes(width, "big") + (
        part[:0x7FFF] if width == 2 else part
    )


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _short(code: int) -> int:
    return (code + (1 << 15)) % (1 << 16) - (1 << 15)


def _as_int(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 0
