"""Lanes of half messages and of the ends of transactions do what the long way does, and are closed with the others."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from msgspec import structs

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.handlers.transactions_handler import TransactionHandler
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.lanes import END_CODE, Lanes, Parked
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.protocol.requests.headers import EndTransaction, SendMessageV2
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.frame import FrameReader
from tests.broker.live import Live, live_broker, send_request
from tests.broker.test_lanes import CHANGES, QUEUES, TOPIC, Sender, damaged, lanes_of, take, texts

GROUP = "producers"
REQUESTS = 3000
NOW_MS = SystemClock().now_ms()
PEER = cast(Any, Sender())


def take_end(lanes: Lanes, frame: bytes, parked: Parked) -> bool:
    """Whether a lane takes a frame of END_TRANSACTION, as `Sender.take`."""
    header, source, body_at = lanes.header, In(frame), 8 + int.from_bytes(frame[5:8], "big")
    is_end = body_at == len(frame) and header.read(source, 8, body_at) and header.code == END_CODE
    return is_end and lanes.take_end(header, source, parked)


class Way:
    """Sends requests to one broker's handlers, if its lanes do not take them."""

    def __init__(self, broker: Broker, has_lanes: bool) -> None:
        self.sends, self.store, self.transactions = broker._sends, broker.store, broker._transactions
        self.ends = TransactionHandler(self.store, self.transactions, SystemClock())
        self.taken_sends = self.taken_ends = 0
        lanes = self.sends.lanes
        assert lanes is not None
        self.lanes = lanes
        if not has_lanes:
            self.sends.lanes = None
        self._has_lanes = has_lanes

    def send(self, frame: bytes) -> object:
        """The answer, without what names the broker; or the error."""
        parked = Parked(self.lanes.store_host)
        self.store.appender.prepare_burst()
        if self._has_lanes and (take(self.lanes, frame, parked) or take_end(self.lanes, frame, parked)):
            self.store.appender.begin_prepared_burst()
            assert parked.count == 1 and parked.end == self.store.end
            self.taken_ends += parked.end_count
            self.taken_sends += parked.message_count
            self.sends.note_received(parked.message_count)
            return self._plain(parked.replies())
        try:
            [(serializer, header, body)] = FrameReader().feed(frame)
            command = codec.decode(serializer, header, body)
            if command.code == 310:
                answer: Any = self.sends.send(command.header(SendMessageV2), body, PEER)
            elif command.code == 37:
                answer = self.ends.end(command.header(EndTransaction), body, PEER)
            else:
                return command.code
        except SparrowError as error:
            return type(error), str(error)
        reply = None if answer is None else answer.reply
        return b"" if command.is_oneway else self._plain(codec.encode_reply(command, 0, reply))

    def _plain(self, reply: bytes) -> bytes:
        return reply.replace(self.lanes.store_host.hex().upper().encode(), b"HOST")

    def figures(self) -> object:
        """What the broker knows of transactions, and what it counted."""
        transactions = self.transactions
        found = transactions.open_transactions
        opened = [
            (one.queue_offset, one.offset, one.size, one.older, min(one.immune_until_ms, NOW_MS))
            for one in found._by_newest_copy.values()
        ]
        destinations = [
            (to.topic, to.queue_id, to.group, to.owner, to.terms.tags_code, to.terms.keys, to.terms.unique_key)
            for one in found._by_newest_copy.values()
            if (to := one.destination) is not None
        ]
        counters = [
            transactions._half_counter.value,
            transactions._commit_counter.value,
            transactions._rollback_counter.value,
            self.sends.received_counter.value,
        ]
        positions = found.positions(self.store.queues.max_offset(HALF_TOPIC, 0))
        return opened, destinations, counters, vars(transactions._recent_ends), list(found._last_halves), positions

    def content(self) -> tuple[list[StoredMessage], list[object], list[tuple[int, int]]]:
        """Every record of a transaction, without its broker and times; every entry and every key."""
        store, topics = self.store, (TOPIC, HALF_TOPIC, OP_HALF_TOPIC)
        store.publish()
        store._queue_builder.index_keys()
        records = [
            structs.replace(
                message,
                store_host="",
                born_host="",
                store_timestamp_ms=0,
                born_timestamp_ms=0 if message.topic == OP_HALF_TOPIC else message.born_timestamp_ms,
            )
            for message in [record.decode(view) for view in store._log.walk(0, store.end)]
            if message.topic in topics
        ]
        queues = [queue for queue in store.queues if queue.topic in topics]
        entries = [str(queue.entry(number)) for queue in queues for number in range(queue.next_offset)]
        assert store._index is not None
        [file] = store._index.files
        keys = [file.entry(number)[:2] for number in range(1, file.next_entry)]
        return records, [len(queues), *entries], keys


