"""Bad bytes and bad requests: each has its clear answer or ends its own connection, and none hurts another connection.

Every row is sent on a connection of its own while another one is used before and after. Settings, command
lines, options of the Spark source and single headers have tables of their own in tests/cli,
tests/settings/test_settings.py, tests/spark and tests/protocol.
"""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Connection
from tests.broker.live import Live, live_broker

CLOSED = "closed"  # the only answer to bytes that cannot be cut into frames


@dataclass(frozen=True)
class Bad:
    """One row: what is sent, and the code and words of the answer (or CLOSED)."""

    name: str
    stream: bytes
    code: int | str
    words: str = ""
    namesrv: bool = False


def frame(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    size = 4 + len(header) + len(body)
    return struct.pack(">ii", size, serializer << 24 | len(header)) + header + body


def ask(code: object, body: bytes = b"", /, ext: object = None, **more: object) -> bytes:
    command = {"code": code, "opaque": 1, "flag": 0, "language": "JAVA", "version": 409, "extFields": ext}
    return frame(json.dumps(command | more).encode(), body)


SEND = {
    "a": "p",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "m": "false",
}
PULL = {
    "consumerGroup": "g",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
    "subscription": "*",
}


def without(fields: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}


def frames() -> Iterator[Bad]:
    """Bytes that are no frames, or frames without a readable header: the connection ends."""
    yield Bad("negative length", struct.pack(">i", -1) + bytes(40), CLOSED)
    yield Bad("length of zero", bytes(16), CLOSED)
    yield Bad("length of three", struct.pack(">ii", 3, 0), CLOSED)
    yield Bad("frame of 2 GiB", struct.pack(">ii", 0x7FFFFFFF, 4), CLOSED)
    yield Bad("frame of 17 MiB", struct.pack(">ii", 17 << 20, 4), CLOSED)
    yield Bad("header longer than its frame", struct.pack(">ii", 20, 21) + bytes(40), CLOSED)
    yield Bad("header of 1 MiB", struct.pack(">ii", 2 << 20, 1 << 20), CLOSED)
    yield Bad("HTTP", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", CLOSED)
    yield Bad("gRPC preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", CLOSED)
    yield Bad("header not JSON", frame(b"hello"), CLOSED)
    yield Bad("header empty", frame(b""), CLOSED)
    yield Bad("header a JSON array", frame(b"[310]"), CLOSED)
    yield Bad("header without code", frame(b'{"opaque":1}'), CLOSED)
    yield Bad("code a word", frame(b'{"code":"send"}'), CLOSED)
    yield Bad("code of 5,000 digits", frame(b'{"code":' + b"9" * 5000 + b"}"), CLOSED)
    yield Bad("header not UTF-8", frame(b'{"code":310,"remark":"\xff\xfe"}'), CLOSED)
    yield Bad("header nested 100,000 deep", frame(b'{"code":310,"extFields":' + b"[" * 100_000), CLOSED)
    yield Bad("unknown serialiser", frame(b"{}", serializer=7), CLOSED)
    yield Bad("binary header too short", frame(b"\0\x0a", serializer=1), CLOSED)
    yield Bad("binary header, remark too long", frame(bytes(17) + b"\x7f\xff\xff\xff", serializer=1), CLOSED)
    yield Bad("binary header, negative string", frame(bytes(13) + b"\xff" * 4 + bytes(4), serializer=1), CLOSED)
    yield Bad("binary header, 200 fields", frame(many_fields(200), serializer=1), CLOSED)


def many_fields(count: int) -> bytes:
    ext = b"".join(struct.pack(">h3si", 3, b"%03d" % number, 0) for number in range(count))
    return struct.pack(">hbhiiii", 310, 0, 409, 1, 0, 0, len(ext)) + ext


def requests() -> Iterator[Bad]:
    """Requests whose header does not fit: they are answered, and the connection goes on."""
    yield Bad("unknown code", ask(4711), 3, "unknown code")
    yield Bad("negative code", ask(-5), 3, "unknown code")
    yield Bad("code of another server", ask(105, ext={"topic": "t"}), 3, "ask another server")
    yield Bad("code not served yet", ask(908, ext={}), 3, "not yet")
    yield Bad("code refused by design", ask(2004), 3, "refused by design")
    yield Bad("no extFields at all", ask(310), 1, "custom field <a> is null")
    yield Bad("extFields an array", ask(310, ext=["a"]), 1, "no JSON object of texts")
    yield Bad("extFields a text", ask(310, ext="a"), 1, "no JSON object of texts")
    for name in "abcdefgh":
        yield Bad(f"send without {name}", ask(310, ext=without(SEND, name)), 1, f"custom field <{name}> is null")
    yield Bad("queue a word", ask(310, ext=SEND | {"e": "first"}), 1, "wrong value")
    yield Bad("queue a fraction", ask(310, ext=SEND | {"e": "0.5"}), 1, "wrong value")
    yield Bad("time not a number", ask(310, ext=SEND | {"g": "NaN"}), 1, "wrong value")
    yield Bad("batch a word", ask(310, ext=SEND | {"m": "perhaps"}), 1, "wrong value")
    yield Bad("pull without offset", ask(11, ext=without(PULL, "queueOffset")), 1, "<queueOffset> is null")
    yield Bad("pull of null topic", ask(11, ext=PULL | {"topic": None}), 1, "<topic> is null")
    yield Bad("pull of an unknown topic", ask(11, ext=PULL | {"topic": "nowhere"}), 17, "not exist")
    yield Bad("pull of a path", ask(11, ext=PULL | {"topic": "../../etc/passwd"}), 17, "not exist")
    yield Bad("pull for a path as group", ask(11, ext=PULL | {"consumerGroup": "../x"}), 1, "letters")
    yield Bad("pull of queue 99", ask(11, ext=PULL | {"queueId": "99"}), 1, "illegal")
    yield Bad("pull with a broken filter", ask(11, ext=PULL | {"subscription": "||"}), 23, "parse")
    yield Bad("commit for a bad group", ask(15, ext=COMMIT | {"consumerGroup": "a@b"}), 1, "letters")
    yield Bad("commit of a bad topic", ask(15, ext=COMMIT | {"topic": "a@b"}), 17, "not exist")
    yield Bad("topic with a bad name", ask(17, ext=TOPIC | {"topic": "a/b"}), 1, "letters")
    yield Bad("topic with no queues", ask(17, ext=TOPIC | {"readQueueNums": "0"}), 1, "readQueueNums is 0")
    yield Bad("topic with perm 99", ask(17, ext=TOPIC | {"perm": "99"}), 1, "perm")
    yield Bad("topic of the system", ask(17, ext=TOPIC | {"topic": "SCHEDULE_TOPIC_XXXX"}), 1, "system topic")
    yield Bad("message at no offset", ask(33, ext={"offset": "123456789"}), 1, "by the offset, 123456789")
    yield Bad("message below offset 0", ask(33, ext={"offset": "-1"}), 1, "by the offset, -1")
    yield Bad(
        "send back of nothing",
        ask(36, ext={"offset": "99", "group": "g", "delayLevel": "0"}),
        1,
        "by offset failed, 99",
    )


COMMIT = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "1"}
TOPIC = {
    "topic": "x",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "order": "false",
}
TOPIC |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}


