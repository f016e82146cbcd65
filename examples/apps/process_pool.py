"""A process pool: handlers hand work for the processor to other processes, and several run at once.

pip install ".[server]"
sparrowmq dev &
export NAMESRV_ADDR=127.0.0.1:9876
python examples/apps/process_pool.py
"""

import asyncio
import os
from concurrent.futures import ProcessPoolExecutor
from hashlib import pbkdf2_hmac
from multiprocessing import get_context

import sparrowmq
from sparrowmq import ReceivedMessage

COUNT = 20


def derive(message: ReceivedMessage) -> tuple[str, int]:
    """Run in a process of the pool. The message there is a copy, which cannot be acknowledged."""
    return pbkdf2_hmac("sha256", message.body, b"salt", 100_000).hex(), os.getpid()


async def main() -> None:
    done: asyncio.Queue[int] = asyncio.Queue()
    # "spawn" starts fresh processes: those of a fork would share the sockets of the client.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:

        async def handle(message: ReceivedMessage) -> None:
            _, process = await asyncio.get_running_loop().run_in_executor(pool, derive, message)
            done.put_nowait(process)

        async with (
            sparrowmq.connect() as mq,
            mq.subscribe("passwords", handle, group="derive", start="earliest"),
        ):
            for number in range(COUNT):
                await mq.send("passwords", b"secret %d" % number)
            processes = {await done.get() for _ in range(COUNT)}
    is_apart = os.getpid() not in processes
    print(f"{COUNT} messages handled by {len(processes)} processes, none of them this one: {is_apart}")


if __name__ == "__main__":
    asyncio.run(main())
