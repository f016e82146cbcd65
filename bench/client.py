"""How many messages a second does our client send and consume, beside the C++ client from Python and Java's?

    ./run bench client [--quick] [--messages 50000] [--rounds 3]

All are driven with bodies of 128 bytes against one broker of ours (4 queues, asynchronous flush), each in a process of
its own, ours and the C++ client from Python; rounds alternate between them. "in turn" waits for each answer before the
next send; Java's client 4.9.8 does that too, warmed up by as many sends. "pipelined" (`send_soon`, 512 in flight) and
"gathered" (20,000 `send` in one `asyncio.gather`) are ours alone, for the binding has no such thing. Consumers begin a
new group at the topic's beginning; the clock runs from their first message to their last. "consume" calls an `async`
handler for each message, "consume batches" for up to 256; "poll" is a pull consumer.

Bound, by hand: a pipelined send is 2 to 3 us of Python here, and 2 us at the broker, as most travel in batches of 128
(ADR 59): 300,000/s with a core for each. A send alone is some 12 us here and 9 us there. In turn it is both plus two
passages through the kernel, 60 to 100 us: 10,000 to 16,000/s. Consuming is 2 us a
message: 0.5 for its part of the pull and its objects, the rest for the handler's coroutine and its acknowledgement.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from statistics import median
from typing import Final

from bench.client_ways import CPP, JAVA, JAVA_CLIENT, LIMIT_S, WAYS, Figures
from bench.results import keep_section
from bench.servers import OURS, serving
from tests.interop.kits import PeerMissing, client_jars


def main() -> None:
    options = _options()
    if options.run:
        print(json.dumps(WAYS[options.run](options.namesrv, options.messages)), flush=True)
        return
    ways = [way for way in WAYS if not way.startswith(JAVA) or _has_java()]
    figures: dict[str, list[Figures]] = defaultdict(list)
    with serving(OURS) as broker:
        for _ in range(options.rounds):
            for way in ways:
                found = _in_a_process(way, broker.namesrv, options.messages)
                figures[way].append(found)
                print(f"{way:28} {found['rate']:10,.0f}/s {found['cpu_us']:6.1f} us CPU a message", flush=True)
    text = _table(figures)
    if options.quick:
        print(text)
    else:
        note = f"{options.rounds} rounds of {options.messages:,} messages."
        keep_section("client", __doc__.splitlines()[0], f"{text}\n\n{note}")


def _has_java() -> bool:
    try:
        client_jars(JAVA_CLIENT)
    except PeerMissing as missing:
        print(f"{JAVA} is left out: {missing}")
        return False
    return True


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short round, shown and not kept")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--namesrv", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.messages = 1, 10_000
    return options


def _in_a_process(way: str, namesrv: str, messages: int) -> Figures:
    command = [
        sys.executable,
        "-m",
        "bench.client",
        "--run",
        way,
        "--namesrv",
        namesrv,
        "--messages",
        str(messages),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    with suppress(IndexError, json.JSONDecodeError):
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        return found
    raise RuntimeError(f"{way} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


# The binding's quickest answered send is its only one, and so is its way to consume.
RIVALS: Final = {
    "send pipelined": "send in turn",
    "send gathered": "send in turn",
    "consume batches": "consume",
    "poll": "consume",
}


def _table(figures: dict[str, list[Figures]]) -> str:
    lines = [
        "| what | messages/s | CPU us/message | p99 us | times the C++ client |",
        "|---|---|---|---|---|",
    ]
    for way, rounds in figures.items():
        who, what = way.split(": ")
        rates = [found["rate"] for found in rounds]
        rival = figures[f"{CPP}: {RIVALS.get(what, what)}"]
        ratio = median(rates) / median(found["rate"] for found in rival)
        cpu_us = median(found["cpu_us"] for found in rounds)
        p99_us = f"{median(found['p99_us'] for found in rounds):,.0f}" if "p99_us" in rounds[0] else ""
        shown = f"{median(rates):,.0f} ({min(rates):,.0f}..{max(rates):,.0f})"
        lines.append(f"| {who}, {what} | {shown} | {cpu_us:.1f} | {p99_us} | {ratio:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
