"""Targets of the fuzzer: for each part of the kernel a function that takes any bytes, and some bytes to begin with.

A target may raise what `outcome` in cases.py knows. Anything else is a fault, as is what a sanitizer finds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final
from zlib import crc32

from sparrowmq.kernel import batches, columns, cursor, frames, hpack
from sparrowmq.kernel.http2 import Http2
from sparrowmq.kernel.lanes import Lanes, Sender
from sparrowmq.kernel.log_tail import LogTail, NewEntries, QueueTail
from sparrowmq.kernel.pulls import PullLanes
from tests.kernel import cases

Target = Callable[[bytes], object]

_STREAMS: Final = 16
_SEND: Final = (
    b'{"code":310,"extFields":{"a":"g","b":"T","c":"TBW102","d":"4","e":"0","f":"0","g":"1700000000000","h":"0",'
    b'"i":"KEYS\\u0001a b\\u0002UNIQ_KEY\\u0001AB\\u0002WAIT\\u0001true\\u0002TAGS\\u0001t\\u0002","j":"0","k":"false",'
    b'"m":"false"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":401}'
)
_HALF_PROPERTIES: Final = b'"i":"TRAN_MSG\\u0001true\\u0002PGROUP\\u0001g\\u0002'
_HALF: Final = _SEND.replace(b'"f":"0"', b'"f":"4"').replace(b'"i":"', _HALF_PROPERTIES)
_END: Final = (
    b'{"code":37,"extFields":{"producerGroup":"g","commitLogOffset":"0","tranStateTableOffset":"0",'
    b'"commitOrRollback":"8","fromTransactionCheck":"false","msgId":"AB","transactionId":"AB"},"flag":0,'
    b'"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":401}'
)


def read_records(data: bytes) -> object:
    return cases.findings(data, Random(crc32(data)))


def read_columns(data: bytes) -> object:
    cases.outcome(lambda: cases.row_findings(columns.walk(data)))
    return cases.column_findings(data, Random(crc32(data)))


def read_batch(data: bytes) -> object:
    places = cases.outcome(lambda: batches.find_places(data))
    return cases.batch_findings(data, places, Random(crc32(data))) if isinstance(places, bytes) else None


def read_headers(data: bytes) -> object:
    """Two header blocks of a connection, of which the first byte has the size of the first."""
    reader = hpack.HeaderReader()
    cut = 1 + data[0] if data else 0
    return [cases.outcome(partial(cases.headers, reader, block)) for block in (data[1:cut], data[cut:])]


def read_http2(data: bytes) -> object:
    """A connection: the first byte chooses what the program does with its calls."""
    http2, random = Http2(cases.KINDS, cases.LIMITS), Random(data[:1])
    chunks = (cases.OPENING + data[1:200], data[200:])
    for chunk in chunks:
        while chunk or http2.has_more:
            http2.feed(chunk, 1.0, _STREAMS)
            chunk = b""
            for stream in list(http2.streams.values()):
                cases.outcome(partial(cases.act, http2, stream, random.randrange(12)))
            http2.take()
    http2.end()
    return http2.held_bytes


def read_frames(data: bytes) -> object:
    """Frames of a connection with an open lane for the topic T, after a half message to it."""
    log = LogTail()
    log.limit = 1 << 30
    lanes = Lanes(log, NewEntries(), bytes(8), b"CLUSTER\1c\2", (b"DELAY", b"TIMER"), True, 0x7FFF)
    lanes.max_body_bytes = 1 << 20
    lanes.open_send(b"T", 4, 0, QueueTail())
    lanes.open_transactions(b"HALF", b"END", QueueTail(), QueueTail(), (b"REAL_",))
    pulls = PullLanes()
    pulls.is_open = True  # headers are read, though none has a lane
    sender = Sender(lanes, pulls, bytes(8))
    frames.cut(_frame(_HALF, b"half") + data, (1 << 20, 1 << 16, 10, 1 << 17), sender)
    transactions = lanes.ended, lanes.take_begun()
    answers, size = sender.take_parked().replies(), cursor.In(log.burst.content()).size
    return transactions, lanes.taken_count, answers, size


TARGETS: Final[dict[str, Target]] = {
    "records": read_records,
    "columns": read_columns,
    "batches": read_batch,
    "headers": read_headers,
    "http2": read_http2,
    "frames": read_frames,
}


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with: what cases.py makes."""
    random = Random(71)
    if name in ("records", "columns"):
        made = [cases.outcome(partial(cases.encode, *cases.fields(random, 0))) for _ in range(20)]
        return [each for each in made if isinstance(each, bytes)]
    if name == "batches":
        bodies = [(b"body", cases.pairs(random)) for _ in range(8)]
        messages = [
            (22 + len(body) + len(text)).to_bytes(4, "big")
            + bytes(12)
            + len(body).to_bytes(4, "big")
            + body
            + len(text).to_bytes(2, "big")
            + text
            for body, text in bodies
        ]
        return [*messages, b"".join(messages)]
    if name == "headers":
        return [b"\x10" + cases.header_block(random) for _ in range(20)]
    if name == "http2":
        return [bytes((number,)) + cases.sound_call(random, 1) for number in range(20)]
    half, end = _frame(_HALF, b"the body"), _frame(_END, b"")
    return [_frame(_SEND, b"the body"), half, end, half + end]


def _frame(head: bytes, body: bytes) -> bytes:
    return (4 + len(head) + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body
