"""Answers that are kept for some seconds."""

import asyncio
from contextlib import nullcontext

import pytest

from sparrowmq.errors import NetworkError, NoRoute
from sparrowmq.loop.clock import SystemClock
from sparrowmq.mqproxy.cluster_brokers import ANSWER_LIFE_S, MAX_CACHED_ANSWERS, REFRESH_TIMEOUT_S, AnswerCache
from sparrowmq.mqproxy.limits import MAX_ACTIVE_OF_ONE, FairTurns
from sparrowmq.testing import ManualClock
from tests.mqproxy.until import until


async def test_answer_is_kept_for_some_seconds_and_while_no_server_answers():
    clock, answers = ManualClock(), []

    async def ask(name):
        answers.append(name)
        if len(answers) == 3:
            raise NetworkError("away")
        if len(answers) == 4:
            raise NoRoute(name, None)
        return len(answers)

    kept = AnswerCache(clock, ask)
    assert [await kept.get("a", nullcontext), await kept.get("a", nullcontext)] == [1, 1]
    await clock.advance(ANSWER_LIFE_S)
    assert await kept.get("a", nullcontext) == 2
    await clock.advance(ANSWER_LIFE_S)
    assert await kept.get("a", nullcontext) == 2
    await clock.advance(ANSWER_LIFE_S)
    with pytest.raises(NoRoute):
        await kept.get("a", nullcontext)


async def test_brief_answer_is_asked_for_again_after_a_second():
    clock, answers = ManualClock(), ["no master", "master", "master again"]

    async def ask(name):
        return answers.pop(0)

    kept = AnswerCache(clock, ask, is_brief=lambda answer: answer == "no master")
    assert [await kept.get("a", nullcontext), await kept.get("a", nullcontext)] == ["no master"] * 2
    await clock.advance(REFRESH_TIMEOUT_S)
    assert await kept.get("a", nullcontext) == "master"
    await clock.advance(REFRESH_TIMEOUT_S)
    assert await kept.get("a", nullcontext) == "master"


class Hanging:
    """A server whose answers the test gives."""

    def __init__(self):
        self.asked: list[asyncio.Future] = []

    async def ask(self, name):
        self.asked.append(asyncio.get_running_loop().create_future())
        return await self.asked[-1]


def begin(count, kept, turn=nullcontext):
    return [asyncio.ensure_future(kept.get("a", turn)) for _ in range(count)]


async def test_clients_that_want_the_same_name_wait_for_one_question():
    server, turns = Hanging(), FairTurns()
    kept = AnswerCache(SystemClock(), server.ask)
    waiting = [each for name in range(9) for each in begin(9, kept, lambda name=name: turns.turn(name))]
    await until(lambda: server.asked)
    server.asked[0].set_result("found")
    assert {await each for each in waiting} == {"found"} and len(server.asked) == 1
    failing = AnswerCache(SystemClock(), server.ask)
    waiting = begin(9, failing)
    await until(lambda: len(server.asked) == 2)
    server.asked[1].set_exception(NoRoute("a", None))
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in found} == {NoRoute} and len(server.asked) == 2


async def test_a_client_that_leaves_does_not_take_the_question_of_others_with_it():
    server = Hanging()
    kept = AnswerCache(SystemClock(), server.ask)
    first, *others = begin(3, kept)
    await until(lambda: server.asked)
    first.cancel()
    await until(lambda: len(server.asked) == 2)
    server.asked[1].set_result("found")
    assert await asyncio.gather(*others) == ["found", "found"]


async def test_a_question_that_waits_for_its_turn_holds_up_no_other_client():
    server, turns = Hanging(), FairTurns()
    kept = AnswerCache(SystemClock(), server.ask)
    flood = [asyncio.ensure_future(kept.get(str(number), lambda: turns.turn("flood"))) for number in range(99)]
    flood += begin(1, kept, lambda: turns.turn("flood"))
    await until(lambda: len(server.asked) == MAX_ACTIVE_OF_ONE)
    (other,) = begin(1, kept, lambda: turns.turn("other"))
    await until(lambda: len(server.asked) == MAX_ACTIVE_OF_ONE + 1)
    server.asked[-1].set_result("found")
    assert await other == "found"
    for each in flood:
        each.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_server_that_hangs_delays_one_question_in_some_seconds():
    server, clock = Hanging(), ManualClock()
    kept = AnswerCache(clock, server.ask)
    (first,) = begin(1, kept)
    await until(lambda: server.asked)
    server.asked[0].set_result("found")
    await first
    await clock.advance(ANSWER_LIFE_S)
    delayed, *others = begin(10, kept)
    assert await asyncio.gather(*others) == ["found"] * 9
    assert not delayed.done() and len(server.asked) == 2
    await clock.advance(REFRESH_TIMEOUT_S)
    assert await delayed == "found"
    assert await kept.get("a", nullcontext) == "found" and len(server.asked) == 2


async def test_the_names_that_clients_invent_fill_no_memory():
    async def ask(name):
        return name

    kept = AnswerCache(ManualClock(), ask)
    for number in range(MAX_CACHED_ANSWERS + 10):
        await kept.get(str(number), nullcontext)
    assert len(kept._answers) <= MAX_CACHED_ANSWERS and not kept._pending
