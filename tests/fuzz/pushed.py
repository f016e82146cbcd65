"""Nonsense for our client: what a broker pushes to it, on the connection that the client made.

a broker of few words <── heartbeat, route ── Client
                      ── Frames of Role.CLIENT ──> an answer for each that wants one, and no fault in its log
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress
from typing import Final, Self

import msgspec

import sparrowmq
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import REPLY_FLAG, Command
from sparrowmq.protocol.wire.frame import FrameReader
from tests.fuzz.frames import PULLS, Frames, frame
from tests.fuzz.live import ANSWER_LIMIT_S, BATCH, Found

_TOPIC: Final = "Fuzz"


class Faults(logging.Handler):
    """What the client logged with a trace: faults of ours."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.texts.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Pushing:
    """A name server and broker that answers nearly everything with success, and pushes frames."""

    def __init__(self) -> None:
        self.answers: dict[int, Command] = {}
        self.beating = asyncio.Event()
        self._more = asyncio.Event()
        self._members: list[str] = []
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    def push(self, frames: list[bytes]) -> None:
        assert self._writer is not None
        self._writer.write(b"".join(frames))

    async def answered(self, opaques: set[int]) -> set[int]:
        """Those that are not answered after a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_LIMIT_S):
                while not opaques <= self.answers.keys():
                    self._more.clear()
                    await self._more.wait()
        return opaques - self.answers.keys()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        with suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                for command in [codec.decode(*one) for one in frames.feed(chunk)]:
                    if command.is_reply:
                        self.answers[command.opaque] = command
                        self._more.set()
                    elif not command.is_oneway and command.code not in PULLS:  # those wait for messages
                        writer.write(self._reply(command))
                    if command.code == RequestCode.HEART_BEAT:
                        self._members = [msgspec.json.decode(command.body)["clientID"]]
                        self._writer = writer
                        self.beating.set()
        writer.close()

    def _reply(self, command: Command) -> bytes:
        body = b""
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            body = msgspec.json.encode(_route(self.address))
        elif command.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            body = msgspec.json.encode({"consumerIdList": self._members})
        header = {
            "code": 0,
            "opaque": command.opaque,
            "flag": REPLY_FLAG,
            "language": "JAVA",
            "version": 409,
            "extFields": {"offset": "0"},  # of any queue that it asks about
        }
        return frame(0, msgspec.json.encode(header), body)


async def push_to_client(seed: int, wanted: int) -> Found:
    """Push `wanted` frames to a client that sends and consumes."""
    found = Found()
    frames = Frames(random.Random(seed), Role.CLIENT)
    faults = Faults()
    logging.getLogger("sparrowmq").addHandler(faults)
    try:
        async with (
            Pushing() as broker,
            sparrowmq.connect(broker.address) as client,
            client.subscribe(_TOPIC, lambda message: None, group="fuzzers"),
        ):
            await asyncio.wait_for(broker.beating.wait(), ANSWER_LIMIT_S)
            for start in range(0, wanted, BATCH):
                await _push(broker, frames, min(BATCH, wanted - start), found)
                if found.violations:
                    break
    finally:
        logging.getLogger("sparrowmq").removeHandler(faults)
    found.violations += [f"the client logged {text}" for text in faults.texts[:5]]
    return found


async def _push(broker: Pushing, frames: Frames, count: int, found: Found) -> None:
    batch = [frames.next() for _ in range(count)]
    found.sent.update(sent.code for sent in batch)
    broker.push([sent.frame for sent in batch])
    missing = await broker.answered({sent.opaque for sent in batch if not sent.one_way})
    for sent in batch:
        answer = broker.answers.pop(sent.opaque, None)
        if sent.opaque in missing:
            found.violations.append(f"no answer to {sent.frame[:300]!r}")
        elif answer is not None:
            found.answers[sent.code, answer.code] += 1
            if "internal error" in (answer.remark or ""):
                found.violations.append(f"{answer.remark}: {sent.frame[:600]!r}")


def _route(address: str) -> dict[str, object]:
    return {
        "brokerDatas": [{"brokerName": "broker-a", "cluster": "C", "brokerAddrs": {"0": address}}],
        "queueDatas": [{"brokerName": "broker-a", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}],
    }
