import asyncio
import contextvars
import threading
import traceback

import pytest

from sparrowmq.client.consuming.handler_thread import HandlerThread


async def test_a_function_runs_in_a_daemon_of_its_own_with_the_callers_context():
    wanted: contextvars.ContextVar[str] = contextvars.ContextVar("wanted")
    seen: list[object] = []

    def handle(argument) -> None:
        thread = threading.current_thread()
        seen.append((argument, thread.name, thread.daemon, wanted.get()))

    thread = HandlerThread(handle, "mine")
    wanted.set("x")
    await thread(1)
    await thread(2)
    assert seen == [(1, "mine", True, "x"), (2, "mine", True, "x")]
    thread.end()
    thread._thread.join(5)
    assert not thread._thread.is_alive()


@pytest.mark.parametrize(
    ("error", "kind"),
    [(LookupError("no"), LookupError), (StopIteration(), RuntimeError), (SystemExit(), RuntimeError)],
)
async def test_what_it_raises_is_raised(error, kind):
    def handle(argument) -> None:
        raise error

    thread = HandlerThread(handle, "mine")
    for _ in range(2):
        with pytest.raises(kind) as raised:
            await thread(1)
        assert "in handle\n" in "".join(traceback.format_exception(raised.value))
    thread.end()


async def test_a_coroutine_that_it_returns_runs_in_the_loop():
    async def work() -> None:
        ran.append(threading.current_thread() is threading.main_thread())

    ran: list[bool] = []
    thread = HandlerThread(lambda _: work(), "mine")
    await thread(1)
    thread.end()
    assert ran == [True]


async def test_cancelling_leaves_it_running():
    started, go_on = threading.Event(), threading.Event()

    def handle(argument) -> None:
        started.set()
        go_on.wait(10)

    thread = HandlerThread(handle, "mine")
    calling = asyncio.ensure_future(thread(1))
    await asyncio.to_thread(started.wait, 10)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    thread.end()
    go_on.set()
    await asyncio.to_thread(thread._thread.join, 5)
    await asyncio.sleep(0)  # What it says now interests nobody.


def test_a_loop_that_ends_meanwhile_is_told_nothing(ending_loop):
    async def begin() -> None:
        calling = asyncio.ensure_future(thread(1))
        await asyncio.sleep(0)
        calling.cancel()

    go_on = threading.Event()
    thread = HandlerThread(lambda _: go_on.wait(10), "mine")
    ending_loop.run_until_complete(begin())
    thread.end()
    go_on.set()
    thread._thread.join(10)
