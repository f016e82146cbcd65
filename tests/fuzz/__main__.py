"""`python -m tests.fuzz [--minutes N] [--seed S]`: nonsense for live servers and for every decoder.

`--access [--cases N]` attacks what belongs to others instead, `--handles [--cases N]` forges handles, and
`--cost [--requests N]` searches for requests that cost much CPU; tests/fuzz/access and tests/fuzz/cost say how.
`--beside` measures a client's sends beside attackers, and `--kernel` feeds the compiled kernel under AddressSanitizer
and UBSan (tests/kernel/fuzzing.py).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.request_table import ROWS, Role
from tests.fuzz import handles
from tests.fuzz.access import command
from tests.fuzz.access.play import PORTS, REMOTING, Stage
from tests.fuzz.beside import beside
from tests.fuzz.cost import command as dear
from tests.fuzz.decoders import try_all
from tests.fuzz.live import Found, Live
from tests.fuzz.pushed import push_to_client
from tests.interop.servers import OurBroker, OurNamesrv
from tests.interop.wire import Wire
from tests.kernel import fuzzing

# What a minute is spent on, as measured on two processors; more of both where there is time.
FRAMES_A_MINUTE = 100_000
DECODES_A_MINUTE = 1_000_000
NAMESRV_SHARE = 4
CLIENT_SHARE = 10


def main() -> int:
    arguments = options().parse_args()
    print(f"seed {arguments.seed}", flush=True)
    violations = run(arguments)
    for violation in violations:
        print(f"VIOLATION {violation}")
    print(f"{len(violations)} violations, seed {arguments.seed}")
    return 1 if violations else 0


def run(arguments: argparse.Namespace) -> list[str]:
    """Search in the chosen way. Returns what was found, as text."""
    seed, cases = arguments.seed, arguments.cases
    if arguments.kernel:
        return fuzzing.search_all(seed, arguments.minutes * 60, keep=arguments.keep)
    if arguments.handles:
        return handles.attack(seed, cases, lambda done: progress("handles", done, cases))
    if arguments.beside:
        return beside(seed, arguments.minutes, members=arguments.members)
    if arguments.cost and arguments.replay:
        return dear.replay(Path(arguments.replay))
    if arguments.cost:
        return dear.search(seed, arguments.requests, arguments.codes, progress)
    if arguments.access and arguments.replay:
        return command.replay(arguments.replay, Stage(arguments.users, arguments.port))
    if arguments.access:
        return command.attack_all(seed, cases, arguments.replays, Stage(arguments.users, arguments.port), progress)
    print(f"about {arguments.minutes:g} minutes", flush=True)
    decodes = int(arguments.minutes * DECODES_A_MINUTE)
    frames = int(arguments.minutes * FRAMES_A_MINUTE)
    return decode_all(seed, decodes) + live_all(seed, frames) + client_all(seed, frames // CLIENT_SHARE)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run fuzz", description=__doc__)
    parser.add_argument(
        "--minutes",
        type=float,
        default=2.0,
        help="about how long (default 2; 10 are 1 M frames, 10 M decodes)",
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeat an earlier run")
    parser.add_argument("--kernel", action="store_true", help="search for bytes that lead the kernel out of its memory")
    parser.add_argument("--keep", action="store_true", help="of --kernel: keep inputs that reach more in its corpus")
    parser.add_argument("--access", action="store_true", help="attack an account's things on a broker with accounts")
    parser.add_argument("--handles", action="store_true", help="forge receipt, transaction and recall handles")
    parser.add_argument("--cases", type=int, default=100_000, help="of --access and --handles (default 100,000)")
    parser.add_argument("--replay", metavar="CASES", help="repeat the cases that --access printed, or a file of --cost")
    parser.add_argument("--replays", action="store_true", help="captured frames too, which only TLS prevents")
    parser.add_argument("--users", action="store_true", help="of --access: a broker with users and policies")
    parser.add_argument(
        "--port",
        choices=PORTS,
        default=REMOTING,
        help="of --access: the port to attack; mqproxy needs --users",
    )
    parser.add_argument("--cost", action="store_true", help="search for requests that cost a broker much CPU")
    parser.add_argument("--requests", type=int, default=100_000, help="of --cost (default 100,000)")
    parser.add_argument("--codes", default="", help="of --cost, such as 34,310 (default all)")
    parser.add_argument("--beside", action="store_true", help="measure a client's sends beside 16 attackers")
    parser.add_argument("--members", type=int, default=0, help="of --beside: join a group, and do not attack")
    return parser


def decode_all(seed: int, runs: int) -> list[str]:
    began = time.monotonic()
    tried = try_all(seed, runs, lambda done: progress("decoders", done, runs))
    for name, count in tried.runs.items():
        print(f"  {name:14} {count:>10,} runs, {tried.refused.get(name, 0) / count:>4.0%} refused")
    print(f"{sum(tried.runs.values()):,} decoder runs in {time.monotonic() - began:.0f} s")
    return tried.violations


def live_all(seed: int, frames: int) -> list[str]:
    few = frames // NAMESRV_SHARE
    with (
        tempfile.TemporaryDirectory(prefix="sparrowmq-fuzz-") as store,
        OurNamesrv() as namesrv,
        OurBroker(namesrv.address, Path(store)) as broker,
    ):
        ask_for_most(broker.port)
        violations: list[str] = []
        for name, server, role, wanted in (
            ("broker", broker, Role.BROKER, frames - few),
            ("name server", namesrv, Role.NAMESRV, few),
        ):
            live = Live(server.address, role, seed, server.said, server.pid)
            began = time.monotonic()
            found = live.run(wanted, lambda sent, name=name, wanted=wanted: progress(name, sent, wanted))  # type: ignore[misc]
            report(name, found, role, time.monotonic() - began)
            violations += [f"{name}: {violation}" for violation in found.violations]
    return violations


def ask_for_most(port: int) -> None:
    """Ask for the largest answers first. The process keeps the memory of 10 MB, which must not look like a leak."""
    widest = {"topic": "wide", "readQueueNums": 65_535, "writeQueueNums": 65_535, "perm": 6}
    with Wire(port, timeout_s=60) as wire:
        for code, fields in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, widest | {"defaultTopic": "TBW102"}),
            (RequestCode.GET_TOPIC_STATS_INFO, widest),
            (RequestCode.QUERY_CONSUME_TIME_SPAN, widest | {"group": "all"}),
        ):
            if (answer := wire.ask(code, fields)).code:
                raise RuntimeError(f"{code.name} answers {answer.code}: {answer.remark}")


def client_all(seed: int, frames: int) -> list[str]:
    began = time.monotonic()
    found = asyncio.run(push_to_client(seed, frames))
    report("client", found, Role.CLIENT, time.monotonic() - began)
    return [f"client: {violation}" for violation in found.violations]


def report(name: str, found: Found, role: Role, took_s: float) -> None:
    """How often each code was asked, and what came back."""
    for row in ROWS:
        if row.served_by & role:
            codes = Counter({reply: count for (code, reply), count in found.answers.items() if code == row.code})
            told = ", ".join(f"{reply}: {count:,}" for reply, count in codes.most_common(6))
            print(f"  {row.code:>6} {row.name:36} {found.sent[row.code]:>8,} sent; answers {told or 'none'}")
    unserved = {row.code for row in ROWS} - {row.code for row in ROWS if row.served_by & role}
    others = sum(count for code, count in found.sent.items() if code in unserved)
    missed = [RequestCode(row.code).name for row in ROWS if row.served_by & role and not found.sent[row.code]]
    memory = found.memory_bytes
    shown = [f"{size / 1e6:.0f}" for size in memory[:: max(1, len(memory) // 12)]]
    print(
        f"{name}: {sum(found.sent.values()):,} frames ({others:,} of {len(unserved)} codes that it does not serve) and "
        f"{found.garbage:,} pieces of garbage in {took_s:.0f} s; never asked: {', '.join(missed) or 'none'}"
        + (f"; anonymous memory from first to last {' '.join(shown)} MB" if memory else "")
    )


def progress(what: str, done: int, wanted: int) -> None:
    if sys.stdout.isatty():
        print(f"\r{what}: {done:,} of {wanted:,}", end="\r", flush=True)


if __name__ == "__main__":
    sys.exit(main())
