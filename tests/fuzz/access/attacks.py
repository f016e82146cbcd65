"""Attacks: any request code, by any identity, aimed at one of the victim's things.

A case is an identity and a seed. From the seed come the code, the thing, and the value of each field of the code's
struct: that of the thing, if the thing has a value for a field of this name; else a name of the field's kind (topic,
group, client, ...). Bodies are made in the same way from the structs of `body_kinds.py`, or are messages, batches and
forged half messages. So a new code, field or body is attacked from its first day. Unlike `tests/fuzz/frames.py`, most
requests are well formed, or they would only show that a broker refuses nonsense.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Access, Role, Row
from sparrowmq.protocol.requests.user_headers import UserEntry, UserPolicies
from sparrowmq.protocol.wire.body import Body
from tests.fuzz.access.identities import IDENTITIES, Identity
from tests.fuzz.access.judge import ALLOWED
from tests.fuzz.access.victim import OWNER, REPLY_TOPIC, UNIQUE_IDS, Target
from tests.fuzz.body_kinds import BODY_KINDS
from tests.records import encoded

# Where a message's body begins in its record.
BODY_AT: Final = 88


# What attackers may use, from where they go on: their own topic and group, and the topic that is open to all.
_GROUPS: Final = {
    "consumer_group": "theirs",
    "group": "theirs",
    "producer_group": "theirs",
    "group_name": "theirs",
}
OWN: Final[dict[str, Target]] = {
    "own": {"topic": "theirs", "queue_id": 0, "client_id": "their@1", "writer": "theirs", **_GROUPS},
    "open": {"topic": "RMQ_SYS_TRACE_TOPIC", "queue_id": 0, **_GROUPS},
}
# Names by what is in a field's name; the first that fits counts. A list with None has the seed's own choice of numbers.
_KINDS: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("topic", (
        "orders", "asks", "jobs", "theirs", "theirs-2", "%RETRY%owners", "%DLQ%owners", "%RETRY%theirs", "new-topic",
        REPLY_TOPIC, "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_STAGED", "TBW102",
    )),
    ("group", (
        "theirs", "theirs", "theirs-2", "owners", "poppers", "owner-producers", "locks", "waiters",
        "CID_RMQ_SYS_TRANS", "new",
    )),
    ("username", ("owner-account", "denied-account", "other-account", "new-account")),
    ("subject", ("User:owner-account", "User:denied-account", "User:other-account", "User:reader-account")),
    ("resource", ("Topic:orders", "Topic:*", "Group:owners", "*")),
    ("actions", ("All", "Sub")),
    ("decision", ("Allow", "Deny")),
    ("policy_type", ("Custom", "Default")),
    ("source_ips", ("127.0.0.0/8",)),
    ("attributes", ("",)),
    ("user_type", ("Super", "Normal")),
    ("user_status", ("enable", "disable")),
    ("client", ("owner@1", "their@1", "their@2")),
    ("key", ("order-1", "order-2", "order-3", "order-4", *UNIQUE_IDS)),
    ("broker_name", ("broker-0",)),
    ("cluster", ("DefaultCluster",)),
    ("addr", ("127.0.0.1:10911",)),
    ("expression_type", ("TAG", "SQL92")),
    ("sub", ("*", "t", "a IS NULL")),
    ("expression", ("*", "t")),
    ("writer", ("query", "theirs")),
    ("run", ("run-1", "run-2")),
    ("attempt", ("attempt", "theirs")),
    ("perm", ("PUB|SUB", "DENY")),
    ("admin", ("true",)),
)  # fmt: skip
_PLACES: Final = frozenset({"commit_log_offset", "offset"})
_FLAGS: Final = (bool, bool | None)  # a send is a `batch`, and a commit has one
_NUMBERS: Final = (0, 0, 0, 0, 1, 1, 2, 4, 16, 32, -1)
_SYS_FLAGS: Final = (0, 0, 4, 4, 4, 5, 8, 12)  # no pull may wait
_BODIES: Final = {kind.__name__: kind for kind in BODY_KINDS}
_BODIES["RegisterBrokerBody"] = RegisterBrokerBody
_BODIES["UserEntry"] = UserEntry
_BODIES["UserPolicies"] = UserPolicies
_WANTED: Final = {
    34: "Heartbeat",
    41: "LockQueues",
    42: "LockQueues",
    46: "ClientConfigCheck",
    200: "GroupConfig",
    103: "RegisterBrokerBody",
    3001: "UserEntry",
    3002: "UserEntry",
    3006: "UserPolicies",
    3007: "UserPolicies",
}
_SERVED: Final = tuple(row for row in ROWS if row.served_by & (Role.BROKER | Role.NAMESRV))
# What makes and ends transactions, batches and replies has more states than one request shows.
_LOADED: Final = [row for row in _SERVED if row.code in {34, 37, 32001, 32002, 310, 325, 370, 41, 42, 11, 12, 33, 36}]
# What any account may ask for, if it has the right on the topic or group.
_DECIDING: Final = [
    *_LOADED,
    *(
        row
        for row in _SERVED
        if row.access in (Access.READ, Access.WRITE, Access.CLIENT) and row.served_by & Role.BROKER
    ),
]
# How often such an account does so.
_NEAR: Final = 0.6
_SWAPS: Final[tuple[Target, ...]] = (
    {},
    {},
    {"topic": "orders"},
    {"topic": "orders", **_GROUPS},
    {"topic": "theirs", **_GROUPS},
    _GROUPS,
)
# The fields that say which thing a request means. A place alone says that too.
_NAMING: Final = frozenset({"commit_log_offset", "recall_handle", "writer", "offset", "extra_info"})
PROPERTY_NAMES: Final = tuple(
    value for name, value in vars(Property).items() if name.isupper() and isinstance(value, str)
)


class Case(NamedTuple):
    """One attack, which can be repeated. Its text is `identity:seed`."""

    identity: str
    seed: int

    def __str__(self) -> str:
        return f"{self.identity}:{self.seed}"


class Attack(NamedTuple):
    code: int
    fields: dict[str, str]
    body: bytes

    @property
    def is_for_namesrv(self) -> bool:
        return BY_CODE[self.code].served_by == Role.NAMESRV

    def __str__(self) -> str:
        return f"{self.code} {self.fields} {self.body[:300]!r}"


@dataclass
class Known:
    """What attackers know: how the victim's things are named, captured frames, and where their own messages are.

    `log_end` is where the next message will be: an attacker can count, and a record must name its own place.
    """

    targets: dict[str, Target]
    captured: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    log_end: Callable[[], int] = int


def attack(case: Case, known: Known) -> Attack:
    """The request of a case."""
    rng = random.Random(case.seed)
    identity = IDENTITIES[case.identity]
    if identity.replays and known.captured:
        return _replayed(rng, known)
    is_near = identity.has_a_right and rng.random() < _NEAR
    return _Maker(rng, known, identity, is_near).attack()


def _replayed(rng: random.Random, known: Known) -> Attack:
    """A captured frame with another code. With its own code it repeats what the owner did; only TLS prevents that."""
    code, fields, body = known.captured[rng.randrange(len(known.captured))]
    others = [int(row.code) for row in _SERVED if row.code != code]
    return Attack(rng.choice(others), fields, body)


class _Maker:
    """Makes one request. A near one is right except for one thing: the victim's topic or group, or its handle."""

    def __init__(self, rng: random.Random, known: Known, identity: Identity, is_near: bool) -> None:
        self._rng = rng
        self._known = known
        self._body_sent = identity.body
        self._is_near = is_near
        if is_near:
            self._row = rng.choice(_DECIDING)
            targets = [known.targets[name] for name in _fitting(self._row, known.targets)]
            self._target = {**rng.choice(targets), **rng.choice(_SWAPS)}
            return
        self._row = rng.choice(_SERVED)
        if rng.random() < 0.5:
            self._row = rng.choice(_LOADED)
        name = rng.choice((*OWN, *sorted(known.targets)) if rng.random() < 0.3 else sorted(known.targets))
        self._target = OWN.get(name) or known.targets[name]
        if known.places and rng.random() < 0.3:  # the victim's thing, at a place of an attacker's message
            place = rng.choice(known.places[-16:])
            self._target = {**self._target, **dict.fromkeys(_PLACES & self._target.keys(), place)}

    def attack(self) -> Attack:
        rng, row = self._rng, self._row
        fields = self._fields(row)
        if rng.random() < 0.05:
            fields[rng.choice(PROPERTY_NAMES)] = self._text("")
        return Attack(int(row.code), fields, self._body(row))

    def _fields(self, row: Row) -> dict[str, str]:
        fields = {}
        hints = msgspec.structs.fields(row.header) if row.header else ()
        for known in hints:
            if known.required or self._rng.random() < (0.9 if self._is_near else 0.5):
                fields[known.encode_name] = _shown(self._value(known.name, known.type, 0))
        return fields

    def _value(self, name: str, kind: Any, depth: int) -> Any:
        rng = self._rng
        own = None if kind in _FLAGS else self._target.get(name)
        if own is not None and (self._is_near or rng.random() < 0.8):
            return rng.choice(own) if isinstance(own, tuple) else own
        if name == "properties":
            return self._properties()
        if get_origin(kind) in (Union, types.UnionType):
            kind = rng.choice([each for each in get_args(kind) if each is not type(None)])
        if get_origin(kind) is Annotated:  # an int within bounds
            kind = get_args(kind)[0]
        if get_origin(kind) in (list, set, frozenset):
            return [self._value(name, get_args(kind)[0], depth + 1) for _ in range(rng.choice((0, 1, 1, 2)))]
        if get_origin(kind) is dict:
            key, value = get_args(kind)
            return {_shown(self._value("topic", key, depth + 1)): self._value(name, value, depth + 1)}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(kind, depth)
        if kind is bool:
            return rng.random() < 0.5
        return self._number(name) if kind in (int, float) else self._text(name)

    def _struct(self, kind: type[msgspec.Struct], depth: int) -> dict[str, Any]:
        hints = get_type_hints(kind)
        return {
            each.encode_name: self._value(each.name, hints.get(each.name, each.type), depth + 1)
            for each in msgspec.structs.fields(kind)
            if depth < 6
        }

    def _number(self, name: str) -> int:
        rng = self._rng
        if name == "queue_id":
            return rng.choice((0, 0, 0, 0, 0, 1, -1))
        if name == "sys_flag":
            return rng.choice(_SYS_FLAGS)
        if name in ("commit_or_rollback", "sub_version"):
            return rng.choice((8, 12, 0))
        if name == "suspend_timeout_millis":
            return 0
        if "offset" in name and self._known.places and rng.random() < 0.5:
            return rng.choice(self._known.places[-64:])
        if "offset" in name and rng.random() < 0.5:
            return int(rng.choice(self._offsets()))
        return rng.choice(_NUMBERS)

    def _offsets(self) -> list[int]:
        return [value for target in self._known.targets.values() for name, value in target.items() if "offset" in name]

    def _text(self, name: str) -> str:
        rng = self._rng
        if found := chosen_text(rng, name):
            return found
        if name == "recall_handle" or rng.random() < 0.1:
            due = 1_800_000_000_000 + rng.randrange(1 << 40)
            return str(RecallHandle(rng.choice(("orders", "theirs")), "broker-0", due, self._text("key")))
        texts = [value for value in self._target.values() if isinstance(value, str)]
        return rng.choice(texts) if texts else "theirs"

    def _properties(self) -> str:
        """A few properties; those of the broker itself too."""
        rng = self._rng
        found = {"UNIQ_KEY": f"7F00000100002A9F{rng.randrange(1 << 40):016}"}
        for name in rng.sample(PROPERTY_NAMES, rng.randrange(5)):
            found[name] = self._property(name)
        if rng.random() < 0.3:
            found |= {"TRAN_MSG": "true", "PGROUP": rng.choice(("owner-producers", "theirs"))}
        if rng.random() < 0.3:
            found |= {"REPLY_TO_CLIENT": rng.choice(("owner@1", "their@1"))}
        return render({name: value for name, value in found.items() if value})

    def _property(self, name: str) -> str:
        rng = self._rng
        if "TOPIC" in name:
            return rng.choice(("orders", "theirs", "asks", "%RETRY%owners"))
        if "GROUP" in name:
            return rng.choice(("owners", "owner-producers", "theirs"))
        if "UNIQ" in name:  # of a message, or of the one that this message recalls
            return rng.choice(UNIQUE_IDS)
        if "KEY" in name:
            return self._text("key")
        if name == "TRAN_OWNER" or "MSG" in name:
            return rng.choice(("true", OWNER.access_key))
        return str(rng.choice((0, 1, 3, 5)))

    def _body(self, row: Row) -> bytes:
        rng = self._rng
        wanted = _WANTED.get(row.code)
        if wanted is not None and rng.random() < 0.95:
            return self._json(_BODIES[wanted])
        if row.code == 32002:
            attempts = rng.choice(({}, {"attempt": 1}, {"theirs": 1}, {"attempt": 0}))
            return msgspec.json.encode({"attempts": attempts})
        if row.code in (32001, 320):
            marks = render({"UNIQ_KEY": f"{rng.randrange(1 << 60):032}"}).encode()
            return batch.encode([batch.BatchPart(self._body_sent, marks)])
        chosen = rng.random()
        if chosen < 0.5:
            return self._forged()
        is_plain = chosen < 0.8 or self._body_sent == ALLOWED
        return self._body_sent if is_plain else self._json(rng.choice(list(_BODIES.values())))

    def _json(self, kind: type[Body]) -> bytes:
        return msgspec.json.encode(self._struct(kind, 0))

    def _forged(self) -> bytes:
        """A record as the broker writes it, in the body of a message."""
        rng = self._rng
        topic = rng.choice(("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", self._text("topic")))
        group = rng.choice(("owner-producers", "theirs"))
        marks = {
            "REAL_TOPIC": "orders",
            "REAL_QID": "0",
            "PGROUP": group,
            "TRAN_MSG": "true",
            "UNIQ_KEY": "0" * 32,
        }
        halves = (target.get("tran_state_table_offset") for target in self._known.targets.values())
        queue_offset = rng.choice([offset for offset in halves if offset is not None] or _NUMBERS)
        return encoded(
            topic,
            0,
            self._body_sent,
            render(marks).encode(),
            queue_offset=queue_offset,
            physical_offset=self._known.log_end() + BODY_AT,
            sys_flag=rng.choice((0, 4)),
        )


def _fitting(row: Row, targets: dict[str, Target]) -> list[str]:
    """The things that a request can mean: those that have the handles in its fields; all if none has."""
    names = {each.name for each in msgspec.structs.fields(row.header)} if row.header else set()
    needed = _NAMING & names
    return sorted(name for name, target in targets.items() if needed <= target.keys()) or sorted(targets)


def chosen_text(rng: random.Random, name: str) -> str:
    """A name of the kind that a field's name shows; "" if it shows none."""
    choices = next((choices for word, choices in _KINDS if word in name), None)
    return "" if choices is None else str(rng.choice(choices))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
