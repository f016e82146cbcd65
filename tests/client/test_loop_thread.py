import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from functools import partial
from typing import Any

import pytest

from sparrowmq.client import loop_thread as loop_thread_module
from sparrowmq.client.loop_thread import Callbacks, LoopThread
from sparrowmq.errors import ClientClosed, ConfigError


@pytest.fixture
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread(Callbacks())
    thread.start()
    yield thread
    thread.stop()


async def forever() -> None:
    await asyncio.Event().wait()


async def answer() -> int:
    return 42


async def leave_the_program() -> None:
    raise SystemExit


def test_any_thread_has_coroutines_run_there(loop_thread):
    assert loop_thread.run(answer()) == 42
    assert loop_thread.submit(answer()).result(10) == 42


def test_the_loop_does_not_wait_for_itself(loop_thread):
    async def ask() -> None:
        loop_thread.run(answer())

    with pytest.raises(ConfigError, match="must not call the blocking client"):
        loop_thread.run(ask())


def test_what_is_under_way_at_the_end_is_told_so(loop_thread):
    under_way = loop_thread.submit(forever())
    loop_thread.run(answer())
    loop_thread.stop()
    with pytest.raises(ClientClosed, match="the client is closed"):
        under_way.result(10)


def test_what_has_not_begun_at_the_end_is_told_so(loop_thread):
    async def stop_first() -> None:
        loop_thread._leave.set()
        late.append(loop_thread.submit(forever()))

    late: list[Future[None]] = []
    loop_thread.run(stop_first())
    loop_thread.stop()
    with pytest.raises(ClientClosed, match="the client is closed"):
        late[0].result(10)


