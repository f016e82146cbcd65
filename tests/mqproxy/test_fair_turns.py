"""Turns that connections share."""

import asyncio
from contextlib import AsyncExitStack

from sparrowmq.mqproxy.limits import MAX_ACTIVE, MAX_ACTIVE_OF_ONE, FairTurns
from tests.mqproxy.until import until


class Asking:
    """Questions of connections, whose answers the test gives."""

    def __init__(self):
        self.turns = FairTurns()
        self.stack = AsyncExitStack()
        self.begun: list[str] = []
        self.answers: dict[int, asyncio.Event] = {}

    async def ask(self, connection):
        async with self.turns.turn(connection):
            number = len(self.begun)
            self.begun.append(connection)
            await self.answers.setdefault(number, asyncio.Event()).wait()

    def start(self, connection, count):
        return [asyncio.ensure_future(self.ask(connection)) for _ in range(count)]

    async def answer(self, number):
        self.answers[number].set()
        for _ in range(5):
            await asyncio.sleep(0)


async def end(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_connections_together_have_few_questions_at_a_time():
    asking = Asking()
    tasks = [task for name in range(100) for task in asking.start(f"c{name}", 100)]
    await until(lambda: asking.begun)
    assert len(asking.begun) == MAX_ACTIVE and asking.turns._all.locked()
    await end(tasks)


async def test_a_flood_of_one_connection_does_not_delay_another_one():
    asking = Asking()
    tasks = asking.start("flood", 1000)
    await until(lambda: asking.begun)
    assert asking.begun == ["flood"] * MAX_ACTIVE_OF_ONE
    tasks += asking.start("other", 1)
    await until(lambda: "other" in asking.begun)
    await end(tasks)


async def test_connections_have_turns_one_after_another():
    asking = Asking()
    tasks = [task for name in range(MAX_ACTIVE) for task in asking.start(f"c{name}", 100)]
    await until(lambda: asking.begun)
    tasks += asking.start("late", 2)
    for number in range(MAX_ACTIVE + 2):
        await asking.answer(number)
    assert asking.begun.count("late") == 1, "one connection after another, and the late one comes last"
    for number in range(MAX_ACTIVE + 2, 2 * MAX_ACTIVE + 3):
        await asking.answer(number)
    assert asking.begun.count("late") == 2
    await end(tasks)


async def test_questions_of_connections_that_end_take_no_turns():
    asking = Asking()
    tasks = asking.start("a", MAX_ACTIVE) + [each for name in "bcde" for each in asking.start(name, 9)]
    await until(lambda: asking.begun)
    await end(tasks)
    assert asking.turns._all._value == MAX_ACTIVE and not asking.turns._limits and not asking.turns._questions
    (last,) = asking.start("f", 1)
    await until(lambda: "f" in asking.begun)
    await end([last])


async def test_a_question_that_ends_as_its_turn_comes_gives_the_turn_back():
    asking = Asking()
    tasks = asking.start("a", MAX_ACTIVE_OF_ONE + 1)
    await until(lambda: asking.begun)
    asking.answers[0].set()
    await asyncio.sleep(0)  # the first is at its end, and the last has its turn but has not run
    await end(tasks)
    assert asking.turns._all._value == MAX_ACTIVE and not asking.turns._limits
