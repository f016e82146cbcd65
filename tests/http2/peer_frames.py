"""The client's side of HTTP/2 for tests, frame by frame: what a correct client never sends can be sent too."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import asynccontextmanager

import hpack

from bench.http2_frames import frame, settings_frame
from sparrowmq.http2.limits import Limits
from sparrowmq.kernel import frame_layout as frames
from sparrowmq.kernel.http2 import Http2

KINDS = {
    frames.DATA: "data",
    frames.HEADERS: "headers",
    frames.RST_STREAM: "reset",
    frames.SETTINGS: "settings",
    frames.PING: "ping",
    frames.GOAWAY: "goaway",
    frames.WINDOW_UPDATE: "window",
    frames.CONTINUATION: "continuation",
}
OPENING = frames.PREFACE + settings_frame({})
CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test.Test/Echo"),
    (":authority", "here"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def block(pairs=CALL):
    """The header block of some headers, which needs no table."""
    return b"".join(b"\0" + _string(name.encode()) + _string(value.encode()) for name, value in pairs)


def path(name, *more):
    """The headers of a call of another method."""
    return [(key, name if key == ":path" else value) for key, value in CALL] + list(more)


def _string(raw):
    return bytes(hpack.hpack.encode_integer(len(raw), 7)) + raw


def headers(stream_id, pairs=CALL, flags=frames.END_HEADERS):
    return frame(frames.HEADERS, flags, stream_id, block(pairs))


def data(stream_id, payload, flags=0):
    return frame(frames.DATA, flags, stream_id, payload)


def message(stream_id, body, flags=frames.END_STREAM):
    return data(stream_id, b"\0" + len(body).to_bytes(4, "big") + body, flags)


GZIP = ("grpc-encoding", "gzip")


def compressed(stream_id, size, flags=frames.END_STREAM):
    """A message of zeros."""
    raw = gzip.compress(bytes(size))
    return data(stream_id, b"\1" + len(raw).to_bytes(4, "big") + raw, flags)


def call(stream_id, body=b"", pairs=CALL):
    return headers(stream_id, pairs) + message(stream_id, body)


def headers_in(block, decoder=None):
    """The headers of a block, by their names."""
    return dict((decoder or hpack.Decoder()).decode(block))


def split(raw):
    """The frames in some bytes: kind, flags, stream, payload."""
    found = []
    while raw:
        size = int.from_bytes(raw[:3], "big")
        kind, flags = raw[3], raw[4]
        found.append((KINDS.get(kind, kind), flags, int.from_bytes(raw[5:9], "big"), raw[9 : 9 + size]))
        raw = raw[9 + size :]
    return found


class Peer:
    """A client that sends bytes and reads frames."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self._decoder = hpack.Decoder()

    def send(self, *pieces):
        self.writer.write(b"".join(pieces))

    async def next(self):
        """The next frame, or None at the end of the connection."""
        try:
            head = await asyncio.wait_for(self.reader.readexactly(9), 60)
            payload = await asyncio.wait_for(self.reader.readexactly(int.from_bytes(head[:3], "big")), 60)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        kind = KINDS.get(head[3], head[3])
        if kind == "headers":
            payload = dict(self._decoder.decode(payload))
        return kind, head[4], int.from_bytes(head[5:9], "big"), payload

    async def until(self, kind, stream_id=None):
        """The next frame of a kind, or None at the end of the connection."""
        while (found := await self.next()) is not None:
            if found[0] == kind and stream_id in (None, found[2]):
                return found
        return None

    async def answer(self, stream_id):
        """The body and the last headers of a stream."""
        body, last = b"", {}
        while (found := await self.next()) is not None:
            kind, flags, of, payload = found
            if of != stream_id:
                continue
            if kind == "data":
                body += payload
            elif kind == "headers":
                last = payload
                if flags & frames.END_STREAM:
                    break
            elif kind == "reset":
                return body, {"reset": int.from_bytes(payload, "big")}
        return body, last

    async def is_served(self):
        """Whether the connection still handles pings; its other frames are thrown away."""
        self.send(frame(frames.PING, 0, 0, b"are you?"))
        return await self.until("ping") is not None


@asynccontextmanager
async def connected(port, opening=OPENING):
    """A connection to a server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(opening)
        yield Peer(reader, writer)
    finally:
        writer.close()


async def demand_header(address):
    """Demand that a port serves connections with a PROXY header, and no others."""
    port = int(address.rpartition(":")[2])
    async with connected(port, b"PROXY TCP4 192.0.2.1 198.51.100.1 5632 8081\r\n" + OPENING) as peer:
        assert await peer.is_served()
    async with connected(port, OPENING) as peer:
        assert await peer.next() is None


KINDS_OF_METHODS = {
    "/test.Test/Echo": frames.UNARY,
    "/test.Test/Talk": frames.STREAMING,
    "/test.Test/TalkLater": frames.SILENT,
}


class Served:
    """A connection of the kernel that has begun, and what came of it.

    Attributes:
        events: the message of each whole unary call, `begun` and `more` of a stream, and `ended`; by stream.
    """

    def __init__(self, limits=None, opening=OPENING):
        self.events = []
        self.now = 100.0
        self.http2 = Http2(KINDS_OF_METHODS, (limits or Limits()).of_connection)
        self.receive(opening)
        self.http2.take()

    def receive(self, *pieces, most=1 << 30):
        for stream in self.http2.feed(b"".join(pieces), self.now, most):
            if stream.is_closed:
                self.events.append((stream.stream_id, "ended"))
            elif stream.kind == frames.UNARY:
                self.events.append((stream.stream_id, stream.message))
            else:
                is_new = (stream.stream_id, "begun") not in self.events
                self.events.append((stream.stream_id, "begun" if is_new else "more"))
        return self

    def stream(self, stream_id=1):
        return self.http2.streams[stream_id]

    def sent(self):
        return split(self.http2.take())

    def resets(self):
        return [
            (stream_id, int.from_bytes(payload, "big"))
            for kind, _, stream_id, payload in self.sent()
            if kind == "reset"
        ]

    def data_sizes(self):
        return [(stream_id, len(payload)) for kind, _, stream_id, payload in self.sent() if kind == "data"]

    @property
    def code(self):
        return None if self.http2.fault is None else self.http2.fault.code

    def answer(self, stream_id, message=b""):
        self.http2.answer(self.stream(stream_id), message)
