import asyncio
import threading

from sparrowmq.client.cluster.stacks import stacks


async def test_every_thread_and_every_task_shows_where_it_is():
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait, name="waiting thread")
    thread.start()

    async def idle():
        await asyncio.Event().wait()

    task = asyncio.create_task(idle(), name="waiting task")
    await asyncio.sleep(0)
    try:
        text = stacks()
    finally:
        leave.set()
        thread.join()
        task.cancel()
    assert "thread waiting thread" in text and "leave.wait" not in text.split("thread waiting thread")[0]
    assert "task waiting task" in text and "in idle" in text