def sends() -> Iterator[Bad]:
    """Messages that cannot be stored."""
    names = {
        "blank": "a b",
        "path": "../../x",
        "NUL": "a\0b",
        "long": "x" * 128,
        "empty": "",
        "dot": ".",
        "slash": "a/b",
    }
    for name, topic in names.items():
        yield Bad(f"topic name with {name}", ask(310, b"body", ext=SEND | {"b": topic}), 1, "topic")
    yield Bad("unicode slash", ask(310, b"body", ext=SEND | {"b": "a\u2215b"}), 1, "letters")
    yield Bad("closed topic", ask(310, b"body", ext=SEND | {"b": "SCHEDULE_TOPIC_XXXX"}), 16, "forbidden")
    yield Bad("body too large", ask(310, bytes((4 << 20) + 1), ext=SEND), 13, "maxMessageSize")
    yield Bad("properties too large", ask(310, b"", ext=SEND | {"i": "a\x01" + "x" * 40_000}), 13, "use the body")
    yield Bad("delay a word", ask(310, b"", ext=SEND | {"i": "DELAY\x01soon\x02"}), 13, "not a number")
    half = SEND | {"i": "TRAN_MSG\x01true\x02DELAY\x013\x02"}
    yield Bad("delayed transaction", ask(310, b"", ext=half), 13, "cannot be delayed")
    end = {
        "producerGroup": "g",
        "tranStateTableOffset": "0",
        "commitLogOffset": "-1",
        "commitOrRollback": "8",
    }
    end |= {"msgId": "x"}
    yield Bad("transaction of nowhere", ask(37, b"", ext=end), 1, "Find prepared transaction")
    yield Bad("transaction of a word", ask(37, b"", ext=end | {"commitLogOffset": "here"}), 1, "commitLogOffset")
    yield Bad("transaction ended oddly", ask(37, b"", ext=end | {"commitOrRollback": "5"}), 1, "12 rolls back")
    yield Bad("nothing to resume", ask(323, b"", ext={"msgId": "zz"}), 1, "msgId")
    whole = batch.encode([batch.BatchPart(b"one", b""), batch.BatchPart(b"two", b"")])
    for name, body in {
        "empty": b"",
        "cut short": whole[:-3],
        "with a tail": whole + b"\0\0",
        "of one size too many": struct.pack(">i", 9999) + whole[4:],
        "with a negative body": whole[:16] + struct.pack(">i", -7) + whole[20:],
        "compressed": zlib.compress(whole),
    }.items():
        yield Bad(f"batch {name}", ask(320, body, ext=SEND), 1, "batch")


