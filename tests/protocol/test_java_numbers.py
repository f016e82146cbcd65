"""sparrowmq.protocol.java_numbers: no body has keys or sets of numbers that all have the same hash."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from msgspec import inspect

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol import requests
from sparrowmq.protocol.requests.bodies import BrokerRoute
from sparrowmq.protocol.requests.client_bodies import Heartbeat, LockQueues
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets, DelayOffsets, ResetOffsets
from sparrowmq.protocol.wire.body import Body
from tests.fuzz.body_kinds import kinds_in

MODULES = [import_module(each.name) for each in iter_modules(requests.__path__, f"{requests.__name__}.")]
HASH_IS_0 = [number * ((1 << 61) - 1) for number in range(1, 30)]
TABLE = dict.fromkeys(map(str, HASH_IS_0), 1)
QUEUES = [{"topic": "t", "brokerName": "b", "queueId": number} for number in HASH_IS_0]


class Route(Body):
    route: BrokerRoute


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Heartbeat, {"consumerDataSet": [{"subscriptionDataSet": [{"topic": "t", "codeSet": HASH_IS_0}]}]}),
        (LockQueues, {"mqSet": QUEUES}),
        (ResetOffsets, {"offsetTable": [queue | {"offset": 1} for queue in QUEUES]}),
        (ConsumerOffsets, {"offsetTable": {"t@g": TABLE}}),
        (DelayOffsets, {"offsetTable": TABLE}),
        (Route, {"route": {"brokerName": "b", "brokerAddrs": dict.fromkeys(TABLE, "a")}}),
    ],
)
def test_numbers_larger_than_javas_are_refused(kind: type[Body], body: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        kind.decode(json.dumps(body).encode())


@pytest.mark.parametrize("kind", [*kinds_in(*MODULES)], ids=lambda kind: kind.__name__)
def test_numbers_in_keys_and_sets_have_limits(kind: type[Body]) -> None:
    found = hashed(inspect.type_info(kind), False, set())
    assert [each for each in found if each.ge is None or each.le is None] == []


def hashed(kind: inspect.Type, is_key: bool, seen: set[type]) -> Iterator[inspect.IntType]:
    """Yield the whole numbers of a type that become keys of tables, or members of sets, or parts of those."""
    if isinstance(kind, inspect.IntType):
        if is_key:
            yield kind
    elif isinstance(kind, inspect.StructType):
        if is_key or kind.cls not in seen:
            seen.add(kind.cls)
            for field in kind.fields:
                yield from hashed(field.type, is_key, seen)
    elif isinstance(kind, inspect.DictType):
        yield from hashed(kind.key_type, True, seen)
        yield from hashed(kind.value_type, is_key, seen)
    elif isinstance(kind, inspect.SetType | inspect.FrozenSetType):
        yield from hashed(kind.item_type, True, seen)
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType):
        yield from hashed(kind.item_type, is_key, seen)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from hashed(each, is_key, seen)
