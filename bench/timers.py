"""How late do messages for a time come, and how much memory do those that wait take?

    ./run bench timers [--quick] [--pending 1000000] [--rate 10000] [--seconds 10]

One broker of ours with ASYNC_FLUSH. First `pending` messages of 128 bytes are sent that are due from two hours to forty
days later, and the memory of the broker is read before and after. Then `rate` messages a second, sent ahead, come due
for some seconds. How late each was is the difference of its record's store time and its TIMER_OUT_MS, so pulling
disturbs nothing: that comes after it.

Bound, by hand: 20 bytes a timer are 20 MB a million; a timer that is due costs reading, decoding and storing a message,
about 60 us, so 10,000 a second are two thirds of a core. Slots of 16 ms are 8 ms late on average.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from statistics import median, quantiles

from bench.results import keep_section
from bench.servers import OURS, Peer, serving
from bench.usage import memory
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.properties import render
from sparrowmq.protocol.requests.headers import PullMessage, SendMessageV2
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session

BODY = bytes(128)
IN_FLIGHT = 512
HOUR_S, DAY_S = 3600, 86_400
LEAD_S = 3
PULL, SUBSCRIPTION = "due", 4


def main() -> None:
    question = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--pending", type=int, default=1_000_000, help="that wait all the time")
    parser.add_argument("--rate", type=int, default=10_000, help="that come due each second")
    parser.add_argument("--seconds", type=int, default=10, help="for so long")
    parser.add_argument("--quick", action="store_true", help="a tenth of them for 3 s, shown and not kept")
    options = parser.parse_args()
    if options.quick:
        options.pending, options.seconds = options.pending // 10, 3
    with serving(OURS) as peer:
        text = asyncio.run(measure(peer, options.pending, options.rate, options.seconds))
    print(text) if options.quick else keep_section("timers", question, text)


async def measure(peer: Peer, pending: int, rate: int, seconds: int) -> str:
    pool = Pool(SystemClock())
    session = await pool.session(f"127.0.0.1:{peer.port}")
    before = memory(peer.pid)
    now_ms = time.time_ns() // 1_000_000
    begin = time.monotonic()
    spread_ms = (40 * DAY_S - 3 * HOUR_S) * 1000
    await send_all(session, (now_ms + 2 * HOUR_S * 1000 + i * spread_ms // pending for i in range(pending)), "far")
    took_s = time.monotonic() - begin
    after = memory(peer.pid)
    count = rate * seconds
    first_ms = time.time_ns() // 1_000_000 + round((LEAD_S + count / (pending / took_s) * 1.5) * 1000)
    await send_all(session, (first_ms + i * 1000 // rate for i in range(count)), PULL)
    spare_s = first_ms / 1000 - time.time()
    await asyncio.sleep(spare_s)
    cpu_s = cpu(peer.pid)
    await asyncio.sleep(seconds)
    cpu_s = cpu(peer.pid) - cpu_s
    await asyncio.sleep(2)
    late = [ms async for ms in lateness(session)]
    pool.close()
    assert len(late) == count, f"{count} were sent, {len(late)} came"
    percent = quantiles(late, n=1000)
    each = (after.anonymous - before.anonymous) * (1 << 20) / max(1, pending)
    return (
        f"{pending:,} pending ({pending / took_s:,.0f} taken a second): anonymous memory from "
        f"{before.anonymous:.0f} to {after.anonymous:.0f} MiB, {each:.0f} bytes each.\n"
        f"{rate:,} due a second for {seconds} s: late by {median(late):.0f} ms in the median, "
        f"{percent[989]:.0f} ms at 99 %, {percent[998]:.0f} ms at 99.9 %, {max(late)} ms at most, {min(late)} ms at "
        f"least; {cpu_s / seconds:.0%} of a core ({'sent' if spare_s > 0 else 'NOT sent'} before the first was due)."
    )


async def send_all(session: Session, dues: Iterator[int], topic: str) -> None:
    slots = asyncio.Semaphore(IN_FLIGHT)

    async def send(due_ms: int, number: int) -> None:
        properties = render({"UNIQ_KEY": f"{number:032X}", "TIMER_DELIVER_MS": str(due_ms)})
        request = SendMessageV2("bench", topic, "TBW102", 1, 0, 0, due_ms, 0, properties)
        try:
            await session.call(request, BODY, timeout_s=60)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        for number, due_ms in enumerate(dues):
            await slots.acquire()
            tasks.create_task(send(due_ms, number))


async def lateness(session: Session) -> AsyncIterator[int]:
    """How late each delivered message was, in ms."""
    offset = 0
    while True:
        request = PullMessage("bench", PULL, 0, offset, 32, SUBSCRIPTION, 0, 0, 0, "*")
        reply = await session.call(request, accept={19, 20, 21}, timeout_s=30)
        if not reply.body:
            return
        for each in record.walk(reply.body):
            message = record.decode(each)
            yield message.store_timestamp_ms - int(message.properties["TIMER_OUT_MS"])
        offset = reply.header.next_begin_offset


def cpu(pid: int) -> float:
    """The seconds of processor time that a process has used."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
