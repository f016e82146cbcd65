"""What does a filter cost a broker for each message that it examines?

    ./run bench filter [--quick] [--messages 40000] [--rounds 5]

One queue of messages of 128 bytes with five properties, in the file cache, is pulled from its beginning to its end over
a socket, 32 messages a pull, by each filter in turn, which is a round. What counts is the broker's CPU for each message
that a filter had to look at; the ratio is to the tag that as many messages have.

Bound, by hand: a pull takes 20 us, so with 32 matches 0.6 us a message, with every other one half of that; an entry
whose tag is not wanted costs one look at its 20 bytes, 0.025 us, and as much for its share of the pull, of which 800
are looked at. SQL has to look into the record, 0.1 us: the copy of it 0.03 to 0.06 (it comes from memory, so that
depends on who else uses that), the search for a name 0.025, the rest is finding the properties, some digits, and the
steps from one part of the filter to the next; a pull looks at 2,400. So it is at most 1.3 times a tag where
something is found, and about twice where nothing is; but what no tag can match does not reach the records
(`TAGS = 'c'`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median
from typing import Final

from bench.rounds import Run, arguments
from bench.servers import OURS, serving
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.requests.headers import PullMessage, SendMessageV2
from sparrowmq.protocol.subscription import SQL92
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session

TOPIC: Final = "filtered"
BODY: Final = bytes(128)
IN_FLIGHT: Final = 256
SUBSCRIPTION: Final = 4
TAG: Final = "TAG"
# By the share that matches: first the tags, to which the others are compared.
FILTERS: Final = {
    "all": ((TAG, "a || b"), (SQL92, "amount >= 0"), (SQL92, "amount >= 0 AND region IS NOT NULL")),
    "half": ((TAG, "a"), (SQL92, "TAGS = 'a'"), (SQL92, "amount >= 5"), (SQL92, "amount > 4.5")),
    "none": ((TAG, "c"), (SQL92, "TAGS = 'c'"), (SQL92, "amount > 100")),
}


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.set_defaults(peers=(OURS,), rounds=5)
    parser.add_argument("--messages", type=int, default=40_000)
    run = Run("filter", __doc__ or "", parser)
    with serving(run.options.peers[0], enablePropertyFilter="true", busyPollEnable="false") as peer:
        rows = asyncio.run(measure(peer.port, peer.pid, run.options.messages, run.options.rounds))
    heads = "| match | filter | broker's CPU us/message examined | times the tag |\n| --- | --- | --- | --- |"
    note = f"{run.options.rounds} rounds over {run.options.messages:,} messages."
    run.keep_text("\n".join([heads, *rows, "", note]))


async def measure(port: int, pid: int, messages: int, rounds: int) -> list[str]:
    pool = Pool(SystemClock())
    session = await pool.session(f"127.0.0.1:{port}")
    await fill(session, messages)
    costs: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(rounds + 1):
        for share, filters in FILTERS.items():
            for kind, expression in filters:
                begin_s = cpu_s(pid)
                matched = await pull_all(session, kind, expression, messages)
                assert matched == {"all": messages, "half": messages // 2, "none": 0}[share], (
                    expression,
                    matched,
                )
                costs.setdefault((share, kind, expression), []).append(cpu_s(pid) - begin_s)
    pool.close()
    each = {case: median(taken[1:]) / messages * 1e6 for case, taken in costs.items()}
    return [
        f"| {share} | {kind} `{expression.replace('|', chr(92) + '|')}` | {cost:.3f} | "
        f"{cost / each[share, *FILTERS[share][0]]:.2f} |"
        for (share, kind, expression), cost in each.items()
    ]


async def fill(session: Session, messages: int) -> None:
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def send(number: int) -> None:
        words = {"TAGS": "ab"[number % 2], "UNIQ_KEY": f"{number:032X}", "WAIT": "true"}
        properties = render(words | {"amount": str((number * 5 + 5) % 10), "region": "EU"})
        request = SendMessageV2("bench", TOPIC, "TBW102", 1, 0, 0, 1, 0, properties)
        async with slots:
            await session.call(request, BODY, timeout_s=60)

    async with asyncio.TaskGroup() as tasks:
        for number in range(messages):
            tasks.create_task(send(number))


async def pull_all(session: Session, kind: str, expression: str, messages: int) -> int:
    """Pull from the beginning to the end; how many records came."""
    offset = matched = 0
    while offset < messages:
        request = PullMessage("bench", TOPIC, 0, offset, 32, SUBSCRIPTION, 0, 0, 0, expression, kind)
        reply = await session.call(request, accept={19, 20, 21}, timeout_s=30)
        offset = reply.header.next_begin_offset
        matched += count(reply.body)
    return matched


def count(body: bytes) -> int:
    records = at = 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4], "big")
        records += 1
    return records


def cpu_s(pid: int) -> float:
    """What the broker's loop has used: the first thread of the process, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


if __name__ == "__main__":
    main()
