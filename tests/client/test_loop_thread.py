import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future

import pytest

from sparrowmq.client.callbacks import Callbacks
from sparrowmq.client.loop_thread import LoopThread
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
    loop_thread.soon(lambda: None)
    loop_thread.stop()
    with pytest.raises(ClientClosed):
        loop_thread.run(answer())
