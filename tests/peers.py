"""Somebody who asks a handler, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sparrowmq.protocol import hosts
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.peer import Peer


class Asker:
    """A `Peer` that notes what it is told."""

    def __init__(self, version: int = 409, language: str = "JAVA", address: str = "127.0.0.1:5000") -> None:
        self.address = address
        self.host = hosts.pack(address)
        self.version = version
        self.told: list[tuple[Request[Any], bytes]] = []
        self.closed = False
        self.language = language
        self.principal: Any = None
        self.certificate: str | None = None
        self._on_end: list[Callable[[Any], object]] = []

    def call(self, request: Any, body: bytes = b"", *, timeout_s: float = 3.0) -> asyncio.Future[Any]:
        raise AssertionError(f"{request} was not expected")

    def tell(self, request: Request[Any], body: bytes = b"") -> None:
        self.told.append((request, body))

    def on_end(self, callback: Callable[[Any], object]) -> None:
        self._on_end.append(callback)

    def close(self) -> None:
        self.closed = True
        for callback in self._on_end:
            callback(self)


def _is_a_peer(asker: Asker) -> Peer:
    return asker
