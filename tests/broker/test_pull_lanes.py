"""Lanes of pulls: the short way answers what the long way does, and none outlives a rule that has changed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from sparrowmq.broker.short_pulls import PlainPulls
from sparrowmq.kernel.pulls import Pull, PullAnswers
from sparrowmq.protocol.requests.admin_headers import DeleteTopic
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat
from sparrowmq.protocol.requests.headers import HeartBeat
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.short_way import PlainSends
from sparrowmq.store.vfs import Disk, File
from tests.broker.live import Live, decoded, live_broker, pull_request
from tests.broker.test_setting_changes import change

TOPIC, GROUP, QUEUES, MESSAGES, FRAMES = "orders", "consumers", 3, 300, 700


class Wire:
    """A raw connection: frames go out as they are, and answers come back as bytes."""

    def __init__(self, live: Live, is_short: bool) -> None:
        self._live = live
        self._is_short = is_short
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, frame: bytes) -> bytes:
        """The answer; empty if the connection was closed, or none came."""
        if self._streams is None:
            host, port = self._live.broker.address.rsplit(":", 1)
            self._streams = await asyncio.open_connection(host, int(port))
            await self.ask(framed(header(Random(0), {"queueId": "77"}, {})))
        reader, writer = self._streams
        if not self._is_short:
            own = ":".join(map(str, writer.get_extra_info("sockname")))
            for session in self._live.broker._server.sessions:
                if session.address == own:
                    session.short_way = session.sender = None
        writer.write(frame)
        try:
            async with asyncio.timeout(0.2):
                answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                return re.sub(rb"(consumer:)?\[127[0-9.:]*\]", b"", answer)
        except TimeoutError:
            return b""
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return b""

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def header(random: Random, fields: dict[str, Any], members: dict[str, Any]) -> bytes:
    usual: dict[str, Any] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    whole = {"code": 11, "extFields": usual | fields, "flag": 0, "language": "JAVA", "opaque": 7, "version": 409}
    return json.dumps(whole | members, separators=(",", ":"), ensure_ascii=random.random() < 0.5).encode()


def framed(head: bytes, body: bytes = b"") -> bytes:
    return (4 + len(head) + len(body)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + body


def frame(random: Random) -> bytes:
    """A pull, nearly always as clients send it, of one of a few shapes."""
    fields: dict[str, Any] = {
        "queueId": str(random.choice([0, 0, 1, 2, 3] if random.random() < 0.1 else [0, 1])),
        "queueOffset": str(random.randrange(MESSAGES // QUEUES + 10)),
        "commitOffset": str(random.randrange(90)),
        "sysFlag": random.choice(["4", "5", "0", "7"]),
        "subscription": random.choice(["*", "*", "paid", "paid || gone"]),
        "maxMsgNums": random.choice(["32", "5"]),
    }
    if random.random() < 0.2:
        fields["maxMsgBytes"] = random.choice(["2000", "100000"])
    if random.random() < 0.1:
        name = random.choice([*fields, "consumerGroup", "topic", "expressionType", "subVersion"])
        fields[name] = random.choice([None, 0, 3, "007", "-1", "+1", "1" * 18, "9" * 19, "", "é", "a\\", "SQL92", "9"])
    members: dict[str, Any] = {"opaque": random.getrandbits(31)}
    if random.random() < 0.05:
        name = random.choice(["code", "flag", "language", "opaque", "remark", "other"])
        members[name] = random.choice([None, 0, 11, 361, 34, "x", "11", {"queueOffset": "1"}, [], 1 << 40, 1 << 70])
    head = header(random, fields, members)
    if random.random() < 0.05:
        at, size = random.randrange(len(head)), random.choice([1, 1, 5, 40])
        piece = random.choice(
            [b"", b" ", b'"', b"\\", b"0", b",", b"}", b"{", b"\xff", b"\0", head[at : at + size] * 2]
        )
        head = head[:at] + piece + head[at + random.choice([0, len(piece), size]) :]
    return framed(head, b"body" if random.random() < 0.02 else b"")


async def fill(live: Live) -> None:
    random = Random(5)
    for number in range(MESSAGES):
        tags = random.choice(["paid", "sent", ""])
        body = bytes(random.choice([1, 100, 3000]))
        await live.send(body, queue_id=number % QUEUES, properties={"TAGS": tags} if tags else {})
    await beat(live, Subscription(TOPIC, "paid", version=5))


async def beat(live: Live, *subscriptions: Subscription) -> None:
    consumers = [ConsumerBeat(GROUP, subscription_data_set=list(subscriptions))]
    await live.session.call(HeartBeat(), Heartbeat("one", consumer_data_set=consumers).encode())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_verified", [True, False])
async def test_a_lane_answers_and_notes_what_the_long_way_does(tmp_path: Path, seed: int, is_verified: bool) -> None:
    random, taken = Random(seed), 0
    async with live_broker(tmp_path) as live:
        await fill(live)
        if not is_verified:
            live.broker.store._log.distrust()
        pulls, offsets = live.broker._pulls, live.broker._pulls._offsets
        figures, counts = pulls._consumption, [0, 0, 0]
        plain = pulls.answer_plain

        def answer(pull: Pull, answers: PullAnswers) -> bool:
            nonlocal taken
            taken += plain(pull, answers)
            return answers.size > 0

        pulls.answer_plain = answer  # type: ignore[method-assign]
        short, long = Wire(live, is_short=True), Wire(live, is_short=False)
        for wire in (short, long):
            await wire.ask(framed(header(random, {}, {})))
        offsets.commit(GROUP, TOPIC, 0, 1000)
        counts = [figures.messages.value, figures.pulls_with_messages.value, figures.missed.value]
        for _ in range(FRAMES):
            sent, found = frame(random), []
            for wire in (short, long):
                answer_bytes = await wire.ask(sent)
                now = [figures.messages.value, figures.pulls_with_messages.value, figures.missed.value]
                added = [after - before for after, before in zip(now, counts, strict=True)]
                counts = now
                found.append((answer_bytes, dict(offsets.of_group(GROUP, TOPIC)), added))
                offsets.commit(GROUP, TOPIC, 0, 1000)
            assert found[0] == found[1], sent
        short.close()
        long.close()
    assert taken > FRAMES * 0.2


def plain_pulls(live: Live) -> PlainPulls:
    [far] = [session for session in live.broker._server.sessions if session.address == live.session.local_address]
    return cast(PlainPulls, cast(PlainSends, far.short_way)._pulls)


async def open_lane(live: Live) -> PlainPulls:
    """Pull until a lane is open."""
    for _ in range(3):
        assert len(decoded(await live.pull())) == 1
    way = plain_pulls(live)
    assert way.prepare() and way.lanes.open_count == 1
    return way


async def set_quotas(live: Live) -> None:
    await change(live, quotas="topic:others requests=1/s")


async def set_most_messages(live: Live) -> None:
    await change(live, maxTransferCountOnMessageInMemory="1")


async def refuse_reads(live: Live) -> None:
    await change(live, brokerPermission="2")


async def put_topic(live: Live) -> None:
    live.broker._pulls._topics.put(TopicConfig(TOPIC, 2, 2))


async def delete_topic(live: Live) -> None:
    await live.session.call(DeleteTopic(TOPIC))


async def put_group(live: Live) -> None:
    live.broker._pulls._groups.put(GroupConfig(GROUP, consume_enable=False))


async def delete_group(live: Live) -> None:
    live.broker._pulls._groups.delete(GROUP)


async def subscribe(live: Live) -> None:
    await beat(live, Subscription(TOPIC, "paid", version=5))


async def add_queue(live: Live) -> None:
    await live.send(topic="others")


CHANGES = [
    set_quotas,
    set_most_messages,
    refuse_reads,
    put_topic,
    delete_topic,
    put_group,
    delete_group,
    subscribe,
    add_queue,
]


@pytest.mark.parametrize("change_rule", CHANGES, ids=lambda change_rule: change_rule.__name__)
async def test_a_rule_that_changes_closes_every_lane(
    tmp_path: Path, change_rule: Callable[[Live], Awaitable[None]]
) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        way = await open_lane(live)
        await change_rule(live)
        way.prepare()
        assert way.lanes.open_count == 0


async def test_a_newer_subscription_and_a_group_that_leaves_change_the_rules(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        clients, seen = live.broker._pulls._clients, []
        for expression, version in (("paid", 5), ("paid", 5), ("sent", 6)):
            await beat(live, Subscription(TOPIC, expression, version=version))
            seen.append(clients.version)
        live.session.close()
        for _ in range(100):
            await asyncio.sleep(0.01)
            if clients.version > seen[-1]:
                break
        seen.append(clients.version)
    assert seen == [1, 1, 2, 3]


async def test_what_would_be_read_from_the_disk_takes_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    async with live_broker(tmp_path) as live:
        await live.send()
        await open_lane(live)
        plain = live.broker._pulls.answer_plain

        def answer(pull: Pull, answers: PullAnswers) -> bool:
            taken.append(plain(pull, answers))
            return taken[-1]

        live.broker._pulls.answer_plain = answer  # type: ignore[method-assign]

        def fail(disk: Disk, file: File, offset: int, into: memoryview) -> int:
            raise OSError("the disk is damaged")

        def is_partly_cached(disk: Disk, file: File, offset: int, into: memoryview) -> int:
            return len(into) - 1

        for read in (lambda *_: -1, is_partly_cached, fail):
            monkeypatch.setattr(Disk, "read_cached", read)
            assert len(decoded(await live.pull())) == 1
        monkeypatch.undo()
        assert len(decoded(await live.pull())) == 1
    assert taken == [False, False, False, True]


async def test_large_answers_wait_for_their_turn_and_come_all_the_same(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        for number in range(60):
            await live.send(b"%04d" % number * 1000)
        for _ in range(2):
            await live.pull()
        calls = [live.session.call(pull_request(offset=number % 30)) for number in range(400)]
        for number, call in enumerate(calls):
            bodies = [message.body[:4] for message in decoded(await call)]
            assert bodies == [b"%04d" % each for each in range(number % 30, min(60, number % 30 + 32))][: len(bodies)]
            assert len(bodies) > 20