def test_nothing_is_taken_that_no_turn_of_the_loop_is_left_for(loop_thread):
    async def ask_while_it_ends() -> None:
        try:
            await forever()
        finally:
            try:
                late.append(loop_thread.submit(forever()))
            except ClientClosed as error:
                refused.append(str(error))

    late: list[Future[None]] = []
    refused: list[str] = []
    asking = loop_thread.submit(ask_while_it_ends())  # kept: nobody else does
    loop_thread.run(answer())
    loop_thread.stop()
    assert asking.done() and not late and "the client is closed" in refused[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_a_program_exit_ended_lets_nobody_wait(loop_thread):
    under_way = loop_thread.submit(forever())
    with pytest.raises(SystemExit):
        loop_thread.submit(leave_the_program()).result(10)
    with pytest.raises((ClientClosed, CancelledError)):
        under_way.result(10)
    loop_thread._thread.join(10)
    with pytest.raises(ClientClosed):
        loop_thread.submit(answer())


def test_a_call_that_is_given_up_is_cancelled_there(loop_thread):
    under_way = loop_thread.submit(forever())
    under_way.cancel()
    assert under_way.cancelled()


def test_every_call_ends_however_it_meets_the_end():
    """The threads call until they are refused, so that each loop ends among calls."""

    def call() -> None:
        try:
            while True:
                loop_thread.run(asyncio.sleep(0))
        except ClientClosed:
            refused.append(True)

    for _ in range(50):
        loop_thread = LoopThread(Callbacks())
        loop_thread.start()
        refused: list[bool] = []
        callers = [threading.Thread(target=call, daemon=True) for _ in range(4)]
        for caller in callers:
            caller.start()
        loop_thread.run(answer())
        loop_thread.stop()
        for caller in callers:
            caller.join(10)
        assert len(refused) == 4


def test_after_the_end_there_is_nobody_to_call(loop_thread):
    loop_thread.stop()
    loop_thread.call_soon(lambda: None)
    loop_thread.stop()
    with pytest.raises(ClientClosed):
        loop_thread.run(answer())


def done(loop_thread: LoopThread, number: int) -> asyncio.Future[int]:
    assert loop_thread.loop is not None
    future: asyncio.Future[int] = loop_thread.loop.create_future()
    future.set_result(number)
    return future


def test_calls_of_one_turn_are_made_together_and_in_their_order(loop_thread):
    """The loop is busy while they come, as it is for a thread that calls again and again."""
    made: list[tuple[int, int]] = []
    turns = [0]

    def count_turns() -> None:
        turns[0] += 1
        loop_thread.loop.call_soon(count_turns)

    def make(number: int) -> asyncio.Future[int]:
        made.append((number, turns[0]))
        return done(loop_thread, number)

    go_on, busy = threading.Event(), threading.Event()
    loop_thread.call_soon(count_turns)

    def keep_busy() -> None:
        busy.set()
        go_on.wait(10)

    loop_thread.call_soon(keep_busy)
    busy.wait(10)
    answers = [loop_thread.start_call(partial(make, number)) for number in range(50)]
    go_on.set()
    assert [answer.result(10) for answer in answers] == list(range(50))
    assert [number for number, _ in made] == list(range(50))
    assert len({turn for _, turn in made}) == 1


@pytest.mark.parametrize("error", [ClientClosed("closed"), TypeError("no such argument"), KeyError("a fault")])
def test_a_call_that_raises_keeps_no_other_from_its_turn(loop_thread, error, caplog):
    def fail() -> asyncio.Future[int]:
        raise error

    def make() -> asyncio.Future[int]:
        return done(loop_thread, 1)

    failed, made = loop_thread.start_call(fail), loop_thread.start_call(make)
    assert failed.exception(10) is error and made.result(10) == 1
    assert ("a fault" in caplog.text) == isinstance(error, KeyError)


def test_a_call_without_an_answer_at_the_end_is_told_so(loop_thread):
    under_way = loop_thread.start_call(lambda: loop_thread.loop.create_future())
    loop_thread.stop()
    with pytest.raises(ClientClosed, match="the client is closed"):
        under_way.result(10)
    with pytest.raises(ClientClosed):
        loop_thread.start_call(lambda: loop_thread.loop.create_future())


def test_a_call_is_refused_before_the_start():
    with pytest.raises(ClientClosed, match="was not entered"):
        LoopThread(Callbacks()).start_call(asyncio.Future)


def test_a_call_after_an_interrupted_one_is_made(loop_thread):
    """Ctrl-C may come at any point of a call, and the program may go on."""

    def interrupted(*_: object) -> None:
        loop_thread.loop.call_soon_threadsafe = wake
        raise KeyboardInterrupt

    wake = loop_thread.loop.call_soon_threadsafe
    loop_thread.loop.call_soon_threadsafe = interrupted
    with pytest.raises(KeyboardInterrupt):
        loop_thread.start_call(partial(done, loop_thread, 1))
    assert loop_thread.start_call(partial(done, loop_thread, 2)).result(10) == 2


def test_a_call_that_is_cancelled_before_its_turn_is_not_made(loop_thread):
    made: list[int] = []

    def make() -> asyncio.Future[int]:
        made.append(1)
        return done(loop_thread, 1)

    go_on = threading.Event()
    loop_thread.call_soon(lambda: go_on.wait(10))
    cancelled = loop_thread.start_call(make)
    assert cancelled.cancel()
    go_on.set()
    assert wait([cancelled], 10).done == {cancelled}
    assert not made and not loop_thread._unfinished_futures


def test_a_call_that_raises_in_the_last_turn_leaves_no_other_waiting(loop_thread):
    def fail() -> asyncio.Future[int]:
        raise KeyError("a fault")

    def end() -> None:
        loop_thread._leave.set()
        begun.append(loop_thread.start_call(fail))
        begun.append(loop_thread.start_call(lambda: loop_thread.loop.create_future()))

    begun: list[Future[int]] = []
    loop_thread.call_soon(end)
    loop_thread._thread.join(10)
    assert isinstance(begun[0].exception(0), KeyError)
    assert isinstance(begun[1].exception(0), ClientClosed)


def stopped_by_a_signal(loop_thread: LoopThread, handler: Callable[[], object]) -> None:
    """Let the next call wake the loop, and then run the handler of a signal in its midst."""

    def wake_and_stop(callback: Callable[[], object]) -> None:
        loop.call_soon_threadsafe = wake
        wake(callback)
        handler()

    loop: Any = loop_thread.loop
    wake = loop.call_soon_threadsafe
    loop.call_soon_threadsafe = wake_and_stop


@pytest.mark.timeout(30)
def test_the_handler_of_a_signal_may_call_in_the_midst_of_a_call(loop_thread):
    answers: list[int] = []
    stopped_by_a_signal(loop_thread, lambda: answers.append(loop_thread.run(answer())))
    assert loop_thread.start_call(partial(done, loop_thread, 1)).result(10) == 1
    assert loop_thread.start_call(partial(done, loop_thread, 2)).result(10) == 2
    assert answers == [42]


@pytest.mark.timeout(30)
def test_the_handler_of_a_signal_may_end_the_loop_in_the_midst_of_a_call(loop_thread, monkeypatch):
    monkeypatch.setattr(loop_thread_module, "SHUT_LIMIT_S", 0.01)
    stopped_by_a_signal(loop_thread, loop_thread.stop)
    with pytest.raises(ClientClosed, match="the client is closed"):
        loop_thread.start_call(partial(done, loop_thread, 1))


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_the_handler_of_a_signal_may_call_whatever_its_thread_does(loop_thread):
    """A thread that waits for a result holds no lock that the loop needs. This once hung within some dozen signals."""
    answers: list[int] = []

    def call(*_: object) -> None:
        answers.append(loop_thread.run(answer()))

    before = signal.signal(signal.SIGVTALRM, call)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.01, 0.01)
        deadline = time.monotonic() + 20
        while len(answers) < 100 and time.monotonic() < deadline:
            assert loop_thread.run(answer()) == 42
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert set(answers) == {42}
