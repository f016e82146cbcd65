"""The JSON bodies of requests and replies, by which fuzzers make their own."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from sparrowmq.protocol.requests import bodies, client_bodies, offset_bodies
from sparrowmq.protocol.wire.body import Body


def kinds_in(*modules: ModuleType) -> Iterator[type[Body]]:
    """Each body that modules have."""
    for module in modules:
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Body) and kind is not Body:
                yield kind


BODY_KINDS: Final = tuple(dict.fromkeys(kinds_in(bodies, client_bodies, offset_bodies)))
