"""Sound and damaged input through the kernel, of each of its parts: `python -m tests.kernel.cases SEED COUNT`.

It prints a line for each case, with what came back or was raised. Both forms of the kernel must print the same.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from random import Random
from threading import get_ident
from typing import Any

from sparrowmq.kernel import (
    batches,
    columns,
    cursor,
    follow,
    gathering,
    grpc_messages,
    hpack,
    is_compiled,
    log_tail,
    messages,
    pulls,
    records,
    string_hash,
)
from sparrowmq.kernel.frame_layout import SILENT, STREAMING, UNARY, ConnectionFault, GrpcError
from sparrowmq.kernel.headers import Header
from sparrowmq.kernel.http2 import Http2

SPECIAL = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, -1, -0x80000000)


# They also get what their types do not allow.
encode: Any = records.encode
Writer: Any = records.RecordWriter


def main(seed: int, count: int) -> None:
    random = Random(seed)
    print("compiled" if is_compiled() else "plain", file=sys.stderr)
    for _ in range(count):
        print(case(random))
        print(batch_case(random))
        print(gather_case(random))
        print(follow_case(random))
        print(header_case(random))
        print(hash_case(random))
        print(connection_case(random))
        print(pull_case(random))
        print(message_case(random))


def case(random: Random) -> str:
    """One run of records and what each function says of it, as a digest that begins with a readable part."""
    texts: list[object] = []
    content = b""
    for _ in range(random.randint(1, 4)):
        made = outcome(partial(encode, *fields(random, len(content))))
        content += made if isinstance(made, bytes) else b""
        texts.append(made)
    content = damaged(content, random) if random.random() < 0.7 else content
    texts += findings(content, random)
    texts += column_findings(content, random)
    found = "; ".join(map(str, texts))
    return f"{sha256(found.encode()).hexdigest()[:16]} {len(content)} {texts[-1]!s:.60}"


def fields(random: Random, offset: int) -> tuple[object, ...]:
    hosts = (bytes(8), b"\1" * 20)
    number = random.choice([*SPECIAL, random.getrandbits(31), random.getrandbits(63), 1 << 31, 1 << 63, 1 << 70])
    numbers = [random.choice([0, number]) if random.random() < 0.1 else random.getrandbits(16) for _ in range(7)]
    topic = b"t" * random.choice([1, 9, 127, 128, 300] + [0x8000] * (random.random() < 0.01))
    body = random.randbytes(random.choice([0, 1, 7, 8, 9, 128, 511, 512, 513, 3000]))
    size = random.choice([0, 1, 50, 400] + [0x7FFF, 0x7FFF - 20, 0x7FFF - 21] * (random.random() < 0.05))
    properties = (random.choice([b"K\1v\2", b"p", b"\0", b"__CRC32#\1"]) * size)[:size]
    queue_id, queue_offset, flag, sys_flag, born, stored, times = numbers
    prepared = random.choice([0, 0, offset, -1])
    born_host, store_host = random.choice(hosts), random.choice(hosts)
    shared = (topic, queue_id, sys_flag, born, born_host, stored, store_host, times, prepared)
    return shared, queue_offset, offset, flag, body, properties, random.random() < 0.7


def damaged(content: bytes, random: Random) -> bytes:
    """The content with some bytes changed, taken out, or put in, most often where sizes stand."""
    changed = bytearray(content)
    for _ in range(random.randint(1, 3)):
        at = random.choice([random.randrange(len(changed) or 1), random.randrange(min(112, len(changed)) or 1)])
        match random.randrange(4):
            case 0 if changed:
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                changed[at : at + 4] = (random.choice(SPECIAL) & 0xFFFFFFFF).to_bytes(4, "big")
            case 2:
                del changed[at : at + random.randint(1, 30)]
            case _:
                changed[at:at] = random.randbytes(random.randint(1, 5))
    return bytes(changed)


def findings(content: bytes, random: Random) -> list[object]:
    at, end, place = (random.randint(-2, len(content) + 2) for _ in range(3))
    passed, prepared = records.Passed(), set[int]()
    received: list[messages.DeliveredMessage] = []
    offsets: list[int] = []
    record = records.Record(cursor.In(content))
    return [
        outcome(lambda: records.shape_problem(content)),
        outcome(lambda: records.check(content)),
        outcome(lambda: records.check(content[:end], place, True)),
        outcome(lambda: records.is_sound(content, at, end, place, False)),
        outcome(lambda: records.is_sound(content, 0, len(content), 0, True)),
        outcome(lambda: records.pass_sound(content, 0, random.choice([0, 1 << 60]), passed)),
        (passed.count, passed.last_ms, sorted(passed.finished_halves)),
        outcome(lambda: records.collect_prepared(content, prepared)),
        sorted(prepared),
        outcome(lambda: records.starts(memoryview(content))),
        outcome(lambda: messages.receive(messages.DeliveredMessage, content, received, offsets)),
        offsets,
        [outcome(partial(of_message, each)) for each in received],
        settled(received, random),
        outcome(lambda: records.seal_copy(content)),
        outcome(lambda: record.find(at, end)),
        outcome(lambda: record.find(0, len(content))),
        outcome(record.fields),
        outcome(lambda: (record.has_sound_body(), record.has_right_property_crc(), record.is_unfinished())),
        outcome(lambda: records.property_crc(random.getrandbits(32))),
    ]


def column_findings(content: bytes, random: Random) -> list[object]:
    """Columns of records where they are, and of places that are none."""
    places = sorted(random.randint(-1, len(content) + 1) for _ in range(random.randint(0, 5)))
    begins, ends = (struct.pack(f"={len(some)}q", *some) for some in (places, places[1:]))
    strings = cursor.In(content)
    return [
        outcome(lambda: columns.sound(content, begins, ends, 0, random.random() < 0.5)),
        outcome(lambda: row_findings(columns.place(content, begins, ends))),
        outcome(lambda: row_findings(columns.walk(content))),
        outcome(lambda: pair_findings(strings, cursor.Longs(begins), cursor.Longs(ends), random.randint(-9, 9))),
        outcome(lambda: strings.numbers(cursor.Longs(begins), random.randint(-90, 90), random.choice([4, 8, 5]))),
        outcome(lambda: strings.cut(cursor.Longs(begins), random.choice([0, -1, 1]), cursor.Longs(begins), 1)),
        outcome(lambda: cursor.Longs(content).native_i32()),
    ]


def row_findings(rows: columns.Rows) -> list[object]:
    kept = rows.selected(bytes(index % 3 for index in range(rows.begins.size)))
    found: list[object] = [rows.offset_ids(), kept.offset_ids(), kept.begins.native()]
    found.append(rows.source.cut(rows.body_at, 0, rows.body_end, 0))
    found.append(rows.source.cut(rows.store_timestamp_at, 8, rows.body_at, -16))
    found.append(rows.source.numbers(rows.body_at, -12, 8))
    return [*found, pair_findings(rows.source, rows.topic_end, rows.ends, 2)]


def pair_findings(source: cursor.In, begins: cursor.Longs, ends: cursor.Longs, shift: int) -> list[object]:
    found: list[object] = []
    for shows_crc in (True, False):
        pairs = columns.Pairs(source, begins, shift, ends, shows_crc)
        found += [each.native() for each in (pairs.names_at, pairs.names_end, pairs.values_end, pairs.firsts)]
        for name in (b"K", b"__CRC32#"):
            found.append(source.cut(*with_shifts(*pairs.values(name))))
        odd = outcome(partial(source.values, b"K", pairs.names_at, pairs.names_end, pairs.values_end, begins))
        found.append([each.native() for each in odd] if isinstance(odd, tuple) else odd)
    return found


def with_shifts(begins: cursor.Longs, ends: cursor.Longs) -> tuple[cursor.Longs, int, cursor.Longs, int]:
    return begins, 0, ends, 0


def of_message(message: messages.DeliveredMessage) -> tuple[object, ...]:
    start, tags = messages.topic_start("t"), message._tags()
    numbers = message.offset, message.store_size, message.reconsume_times, message._sys_flag, message._queue_id()
    plain = message._mentions(b"KEYS"), message._queue_if_plain(start, b"KEYS"), message._queue_if_plain(start, b"x")
    return numbers, plain, tags, message._topic(), message._stored_body, message._record(), message.is_unsettled


def settled(received: list[messages.DeliveredMessage], random: Random) -> list[object]:
    """What a queue says while its messages are acknowledged in any order, and some of them twice."""
    queue, found = messages.UnsettledMessages(9, messages.DoneCount()), list[object]()
    queue.home = messages.HomeThread()
    queue.home.thread = get_ident()
    queue.add(received)
    messages.deliver(received, "queue", "settle", None, "", random.choice([None, "receipt"]))
    found += [messages.runs_of(received), len(messages.unspent_of(received))]
    for _ in range(len(received)):
        message = random.choice(received)
        queue.is_watched = random.random() < 0.2
        found += [outcome(message.ack), queue.remove(random.choice(received)), queue.commit_offset]
        found += [queue.unsettled_count, queue.unsettled_bytes, queue.stats.done, queue.last_unsettled_offset]
    queue.is_watched = False
    found += [len(messages.ack_at_once(received)), len(queue.unsettled_messages), queue.remove_all(received)]
    return found


class Answer:
    """A future of a send."""

    def __init__(self) -> None:
        self.result: object = None

    def done(self) -> bool:
        return self.result is not None

    def set_result(self, result: object) -> None:
        self.result = result


def gather_case(random: Random) -> str:
    """Messages of all kinds that are put one after the other, and what becomes of their batches."""
    window = gathering.Window(9, 9999, random.choice([600, 99999]))
    window.in_flight = random.choice([0, 1])
    gather = gathering.Gather(window, 3.0, random.choice([2, 4]), random.choice([200, 9999]), 100)
    for tag, head in ((None, b"UNIQ_KEY\1"), ("a", b"TAGS\1a\2UNIQ_KEY\1"), ("long", b"x" * 8193)):
        gather.learn("t", "n%t", tag, head)
    gather.learn("u", "u", None, b"UNIQ_KEY\1")
    found: list[object] = []
    for _ in range(random.randint(1, 9)):
        arguments: dict[str, Any] = random.choice(
            [
                {},
                {"tag": "a"},
                {"tag": 5},
                {"tag": "long"},
                {"keys": "k"},
                {"keys": "\u00e4"},
                {"keys": ["k"]},
                {"x": 1},
            ]
        )
        body = random.choice([b"", b"x", b"x" * 100, b"x" * 101, "text", None])
        asked = partial(gather.put, random.choice(["t", "u", "v", 1]), body, arguments, random.random() < 0.5, Answer())
        found += [outcome(asked), window.accumulated, window.accumulated_bytes]
        if found[-3] == 1:
            gather.use_ids(gathering.ReservedIds("ID", random.choice([0, 0xFFFF])))
            found.append(outcome(asked))
        window.is_shut = random.random() < 0.05
    gather.close_topic("u")
    gather.close_all()
    for batch in gather.ready:
        sizes = batch.topic, batch.size_bytes, batch.body_bytes, batch.msg_ids
        found += [sizes, batch.encoded(), batch.single_body(), batch.single_properties()]
        batch.succeed(lambda *parts: parts, random.choice([["o"], ["o", "p"]])[: len(batch.futures)], "q", 7, "OK")
        found.append([future.result for future in batch.futures])
    return sha256("; ".join(map(str, found)).encode()).hexdigest()[:16]


def batch_case(random: Random) -> str:
    content = b""
    for _ in range(random.randint(0, 4)):
        body, properties = random.randbytes(random.choice([0, 1, 40])), pairs(random)
        head = (22 + len(body) + len(properties), 0, 0, random.choice(SPECIAL), len(body))
        content += b"".join(number.to_bytes(4, "big", signed=True) for number in head if number < 1 << 31)
        content += body + len(properties).to_bytes(2, "big") + properties
    content = damaged(content, random) if random.random() < 0.4 else content
    places = outcome(lambda: batches.find_places(content))
    found = [places]
    if isinstance(places, bytes):
        found += batch_findings(content, places, random)
    return f"{sha256('; '.join(map(str, found)).encode()).hexdigest()[:16]} {len(content)} {found[-1]!s:.60}"


def pairs(random: Random) -> bytes:
    names, values = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"DELAY", b"", b"x"), (b"", b"true", b"a b", b"\xc3\xa4")
    ends = (b"\2", b"\2", b"\2", b"\1", b"")
    made = [random.choice(names) + b"\1" * (random.random() < 0.9) + random.choice(values) for _ in range(3)]
    return b"".join(each + random.choice(ends) for each in made)


def batch_findings(content: bytes, places: bytes, random: Random) -> list[object]:
    terms = batches.scan(content, places, (b"DELAY", b"TIMER"), random.choice([30, 300]))
    found: list[object] = [terms]
    if terms is None:
        return found
    host = bytes(random.choice([8, 20]))
    topic, numbers = b"t" * random.choice([1, 128]), [random.choice([0, 0, 0, 0, 1 << 40]) for _ in range(2)]
    shared = (topic, numbers[0], 0, 5, host, 6, host, numbers[1], 0)
    crc = random.random() < 0.5
    encoded = outcome(lambda: batches.encode(Writer(shared, crc), content, places, terms, b"C\1c\2", 7, 8))
    found += [encoded, batches.have_unique_keys(terms)]
    offsets = encoded[1] if isinstance(encoded, tuple) else []
    for has_keys, some in ((True, offsets), (False, offsets), (True, [*offsets, 5])):
        entries, queue = log_tail.NewEntries(has_keys), log_tail.QueueTail()
        add = partial(batches.add_entries, entries, queue, content, terms, some, 9000, 1 << 30, 6)
        found += [outcome(add) or 0, queue.next_offset, queue.added_bytes, queue.unwritten.content()]
        found += [len(entries.queues_to_write), entries.added, entries.added_bytes, entries.keys.columns.content()]
    return found


def follow_case(random: Random) -> str:
    """What records of two topics leave in queues and index, with queues that know some of them, and without."""
    content, host = b"", bytes(8)
    for number in range(random.randint(1, 6)):
        flag = random.choice([0, 0, 0, 4, 8, 12])
        shared = (random.choice([b"t", b"t", b"s", b"\xc3"]), number % 2, flag, 5, host, number - 1, host, 0, 0)
        content += encode(shared, number // 2, len(content), 0, b"body", pairs(random) + pairs(random), True)
    content = damaged(content, random) if random.random() < 0.6 else content
    found: list[object] = []
    for knows in (False, True):
        tails = {"t": {0: log_tail.QueueTail(), 1: log_tail.QueueTail()}}
        last_offsets = {tails["t"][0]: random.choice([-1, 150])} if knows else None
        follower, keys = follow.Follower(tails, ("s",)), log_tail.KeyHashes()
        follower.deleted = {"u": 1}
        for begin in (0, random.randint(-2, len(content))):
            found.append(outcome(partial(follower.take, content, begin, random.choice([-1, 90]), last_offsets, 20)))
            found.append(outcome(partial(follow.add_keys, content, begin, keys)))
        found += [(each.next_offset, each.added_bytes, each.unwritten.content()) for each in tails["t"].values()]
        found += [len(follower.queues_to_write), follower.added, follower.added_bytes, follower.followed_ms]
        found += [list(last_offsets.values()) if last_offsets else None]
        found += [follower.keys.columns.content(), keys.columns.content()]
    return f"{sha256('; '.join(map(str, found)).encode()).hexdigest()[:16]} {len(content)} {found[0]!s:.60}"


def header_case(random: Random) -> str:
    """Some header blocks of one connection, whose table they share."""
    reader = hpack.HeaderReader()
    found = [outcome(partial(headers, reader, header_block(random))) for _ in range(3)]
    return f"{sha256('; '.join(map(str, found)).encode()).hexdigest()[:16]} {found[-1]!s:.60}"


def headers(reader: hpack.HeaderReader, block: bytes) -> list[object]:
    found = reader.read(cursor.In(block), 0, len(block))
    return [(each.name, each.value, each.key, each.text, each.fault) for each in found]


def header_block(random: Random) -> bytes:
    coded = (
        b"\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
        b"\x82\x3f\xff",
        b"\x81\xff",
        b"\x84\xff\xff\xff\xff",
    )
    texts = (b"\0", b"\x03x-a", b"\x02te", b"\x08trailers", b"\x02a\n", b"\x7f\x01" + b"v" * 128, *coded)
    block = b""
    for _ in range(random.randint(0, 8)):
        match random.randrange(5):
            case 0:
                block += bytes((0x80 | random.choice((1, 2, 61, 62, 63, 70, 127)),))
            case 1:
                block += random.choice((b"\x20", b"\x3f\xe1\x1f", b"\x3f\xff\xff\xff\xff\x0f", b"\x21"))
            case 2:
                block += bytes((random.choice((0x40, 0, 0x10)),)) + random.choice(texts) + random.choice(texts)
            case 3:
                first = bytes((random.choice((0x40, 0)) | random.randrange(64),))
                block += first + random.choice((b"", b"\1", b"\xff\xff")) + random.choice(texts)
            case _:
                block += random.randbytes(random.randint(0, 6))
    return block


def hash_case(random: Random) -> str:
    """The hash of a text; and hash, search and kind of bytes in a part that may be beyond their end."""
    text = "".join(chr(random.choice((random.randrange(0x80), random.randrange(0x110000)))) for _ in range(9))
    begin, end = random.randint(-1, 12), random.randint(0, 12)
    source = cursor.In(random.randbytes(9))
    steps = source.is_ascii, partial(source.find, source.u8(4)), lambda at, to: source.hash31(at, to, begin << 30)
    return f"{string_hash.string_hash(text)} {[outcome(partial(step, begin, end)) for step in steps]}"


KINDS = {"/u": UNARY, "/s": STREAMING, "/q": SILENT}
LIMITS = (5, 900, 2_000, 20_000, 50_000, 60, 10.0)
OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)


def connection_case(random: Random) -> str:
    """What a connection does with frames of which some are damaged, and what it sends."""
    http2, now, found = Http2(KINDS, LIMITS), 1.0, list[object]()
    raw = OPENING + b"".join(sound_call(random, number) for number in range(1, 2 * random.randint(1, 12), 2))
    raw += b"".join(framed(random) for _ in range(random.choice([0, 0, 1, 3])))
    raw = damaged(raw, random) if random.random() < 0.2 else raw
    while raw or http2.has_more:
        size = random.choice([1, 7, 60, 4_000, 40_000])
        now += random.choice([0, 0, 0.01, 3.0])
        for stream in http2.feed(raw[:size], now, random.choice([1, 2, 16])):
            found.append((stream.stream_id, stream.kind, stream.path, stream.headers, stream.message, stream.is_closed))
        raw = raw[size:]
        for stream in list(http2.streams.values()):
            found.append(outcome(partial(act, http2, stream, random.randrange(12))))
        http2.is_stopped = random.random() < 0.1
        found.append([stream.stream_id for stream in http2.overdue(now)] if random.random() < 0.2 else None)
        found += [[stream.stream_id for stream in http2.unfinished()], http2.take(), http2.has_output, http2.is_waiting]
        found += [http2.held_bytes, http2.pending_bytes, http2.sent_bytes, http2.is_partial, http2.due]
    found += [http2.is_settled, str(http2.fault)]
    http2.end()
    found.append((http2.held_bytes, http2.pending_bytes))
    return f"{sha256('; '.join(map(str, found)).encode()).hexdigest()[:16]} {found[-2]!s:.60}"


def sound_call(random: Random, stream_id: int) -> bytes:
    """A call, cut into frames, and often something that clients send between."""
    end = random.choice([1, 1, 1, 0])
    body = b"".join(
        bytes(1) + size.to_bytes(4, "big") + bytes(size)
        for size in random.choice([(3,), (300,), (9_000, 0), (17_000,)])
    )
    cuts = sorted(random.choice([0, 3, 5, 100, len(body)]) for _ in range(2))
    pieces = [body[: cuts[0]], body[cuts[0] : cuts[1]], body[cuts[1] :]]
    raw = frame(1, 4, stream_id, request(random))
    raw += b"".join(frame(0, end if piece is pieces[2] else 0, stream_id, piece[:16_000]) for piece in pieces)
    between = [
        frame(8, 0, 0, (100_000).to_bytes(4, "big")),
        frame(8, 0, stream_id, (70_000).to_bytes(4, "big")),
        frame(3, 0, stream_id, bytes(4)),
        frame(6, 0, 0, b"12345678"),
        frame(4, 0, 0, b"\0\4" + random.choice([0, 10, 100_000]).to_bytes(4, "big")),
        frame(4, 0, 0, b"\0\1" + bytes(4)),
        frame(1, 5, stream_id, b"\0\1t\1v"),
        frame(2, 0, stream_id, bytes(5)),
    ]
    return raw + (random.choice(between) if random.random() < 0.5 else b"")


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


def framed(random: Random) -> bytes:
    """Some frame, which may be wrong in any way."""
    kind = random.choice([0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 6, 8, 8, 9, random.randrange(256)])
    stream_id = random.choice([1, 1, 3, 3, 5, 7, 9, 0, random.getrandbits(31)])
    flags = random.choice([0, 1, 4, 5, random.randrange(256)])
    match kind:
        case 0:
            body = random.choice([b"", b"abc", bytes(300), bytes(9_000), bytes(17_000)])
            payload = random.choice([0, 0, 0, 1, 2]).to_bytes(1, "big") + len(body).to_bytes(4, "big") + body
            payload = payload * random.choice([1, 1, 2]) + random.choice([b"", b"", b"\0", bytes(6)])
            cut = random.choice([len(payload), 5, 7])
            payload = payload[: min(cut, 16_384)]
        case 1:
            payload = request(random) if random.random() < 0.9 else header_block(random)
        case 8 | 3:
            payload = random.choice([1, 100, 70_000, 0x7FFFFFFF, 0]).to_bytes(4, "big")
        case 4:
            stream_id, flags = 0, random.choice([0, 0, 0, 1])
            settings = [(random.randrange(1, 7), random.choice([0, 1, 10, 16_384, 65_535, 1 << 31])) for _ in range(2)]
            payload = b"".join(name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in settings)
        case _:
            payload = bytes(random.choice([0, 4, 5, 8, 9]))
    return frame(kind, flags, stream_id, payload)


def request(random: Random) -> bytes:
    pairs = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", random.choice([b"/u", b"/u", b"/s", b"/q", b"/x"])),
    ]
    pairs += [(b"content-type", b"application/grpc")] * (random.random() < 0.95)
    more = [(b"grpc-timeout", b"1S"), (b"grpc-timeout", b"x"), (b"grpc-encoding", b"gzip"), (b"grpc-encoding", b"z")]
    more += [(b"content-length", b"8"), (b"content-length", b"-"), (b"te", b"no"), (b"x", b"y" * 900), (b":path", b"/")]
    pairs += random.sample(more, random.choice([0, 0, 0, 1, 2]))
    first = random.choice([b"\0", b"\x40"])
    texts = [[len(each).to_bytes(1, "big") if len(each) < 127 else b"\x7f\x85\x06" for each in pair] for pair in pairs]
    return b"".join(
        first + sizes[0] + name + sizes[1] + value for (name, value), sizes in zip(pairs, texts, strict=True)
    )


def act(http2: Http2, stream: Any, step: int) -> object:
    """What the program may do with a call."""
    match step:
        case 0:
            http2.answer(stream, b"answer")
        case 1:
            http2.send(stream, (b"one", bytes(30_000)))
        case 2:
            http2.finish(stream)
        case 3:
            http2.fail(stream, 5, "no é")
        case 4 if stream.kind in (STREAMING, SILENT):
            return http2.next_message(stream)
        case 5 if stream.kind in (STREAMING, SILENT):
            http2.release(stream)
        case 6:
            http2.keep(stream, 10)
    return stream.held_bytes, stream.kept_bytes, stream.pending_bytes, stream.receive_window, stream.send_window


def pull_case(random: Random) -> str:
    """Pulls with headers, entries and records, sound and damaged, of a lane."""
    texts: list[object] = []
    head = pull_header(random)
    source, lanes = cursor.In(head), pulls.PullLanes()
    begin, end = random.choice([(0, len(head))] * 9 + [(random.randint(-1, 9), random.randrange(len(head) + 2))])
    lanes.is_open = True
    plain = Header()
    is_plain = outcome(partial(plain.read, source, begin, end))
    texts += [is_plain, plain.code, plain.flag, plain.count, plain.escaped]
    if is_plain is not True:
        return str(texts)
    for number in range(plain.count):
        plain.find_field(number)
        texts += [plain.name_at, plain.name_end, plain.value_at, plain.value_end]
    texts.append(outcome(lambda: lanes.find(plain, source, begin, end) is None))
    codes = random.choice([None, frozenset({1, 2})])
    lane = pulls.PullLane(random.choice([1, 5, 32]), random.choice([0, 300, 5000]), 32, codes)
    for shape, header in lanes.unknown.items():
        texts += [shape, header]
        lanes.open(shape, lane)
    taker, answers = pulls.PullTaker(lanes), pulls.PullAnswers()
    texts.append(outcome(partial(taker.take, plain, source, begin, end)))
    content, entries = entries_and_records(random)
    texts.append(pulls.are_valid(entries))
    for pull in taker.taken_pulls:
        first = random.choice([0, 0, pull.queue_offset, 9])
        lane.keep(first, entries)
        chosen = lane.select(pull.queue_offset, pull.queue_offset + random.randrange(40))
        texts += [chosen, lane.begin, lane.end, lane.next_offset, lane.count, lane.size_bytes]
        if chosen == pulls.CHOSEN:
            part = random.choice([content[lane.begin : lane.end]] * 4 + [content[: random.randrange(9)]])
            texts.append(outcome(partial(lane.are_sound, part, random.choice([0, 1 << 40]), 1 << 40)))
            texts.append(outcome(partial(answers.add, pull, part, 0, 99)) or "added")
        texts += [pull.header, pull.opaque, pull.commit_offset, answers.size]
    texts.append(answers.take())
    found = "; ".join(map(str, texts))
    return f"{sha256(found.encode()).hexdigest()[:16]} {len(taker.taken_pulls)} {found[-60:]!r}"


def pull_header(random: Random) -> bytes:
    number = random.choice([0, 0, 1, 2, 9, 10**17, 10**18 - 1])
    members = [
        '"code":11',
        f'"extFields":{{"topic":"orders","queueOffset":"{number}","commitOffset":"7","subscription":"*"}}',
        '"flag":0',
        '"language":"JAVA"',
        f'"opaque":{random.choice([0, 5, 1 << 31, 10**18])}',
        '"remark":null',
    ]
    random.shuffle(members)
    head = ("{" + ",".join(members) + "}").encode()
    return damaged(head, random) if random.random() < 0.4 else head


def entries_and_records(random: Random) -> tuple[bytes, bytes]:
    """Records of a log with other bytes between them, and their entries."""
    content, entries = b"", b""
    for _ in range(random.randrange(12)):
        content += bytes(random.choice([0, 0, 0, 50, 9000]))
        at = len(content)
        shared = b"t", 0, 0, 1, bytes(8), 1, bytes(8), 0, 0
        content += encode(shared, 0, at, 0, b"v" * random.randrange(200), b"", False)
        code = random.choice([0, 1, 2]).to_bytes(8, "big")
        size = random.choice([len(content) - at] * 20 + [0x7FFFFFFF, 0, 1, -1])
        entries += at.to_bytes(8, "big") + size.to_bytes(4, "big", signed=True) + code
    return content, damaged(entries, random) if entries and random.random() < 0.2 else entries


def plain_messages(random: Random) -> object:
    """The answers that are made of the records of a pop, some of them damaged, and the rest."""
    content = b""
    for offset in range(random.randrange(5)):
        sys_flag, host = random.choice([(0, 8)] * 6 + [(1, 8), (0x101, 8), (4, 8), (0, 20)])
        shared = (
            random.choice([b"t", b"t", b"t", b"u"]),
            offset % 2,
            sys_flag,
            1 << 40,
            bytes(host),
            2,
            bytes(8),
            offset,
            0,
        )
        properties = b"".join(
            name.encode() + b"\1" + random.choice([b"1", b"a b", b"\xc3", b""]) + b"\2"
            for name in random.sample([*NAMES_OUT, "UNIQ_KEY", "POP_CK"], 2)
        )
        content += encode(shared, offset, 77, 0, b"v" * random.randrange(200), properties, random.random() < 0.5)
    content = damaged(content, random) if content and random.random() < 0.3 else content
    tags = frozenset(random.choice([[], [], ["1"]]))
    records = grpc_messages.PoppedRecords(content, "t", {0: "1 2 3 ", 1: "4 "}, frozenset(["a"]), 1000, 4, tags)
    found: list[object] = []
    while not records.is_at_end:
        found.append((records.take_plain(), records.handles))
        if not records.is_at_end:
            found.append(records.take_record())
    return found


def message_case(random: Random) -> str:
    """Calls of gRPC that are read, most of them damaged, and a message that is written."""

    def piece(number: int, content: bytes) -> bytes:
        return grpc_messages.field(number, content) if random.random() < 0.97 else random.randbytes(3)

    texts = [*[b"orders", b"t"] * 4, b"", b" x", b"\xc3\xa4", b"KEYS", b"v" * 300]
    system = piece(3, b"01AB") + b"".join(
        piece(number, random.choice(texts)) for number in random.sample([1, 8, 18], 2)
    )
    system += grpc_messages.number_field(random.choice([5, 6, 13, 14]), random.choice([1, 1, 2, 4, -1]))
    system += piece(7, grpc_messages.time_of(random.getrandbits(41)))
    count = random.choice([0, 0, 1, 2])
    pairs = b"".join(piece(2, piece(1, random.choice(texts)) + piece(2, random.choice(texts))) for _ in range(count))
    raw = piece(1, piece(1, piece(2, b"orders")) + pairs + piece(3, system) + piece(4, b"body"))
    ack = piece(1, piece(2, b"g")) + piece(2, piece(2, b"t")) + piece(3, piece(1, b"id") + piece(2, b"handle"))
    raw, ack = (damaged(each, random) if random.random() < 0.4 else each for each in (raw, ack))
    properties = {name: random.choice(["1", "a b", "9" * 18, "²", "é"]) for name in random.sample(NAMES_OUT, 4)}
    numbers = tuple(random.choice([0, 1, -1, random.getrandbits(40), -1 << 63, (1 << 63) - 1]) for _ in range(6))
    numbers = random.choice([0, 1, 4, 0x301]), *numbers
    made = partial(grpc_messages.message, "t", properties, frozenset(["a"]), ("id", "b", "s", "h"), numbers, b"body")
    found = [
        outcome(partial(grpc_messages.sent_message, raw, frozenset([b"KEYS"]))),
        outcome(partial(grpc_messages.acked_message, ack)),
        outcome(made),
        outcome(partial(plain_messages, random)),
    ]
    return f"{sha256('; '.join(map(str, found)).encode()).hexdigest()[:16]} {found[0]!s:.60} {found[1]!s:.60}"


NAMES_OUT = (
    "TAGS",
    "KEYS",
    "a",
    "own",
    "__BORNHOST",
    "TIMER_DELIVER_MS",
    "TIMER_OUT_MS",
    "_SYS_MSG_PRIORITY_",
    "__SHARDINGKEY",
)


def outcome(action: Callable[[], object]) -> object:
    """What it returns, or the kind of its error: the words of the two forms may differ."""
    try:
        return action()
    except (ConnectionFault, GrpcError, IndexError, NotImplementedError, OverflowError, ValueError) as error:
        return type(error).__name__


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
