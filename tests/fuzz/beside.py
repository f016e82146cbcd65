"""`./run fuzz --beside [--minutes N] [--members N]`: how long do an innocent client's sends take beside 16 attackers?

    attackers    a process with 16 threads. Each sends the largest requests that it can think of, of every code that
                 clients may send, on ever new connections, and reads the answers
    members      or, with --members: that many clients join one consumer group, as fast as they can. Each asks who the
                 members are whenever the broker says that they changed, as Java's clients do
    innocent     sends a message of 128 bytes a hundred times a second, and waits for each answer

The requests are those that the search for costs begins with (cost/genes.py), grown at random. They are made before
the clock starts, so that making them takes no CPU from the broker.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import resource
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparrowmq.protocol.requests.request_table import BY_CODE, Access
from tests.fuzz.cost.genes import CODES, frames_of, mutated, seed_of, size_of
from tests.interop.servers import OurBroker, OurNamesrv
from tests.interop.wire import SEND, Wire, request, send_fields

ATTACKERS: Final = 16
LIMIT_S: Final = 0.020
LONGEST_S: Final = 0.050  # beside members
_CASES: Final = 400
_MOST_BYTES: Final = 1 << 20
_PERIOD_S: Final = 0.010
HEART_BEAT: Final = 34
GET_MEMBERS: Final = 38
MEMBERS_CHANGED: Final = 40
_ANSWER_S: Final = 0.3
_CLIENT_CODES: Final = [code for code in CODES if BY_CODE[code].access not in (Access.ADMIN, Access.CLUSTER)]


class Beside(NamedTuple):
    """What an innocent client saw: the durations of its sends in seconds, and how many failed."""

    took_s: list[float]
    failed: int
    attacks: int
    what: str = "attacks"

    def __str__(self) -> str:
        cuts = statistics.quantiles(self.took_s, n=1000)
        p50, p99, p999 = (cuts[at - 1] * 1e3 for at in (500, 990, 999))
        return (
            f"{len(self.took_s):,} sends beside {self.attacks:,} {self.what}: p50 {p50:.1f}, p99 {p99:.1f}, "
            f"p99.9 {p999:.1f}, longest {max(self.took_s) * 1e3:.0f} ms; {self.failed} failed"
        )


def beside(
    seed: int,
    minutes: float,
    attackers: int = ATTACKERS,
    say: Callable[[str], None] = print,
    members: int = 0,
) -> list[str]:
    """Attack a broker for some minutes. Returns what broke a limit, as text.

    Args:
        members: the number of clients that join a group, in place of the attackers.
    """
    with (
        tempfile.TemporaryDirectory(prefix="sparrowmq-beside-") as store,
        OurNamesrv() as namesrv,
        OurBroker(namesrv.address, Path(store)) as broker,
    ):
        quiet = _sends(broker.port, min(minutes * 60, 10))
        say(f"alone: {Beside(*quiet, attacks=0)}")
        context = multiprocessing.get_context("spawn")
        count, stop, ready = context.Value("q", 0), context.Event(), context.Event()
        arguments = (broker.port, seed, attackers, count, stop, ready)
        attack = context.Process(target=_attack, args=arguments, daemon=True)
        if members:
            attack = context.Process(target=_join, args=(broker.port, members, count, ready), daemon=True)
        attack.start()
        ready.wait(120)
        attacked = _sends(broker.port, minutes * 60)
        stop.set()
        if not members:  # who stay in their group until the end
            attack.join(30)
        attack.kill()
        attack.join()
        found = Beside(*attacked, attacks=count.value, what="joins" if members else "attacks")
        say(f"beside {f'{members:,} members' if members else f'{attackers} attackers'}: {found}")
    p99_s = statistics.quantiles(found.took_s, n=100)[98]
    broken = [f"the p99 of a send is {p99_s * 1e3:.1f} ms, the limit {LIMIT_S * 1e3:.0f}"] if p99_s > LIMIT_S else []
    longest_s = max(found.took_s)
    if members and longest_s > LONGEST_S:
        broken.append(f"the longest send took {longest_s * 1e3:.0f} ms, the limit {LONGEST_S * 1e3:.0f}")
    return broken + ([f"{found.failed} sends failed"] if found.failed else [])


def _sends(port: int, seconds: float) -> tuple[list[float], int]:
    took_s, failed = [], 0
    frame_body, due = b"x" * 128, time.monotonic()
    end = due + seconds
    with Wire(port, timeout_s=30) as wire:
        while due < end:
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            failed += wire.ask(SEND, send_fields("innocent"), frame_body).code != 0
            took_s.append(time.monotonic() - began)
            due = max(due + _PERIOD_S, time.monotonic())
    return took_s, failed


# In the attackers' process --------------------------------------------------------------------------------------------


def _attack(port: int, seed: int, attackers: int, count: Any, stop: Event, ready: Event) -> None:
    cases = _cases(random.Random(seed))
    ready.set()
    threads = [
        threading.Thread(target=_one, args=(port, cases, random.Random(f"{seed} {number}"), count, stop))
        for number in range(attackers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _cases(rng: random.Random) -> list[list[bytes]]:
    cases: list[list[bytes]] = []
    while len(cases) < _CASES:
        genes = [seed_of(rng, rng.choice(_CLIENT_CODES))]
        for _ in range(rng.randrange(1, 30)):
            grown = mutated(rng, genes, lambda: seed_of(rng, rng.choice(_CLIENT_CODES)))
            if size_of(grown) <= _MOST_BYTES:
                genes = grown
        cases.append(frames_of(genes))
    return cases


def _one(port: int, cases: list[list[bytes]], rng: random.Random, count: Any, stop: Event) -> None:
    while not stop.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as peer:
            for frame in rng.choice(cases):
                peer.sendall(frame)
            peer.settimeout(_ANSWER_S)
            while peer.recv(1 << 18):
                pass
        with count.get_lock():
            count.value += 1


# In the members' process ----------------------------------------------------------------------------------------------


def _join(port: int, members: int, count: Any, ready: Event) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, members + 100)), hard))
    asyncio.run(_join_all(port, members, count, ready))


async def _join_all(port: int, members: int, count: Any, ready: Event) -> None:
    ready.set()
    joined = set()
    for number in range(members):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        joined.add(asyncio.create_task(_stay(reader, writer, number, count)))
    await asyncio.gather(*joined)


async def _stay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, count: Any) -> None:
    """Join the group, and ask for its members whenever they change. Counts members that joined."""
    consumer = {
        "groupName": "crowd",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": "innocent", "subString": "*", "subVersion": 1}],
    }
    heartbeat = {"clientID": f"10.0.0.1@{number}", "consumerDataSet": [consumer], "producerDataSet": []}
    frame, opaque = request(HEART_BEAT, body=json.dumps(heartbeat).encode())
    writer.write(frame)
    while True:
        length, word = struct.unpack(">II", await reader.readexactly(8))
        header = json.loads(await reader.readexactly(word & 0xFFFFFF))
        await reader.readexactly(length - 4 - (word & 0xFFFFFF))
        if header["opaque"] == opaque and header["flag"] & 1:
            with count.get_lock():
                count.value += 1
        if header["code"] == MEMBERS_CHANGED and not header["flag"] & 1:
            writer.write(request(GET_MEMBERS, {"consumerGroup": "crowd"})[0])
