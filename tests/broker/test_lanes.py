"""Lanes: the short way of a plain send does what the long way does, and none outlives a rule that has changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from msgspec import structs

from sparrowmq.broker.broker import Broker
from sparrowmq.errors import AccessDenied, SparrowError
from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.lanes import Lanes, Parked
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.protocol.requests.admin_headers import DeleteAclConfig, DeleteTopic
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import GetMaxOffset, SendBatchMessage, SendMessageV2
from sparrowmq.protocol.signature import signer
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.connection import Connection
from sparrowmq.protocol.wire.frame import FrameReader
from sparrowmq.remoting.handler import ReplyWhenDurable
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from tests.auth.asked import ADMIN, SAMPLE, USER
from tests.broker.live import Live, live_broker, send_request
from tests.broker.test_setting_changes import change

HOST = bytes((10, 0, 0, 7, 0, 0, 31, 144))
TOPIC = "orders"
QUEUES = 4
FRAMES = 3000


def take(lanes: Lanes, frame: bytes, parked: Parked) -> bool:
    """Whether a lane takes a frame."""
    header, source, body_at = lanes.header, In(frame), 8 + int.from_bytes(frame[5:8], "big")
    return header.read(source, 8, body_at) and lanes.take(header, source, body_at, len(frame), HOST, parked)


class Sender:
    """What a handler asks of the connection that a request came by."""

    host = HOST
    address = "10.0.0.7:8080"
    principal = None


class Way:
    """Sends frames to one broker's handler, if its lanes do not take them."""

    def __init__(self, broker: Broker, has_lanes: bool) -> None:
        self.sends = broker._sends
        self.store = broker.store
        self.taken = self.taken_batches = 0
        assert self.sends.lanes is not None
        self._lanes = self.sends.lanes
        if not has_lanes:
            self.sends.lanes = None
        self._has_lanes = has_lanes

    def send(self, frame: bytes) -> object:
        """The answer, without what names the broker; or the error."""
        parked = Parked(self._lanes.store_host)
        self.store.appender.prepare_burst()
        if self._has_lanes and take(self._lanes, frame, parked):
            self.store.appender.begin_prepared_burst()
            self.taken += 1
            assert parked.count == 1 and parked.end == self.store.end
            self.taken_batches += parked.message_count > 1
            return self._plain(parked.replies())
        try:
            [(serializer, header, body)] = FrameReader().feed(frame)
            command = codec.decode(serializer, header, body)
            kind = {310: SendMessageV2, 320: SendBatchMessage}.get(command.code)
            if kind is None:
                return command.code
            answer = self.sends.send(command.header(kind), body, cast(Any, Sender()))
            assert isinstance(answer, ReplyWhenDurable)
        except SparrowError as error:
            return type(error), str(error)
        return b"" if command.is_oneway else self._plain(codec.encode_reply(command, 0, answer.reply))

    def _plain(self, reply: bytes) -> bytes:
        return reply.replace(self._lanes.store_host.hex().upper().encode(), b"HOST")

    def content(self) -> tuple[list[StoredMessage], list[bytes], bytes]:
        """Every record, without its broker and times; every entry and every key."""
        store = self.store
        store.appender._write_burst()
        stored = [record.decode(view) for view in store._log.walk(0, store.end)]
        records = [
            structs.replace(message, store_host="", store_timestamp_ms=0, physical_offset=0)
            for message in stored
            if message.topic != STATE_TOPIC and message.born_host == Sender.address
        ]
        keys = store._queue_builder.keys.columns.content()
        hashes = b"".join([keys[at : at + 16] for at in range(0, len(keys), 24)])
        entries = [queue.unwritten.content() for queue in store.queues if queue.topic == TOPIC]
        return records, entries, hashes


def texts(random: Random) -> str:
    plain = ["a", "k1 k2", "7F0001", "paid", "order-188"]
    if random.random() < 0.9:
        return random.choice(plain)
    return random.choice(
        ["a", "k1 k2", " k ", "7F0001", "true", "false", "", "é", "😀", "a\x1cb", '"', "\\", "\x7f", "x" * 300]
    )


def properties(random: Random) -> str:
    """The properties of a message, nearly always as clients send them."""
    names = ["KEYS", "TAGS", "UNIQ_KEY", "color", "KEYS2", "TAG", "_catalog"]
    if random.random() < 0.1:
        names = [
            "WAIT",
            "DELAY",
            "CLUSTER",
            "1ST_POP_TIME",
            "POP_CK",
            "TRAN_MSG",
            "REPLY_TO_CLIENT",
            "TIMER_DELAY_MS",
            "",
        ]
    pairs = [f"{random.choice(names)}\x01{texts(random)}\x02" for _ in range(random.randint(0, 4))]
    pairs += ["WAIT\x01true\x02"] * (random.random() < 0.5)
    random.shuffle(pairs)
    text = "".join(pairs)
    if random.random() < 0.1:
        return random.choice(
            [text[:-1], text + "\x02", "\x02" + text, text + "\x01", text + "x", text.replace("\x01", "", 1)]
        )
    return text


