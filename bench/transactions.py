"""How many transactions a second does a broker commit, and for how much CPU?

    ./run bench transactions [--rounds 3] [--seconds 3] [--quick]

Each of so many slots of one connection sends a half message of 128 bytes, commits it when that is answered, and begins
again when the commit is; Java's producers do not wait for that, but then nothing would tell when it is done.
ASYNC_FLUSH.

Bound, by hand: a transaction is two requests and three records of some 300 bytes, and the half message is read once:
three sends' work, 15 us, and as much again for decoding the half message in Python. The generator is in Python, and
takes about 15 us of the other core: nobody can show more than 60,000 a second.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from functools import partial
from typing import Any, Final

from bench.peers import OURS, REFERENCE, Peer, serving_all
from bench.python_load import process_cpu_s
from bench.results import Measure
from bench.rounds import Run, arguments

WINDOWS: Final = (1, 64, 256)
_BODY: Final = bytes(128)
_FACTS: Final = re.compile(rb'"(opaque|code)":(\d+)|"(msgId|queueOffset)":"([0-9A-F]+)"')


def main() -> None:
    run = Run("transactions", __doc__ or "", arguments((__doc__ or "").splitlines()[0]))
    with serving_all((OURS, REFERENCE)) as peers:
        for peer in peers:
            transact(peer, 64, 2.0)  # A fresh JVM is slow.
        for window in WINDOWS:
            run.alternate(
                (str(window),), peers, partial(transact, window=window, seconds=run.options.seconds)
            )
    run.keep(
        ("in flight",),
        (
            Measure("transactions/s", lambda figures: figures["rate"]),
            Measure("CPU us/transaction", lambda figures: figures["cpu_us"]),
            Measure("refused", lambda figures: figures["errors"], compared=False),
        ),
        f"{run.options.rounds} rounds of {run.options.seconds} s, each end answered; the generator is in Python.",
    )


def transact(peer: Peer, window: int, seconds: float) -> dict[str, Any]:
    """Transactions for so long, so many at once."""
    with socket.create_connection(("127.0.0.1", peer.port), timeout=20) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        halves = [_frame(310, slot, _HALF | {"e": str(slot % 4)}, _BODY) for slot in range(window)]
        wire.sendall(b"".join(halves))
        left, done, refused, cpu = b"", 0, 0, process_cpu_s(peer.pid)
        begin = time.monotonic()
        end = begin + seconds
        in_flight = window
        while in_flight:
            left, replies = _split(left + wire.recv(1 << 20))
            going_on, out = time.monotonic() < end, []
            for reply in replies:
                facts = dict(_fact(each) for each in _FACTS.findall(reply))
                slot = int(facts[b"opaque"])
                is_refused = facts[b"code"] != b"0"  # Apache's lets nothing wait for longer than 200 ms.
                if slot < window and not is_refused:
                    out.append(_end(slot + window, facts))
                    continue
                refused += is_refused
                done += not is_refused
                if going_on:
                    out.append(halves[slot % window])
                else:
                    in_flight -= 1
            wire.sendall(b"".join(out))
        took_s = time.monotonic() - begin
        cpu = process_cpu_s(peer.pid) - cpu
    return {"rate": done / took_s, "cpu_us": cpu / done * 1e6, "errors": refused, "error": "busy"}


_HALF: Final = {
    "a": "bench", "b": "bench", "c": "TBW102", "d": "4", "f": "4", "g": str(int(time.time() * 1000)), "h": "0",
    "i": "TRAN_MSG\x01true\x02PGROUP\x01bench\x02WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


def _end(opaque: int, facts: dict[bytes, bytes]) -> bytes:
    offset = int(facts[b"msgId"][-16:], 16)
    text = (
        b'{"code":37,"extFields":{"producerGroup":"bench","commitLogOffset":"%d","tranStateTableOffset":"%s",'
        b'"commitOrRollback":"8","fromTransactionCheck":"false","msgId":"x"},"flag":0,"language":"JAVA","opaque":%d,'
        b'"version":409}' % (offset, facts[b"queueOffset"], opaque)
    )
    return struct.pack(">II", 4 + len(text), len(text)) + text


def _frame(code: int, opaque: int, fields: dict[str, str], body: bytes) -> bytes:
    header = {
        "code": code,
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "version": 409,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def _fact(found: tuple[bytes, bytes, bytes, bytes]) -> tuple[bytes, bytes]:
    return found[0] or found[2], found[1] or found[3]


def _split(data: bytes) -> tuple[bytes, list[bytes]]:
    """What is left, and the whole frames before it."""
    frames, at = [], 0
    while at + 4 <= len(data) and at + 4 + (size := int.from_bytes(data[at : at + 4], "big")) <= len(data):
        frames.append(data[at : at + 4 + size])
        at += 4 + size
    return data[at:], frames


if __name__ == "__main__":
    main()
