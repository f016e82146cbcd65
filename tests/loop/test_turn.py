"""One turn: what is written comes first, answers next, and what is shown last, whoever asked first."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from sparrowmq.loop.turn import Turn


async def test_a_turn_writes_answers_and_shows_in_this_order_whatever_was_asked_for_first() -> None:
    turn, done = Turn(), []
    turn.show(lambda: done.append("show"))
    turn.answer(lambda: done.append("answer"))
    turn.write(lambda: done.append("write"))
    turn.answer(lambda: done.append("another answer"))
    assert done == []
    await asyncio.sleep(0)
    assert done == ["write", "answer", "another answer", "show"]


async def test_what_is_shown_waits_for_one_more_turn_and_no_longer() -> None:
    turn, done = Turn(), []

    def read(number: int) -> None:
        turn.write(lambda: done.append(f"write {number}"))
        turn.show(lambda: done.append(f"show {number}"))

    for number in range(4):
        read(number)
        await asyncio.sleep(0)
    assert done == ["write 0", "write 1", "show 0", "show 1", "write 2", "write 3", "show 2", "show 3"]


async def test_what_is_shown_waits_for_nothing_where_several_are_answered() -> None:
    turn = Turn()
    done: list[str] = []
    for answers, step in ((2, "at once"), (1, "late")):
        for _ in range(answers):
            turn.answer(lambda: None)
        turn.show(partial(done.append, step))
        await asyncio.sleep(0)
        assert done == ["at once"]


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
    for _ in range(3):
        await asyncio.sleep(0)
    assert done == ["answer", "show"]
    assert isinstance(reported[0]["exception"], ZeroDivisionError)


class Looking:
    """A loop that only counts, and does one call at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Callable[[], object]] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_soon", lambda call, *_, **__: self.calls.append(call))

    def run(self) -> int:
        """Do what is asked for until the loop would sleep; returns how many times it looked."""
        count = 0
        while self.calls:
            self.calls.pop(0)()
            count += 1
        return count


async def test_before_the_loop_sleeps_it_looks_around_and_more_seldom_where_nothing_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = Turn(polls=5)
    with monkeypatch.context() as patch:
        loop = Looking(patch)
        looked = []
        for _ in range(40):
            turn.answer(lambda: None)
            looked.append(loop.run() - 1)  # the turn itself is one call
    assert [place for place, count in enumerate(looked) if count] == [0, 3, 8, 17, 34]
    assert {looked[place] for place in (0, 3, 8, 17, 34)} == {5}


async def test_what_is_found_by_looking_makes_the_loop_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn(polls=5)
    with monkeypatch.context() as patch:
        loop = Looking(patch)
        turn.answer(lambda: None)
        for _ in range(30):
            for _ in range(3):
                loop.calls.pop(0)()
            assert loop.calls, "it sleeps"
            turn.answer(lambda: None)
        assert loop.run() > 4


async def test_the_loop_may_sleep_while_a_thread_works(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn(polls=5)
    with monkeypatch.context() as patch:
        loop = Looking(patch)
        for _ in range(3):  # asked of it at any time: alone, and while it looks
            turn.answer(lambda: None)
            turn.skip_polling()
            assert loop.run() == 1
            turn.answer(lambda: None)
            for _ in range(3):
                loop.calls.pop(0)()
            turn.answer(lambda: None)
            turn.skip_polling()
            assert loop.run() == 3  # the look that was on its way, the turn, and the look that this one asked for
        turn.answer(lambda: None)
        assert loop.run() == 6, "a rest is no look in vain"


async def test_the_break_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn(polls=2)
    with monkeypatch.context() as patch:
        loop = Looking(patch)
        looked = []
        for _ in range(1000):
            turn.answer(lambda: None)
            looked.append(loop.run() - 1)
    times = [place for place, count in enumerate(looked) if count]
    assert times[-1] - times[-2] == 65


async def test_a_client_does_not_look_around(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn()
    with monkeypatch.context() as patch:
        loop = Looking(patch)
        turn.answer(lambda: None)
        assert loop.run() == 1
