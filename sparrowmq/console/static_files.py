"""Keeps the scripts, styles and fonts that NiceGUI serves, as they leave: read, compressed and given headers once.

    browser ── GET /_nicegui/3.18.0/static/... ──> guard ──> shelf: there? ──> sent in one piece
                                                               not yet? ──> NiceGUI, compressed, put there

Otherwise each browser that comes for the first time has two dozen files read in pieces by threads, passed through three
layers and compressed. What NiceGUI itself calls immutable is kept, as its version is in the addresses. It is the
same for all who may come so far, and bounded.
"""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PLACE: Final = "/_nicegui/"
_MOST_BYTES: Final = 8 << 20
_LEAST_BYTES: Final = 500  # what is smaller is not worth it
_SQUEEZABLE: Final = ("text/", "application/javascript", "application/json", "image/svg")
# With these an answer would be another one.
_SPECIAL: Final = ("range", "if-none-match", "if-modified-since", "if-range")


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


class Shelf:
    """An ASGI application before NiceGUI's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, bool], Kept] = {}
        self._size = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers({})
        is_plain = scope["type"] == "http" and scope["method"] == "GET" and _PLACE in scope["path"]
        if not is_plain or scope["query_string"] or any(name in headers for name in _SPECIAL):
            await self._app(scope, receive, send)
            return
        key = scope["path"], "gzip" in headers.get("accept-encoding", "")
        kept = self._kept.get(key)
        if kept is not None:
            await send({"type": "http.response.start", "status": 200, "headers": kept.headers})
            await send({"type": "http.response.body", "body": kept.body})
            return
        await self._fetch(key, scope, send)

    async def _fetch(self, key: tuple[str, bool], scope: Scope, send: Send) -> None:
        """Have NiceGUI answer, and keep what may be kept."""
        start: Message = {}
        parts: list[bytes] = []
        is_whole = False

        async def take(message: Message) -> None:
            nonlocal is_whole
            if message["type"] == "http.response.start":
                start.update(message)
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                is_whole = not message.get("more_body", False)

        await self._app(_uncompressed(scope), _Patient(), take)
        body = b"".join(parts)
        headers = MutableHeaders(raw=list(start["headers"]))
        # Half a script would be kept for all who come later.
        if not is_whole or headers.get("content-length", str(len(body))) != str(len(body)):
            raise RuntimeError(f"{scope['path']} was not served whole")
        is_text = headers.get("content-type", "").startswith(_SQUEEZABLE)
        if key[1] and is_text and len(body) >= _LEAST_BYTES and "content-encoding" not in headers:
            body = await asyncio.to_thread(_gzipped, body)
            headers["content-encoding"] = "gzip"
            headers["content-length"] = str(len(body))
            headers.add_vary_header("accept-encoding")
        if start["status"] == 200 and "immutable" in headers.get("cache-control", ""):
            self._keep(key, Kept(headers.raw, body))
        await send({**start, "headers": headers.raw})
        await send({"type": "http.response.body", "body": body})

    def _keep(self, key: tuple[str, bool], kept: Kept) -> None:
        before = self._kept.pop(key, None)
        self._size += len(kept.body) - (len(before.body) if before is not None else 0)
        self._kept[key] = kept
        while self._size > _MOST_BYTES:
            self._size -= len(self._kept.pop(next(iter(self._kept))).body)


class _Patient:
    """What is asked for without a browser, so that no answer is broken off because the first one went elsewhere."""

    def __init__(self) -> None:
        self._asked = False

    async def __call__(self) -> Message:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": b"", "more_body": False}


def _uncompressed(scope: Scope) -> Scope:
    """The same request from somebody who does not know gzip."""
    return {**scope, "headers": [each for each in scope["headers"] if each[0] != b"accept-encoding"]}


def _gzipped(body: bytes) -> bytes:
    return zlib.compress(body, 6, wbits=31)
