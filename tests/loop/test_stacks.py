import asyncio

from sparrowmq.core.process import list_stacks
from sparrowmq.loop.slices import at_once


async def test_stacks_name_each_thread_and_task_with_its_line() -> None:
    async def waits_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    task = asyncio.create_task(waits_for_ever(), name="the waiting one")
    await asyncio.sleep(0)
    steps = list(list_stacks())
    found = at_once(list_stacks())
    assert len(steps) > len(asyncio.all_tasks()), "each stack is a step"
    task.cancel()
    assert "thread MainThread" in found and "task the waiting one" in found and "waits_for_ever" in found
