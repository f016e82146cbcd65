"""Attacks by gRPC: any method of the port, by any identity, aimed at one of the victim's things.

    sound      a call that succeeds for the account that owns the thing (grpc_sound.py)
    swapped    the same, but with the attacker's own topic, group or both
    mangled    any field may be absent, or be that of another thing

The methods are those that the port serves, and the fields are those of their messages. So a new method or field is
attacked from its first day. The value of a field is that of the thing, if the thing has a value for a field of this
name; else a name of the field's kind, as in `attacks.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from sparrowmq.grpc.port import Methods
from sparrowmq.grpc.wire_types import message_class
from sparrowmq.http2.calls import Streaming
from sparrowmq.loop.clock import SystemClock
from tests.fuzz.access.attacks import PROPERTY_NAMES, chosen_text
from tests.fuzz.access.victim import Target
from tests.grpc.scripted import ScriptedBrokers

_FIXED: Final[Mapping[tuple[str, str], tuple[Any, ...]]] = {
    ("Broker", "name"): ("broker-0", "broker-0", "broker-0", "broker-1"),
    ("Broker", "id"): (0,),
    ("MessageQueue", "id"): (0, 0, -1),
    ("FilterExpression", "type"): (0, 1, 1, 2),
    ("Digest", "type"): (0,),
    ("Resource", "resource_namespace"): ("",),
    ("Address", "host"): ("127.0.0.1",),
}
_BY_NAME: Final[Mapping[str, tuple[Any, ...]]] = {
    "client_type": (1, 2, 3, 4),
    "message_type": (1, 1, 2, 3, 4, 4),
    "resolution": (0, 1, 1, 2),
    "source": (0, 1, 2),
    "body_encoding": (0,),
    "body_digest": (None,),
    "batch_size": (1, 4, 32),
    "code": (20000, 20000, 50100),
    "tag": ("t", ""),
    "message_group": ("", "", "", "one"),
    "message_id": ("01AB", "7F00000100002A9F0000000000000001"),
    "priority": (None, None, 1),
    "lite_topic": (None,),
    "suspend": (None, True),
    "delivery_timestamp": (None, None, 1_900_000_000),
}
_SECONDS: Final = {"long_polling_timeout": (0, 0, 1), "invisible_duration": (0, 10, 30, 60)}
_NUMBERS: Final = (0, 0, 1, 1, 2, 4, 16, -1)


class Method(NamedTuple):
    """A method of the port.

    Attributes:
        is_stream: whether it may have several answers.
        is_silent: whether its stream of requests stays open.
    """

    path: str
    request: Any
    answer: Any
    is_stream: bool
    is_silent: bool

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Call(NamedTuple):
    """An attack.

    Attributes:
        ends_after_s: the client cancels the call so soon; None if it waits.
    """

    method: Method
    client_id: str
    requests: list[Any]
    ends_after_s: float | None

    def __str__(self) -> str:
        shown = " ".join(" ".join(str(each).split()) for each in self.requests)
        ends = "" if self.ends_after_s is None else f", cancelled after {self.ends_after_s * 1e3:.1f} ms"
        return f"{self.method.name} of {self.client_id}{ends}: {shown[:600]}"

    @property
    def names(self) -> frozenset[str]:
        """The names of all topics and groups in the requests. Of commands only what the first one wants to consume,
        as its answer is read alone; and a producer may announce any topic."""
        found = self.requests
        if self.method.is_silent:
            found = [each.settings.subscription for each in found if each.HasField("settings")][:1]
        return frozenset(name for each in found for name in _names(each))


@cache
def methods() -> tuple[Method, ...]:
    """The methods that a port serves."""
    served = Methods(ScriptedBrokers(), SystemClock(), _NoTasks()).by_path()  # type: ignore[arg-type]
    return tuple(_method(path, each) for path, each in sorted(served.items()))


class _NoTasks:
    def spawn(self, run: Any, name: str = "") -> None:
        run.close()


def _method(path: str, served: Any) -> Method:
    name = path.rpartition("/")[2]
    is_stream = isinstance(served, Streaming)
    try:
        kinds = message_class(f"{name}Request"), message_class(f"{name}Response")
    except KeyError:  # both ways are commands
        kinds = message_class(f"{name}Command"), message_class(f"{name}Command")
    return Method(path, *kinds, is_stream, is_stream and served.may_be_silent)


class Maker:
    """Makes the messages of a mangled call."""

    def __init__(self, rng: random.Random, target: Target, body: bytes, now_s: int) -> None:
        self._rng = rng
        self._target = target
        self._body = body
        self._now_s = now_s

    def made(self, kind: Any) -> Any:
        found = kind()
        self._fill(found, "", 0)
        return found

    def _fill(self, into: Any, inside: str, depth: int) -> None:
        chosen = {group.name: self._one_of(group) for group in into.DESCRIPTOR.oneofs}
        for field in into.DESCRIPTOR.fields:
            group = field.containing_oneof
            is_other = group is not None and len(group.fields) > 1 and chosen[group.name] != field.name
            if not is_other and not self._leaves_out(into, field, depth):
                self._set(into, field, inside, depth)

    def _leaves_out(self, into: Any, field: Any, depth: int) -> bool:
        is_left_out = self._rng.random() < (0.3 if depth > 1 else 0.05)
        return is_left_out and field.name not in ("name", "body", "message_id")

    def _one_of(self, group: Any) -> str:
        names = [field.name for field in group.fields]
        return "settings" if "settings" in names and self._rng.random() < 0.6 else str(self._rng.choice(names))

    def _set(self, into: Any, field: Any, inside: str, depth: int) -> None:
        rng, name = self._rng, field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in rng.sample(self._property_names(), rng.choice((0, 0, 0, 1, 2))):
                getattr(into, name)[key] = chosen_text(rng, "topic")
        elif field.is_repeated and field.message_type is not None:
            for _ in range(self._count(name)):
                self._fill(getattr(into, name).add(), name, depth + 1)
        elif field.is_repeated:
            values = [self._value(into, field, inside) for _ in range(rng.choice((0, 0, 1)))]
            getattr(into, name).extend(each for each in values if each is not None)
        elif field.message_type is None:
            value = self._value(into, field, inside)
            if value is not None:
                setattr(into, name, value)
        elif field.message_type.name in ("Duration", "Timestamp"):
            seconds = self._seconds(name)
            if seconds is not None:
                getattr(into, name).seconds = seconds
        elif _BY_NAME.get(name) != (None,):
            getattr(into, name).SetInParent()
            self._fill(getattr(into, name), name, depth + 1)

    def _count(self, name: str) -> int:
        return self._rng.choice((1, 1, 1, 1, 2, 0))

    def _property_names(self) -> Sequence[str]:
        return PROPERTY_NAMES

    def _seconds(self, name: str) -> int | None:
        choices = _BY_NAME.get(name) or _SECONDS.get(name) or (0, 1, 60, self._now_s)
        seconds: int | None = self._rng.choice(choices)
        return seconds

    def _value(self, into: Any, field: Any, inside: str) -> Any:
        rng = self._rng
        if field.type == field.TYPE_BYTES:
            return self._body
        kind, name = into.DESCRIPTOR.name, field.name
        if kind == "Resource" and name == "name":
            name = "group" if inside == "group" else "topic"
        elif (kind, name) in _FIXED:
            return rng.choice(_FIXED[kind, name])
        own = self._target.get(name)
        if own is not None and self._takes_own():
            return rng.choice(own) if isinstance(own, tuple) else own
        if name in _BY_NAME:
            return rng.choice(_BY_NAME[name])
        if field.type == field.TYPE_STRING:
            return chosen_text(rng, name) or self._other_text()
        if field.type == field.TYPE_BOOL:
            return rng.random() < 0.5
        return rng.choice(_NUMBERS)

    def _takes_own(self) -> bool:
        return self._rng.random() < 0.7

    def _other_text(self) -> str:
        texts = [value for value in self._target.values() if isinstance(value, str)]
        return self._rng.choice([*texts, "theirs"])


def walk(found: Any) -> Iterator[Any]:
    """A message and all messages in it."""
    yield found
    for field, value in found.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                yield from walk(each)


def _names(request: Any) -> Iterator[str]:
    return (each.name for each in walk(request) if each.DESCRIPTOR.name == "Resource")


def codes_of(answer: Any) -> frozenset[int]:
    """The codes of all statuses in an answer."""
    return frozenset(each.code for each in walk(answer) if each.DESCRIPTOR.name == "Status")
