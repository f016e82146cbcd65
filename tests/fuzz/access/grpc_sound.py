"""Calls by gRPC that succeed for the account that owns the thing, and the choice of an attack from a seed.

A refusal shows access control only if nothing else is wrong with the call. So the fields of a sound call fit each other
and the thing, and test_grpc_access.py sees them succeed for the owner.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sparrowmq.grpc.wire_types import MessageType
from sparrowmq.protocol.messages.property_names import Property
from tests.fuzz.access.attacks import OWN, Case
from tests.fuzz.access.grpc_attacks import Call, Maker, Method, methods, walk
from tests.fuzz.access.identities import IDENTITIES
from tests.fuzz.access.victim import Target

CLIENT_IDS: Final = ("owner-grpc", "owner-grpc", "owner@1", "their@1", "their@2")
_TOPICS: Final = frozenset({"orders", "asks", "jobs", "theirs"})
DUE_S: Final = 600  # the delay of a message for later; a life of a broker is shorter
_CANCELLED: Final = 0.15
_MANGLED: Final = 0.4
_SWAPPED: Final = 0.4  # of the others
_SWAPS: Final = ({"topic": "theirs"}, {"group": "theirs"}, {"topic": "theirs", "group": "theirs"})
# The fields that say which thing a call means, besides its topic and its group.
_NAMING: Final = frozenset({"receipt_handle", "transaction_id", "recall_handle"})
# What only some calls may have; `_settle` adds what gives a message its type.
_LEFT_OUT: Final = frozenset(
    {
        *("lite_topic", "suspend", "body_digest", "dead_letter_queue", "attempt_id", "delivery_timestamp"),
        *("message_group", "priority", "resource_namespace", "trace_context", "born_timestamp"),
    }
)
_SOUND: Final[Mapping[str, tuple[Any, ...]]] = {
    "client_type": (1, 2, 3),
    "message_type": (MessageType.NORMAL, MessageType.NORMAL, MessageType.TRANSACTION),
    "resolution": (1, 2),
    "type": (0, 1),
    "expression": ("*", "t", "t || u"),
    "batch_size": (1, 4, 32),
    "keys": ("order-1", "new-key"),
    "tag": ("t", "u"),
}
_SOUND_SECONDS: Final = {"long_polling_timeout": 0, "invisible_duration": 30}
# An application may set these, and they name other clients and topics.
_PROPERTIES: Final = (
    Property.REPLY_TO_CLIENT,
    Property.CORRELATION_ID,
    Property.BUYER_ID,
    Property.MSG_TYPE,
    "colour",
)


def grpc_attack(case: Case, targets: Mapping[str, Target], now_s: int) -> Call:
    """The call of a case."""
    rng = random.Random(case.seed)
    method = rng.choice(methods())
    client_id, is_mangled = rng.choice(CLIENT_IDS), rng.random() < _MANGLED
    if is_mangled:
        name = rng.choice((*OWN, *sorted(targets)) if rng.random() < 0.2 else sorted(targets))
        maker = Maker(rng, OWN.get(name) or targets[name], IDENTITIES[case.identity].body, now_s)
    else:
        known = {**targets, **OWN} if rng.random() < 0.2 else targets
        target = known[rng.choice(fitting(method, known) or sorted(known))]
        swap = rng.choice(_SWAPS) if rng.random() < _SWAPPED else {}
        maker = SoundMaker(rng, _whole(target) | swap, IDENTITIES[case.identity].body, now_s)
    count = rng.choice((1, 1, 2)) if method.is_silent else 1
    requests = [maker.made(method.request) for _ in range(count)]
    ends_after_s = rng.choice((0.0, 0.001, 0.003)) if rng.random() < _CANCELLED else None
    return Call(method, client_id, requests, ends_after_s)


def sound_call(method: Method, target: Target, client_id: str, seed: int, now_s: int) -> Call:
    """A call that the account which owns the thing may make."""
    maker = SoundMaker(random.Random(seed), _whole(target), b"of the owner", now_s)
    return Call(method, client_id, [maker.made(method.request)], None)


def fitting(method: Method, targets: Mapping[str, Target]) -> list[str]:
    """The things that calls of a method can mean: those of a plain topic, with a handle if the method needs one."""
    needed = handles_in(method.request.DESCRIPTOR)
    return sorted(
        name for name, target in targets.items() if needed <= target.keys() and target.get("topic") in _TOPICS
    )


@cache
def handles_in(kind: Any) -> frozenset[str]:
    """The fields for handles in a message. Those in a `Message` are of messages that a client got."""
    if kind.name == "Message":
        return frozenset()
    inner = [field.message_type for field in kind.fields if field.message_type is not None]
    found = _NAMING.intersection(field.name for field in kind.fields)
    return found.union(*(handles_in(each) for each in inner))


def _whole(target: Target) -> Target:
    """The thing with a group, for calls that name one: one that the owner of its topic may use."""
    return {"group": "owners"} | target


class SoundMaker(Maker):
    """Makes the messages of a sound call: all that name a topic or group name that of the thing."""

    def made(self, kind: Any) -> Any:
        found = super().made(kind)
        for each in walk(found):
            if each.DESCRIPTOR.name == "SystemProperties":
                self._settle(each)
        return found

    def _settle(self, system: Any) -> None:
        """Give a message what its type has. Only a message of no other type is a transaction."""
        if system.message_type == MessageType.TRANSACTION:
            return
        kind = self._rng.choice(("", "", "group", "time", "priority"))
        if kind == "group":
            system.message_group = "one"
        elif kind == "time":
            system.delivery_timestamp.seconds = self._now_s + DUE_S
        elif kind == "priority":
            system.priority = 1

    def _leaves_out(self, into: Any, field: Any, depth: int) -> bool:
        return field.name in _LEFT_OUT

    def _one_of(self, group: Any) -> str:
        names = [field.name for field in group.fields]
        return "settings" if "settings" in names else str(self._rng.choice(names))

    def _count(self, name: str) -> int:
        return self._rng.choice((1, 1, 2)) if name == "messages" else 1

    def _property_names(self) -> Sequence[str]:
        return _PROPERTIES

    def _seconds(self, name: str) -> int | None:
        return _SOUND_SECONDS.get(name, 1)

    def _value(self, into: Any, field: Any, inside: str) -> Any:
        if into.DESCRIPTOR.name == "Broker" and field.name == "name":
            return "broker-0"
        if field.name in _SOUND and field.name not in self._target:
            return self._rng.choice(_SOUND[field.name])
        return super()._value(into, field, inside)

    def _takes_own(self) -> bool:
        return True
