"""The load generator for machines without a C compiler: same frames, same closed loop, one connection, slower."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, Final

_BATCH: Final = 32
_OPAQUE: Final = re.compile(rb'"opaque":(\d+)')
_CODE: Final = re.compile(rb'"code":(\d+)')
_MAX_OFFSET: Final = re.compile(rb'"maxOffset":"(\d+)"')


def python_load(
    mode: str,
    port: int,
    *,
    topic: str = "bench",
    queues: int = 4,
    body: int = 128,
    window: int = 64,
    count: int = 1_000_000,
    warmup: int = 0,
    pid: int = 0,
    connections: int = 1,
    batch: int = 1,
    **_ignored: int | str,
) -> dict[str, Any]:
    """What load.c does, with its options and figures, on one connection. Raises: OSError, RuntimeError."""
    if connections != 1 or batch != 1 or mode == "transact":
        raise RuntimeError("many connections, batches and transactions need the generator in C, and so a C compiler")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask = _sends(topic, queues, body) if mode == "send" else _pulls(wire, topic, queues)
        return _Loop(wire, ask, mode, window, pid).run(warmup, count)


class _Loop:
    """Keeps `window` requests in flight; the opaque of each is its slot."""

    def __init__(self, wire: socket.socket, ask: Callable[[int], bytes], mode: str, window: int, pid: int) -> None:
        self._wire, self._ask, self._mode, self._window, self._pid = wire, ask, mode, window, pid
        self._sent = [0.0] * window
        self._latencies: list[float] = []
        self._left = b""
        self._errors = 0
        self._error = ""

    def run(self, warmup: int, count: int) -> dict[str, Any]:
        self._issue(range(self._window))
        done = self._until(0, warmup)
        self._latencies.clear()
        self._errors = 0
        start, own, broker = time.monotonic(), time.process_time(), process_cpu_s(self._pid)
        messages = self._until(done, warmup + count) - done
        messages -= self._errors if self._mode == "send" else 0
        elapsed = time.monotonic() - start
        latencies = sorted(self._latencies)
        return {
            "mode": self._mode,
            "messages": messages,
            "seconds": elapsed,
            "rate": messages / elapsed,
            "p50_us": latencies[len(latencies) // 2] * 1e6,
            "p99_us": latencies[len(latencies) * 99 // 100] * 1e6,
            "max_us": latencies[-1] * 1e6,
            "errors": self._errors,
            "own_cpu_s": time.process_time() - own,
            "broker_cpu_s": process_cpu_s(self._pid) - broker,
            "error": self._error,
            "generator": "python",
        }

    def _issue(self, slots: range | list[int]) -> None:
        now = time.monotonic()
        for slot in slots:
            self._sent[slot] = now
        self._wire.sendall(b"".join(map(self._ask, slots)))

    def _until(self, done: int, wanted: int) -> int:
        left = self._left
        while done < wanted:
            chunk = self._wire.recv(1 << 20)
            if not chunk:
                raise RuntimeError("the broker closed the connection")
            data, at, slots, now = left + chunk, 0, [], time.monotonic()
            while len(data) - at >= 8 and len(data) - at >= (size := int.from_bytes(data[at : at + 4], "big") + 4):
                slot, messages = self._take(data[at : at + size])
                self._latencies.append(now - self._sent[slot])
                slots.append(slot)
                done += messages
                at += size
            left = data[at:]
            self._issue(slots)
        self._left = left
        return done

    def _take(self, frame: bytes) -> tuple[int, int]:
        header_end = 8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF)
        header = frame[8:header_end]
        slot = int(_found(_OPAQUE, header))
        if _found(_CODE, header) != b"0":
            self._errors += 1
            self._error = self._error or header.decode(errors="replace")
            if self._errors > 1000 and self._errors > len(self._latencies) / 10:
                raise RuntimeError(f"too many errors; the first: {self._error}")
            return slot, 1 if self._mode == "send" else 0
        return slot, 1 if self._mode == "send" else _records(frame, header_end)


def process_cpu_s(pid: int) -> float:
    """User and system time that a process has taken; 0 for none."""
    if not pid:
        return 0
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _sends(topic: str, queues: int, body_size: int) -> Callable[[int], bytes]:
    body, number, born_ms = b"x" * body_size, time.time_ns() & 0xFFFFFFFFFF, time.time_ns() // 1_000_000

    def ask(slot: int) -> bytes:
        nonlocal number
        number += 1
        properties = f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02TAGS\x01TagA"
        fields = (
            "bench-producer",
            topic,
            "TBW102",
            4,
            number % queues,
            0,
            born_ms,
            0,
            properties,
            0,
            "false",
        )
        named = {name: str(value) for name, value in zip("abcdefghijk", fields, strict=True)}
        return _frame(310, named | {"m": "false", "n": "broker-a"}, slot, body)

    return ask


def _pulls(wire: socket.socket, topic: str, queues: int) -> Callable[[int], bytes]:
    def pull(slot: int, queue: int, offset: int) -> bytes:
        fields = {
            "queueId": queue,
            "maxMsgNums": _BATCH,
            "sysFlag": 4,
            "suspendTimeoutMillis": 0,
            "commitOffset": 0,
            "topic": topic,
            "queueOffset": offset,
            "expressionType": "TAG",
            "subscription": "*",
            "subVersion": 0,
            "consumerGroup": "bench-consumer",
        }
        return _frame(11, {name: str(value) for name, value in fields.items()}, slot)

    ends, nexts, turn = [], [0] * queues, 0
    for queue in range(queues):
        wire.sendall(pull(0, queue, 0))
        ends.append(int(_found(_MAX_OFFSET, _whole_frame(wire))))

    def ask(slot: int) -> bytes:
        nonlocal turn
        turn = (turn + 1) % queues
        offset = nexts[turn]
        nexts[turn] = 0 if offset + 2 * _BATCH > ends[turn] else offset + _BATCH
        return pull(slot, turn, offset)

    return ask


def _frame(code: int, fields: dict[str, str], opaque: int, body: bytes = b"") -> bytes:
    header = json.dumps(
        {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque, "version": 409},
        separators=(",", ":"),
    ).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def _whole_frame(wire: socket.socket) -> bytes:
    data = b""
    while len(data) < 8 or len(data) < int.from_bytes(data[:4], "big") + 4:
        chunk = wire.recv(1 << 20)
        if not chunk:
            raise RuntimeError("the broker closed the connection")
        data += chunk
    return data


def _records(frame: bytes, at: int) -> int:
    records = 0
    while at < len(frame):
        at += int.from_bytes(frame[at : at + 4], "big")
        records += 1
    return records


def _found(pattern: re.Pattern[bytes], header: bytes) -> bytes:
    match = pattern.search(header)
    if match is None:
        raise RuntimeError(f"an unexpected reply: {header.decode(errors='replace')[:300]}")
    return match[1]
