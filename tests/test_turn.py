"""One turn: what is written comes first, answers next, and what is shown last, whoever asked first."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from sparrowmq.turn import Turn


async def test_a_turn_writes_answers_and_shows_in_this_order_whatever_was_asked_for_first() -> None:
    turn, done = Turn(), []
    turn.show(lambda: done.append("show"))
    turn.answer(lambda: done.append("answer"))
    turn.write(lambda: done.append("write"))
    turn.answer(lambda: done.append("another answer"))
    assert done == []
    await asyncio.sleep(0)
    assert done == ["write", "answer", "another answer", "show"]


async def test_what_a_step_asks_for_is_taken_in_the_same_turn_if_its_time_has_not_passed() -> None:
    turn, done = Turn(), []

    def write() -> None:
        turn.write(lambda: done.append("a second write"))
        turn.answer(lambda: done.append("answer"))

    turn.write(write)
    turn.answer(lambda: turn.answer(lambda: done.append("a later answer")))
    await asyncio.sleep(0)
    assert done == ["a second write", "answer", "a later answer"]


async def test_what_was_shown_may_cause_a_turn_of_its_own() -> None:
    turn, done = Turn(), []

    def show() -> None:
        turn.answer(lambda: done.append("answer"))
        turn.write(lambda: done.append("write"))

    turn.show(show)
    await asyncio.sleep(0)
    assert done == []
    await asyncio.sleep(0)
    assert done == ["write", "answer"]


async def test_a_turn_happens_once_for_all_that_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn()
    done: list[int] = []
    calls: list[Callable[[], object]] = []
    loop = asyncio.get_running_loop()

    def count(callback: Callable[[], object], *_: object, **__: object) -> None:
        calls.append(callback)

    monkeypatch.setattr(loop, "call_soon", count)
    for number in range(100):
        turn.write(partial(done.append, number))
        turn.answer(lambda: None)
    monkeypatch.undo()
    assert len(calls) == 1
    calls[0]()
    assert done == list(range(100))


async def test_a_step_that_fails_keeps_no_other_from_its_turn() -> None:
    turn, done = Turn(), []
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def fail() -> None:
        raise ZeroDivisionError

    turn.answer(fail)
    turn.answer(lambda: done.append("answer"))
    turn.show(lambda: done.append("show"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert done == ["answer", "show"]
    assert isinstance(reported[0]["exception"], ZeroDivisionError)
