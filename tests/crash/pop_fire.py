"""A broker that is killed again and again, beside consumers that pop, acknowledge, fail and are slow.

lost       a message that was sent, and that no consumer got to acknowledge
too soon   a message that came again within its invisible time, though the broker did not die in between
came back  a message that came again after its acknowledgement was answered
overtaken  by orderly pops: a message that came though an earlier one of its message group was not acknowledged

The body of a message is its number. With millions of messages in `batches`, each has one byte of state.
"""

from __future__ import annotations

import asyncio
import base64
import random
import signal
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.receipt_handle import Kind, ReceiptHandle, popped_queues
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.protocol.requests.pop_headers import (
    AckMessage,
    BatchAck,
    BatchAckMessage,
    BatchAcks,
    ChangeInvisibleTime,
    PopMessage,
    PopMessageReply,
)
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from tests.interop.apache import free_ports

TOPIC: Final = "alarms"
GROUP: Final = "firemen"
QUEUES: Final = 4
INVISIBLE_MS: Final = 4000
MOST_AHEAD: Final = 20_000  # messages that wait for a consumer
_EARLY_S: Final = 0.05  # clocks of two processes, and of two kinds
_START_LIMIT_S: Final = 60.0
_UNSENT, _SENT, _ASKED, _ACKNOWLEDGED = range(4)


