"""The headers of requests."""

from __future__ import annotations

import pytest

from sparrowmq.http2 import request_headers
from sparrowmq.http2.request_headers import (
    BadHeaders,
    check_trailers,
    request_of,
)
from tests.http2.peer_frames import CALL

MORE = [("x-a", "1"), ("x-a", "2"), ("content-length", "12"), ("x-b", "é")]


def raw(*more, base=CALL):
    return [(name.encode(), value.encode("latin-1")) for name, value in [*base, *more]]


def without(name):
    return [pair for pair in CALL if pair[0] != name]


def test_a_request_is_read():
    request = request_of(raw(*MORE), 10_000)
    assert (request.method, request.path, request.authority) == ("POST", "/test.Test/Echo", "here")
    assert request.headers["x-a"] == "2"
    assert request.headers["x-b"] == "é"
    assert request.body_bytes == 12
    assert request.list_bytes == sum(len(name) + len(value) + 32 for name, value in raw(*MORE))


@pytest.mark.parametrize(
    "pairs",
    [
        raw(base=without(":method")),
        raw(base=without(":path")),
        raw(base=without(":scheme")),
        raw(base=[(name, "" if name == ":path" else value) for name, value in CALL]),
        raw((":path", "/other")),
        raw(base=[*CALL[:1], *CALL]),
        raw(base=[(":status", "200"), *CALL]),
        raw(("X-Upper", "1")),
        raw(("", "1")),
        raw(("a b", "1")),
        raw(("connection", "close")),
        raw(("transfer-encoding", "chunked")),
        raw(("te", "gzip")),
        raw(("x", "a\nb")),
        raw(("x", "a\rb")),
        raw(("x", "a\0b")),
        raw(("content-length", "-1")),
        raw(("content-length", "1,1")),
        raw(("content-length", "1"), ("content-length", "1")),
        raw(("content-length", "²")),
    ],
)
def test_wrong_headers_are_refused_each_time(pairs):
    for _ in range(2):
        with pytest.raises(BadHeaders):
            request_of(pairs, 10_000)


@pytest.mark.parametrize(("name", "good", "bad"), [("x-known", "1", "1\n2"), ("te", "trailers", "gzip")])
def test_a_value_is_checked_though_its_name_is_known(name, good, bad):
    assert request_of(raw((name, good)), 10_000).headers[name] == good
    with pytest.raises(BadHeaders):
        request_of(raw((name, bad)), 10_000)


def test_headers_that_change_with_each_call_fill_no_memory():
    for number in range(3000):
        request = request_of(raw(("x-id", str(number)), ("x-text", "x" * 200)), 10_000)
        assert request.headers["x-id"] == str(number)
    assert len(request_headers._KNOWN) <= 1024
    assert max(len(value) for _, value in request_headers._KNOWN) < 100


def test_names_that_a_client_invents_fill_no_memory():
    for number in range(3000):
        request_of(raw((f"x-{number}", "1"), ("x" * 200, "1")), 10_000)
    assert len(request_headers._NAMES) <= 1024
    assert max(map(len, request_headers._NAMES)) < 100


def test_headers_above_the_limit_are_counted_and_not_kept():
    request = request_of(raw(("x-a", "1"), ("x-b", "x" * 1000), ("x-c", "1")), 500)
    assert request.list_bytes > 1300
    assert "x-a" in request.headers
    assert "x-b" not in request.headers and "x-c" not in request.headers
    with pytest.raises(BadHeaders):
        request_of(raw(("x-b", "x" * 1000), ("X", "1")), 500)


def test_trailers_are_checked():
    check_trailers([(b"x-last", b"1")])
    with pytest.raises(BadHeaders):
        check_trailers([(b":path", b"/")])
