"""The event loop of a client, in one thread of one process. Its sockets, tasks and futures belong to that loop.

    another thread          refused: only the thread of the loop may call
    another loop            refused: a client lives in one `asyncio.run`
    a forked child          refused: its copies of the sockets are those of the parent
    before it was entered   refused: nothing would ever close what the call opens

One comparison of the running loop finds all four, because a forked child runs no loop of its parent. The reason is
looked for after that. Sends compare in place, the other calls by `checks_loop`. The running loop costs a system call in
Python 3.11 (getpid). So what happens for each message compares threads instead; a fork clears the thread. A send also
asks whether the client's loop runs: a thread runs one loop at a time.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Collection
from typing import Any, Final, NoReturn, TypeVar, cast

from sparrowmq.errors import ClientClosed, ConfigError, SparrowError
from sparrowmq.kernel.messages import HomeThread

C = TypeVar("C", bound=type)
running_loop: Final = asyncio._get_running_loop  # None without a loop
_NO_THREAD: Final = -1
_NO_LOOP: Final = cast(asyncio.AbstractEventLoop, object())


class LoopAffinity(HomeThread):
    """The loop of one client.

    Attributes:
        loop: the event loop in which the client was entered.
        thread: that of the loop; no thread's number before it was entered, and in a forked child.
    """

    __slots__ = ("__weakref__", "_process", "_was_left", "loop")

    def __init__(self) -> None:
        super().__init__()
        self.loop = _NO_LOOP
        self._process = os.getpid()
        self._was_left = False

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            "a client, and what belongs to it, cannot be pickled or copied: its connections belong to this process; "
            "connect in the other process, as in the initializer of a process pool"
        )

    def enter(self) -> None:
        """Live in the running loop."""
        self.loop = asyncio.get_running_loop()
        self._process, self.thread = os.getpid(), threading.get_ident()
        _affinities.add(self)

    def leave(self) -> None:
        self._was_left = True

    @property
    def is_forked(self) -> bool:
        """Return whether this is a copy in a child of the process in which the client was made or entered."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Check that the caller is in the client's loop. Raises: ConfigError, ClientClosed."""
        if running_loop() is not self.loop:
            raise self.refusal()

    def check_if_entered(self) -> None:
        """Check the same of a call that needs no network, and so may come before the client is entered."""
        if self.loop is not _NO_LOOP:
            self.check()

    def refusal(self) -> SparrowError:
        """The error for a caller that is not in the client's loop."""
        if self.loop is _NO_LOOP:
            return ClientClosed(
                "the client was not entered; use it inside its `with` block: async with sparrowmq.connect(...) as mq"
            )
        if self.is_forked:
            return forked_error(self._process)
        if self._was_left:
            return ClientClosed("the client is closed; use it inside its `with` block")
        if threading.get_ident() != self.thread:
            return ConfigError(
                "the client belongs to the event loop of another thread; call it there, by "
                "asyncio.run_coroutine_threadsafe or loop.call_soon_threadsafe, or connect with sparrowmq.sync, whose "
                "clients any thread may call"
            )
        return ConfigError(
            "the client belongs to another event loop, in which it was entered; connect in this loop, inside the "
            "coroutine that you give to asyncio.run"
        )


_affinities: weakref.WeakSet[LoopAffinity] = weakref.WeakSet()


def _forget_threads() -> None:
    """The child has none of its parent's loops, but its main thread has the number of the one that has forked."""
    for affinity in list(_affinities):
        affinity.thread = _NO_THREAD


os.register_at_fork(after_in_child=_forget_threads)


def check_asyncio() -> None:
    """Check that a loop of asyncio runs here. Raises: ConfigError."""
    if running_loop() is None:
        raise ConfigError(
            "no event loop of asyncio runs here; a client lives in one of asyncio or uvloop, so run the program by "
            'asyncio.run, or by anyio.run with backend="asyncio": trio has other loops'
        )


def check_main_thread() -> None:
    """Check that this thread gets the signals. Raises: ConfigError."""
    if threading.current_thread() is not threading.main_thread():
        raise ConfigError(
            "run() waits for signals, which only the main thread gets; in another thread enter the client and call "
            "serve()"
        )


def forked_error(process: int) -> ConfigError:
    return ConfigError(
        f"the client belongs to process {process}, and this is its forked child {os.getpid()}; connect in the child, "
        "as in gunicorn's post_fork or in the initializer of a process pool"
    )


def checks_loop(*names: str, without: Collection[str] = ()) -> Callable[[C], C]:
    """Let these methods, by default all public ones but `without`, check the `_loop_affinity` of their object first."""

    def decorate(cls: C) -> C:
        for name, method in list(vars(cls).items()):
            is_meant = name in names if names else not name.startswith("_") and name not in without
            if is_meant and inspect.isfunction(method):
                setattr(cls, name, _checked(method))
        return cls

    return decorate


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # pytest leaves this frame out
            self._loop_affinity.check()  # When it is awaited: another thread may make the coroutine.
            return await method(self, *args, **kwargs)

        return call

    @functools.wraps(method)
    def call_now(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # pytest leaves this frame out
        self._loop_affinity.check_if_entered()
        return method(self, *args, **kwargs)

    return call_now
