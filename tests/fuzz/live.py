"""Nonsense for a live server, which must answer every request, live, log no fault of its own, and not grow.

Frames ── 64 at a time on one connection ── Server ── an answer for each, or a violation
       └─ garbage on connections of its own ─────┘    what it logs, its memory, its open files
"""

from __future__ import annotations

import random
import re
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.frame import FrameReader
from tests.fuzz.frames import Frames, Sent

BATCH: Final = 64
ANSWER_LIMIT_S: Final = 20.0
# Frames on one connection before it is left, and batches between two pieces of garbage.
FRAMES_OF_A_CONNECTION: Final = 5_000
BATCHES_TO_GARBAGE: Final = 10
# What a process may grow in the second half of the frames, and the least number of frames that tell.
GROWTH_BYTES: Final = 3 << 20
STATE_OF_A_FRAME_BYTES: Final = 32
FRAMES_TO_JUDGE: Final = 100_000
_FAULT: Final = re.compile(r"Traceback|internal error|never retrieved|was never awaited")


@dataclass
class Found:
    """What came of it.

    Attributes:
        sent: frames by request code.
        answers: by request code and code of the answer.
    """

    violations: list[str] = field(default_factory=list)
    sent: Counter[int] = field(default_factory=Counter)
    answers: Counter[tuple[int, int]] = field(default_factory=Counter)
    garbage: int = 0
    memory_bytes: list[int] = field(default_factory=list)


class Live:
    """One server under nonsense.

    Args:
        address: `host:port`.
        pid: of its process, for its memory; None leaves that out.
        said: all that it logged so far.
        answer_limit_s: how long an answer may take.
    """

    def __init__(
        self,
        address: str,
        role: Role,
        seed: int,
        said: Callable[[], str],
        pid: int | None,
        answer_limit_s: float = ANSWER_LIMIT_S,
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._rng = random.Random(seed)
        self._frames = Frames(self._rng, role)
        self._said = said
        self._pid = pid
        self._limit_s = answer_limit_s
        self.found = Found()

    def run(self, wanted: int, tell: Callable[[int], None] = lambda sent: None) -> Found:
        """Send `wanted` frames, or fewer where the first violations are found."""
        sent = 0
        while sent < wanted and not self.found.violations:
            sent += self._one_connection(min(FRAMES_OF_A_CONNECTION, wanted - sent))
            self._sample()
            tell(sent)
        self._judge(wanted)
        return self.found

    def _one_connection(self, wanted: int) -> int:
        sent = 0
        with socket.create_connection(self._address, self._limit_s) as peer:
            reader = FrameReader()
            while sent < wanted and not self.found.violations:
                batch = [self._frames.next() for _ in range(min(BATCH, wanted - sent))]
                sent += len(batch)
                self._exchange(peer, reader, batch)
                if sent // BATCH % BATCHES_TO_GARBAGE == 0:
                    self._garbage()
        return sent

    def _exchange(self, peer: socket.socket, reader: FrameReader, batch: list[Sent]) -> None:
        self.found.sent.update(sent.code for sent in batch)
        waiting = {sent.opaque: sent for sent in batch}
        owed = {sent.opaque for sent in batch if sent.answered}
        try:
            peer.sendall(b"".join(sent.frame for sent in batch))
            while owed:
                for command in _received(peer, reader):
                    if command.is_reply:
                        owed.discard(command.opaque)
                        self._look_at(waiting.get(command.opaque), command)
                    elif not command.is_oneway:
                        peer.sendall(self._frames.answer(command.opaque))
        except (OSError, RemoteProtocolError) as error:
            unanswered = Counter(RequestCode(waiting[opaque].code).name for opaque in owed)
            first = waiting[min(owed)].frame[:300]
            self.found.violations.append(f"{error or 'no answer'}: {dict(unanswered)}, the first {first!r}")

    def _look_at(self, sent: Sent | None, reply: Command) -> None:
        if sent is None:
            return  # of an earlier batch: a pull that was held
        self.found.answers[sent.code, reply.code] += 1
        if "internal error" in (reply.remark or ""):
            self.found.violations.append(f"{reply.remark}: {sent.frame[:600]!r}")

    def _garbage(self) -> None:
        """On a connection of its own, which the server must end or let end."""
        garbage = self._frames.garbage()
        self.found.garbage += 1
        with socket.create_connection(self._address, self._limit_s) as peer:
            try:
                peer.sendall(garbage)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass
            except TimeoutError:
                self.found.violations.append(f"a connection does not end after {garbage[:300]!r}")
            except ConnectionError:
                pass

    def _sample(self) -> None:
        if self._pid is not None:
            self.found.memory_bytes.append(anonymous_bytes(self._pid))

    def _judge(self, wanted: int) -> None:
        said = self._said()
        if fault := _FAULT.search(said):
            self.found.violations.append(f"it logged: {said[max(0, fault.start() - 500) : fault.end() + 3000]}")
        samples = self.found.memory_bytes
        if wanted >= FRAMES_TO_JUDGE and (growth := late_growth(samples)) > allowed_growth(wanted):
            self.found.violations.append(
                f"it grew by {growth / 1e6:.1f} MB in the second half of the frames: {samples}"
            )


def allowed_growth(frames: int) -> int:
    """How much more memory the second half may take. Some frames make a group or a topic, which is kept."""
    return GROWTH_BYTES + frames // 2 * STATE_OF_A_FRAME_BYTES


def late_growth(samples: list[int]) -> int:
    """How much more memory the last quarter takes than the one before the half.

    Of each quarter the least counts: what a collector has yet to free comes and goes.
    """
    quarter = len(samples) // 4
    return min(samples[-quarter:]) - min(samples[quarter : 2 * quarter]) if quarter else 0


def anonymous_bytes(pid: int) -> int:
    """The memory of a process that no file stands behind."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


def _received(peer: socket.socket, reader: FrameReader) -> list[Command]:
    chunk = peer.recv(1 << 18)
    if not chunk:
        raise ConnectionError("the connection was closed")
    return [codec.decode(*frame) for frame in reader.feed(chunk)]
