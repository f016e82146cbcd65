"""A broker that is killed again and again, beside consumers that pop, acknowledge, fail and are slow.

lost       a message that was sent, and that no consumer got to acknowledge
too soon   a message that came again within its invisible time, though the broker did not die in between
came back  a message that came again after its acknowledgement was answered
overtaken  by orderly pops: a message that came though an earlier one of its message group was not acknowledged
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle, popped_queues
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.protocol.requests.pop_headers import AckMessage, ChangeInvisibleTime, PopMessage
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from tests.interop.apache import free_ports

TOPIC: Final = "alarms"
GROUP: Final = "firemen"
QUEUES: Final = 4
INVISIBLE_MS: Final = 4000
_EARLY_S: Final = 0.05  # clocks of two processes, and of two kinds
_START_LIMIT_S: Final = 60.0


@dataclass
class Pops:
    """What consumers saw.

    Attributes:
        given: by message, when it may come again at the earliest, and in which life of the broker it was given.
        asked: the messages whose acknowledgement was sent. A kill may take the answer.
        acknowledged: the messages whose acknowledgement was answered, with the life of the broker.
    """

    sent: set[str] = field(default_factory=set)
    given: dict[str, tuple[float, int]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    acknowledged: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    again: int = 0
    kills: int = 0


class PopFire:
    """One broker process, its consumers and one producer.

    Args:
        groups: the number of message groups of orderly pops; 0: pops are not orderly.
    """

    def __init__(self, path: Path, flush: str, seed: int, members: int = 16, groups: int = 0) -> None:
        self.pops = Pops()
        self._random = random.Random(seed)
        self._members = members
        self._groups = groups
        self._sent: dict[str, list[str]] = defaultdict(list)  # by message group, in their order
        self._port = free_ports(1)[0]
        self._path = path
        self._life = 0
        self._attempts: dict[int, str] = {}
        self._ends = False
        self._conf = path / "broker.conf"
        self._conf.write_text(
            f"brokerName=fire\nlistenPort={self._port}\nstorePathRootDir={path / 'store'}\nflushDiskType={flush}\n"
            "fastListenPort=off\ndefaultTopicQueueNums=4\nmapedFileSizeCommitLog=4194304\nbrokerRole=ASYNC_MASTER\nhaListenPort=off\n"
        )

    async def play(self, kills: int, seconds: float = 2.0) -> None:
        """Kill the broker so often, and let consumers finish."""
        for number in range(kills + 1):
            process = await self._start()
            self._life += 1
            pool = await self._connected(process)
            work = [asyncio.ensure_future(self._consume(pool, member)) for member in range(self._members)]
            try:
                if number == kills:
                    await self._finish()
                    return
                work.append(asyncio.ensure_future(self._send(pool)))
                await asyncio.sleep(seconds * self._random.uniform(0.5, 1.5))
            finally:
                process.send_signal(signal.SIGKILL)
                await process.wait()
                self.pops.kills += 1
                self._ends = number == kills
                await asyncio.gather(*work)
                pool.close()

    async def _finish(self) -> None:
        deadline = time.monotonic() + 120
        while self.pops.sent - self.pops.asked and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        self.pops.wrong += [f"lost: {body}" for body in self.pops.sent - self.pops.asked]

    async def _start(self) -> asyncio.subprocess.Process:
        with (self._path / "out.txt").open("ab") as out:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sparrowmq", "broker", "-c", str(self._conf)), stdout=out, stderr=out
            )

    async def _connected(self, process: asyncio.subprocess.Process) -> Pool:
        pool, deadline = Pool(SystemClock()), time.monotonic() + _START_LIMIT_S
        while True:
            try:
                await pool.session(f"127.0.0.1:{self._port}")
                return pool
            except SparrowError:
                if process.returncode is not None or time.monotonic() > deadline:
                    raise RuntimeError((self._path / "out.txt").read_text()[-2000:]) from None
                await asyncio.sleep(0.02)

    async def _send(self, pool: Pool) -> None:
        session = await pool.session(f"127.0.0.1:{self._port}")
        while not session.closed:
            body = f"{self._life}-{len(self.pops.sent)}"
            queue_id, properties = self._random.randrange(QUEUES), ""
            if self._groups:
                group = str(self._random.randrange(self._groups))
                queue_id, properties = int(group) % QUEUES, f"__SHARDINGKEY\x01{group}\x02"
                self._sent[group].append(body)
            header = SendMessageV2("p", TOPIC, "TBW102", QUEUES, queue_id, 0, 1, 0, properties)
            try:
                await session.call(header, body.encode(), timeout_s=20)
            except SparrowError as error:
                self._ended(session, error)
                return
            self.pops.sent.add(body)

    async def _consume(self, pool: Pool, member: int) -> None:
        """Pop and acknowledge until the connection ends. Some messages fail, and some are slow."""
        session = await pool.session(f"127.0.0.1:{self._port}")
        while not session.closed:
            try:
                asked_s = time.monotonic()
                count = self._random.choice((1, 4, 32))
                answer = await session.call(self._pop(member, count), accept={17, 209, 210}, timeout_s=20)
                self._attempts.pop(member, None)
                if answer.code:
                    await asyncio.sleep(0.01)
                    continue
                places = popped_queues(answer.header.start_offset_info, answer.header.msg_offset_info)
                found = list(map(record.decode, record.walk(answer.body)))
                self._note_order(found)
                for message in found:
                    self._note(message.body.decode(), message.reconsume_times, asked_s)
                    place = places[Kind.NORMAL, message.queue_id]
                    handle = ReceiptHandle(
                        place.start_offset,
                        answer.header.pop_time,
                        INVISIBLE_MS,
                        answer.header.revive_qid,
                        Kind.NORMAL,
                        "fire",
                        message.queue_id,
                        message.queue_offset,
                    )
                    await self._end(session, message, str(handle))
            except RemoteError as error:
                if error.code != 208:  # an acknowledgement that came too late
                    raise
            except SparrowError as error:
                self._ended(session, error)
                return

    def _pop(self, member: int, count: int) -> PopMessage:
        """A pop; with the attempt id of the last one, if that had no answer."""
        place = (GROUP, TOPIC, -1, count, INVISIBLE_MS, 500, 0, 0)
        if not self._groups:
            return PopMessage(*place)
        attempt = self._attempts.setdefault(member, f"{member} {self._random.random()}")
        return PopMessage(*place, order=True, attempt_id=attempt)

    def _note_order(self, found: list[StoredMessage]) -> None:
        """Note messages that came before earlier ones of their message group were acknowledged."""
        before: set[str] = set()
        for message in found if self._groups else ():
            body, sent = message.body.decode(), self._sent[message.properties["__SHARDINGKEY"]]
            earlier = set(sent[: sent.index(body)]) & self.pops.sent
            if left := earlier - self.pops.asked - before:
                self.pops.wrong.append(f"overtaken: {sorted(left)} by {body}")
            before.add(body)

    def _ended(self, session: Session, error: SparrowError) -> None:
        """Note an error, unless the broker has died."""
        if not session.closed:
            self.pops.wrong.append(f"an error: {error!r}")

    async def _end(self, session: Session, message: StoredMessage, handle: str) -> None:
        body, life, chance = message.body.decode(), self._life, self._random.random()
        place = (GROUP, TOPIC, message.queue_id, handle, message.queue_offset)
        if chance < 0.02:
            return
        if chance < 0.04:
            changed_s = time.monotonic()
            await session.call(ChangeInvisibleTime(*place, 1000), timeout_s=20)
            self.pops.given[body] = (changed_s + 1, life)
            return
        self.pops.asked.add(body)
        await session.call(AckMessage(*place), timeout_s=20)
        self.pops.acknowledged[body] = life

    def _note(self, body: str, times: int, asked_s: float) -> None:
        """Note a message that came, to a pop that was sent at `asked_s`."""
        now_s, pops = time.monotonic(), self.pops
        if body in pops.acknowledged:
            pops.wrong.append(
                f"came back: {body}, acknowledged in life {pops.acknowledged[body]} of {self._life}"
            )
        until_s, life = pops.given.get(body, (0.0, 0))
        if life == self._life and now_s < until_s - _EARLY_S:
            pops.wrong.append(f"too soon: {body}, {until_s - now_s:.2f} s before its time")
        pops.again += life > 0
        pops.given[body] = (asked_s + INVISIBLE_MS / 1000, self._life)