@dataclass
class PopState:
    """The messages, by number, and what consumers saw of them.

    Attributes:
        states: whether its send was answered, its acknowledgement was sent, and that was answered. A kill may take the
            answers.
        given: by message without an answered acknowledgement, when it may come again at the earliest, and in which life
            of the broker it was given.
        waiting: the number of sent messages for which no consumer sent an acknowledgement.
    """

    states: bytearray = field(default_factory=bytearray)
    given: dict[int, tuple[float, int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    again: int = 0
    kills: int = 0
    sent: int = 0
    acknowledged: int = 0
    waiting: int = 0

    def new(self, count: int) -> range:
        """The numbers of messages that will be sent."""
        first = len(self.states)
        self.states += bytes(count)
        return range(first, first + count)

    def note_sent(self, numbers: range) -> None:
        """Note that a send was answered. Its messages may have been popped before."""
        self.sent += len(numbers)
        for number in numbers:
            if self.states[number] == _UNSENT:
                self.states[number] = _SENT
                self.waiting += 1

    def note_asked(self, number: int) -> None:
        self.waiting -= self.states[number] == _SENT
        self.states[number] = max(self.states[number], _ASKED)

    def note_acknowledged(self, number: int) -> None:
        if self.states[number] != _ACKNOWLEDGED:
            self.acknowledged += 1
            self.states[number] = _ACKNOWLEDGED
        self.given.pop(number, None)


class PopFire:
    """One broker process, its consumers and one producer.

    Args:
        groups: the number of message groups of orderly pops; 0: pops are not orderly.
        batch: so many messages are sent at once, and if it is more than 1, a pop is acknowledged by one request.
    """

    def __init__(self, path: Path, flush: str, seed: int, members: int = 16, groups: int = 0, batch: int = 1) -> None:
        self.pops = PopState()
        self._random = random.Random(seed)
        self._members = members
        self._groups = groups
        self._batch = batch
        self._sent: dict[int, list[int]] = defaultdict(list)  # by message group, in their order
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

    async def play(self, kills: int, seconds: float = 2.0, shown: bool = False) -> None:
        """Kill the broker so often, and let consumers finish. `shown` prints each kill."""
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
                if shown and number < kills:
                    print(f"kill {number + 1}: {self.pops.sent:,} sent", file=sys.stderr, flush=True)
                self._ends = number == kills
                await asyncio.gather(*work)
                pool.close()

    async def _finish(self) -> None:
        deadline = time.monotonic() + 120
        while self.pops.waiting and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        lost = [number for number, state in enumerate(self.pops.states) if state == _SENT]
        self.pops.wrong += [f"lost: {number}" for number in lost]

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
        pops = self.pops
        while not session.closed:
            if pops.waiting > MOST_AHEAD:
                await asyncio.sleep(0.01)
                continue
            numbers = pops.new(self._batch)
            try:
                await session.call(*self._request(numbers), timeout_s=20)
            except SparrowError as error:
                self._ended(session, error)
                return
            pops.note_sent(numbers)

    def _request(self, numbers: range) -> tuple[SendMessageV2, bytes]:
        """A send to any queue, or to that of a message group."""
        queue_id, properties = self._random.randrange(QUEUES), ""
        if self._groups:
            group = self._random.randrange(self._groups)
            queue_id, properties = group % QUEUES, f"__SHARDINGKEY\x01{group}\x02"
            self._sent[group] += numbers
        bodies = [b"%d" % number for number in numbers]
        is_batch = len(bodies) > 1
        body = batch.encode(BatchPart(body, b"", 0) for body in bodies) if is_batch else bodies[0]
        place = ("p", TOPIC, "TBW102", QUEUES, queue_id, 0, 1, 0, properties)
        return SendMessageV2(*place, batch=is_batch), body

    async def _consume(self, pool: Pool, member: int) -> None:
        """Pop and acknowledge until the connection ends. Some messages fail, and some are slow."""
        session = await pool.session(f"127.0.0.1:{self._port}")
        while not session.closed:
            try:
                asked_s = time.monotonic()
                count = self._random.choice((1, 4, 32, 32 * min(self._batch, 8)))
                answer = await session.call(self._pop(member, count), accept={17, 209, 210}, timeout_s=20)
                self._attempts.pop(member, None)
                if answer.code:
                    await asyncio.sleep(0.01)
                    continue
                found = list(map(record.decode, record.walk(answer.body)))
                self._note_order(found)
                for message in found:
                    self._note(int(message.body), asked_s)
                end = self._end_together if self._batch > 1 else self._end_alone
                await end(session, answer.header, found)
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
        before: set[int] = set()
        for message in found if self._groups else ():
            number, sent = int(message.body), self._sent[int(message.properties["__SHARDINGKEY"])]
            earlier = sent[: bisect_left(sent, number)]
            if left := [each for each in earlier if self.pops.states[each] == _SENT and each not in before]:
                self.pops.wrong.append(f"overtaken: {left} by {number}")
            before.add(number)

    def _ended(self, session: Session, error: SparrowError) -> None:
        """Note an error, unless the broker has died."""
        if not session.closed:
            self.pops.wrong.append(f"an error: {error!r}")

    async def _end_alone(self, session: Session, popped: PopMessageReply, found: list[StoredMessage]) -> None:
        for message in found:
            number, life = int(message.body), self._life
            handle = str(_handle(popped, message))
            place = (GROUP, TOPIC, message.queue_id, handle, message.queue_offset)
            chance = self._random.random()
            if chance < 0.02:
                continue
            if chance < 0.04:
                changed_s = time.monotonic()
                await session.call(ChangeInvisibleTime(*place, 1000), timeout_s=20)
                self.pops.given[number] = (changed_s + 1, life)
                continue
            self.pops.note_asked(number)
            await session.call(AckMessage(*place), timeout_s=20)
            self.pops.note_acknowledged(number)

    async def _end_together(self, session: Session, popped: PopMessageReply, found: list[StoredMessage]) -> None:
        """Acknowledge messages of one pop in one request. A few of them fail."""
        found = [message for message in found if self._random.random() >= 0.001]
        if not found:
            return
        queues: dict[int, list[StoredMessage]] = defaultdict(list)
        for message in found:
            queues[message.queue_id].append(message)
            self.pops.note_asked(int(message.body))
        body = BatchAcks("fire", [_acks(popped, messages) for messages in queues.values()])
        answer = await session.call(BatchAckMessage(), body.encode(), timeout_s=20)
        if not answer.header.left_out:  # as when some came after their invisible time
            for message in found:
                self.pops.note_acknowledged(int(message.body))

    def _note(self, number: int, asked_s: float) -> None:
        """Note a message that came, to a pop that was sent at `asked_s`."""
        now_s, pops = time.monotonic(), self.pops
        if pops.states[number] == _ACKNOWLEDGED:
            pops.wrong.append(f"came back: {number}, acknowledged before, in life {self._life}")
            return
        until_s, life = pops.given.get(number, (0.0, 0))
        if life == self._life and now_s < until_s - _EARLY_S:
            pops.wrong.append(f"too soon: {number}, {until_s - now_s:.2f} s before its time")
        pops.again += life > 0
        pops.given[number] = (asked_s + INVISIBLE_MS / 1000, self._life)


def _handle(popped: PopMessageReply, message: StoredMessage) -> ReceiptHandle:
    places = popped_queues(popped.start_offset_info, popped.msg_offset_info)
    return ReceiptHandle(
        places[Kind.NORMAL, message.queue_id].start_offset,
        popped.pop_time,
        INVISIBLE_MS,
        popped.revive_qid,
        Kind.NORMAL,
        "fire",
        message.queue_id,
        message.queue_offset,
    )


def _acks(popped: PopMessageReply, messages: list[StoredMessage]) -> BatchAck:
    """The acknowledgement of messages of one queue."""
    handle = _handle(popped, messages[0])
    bits = sum(1 << message.queue_offset - handle.start_offset for message in messages)
    text = base64.b64encode(bits.to_bytes(bits.bit_length() + 7 >> 3, "little")).decode()
    place = (handle.start_offset, handle.queue_id, handle.revive_queue, handle.pop_time_ms, INVISIBLE_MS)
    return BatchAck(GROUP, TOPIC, "0", *place, text)