def bodies() -> Iterator[Bad]:
    """Requests whose body does not fit."""
    for code, name in ((34, "heartbeat"), (41, "lock"), (42, "unlock"), (200, "group")):
        yield Bad(f"{name} not JSON", ask(code, b"{broken", ext={}), 1, "JSON is malformed")
        yield Bad(f"{name} a number", ask(code, b"42", ext={}), 1, "Expected `object`")
    yield Bad("heartbeat without client", ask(34, b'{"producerDataSet":[]}', ext={}), 1, "no clientID")
    yield Bad("group with a bad name", ask(200, b'{"groupName":"a b"}', ext={}), 1, "letters")


def namesrv() -> Iterator[Bad]:
    """The name server's own."""
    register = {
        "brokerName": "b",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "c",
        "haServerAddr": "127.0.0.1:2",
        "brokerId": "0",
    }
    yield Bad("route of nothing", ask(105, ext={}), 1, "<topic> is null", True)
    yield Bad("route of an unknown topic", ask(105, ext={"topic": "nowhere"}), 17, "No topic route", True)
    yield Bad("registration not JSON", ask(103, b"{broken", ext=register), 1, "JSON is malformed", True)
    yield Bad("registration with a wrong sum", ask(103, b"{}", ext=register | {"bodyCrc32": "7"}), 1, "crc", True)
    yield Bad(
        "registration falsely packed",
        ask(103, b"xxxx", ext=register | {"compressed": "true"}),
        1,
        "damaged",
        True,
    )
    yield Bad("value of a missing key", ask(101, ext={"namespace": "n", "key": "k"}), 22, "No config item", True)
    yield Bad("settings over the network", ask(318, b"kvConfigPath=/tmp/x"), 1, "set it in its file", True)
    yield Bad("name server, HTTP", b"GET / HTTP/1.1\r\n\r\n", CLOSED, "", True)


ROWS = [*frames(), *requests(), *sends(), *bodies(), *namesrv()]


def test_the_table_is_long_enough_and_has_no_row_twice() -> None:
    assert len(ROWS) >= 60
    assert len({row.name for row in ROWS}) == len(ROWS)


async def test_every_row_has_its_answer_and_hurts_nobody(tmp_path: Path) -> None:
    wrong: list[str] = []
    async with live_broker(tmp_path) as live:
        await live.send(b"first")
        for row in ROWS:
            answer = await _answer(row, live)
            if not _is_as_told(row, answer):
                wrong.append(f"{row.name}: {answer}")
            assert len(await live.messages(max_msg_nums=1)) == 1, f"another connection suffered from: {row.name}"
        assert [message.body for message in await live.messages()] == [b"first"], "a bad row was stored"
    assert wrong == []


def _is_as_told(row: Bad, answer: Command | str) -> bool:
    if isinstance(answer, str):
        return answer == row.code
    return answer.code == row.code and row.words.lower() in (answer.remark or "").lower()


async def _answer(row: Bad, live: Live) -> Command | str:
    address = live.cluster.namesrv if row.namesrv else live.broker.address
    async with _connection(address) as (reader, writer):
        writer.write(row.stream)
        wire: Connection[None] = Connection()
        async with asyncio.timeout(5):
            while chunk := await reader.read(65_536):
                for command in wire.receive(chunk):
                    return command
    return CLOSED


@asynccontextmanager
async def _connection(address: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("size", [1, 3, 7])
async def test_a_request_in_the_smallest_pieces_is_answered(tmp_path: Path, size: int) -> None:
    stream = ask(310, b"body", ext=SEND)
    async with live_broker(tmp_path) as live:
        async with _connection(live.broker.address) as (reader, writer):
            for position in range(0, len(stream), size):
                writer.write(stream[position : position + size])
                await writer.drain()
            [reply] = Connection[None]().receive(await reader.read(65_536))
        assert reply.code == 0
        assert [message.body for message in await live.messages()] == [b"body"]
