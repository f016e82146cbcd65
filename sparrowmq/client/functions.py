"""Kinds of functions that programs give: plain ones, asynchronous ones, and generators, whose call runs nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from sparrowmq.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_MOST_LAYERS: Final = 100


@dataclass(frozen=True, slots=True)
class Wrapped:
    """An asynchronous function around a handler that may be plain.

    Attributes:
        handler: the handler, which must run in a thread if it is plain.
        around: makes the function for another handler, such as the same one in a thread.
    """

    handler: Callable[[Any], Any]
    around: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]

    def __call__(self, argument: Any) -> Any:
        return self.around(self.handler)(argument)


def name_of(function: Any) -> str:
    """Return `module.name` of a function, a partial's function, or the class of an object with a `__call__`."""
    while isinstance(function, partial | Wrapped) and not hasattr(function, "__qualname__"):
        function = function.func if isinstance(function, partial) else function.handler
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}".replace(".<locals>", "")


def named_as(function: F, name: str) -> F:
    """Give a function the name of the one that it calls, which `name_of` returned."""
    function.__module__, _, function.__qualname__ = name.rpartition(".")
    return function


def parameters_of(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name. Raises: ConfigError, it does not tell them."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        raise ConfigError(
            f"{name_of(function)} does not say which arguments it takes; give a function of your own that calls it"
        ) from None


def is_coroutine_function(function: object) -> bool:
    """Return whether a call gives a coroutine and does not block; also for partials, and objects with a `__call__`."""
    return any(inspect.iscoroutinefunction(each) for each in _called(function))


def is_generator_function(function: object) -> bool:
    """Return whether a call makes a generator, whose code does not run; also inside a decorator that is plain."""
    layer = function
    for _ in range(_MOST_LAYERS):
        called = list(_called(layer))
        if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in called):
            return True
        if any(inspect.iscoroutinefunction(each) for each in called):
            return False  # An asynchronous decorator may well run the generator.
        layer = next((each.__wrapped__ for each in called if hasattr(each, "__wrapped__")), None)
        if layer is None:
            return False
    return False


def is_generator(result: object) -> bool:
    """Return whether a call has made a generator, so that it ran nothing."""
    return inspect.isgenerator(result) or inspect.isasyncgen(result)


def bare(function: Callable[..., object]) -> Callable[..., object]:
    """The function with annotations: that of a partial, or an object's `__call__`."""
    called: list[Callable[..., object]] = list(_called(function))
    return called[-1]


def _called(function: Any) -> Iterator[Any]:
    """The functions that a call of `function` runs first, the outermost first."""
    while isinstance(function, partial):
        function = function.func
    yield function
    if not inspect.isroutine(function) and not inspect.isclass(function):
        yield type(function).__call__


def is_stray() -> bool:
    """Return whether a CancelledError is of something that this task awaits: nothing has cancelled the task itself."""
    task = asyncio.current_task()
    return task is not None and not task.cancelling()
