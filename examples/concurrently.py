"""Handles messages many at a time; one that fails comes again, and how many run at once is changed meanwhile.

NAMESRV_ADDR=127.0.0.1:9876 python examples/concurrently.py
"""

import asyncio

import sparrowmq
from sparrowmq import ReceivedMessage

JOBS = 40


async def main() -> None:
    done: set[str] = set()
    finished, running, most = asyncio.Event(), 0, 0

    async def work(job: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(0.02)
            if job.text() == "job 7" and not job.reconsume_times:
                job.retry(delay="1s")  # to raise something does it as well, with a delay that grows
                return
        finally:
            running -= 1
        done.add(job.text())
        if len(done) == JOBS:
            finished.set()

    async with sparrowmq.connect() as mq:
        await asyncio.gather(*[mq.send("jobs", f"job {number}".encode()) for number in range(JOBS)])
        async with mq.subscribe("jobs", work, group="workers", start="earliest", concurrency=2) as consumer:
            consumer.concurrency = 10
            await finished.wait()
    print(len(done), "jobs done, at most", most, "at once")


asyncio.run(main())
