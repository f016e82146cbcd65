"""The headers of a request, checked (RFC 9113, section 8). `kernel.hpack` decompresses them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.kernel.frame_layout import ENTRY_BYTES

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_PSEUDO: Final = (b":method", b":scheme", b":path", b":authority")
_COLON: Final = 58
_MOST_KNOWN: Final = 1024
_LONGEST_KNOWN: Final = 96  # bytes
# Headers that were checked, and names: clients repeat most headers with each call, and the names of the others.
_KNOWN: Final[dict[tuple[bytes, bytes], tuple[str, str]]] = {}
_NAMES: Final[dict[bytes, str]] = {}
_OF_A_CONNECTION: Final = (
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"transfer-encoding",
    b"upgrade",
)


class BadHeaders(Exception):
    """The headers of one request or its trailers break a rule; its stream is reset."""


class RequestHeaders:
    """The headers of one request.

    Attributes:
        headers: the other headers, by their lower-case names. Of a repeated name the last value counts, as in Java:
            the client of RocketMQ 5 for Go signs each retry of a send once more.
        body_bytes: the announced size of the body; -1 if there is none.
        list_bytes: their size as SETTINGS_MAX_HEADER_LIST_SIZE counts.
    """

    __slots__ = ("authority", "body_bytes", "headers", "list_bytes", "method", "path")

    def __init__(self, method: str, path: str, authority: str) -> None:
        self.method = method
        self.path = path
        self.authority = authority
        self.headers: dict[str, str] = {}
        self.body_bytes = -1
        self.list_bytes = 0


def request_of(pairs: Iterable[tuple[bytes, bytes]], most_bytes: int) -> RequestHeaders:
    """Return the request that headers describe. Above `most_bytes` headers are counted and checked, but not kept.

    Raises: BadHeaders, they are not those of a request.
    """
    pseudo: dict[bytes, bytes] = {}
    request = RequestHeaders("", "", "")
    headers = request.headers
    size = 0
    is_regular = False
    for pair in pairs:
        name, value = pair
        size += len(name) + len(value) + ENTRY_BYTES
        if len(name) > 0 and name[0] == _COLON:
            if is_regular or name in pseudo or name not in _PSEUDO:
                raise BadHeaders(f"the header {name!r} is unknown, repeated, or behind others")
            pseudo[name] = value
            continue
        is_regular = True
        key, text = _KNOWN.get(pair) or _learned(name, value)
        if size <= most_bytes:
            if key == "content-length" and key in headers:
                raise BadHeaders("content-length is repeated")
            headers[key] = text
    request.list_bytes = size
    request.method = pseudo.get(b":method", b"").decode("latin-1")
    request.path = pseudo.get(b":path", b"").decode("latin-1")
    request.authority = pseudo.get(b":authority", b"").decode("latin-1")
    if not request.method or not request.path or not pseudo.get(b":scheme"):
        raise BadHeaders("one of :method, :scheme and :path is missing")
    if "content-length" in headers:
        request.body_bytes = _size(headers["content-length"])
    return request


def check_trailers(pairs: Iterable[tuple[bytes, bytes]]) -> None:
    """Check the headers behind a body. Raises: BadHeaders, they are not allowed there."""
    for name, value in pairs:
        _regular(name, value)


def _regular(name: bytes, value: bytes) -> tuple[str, str]:
    """Return a header as text. Raises: BadHeaders."""
    key = _NAMES.get(name)
    if key is None:
        key = _name(name, value)
    if b"\n" in value or b"\r" in value or b"\0" in value:
        raise BadHeaders(f"the value of {name!r} has a line end or a NUL")
    return key, value.decode("latin-1")


def _name(name: bytes, value: bytes) -> str:
    """Return the name of a header as text, and remember it unless its value matters. Raises: BadHeaders."""
    if not _NAME.fullmatch(name):
        raise BadHeaders(f"a header may not be called {name[:60]!r} here")
    if name in _OF_A_CONNECTION or (name == b"te" and value != b"trailers"):
        raise BadHeaders(f"the header {name!r} is of HTTP/1")
    key = name.decode("ascii")
    if name != b"te" and len(name) <= _LONGEST_KNOWN:
        if len(_NAMES) >= _MOST_KNOWN:
            _NAMES.clear()
        _NAMES[name] = key
    return key


def _learned(name: bytes, value: bytes) -> tuple[str, str]:
    """Return a header as text, and remember it if it is short. Raises: BadHeaders."""
    header = _regular(name, value)
    if len(name) + len(value) <= _LONGEST_KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[name, value] = header
    return header


def _size(text: str) -> int:
    size = whole_number(text)
    if size is None:
        raise BadHeaders(f"content-length is {text[:60]!r}")
    return size
