"""The header of a proxy before a connection."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparrowmq.http2.proxy_header import LONGEST_1, ProxyHeader, proxy_header
from sparrowmq.http2.server import GrpcServer
from sparrowmq.protocol import hosts
from tests.http2.peer_frames import OPENING, call, connected

ONE = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 8081\r\n"
ONE_6 = b"PROXY TCP6 2001:db8::1 ::1 5 8081\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
TWO = SIGNATURE + b"\x21\x11\0\x0c" + bytes([192, 0, 2, 1, 198, 51, 100, 1]) + b"\xdc\x04\x1f\x91"
ADDRESS_6 = ipaddress.ip_address("2001:db8::1").packed
TWO_6 = SIGNATURE + b"\x21\x21\0\x27" + ADDRESS_6 + bytes(16) + b"\0\5\x1f\x91" + b"\4\0\0"


@pytest.mark.parametrize(
    ("raw", "host", "port"),
    [
        (ONE, "192.0.2.1", 56324),
        (ONE_6, "2001:db8::1", 5),
        (b"PROXY UNKNOWN\r\n", "", 0),
        (b"PROXY UNKNOWN ::1 ::1 1 2\r\n", "", 0),
        (TWO, "192.0.2.1", 56324),
        (TWO_6, "2001:db8::1", 5),
        (SIGNATURE + b"\x20\0\0\0", "", 0),
        (SIGNATURE + b"\x21\x31\0\x03abc", "", 0),
    ],
)
def test_a_header_names_the_client(raw, host, port):
    assert proxy_header(raw + OPENING) == ProxyHeader(host, port, len(raw))
    for size in range(len(raw)):
        assert proxy_header(raw[:size]) is None


@pytest.mark.parametrize(
    "raw",
    [
        OPENING,
        b"GET / HTTP/1.1\r\n",
        b"\x16\3\1",
        b"PROXY " + b"x" * LONGEST_1,
        b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
        b"PROXY TCP4 nowhere 198.51.100.1 56324 8081\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 -1 8081\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 65536 8081\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.1 " + b"9" * 40 + b" 8081\r\n",
        b"PROXY TCP4 2001:db8::1 198.51.100.1 1 8081\r\n",
        b"PROXY TCP6 192.0.2.1 ::1 1 8081\r\n",
        b"PROXY TCP6 fe80::1%\x1b[31m ::1 1 8081\r\n",
        b"PROXY UDP4 192.0.2.1 198.51.100.1 1 8081\r\n",
        SIGNATURE + b"\x11\x11\0\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\0\x0b" + bytes(11),
        SIGNATURE + b"\x21\x11\xff\xff" + bytes(50),
    ],
)
def test_what_is_no_header_is_refused(raw):
    with pytest.raises(ValueError):
        proxy_header(raw)


@given(some.binary(max_size=60), some.sampled_from([b"", b"PROXY ", SIGNATURE, SIGNATURE + b"\x21"]))
def test_any_bytes_are_a_header_or_refused(raw, begin):
    try:
        header = proxy_header(begin + raw)
    except ValueError:
        return
    assert header is None or header.size <= len(begin + raw)


@given(some.text("0123456789", max_size=9), some.sampled_from(["TCP4", "TCP6"]))
def test_the_address_in_any_header_can_be_packed(port, family):
    host = "192.0.2.1" if family == "TCP4" else "::1"
    try:
        header = proxy_header(f"PROXY {family} {host} {host} {port} 1\r\n".encode())
    except ValueError:
        return
    assert header is not None and hosts.pack(hosts.address_text((header.host, header.port)))


@pytest.mark.parametrize("begin", [ONE, TWO])
async def test_behind_a_proxy_a_call_comes_from_the_address_in_the_header(methods, begin):
    async with GrpcServer(methods.all(), is_behind_proxy=True) as server:
        port = await server.start("127.0.0.1", 0)
        async with connected(port, begin[:9]) as peer:
            await peer.writer.drain()
            peer.send(begin[9:] + OPENING, call(1, b"x"))
            assert (await peer.answer(1))[1] == {"grpc-status": "0"}
        assert str(methods.calls[0].peer) == "192.0.2.1:56324"
        async with connected(port, OPENING) as peer:
            assert await peer.next() is None


async def test_without_the_setting_no_client_can_claim_an_address(server, methods):
    async with connected(server.port, ONE + OPENING) as peer:
        peer.send(call(1, b"x"))
        assert await peer.until("never") is None
    assert methods.calls == []