def frame(random: Random) -> bytes:
    """A request to send, nearly always as clients send it."""
    is_batch = random.random() < 0.3
    number = random.choice([0, 1, 7, 1 << 31, -1, 1 << 62, 1 << 70]) if random.random() < 0.05 else None
    fields: dict[str, Any] = {
        "a": "producers",
        "b": TOPIC if random.random() < 0.97 else random.choice(["", "other topic", "%RETRY%g", "é", TOPIC + "2"]),
        "c": "TBW102",
        "d": "4",
        "e": str(random.randrange(QUEUES + 1) if number in (None, -1) else number),  # -1: any queue
        "f": str(random.choice([0, 0, 0, 1, 2, 4, 8, 0x703, 0x30])),
        "g": str(random.getrandbits(40)),
        "h": str(random.choice([0, 0, 7, number or 0])),
        "i": properties(random),
        "j": random.choice(["0", "0", "0", "1"]),
        "k": random.choice(["false", "true", "1"]),
        "m": "true" if is_batch and random.random() < 0.8 else "false",
    }
    for name in random.sample(sorted(fields), random.choice([0, 0, 0, 0, 1])):
        fields[name] = random.choice([None, 0, True, "", "007", "+1", "false", "MAY"])
    if random.random() < 0.03:
        fields[random.choice(["n", "l", "z", "AccessKey"])] = random.choice(["false", "3", "name"])
    header: dict[str, Any] = {
        "code": 320 if is_batch and random.random() < 0.5 else 310,
        "extFields": fields,
        "flag": random.choice([0, 0, 0, 0, 2]),
        "language": "JAVA",
        "opaque": random.getrandbits(31) if number is None else number,
        "serializeTypeCurrentRPC": "JSON",
        "version": 409,
    }
    if random.random() < 0.05:
        header[random.choice(["remark", "language", "code", "<body>", "version"])] = random.choice([None, 1, "x", 310])
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=random.random() < 0.7).encode()
    if random.random() < 0.15:
        head = damaged(head, random)
    body = random.randbytes(random.choice([0, 1, 128, 1000]))
    if is_batch:
        count = random.choice([1, 2, 32])
        texts_of_parts = [properties(random).encode("utf-8", "replace") for _ in range(count)]
        parts = [batch.BatchPart(random.randbytes(9), text, random.choice([0, 7])) for text in texts_of_parts]
        body = batch.encode(parts)
        body = damaged(body, random) if random.random() < 0.1 else body
    return (4 + len(head) + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body


def damaged(head: bytes, random: Random) -> bytes:
    at, size = random.randrange(len(head)), random.choice([1, 1, 1, 5, 40])
    piece = random.choice(
        [
            b"",
            b" ",
            b'"',
            b"\\",
            b"\\u0001",
            b"\\u0003",
            b"0",
            b"9",
            b",",
            b"}",
            b"\xff",
            b"\0",
            head[at : at + size] * 2,
        ]
    )
    return head[:at] + piece + head[at + random.choice([0, len(piece), size]) :]


@pytest.mark.parametrize("seed", range(4))
async def test_a_lane_stores_and_answers_what_the_long_way_does(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    async with live_broker(tmp_path / "a") as first, live_broker(tmp_path / "b") as second:
        for live in (first, second):
            await live.send(b"first")  # makes the topic
        short, long = Way(first.broker, has_lanes=True), Way(second.broker, has_lanes=False)
        for _ in range(FRAMES):
            sent = frame(random)
            assert short.send(sent) == long.send(sent), sent
        assert short.content() == long.content()
    assert short.taken > FRAMES * 0.1 and short.taken_batches > 10 and long.taken == 0


def lanes_of(live: Live) -> Lanes:
    lanes = live.broker._sends.lanes
    assert lanes is not None
    return lanes


async def lane_is_open(live: Live) -> bool:
    """Whether the next plain message of the connection could take the short way."""
    [far] = [session for session in live.broker._server.sessions if session.address == live.session.local_address]
    return far.short_way is not None and far.short_way.prepare() and lanes_of(live).open_count == 1


async def set_quotas(live: Live) -> None:
    await change(live, quotas="topic:others requests=1/s")


async def set_body_limit(live: Live) -> None:
    await change(live, maxMessageSize="1000")


async def refuse_writes(live: Live) -> None:
    await change(live, brokerPermission="4")


async def put_topic(live: Live) -> None:
    live.broker._sends._topics.put(TopicConfig(TOPIC, 2, 2))


async def put_another_topic(live: Live) -> None:
    live.broker._sends._topics.put(TopicConfig("others", 2, 2))


async def delete_topic(live: Live) -> None:
    await live.session.call(DeleteTopic(TOPIC))


async def note_a_repeated_send(live: Live) -> None:
    await live.send(properties={"UNIQ_KEY": "7F00"}, may_be_stored=True)


async def add_queue(live: Live) -> None:
    await live.send(topic="others")


CHANGES = [
    set_quotas,
    set_body_limit,
    refuse_writes,
    put_topic,
    put_another_topic,
    delete_topic,
    note_a_repeated_send,
    add_queue,
]


@pytest.mark.parametrize("change_rule", CHANGES, ids=lambda change_rule: change_rule.__name__)
async def test_a_rule_that_changes_closes_every_lane(
    tmp_path: Path, change_rule: Callable[[Live], Awaitable[None]]
) -> None:
    async with live_broker(tmp_path) as live:
        for _ in range(3):
            await live.send()
        assert await lane_is_open(live)
        await change_rule(live)
        assert not await lane_is_open(live)


@asynccontextmanager
async def signed_sessions(tmp_path: Path) -> AsyncIterator[tuple[Live, list[Session]]]:
    """A broker with accounts, and connections of a user who may send to topicB, an administrator and a stranger."""
    file = tmp_path / "plain_acl.yml"
    file.write_text(SAMPLE)
    pools = [Pool(SystemClock(), sign=signer(*who)) for who in (USER, ADMIN, (USER[0], "guessed1"))]
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        try:
            yield live, [await pool.session(live.broker.address) for pool in pools]
        finally:
            for pool in pools:
                pool.close()


async def test_a_signed_send_takes_a_lane_and_one_with_another_signature_none(tmp_path: Path) -> None:
    async with signed_sessions(tmp_path) as (live, [user, _, stranger]):
        lanes = lanes_of(live)
        for number in range(20):
            answer = await user.call(send_request("topicB", properties={"KEYS": "k", "WAIT": "true"}), b"body")
            assert answer.header.queue_offset == number
        assert lanes.taken_count == 18 and lanes.needs_signature  # not the first two
        with pytest.raises(AccessDenied, match="signature"):
            for _ in range(3):
                await stranger.call(send_request("topicB"), b"body")
        with pytest.raises(AccessDenied, match="topicA"):
            await user.call(send_request("topicA"), b"body")
        with pytest.raises(AccessDenied):
            await live.session.call(send_request("topicB"), b"body")
        assert lanes.taken_count == 18


@pytest.mark.parametrize("changed", ["body", "topic", "properties", "queue", "access key", "signature"])
async def test_whatever_changes_on_the_way_is_refused(tmp_path: Path, changed: str) -> None:
    """A frame that somebody changed after it was signed takes no lane."""
    async with signed_sessions(tmp_path) as (live, [user, *_]):
        for _ in range(3):
            await user.call(send_request("topicB"), b"body")
        lanes, sent = lanes_of(live), send_request("topicB", properties={"KEYS": "k"})
        sender: Connection[None] = Connection(sign=signer(*USER))
        frame = sender.request(sent, b"body", None)[1] + b"body"
        parts = {
            "body": b"body",
            "topic": b"topicB",
            "properties": b"\\u0001k",
            "queue": b'"e":"0"',
            "access key": b"RocketMQ",
        }
        part = parts.get(changed, frame[frame.index(b'Signature":"') + 12 :][:8])
        for other, is_taken in ((part[:-1] + bytes([part[-1] ^ 1]), False), (part, True)):
            received = frame.replace(part, other)
            assert len(received) == len(frame)
            live.broker.store.appender.prepare_burst()
            assert take(lanes, received, Parked(lanes.store_host)) == is_taken
            live.broker.store.appender.begin_prepared_burst()


async def test_an_account_that_is_deleted_has_no_lane(tmp_path: Path) -> None:
    async with signed_sessions(tmp_path) as (live, [user, admin, _]):
        for _ in range(4):
            await user.call(send_request("topicB"), b"body")
        taken = lanes_of(live).taken_count
        assert taken > 0
        await admin.call(DeleteAclConfig(USER[0]))
        with pytest.raises(AccessDenied):
            await user.call(send_request("topicB"), b"body")
        assert lanes_of(live).taken_count == taken


async def test_a_chunk_of_many_sends_is_answered_as_each_of_them(tmp_path: Path) -> None:
    """Over a socket: sends, something else, and sends again, all in one piece."""
    async with live_broker(tmp_path) as live:
        await live.send(b"first")
        calls = [live.session.call(send_request(), b"%d" % number) for number in range(50)]
        other = live.session.call(GetMaxOffset(TOPIC, 0))
        calls += [live.session.call(send_request(), b"%d" % number) for number in range(50, 100)]
        offsets = [(await call).header.queue_offset for call in calls]
        assert (await other).header.offset in range(1, 102)
        bodies = [message.body for message in await live.messages(max_msg_nums=200)]
        counted = live.broker._sends.received_counter.value
    assert offsets == list(range(1, 101)) and counted == 101
    assert bodies[1:] == [b"%d" % number for number in range(len(bodies) - 1)] and len(bodies) > 30


async def test_a_batch_of_more_than_a_thousand_messages_takes_a_lane(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        for count in (1024, 2000):
            await live.send(b"first")
            body = batch.encode([batch.BatchPart(b"", b"")] * count)
            head = codec.encode_request(send_request(batch=True), 310, 7, len(body))
            lanes = lanes_of(live)
            parked = Parked(lanes.store_host)
            live.broker.store.appender.prepare_burst()
            take(lanes, head + body, parked)
            assert parked.message_count == count
            live.broker.store.appender.begin_prepared_burst()