def frame(code: int, fields: dict[str, Any], body: bytes, random: Random) -> bytes:
    for name in random.sample(sorted(fields), random.choice([0] * 12 + [1])):
        fields[name] = random.choice([None, 0, True, "", "007", "+1", "false", "x"])
    items = list(fields.items())
    random.shuffle(items)
    header = {
        "code": code,
        "extFields": dict(items),
        "flag": random.choice([0, 0, 0, 0, 2]),
        "language": "JAVA",
        "opaque": random.getrandbits(31),
        "serializeTypeCurrentRPC": "JSON",
        "version": 409,
    }
    head = json.dumps(header, separators=(",", ":"), ensure_ascii=random.random() < 0.9).encode()
    head = damaged(head, random) if random.random() < 0.05 else head
    return (4 + len(head) + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body


def half_frame(random: Random, number: int) -> bytes:
    """A request to store a half message, nearly always as clients send it."""
    pairs = [
        "TRAN_MSG\x01" + random.choice(["true"] * 20 + ["TRUE", "false", ""]),
        f"PGROUP\x01{random.choice([GROUP] * 20 + ['others', ''])}",
        f"UNIQ_KEY\x01{number:08X}",
        f"TAGS\x01{texts(random)}",
        f"KEYS\x01{texts(random)}",
        "WAIT\x01true",
    ]
    others = ["TRAN_OWNER\x01x", "REAL_TOPIC\x01x", "REAL_QID\x017", "DELAY\x013", "DELAY\x010", "WAIT\x01false"]
    others += [
        "TRANSACTION_CHECK_TIMES\x013",
        "TRAN_PREPARED_QUEUE_OFFSET\x010",
        "CLUSTER\x01c",
        "a\x01" + "x" * 32_400,
    ]
    others += ["CHECK_IMMUNITY_TIME_IN_SECONDS\x0130", "TIMER_DELAY_MS\x01100", "__CRC32#\x01x", "color\x01red"]
    pairs += random.sample(others, random.choice([0] * 6 + [1, 2]))
    pairs = random.sample(pairs, random.choice([len(pairs)] * 9 + [len(pairs) - 1]))
    fields = {
        "a": random.choice([GROUP, "others"]),
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(random.randrange(QUEUES)),
        "f": str(random.choice([4] * 12 + [0, 5, 8, 12, 0x705])),
        "g": str(NOW_MS - random.getrandbits(20)),
        "h": str(random.choice([0, 7])),
        "i": "\x02".join(pairs) + random.choice(["", "\x02"]),
        "j": random.choice(["0", "0", "0", "0", "3"]),
        "k": "false",
        "m": random.choice(["false"] * 12 + ["true"]),
    }
    return frame(310, fields, random.randbytes(random.choice([0, 1, 128, 1000])), random)


def end_frame(random: Random, half: tuple[int, int, str]) -> bytes:
    """A request to end a transaction, nearly always as clients send it."""
    queue_offset, offset, unique = half
    fields = {
        "producerGroup": random.choice([GROUP] * 12 + ["others"]),
        "tranStateTableOffset": str(queue_offset + random.choice([0] * 20 + [1])),
        "commitLogOffset": str(offset + random.choice([0] * 20 + [1])),
        "commitOrRollback": random.choice(["8"] * 9 + ["12"] * 4 + ["0", "4"]),
        "fromTransactionCheck": random.choice(["false"] * 5 + ["true"]),
        "msgId": unique,
        "transactionId": random.choice([unique] * 12 + ["", "other"]),
        "topic": TOPIC,
    }
    for name in random.sample(["fromTransactionCheck", "transactionId", "topic", "msgId"], random.choice([0, 0, 0, 1])):
        del fields[name]
    if random.random() < 0.1:
        fields[random.choice(["bname", "ns", "zone5"])] = "x"
    return frame(37, fields, random.choice([b""] * 20 + [b"body"]), random)


async def begin_and_end(live: Live, queue_id: int = 0) -> None:
    """The first transaction of a queue takes the long way, and makes the queues that lanes need."""
    half = await begin(live, queue_id)
    await live.session.call(end_request(half, 8))


async def begin(live: Live, queue_id: int = 0) -> tuple[int, int]:
    request = send_request(queue_id=queue_id, properties={"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "k"})
    request.sys_flag = 4
    answer = await live.session.call(request, b"half")
    return answer.header.queue_offset, parse_offset_id(answer.header.msg_id).physical_offset


def end_request(half: tuple[int, int], how: int) -> EndTransaction:
    return EndTransaction(GROUP, *half, how, msg_id="k", transaction_id="k")


@pytest.mark.parametrize("seed", range(4))
async def test_lanes_of_transactions_do_what_the_long_way_does(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    async with live_broker(tmp_path / "a") as first, live_broker(tmp_path / "b") as second:
        for live in (first, second):
            await live.send(b"first")  # makes the topic
            for queue_id in range(QUEUES):
                await begin_and_end(live, queue_id)
        short, long = Way(first.broker, has_lanes=True), Way(second.broker, has_lanes=False)
        begun: list[tuple[int, int, str]] = [(0, 0, "")]
        for number in range(REQUESTS):
            if random.random() < 0.5:
                sent = half_frame(random, number)
            else:
                sent = end_frame(random, begun[-random.randint(1, min(len(begun), 9))])
            answer = long.send(sent)
            assert short.send(sent) == answer, sent
            if isinstance(answer, bytes) and b'msgId":"' in answer:
                fields = json.loads(answer[8:])["extFields"]
                begun.append((int(fields["queueOffset"]), int(fields["msgId"][-16:], 16), f"{number:08X}"))
            if random.random() < 0.02:
                assert short.figures() == long.figures()
        assert short.figures() == long.figures()
        assert short.content() == long.content()
    assert short.taken_sends > REQUESTS * 0.1 and short.taken_ends > REQUESTS * 0.05 and not long.taken_ends


@pytest.mark.parametrize("change_rule", CHANGES, ids=lambda change_rule: change_rule.__name__)
async def test_a_rule_that_changes_leaves_no_end_to_a_lane(
    tmp_path: Path, change_rule: Callable[[Live], Awaitable[None]]
) -> None:
    """The transaction ends once all the same."""
    async with live_broker(tmp_path) as live:
        for _ in range(4):
            await begin_and_end(live)
        half, lanes = await begin(live), lanes_of(live)
        taken = lanes.taken_count
        await live.session.call(end_request(await begin(live), 8))
        assert lanes.taken_count == taken + 2
        await change_rule(live)
        taken = lanes.taken_count
        await live.session.call(end_request(half, 8))
        assert lanes.taken_count == taken
        with pytest.raises(RemoteError, match="was committed"):
            await live.session.call(end_request(half, 12))


async def test_transactions_of_a_chunk_take_lanes(tmp_path: Path) -> None:
    """Over a socket, many in flight, with the answers of each; what lanes did is counted, and can be found."""
    async with live_broker(tmp_path) as live:
        for _ in range(4):
            await begin_and_end(live)
        lanes, transactions = lanes_of(live), live.broker._transactions
        taken = lanes.taken_count
        halves = [await begin(live) for _ in range(40)]
        assert len(transactions.open_transactions) == 40
        ends = [live.session.call(end_request(half, 8 if half[0] % 2 else 12)) for half in halves]
        for end in ends:
            await end
        assert lanes.taken_count == taken + 80
        assert len(transactions.open_transactions) == 0
        assert [transactions._half_counter.value, transactions._commit_counter.value] == [44, 24]
        await live.session.call(end_request(halves[0], 8 if halves[0][0] % 2 else 12))  # again, the same
        with pytest.raises(RemoteError, match="The transaction id is that of another message"):
            await live.session.call(EndTransaction(GROUP, *halves[1], 8, msg_id="k", transaction_id="other"))
        bodies = [message.body for message in await live.messages(max_msg_nums=200)]
    assert bodies == [b"half"] * 24


async def test_a_half_message_that_was_stored_again_has_no_lane_for_its_end(tmp_path: Path) -> None:
    """The broker stores it again before it asks its producer; an end may name the older copy, and counts once."""
    async with live_broker(tmp_path) as live:
        for _ in range(4):
            await begin_and_end(live)
        lanes, transactions, half = lanes_of(live), live.broker._transactions, await begin(live)
        transaction = transactions.open_transactions.find(half[0])
        stored = transactions._decode_at(half[1])
        assert transaction is not None and stored is not None
        transactions._copy(transaction, stored, 1)
        taken = lanes.taken_count
        assert transaction.queue_offset == half[0] + 1
        for _ in range(2):
            await live.session.call(end_request(half, 8))
        assert lanes.taken_count == taken and len(transactions.open_transactions) == 0
        bodies = [message.body for message in await live.messages(max_msg_nums=200)]
    assert bodies == [b"half"] * 5


async def test_many_open_transactions_take_the_long_way(tmp_path: Path) -> None:
    """Of open half messages lanes keep a few megabytes."""
    async with live_broker(tmp_path) as live:
        for _ in range(4):
            await begin_and_end(live)
        lanes, halves = lanes_of(live), []
        for _ in range(100):
            request = send_request(properties={"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": "k"})
            request.sys_flag = 4
            answer = await live.session.call(request, bytes(60_000))
            halves.append((answer.header.queue_offset, parse_offset_id(answer.header.msg_id).physical_offset))
        are_taken = []
        for half in halves:
            taken = lanes.taken_count
            await live.session.call(end_request(half, 8))
            are_taken.append(lanes.taken_count > taken)
        assert 20 < sum(are_taken) < 80 and are_taken == sorted(are_taken)
        assert len(live.broker._transactions.open_transactions) == 0
