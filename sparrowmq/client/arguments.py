"""Checks of the arguments that programs give, and the kinds of functions that they may be.

Each check raises ConfigError, or TypeError for a wrong name. The error names the argument, and says what to write
instead. A function is a plain one, an asynchronous one, or a generator, whose call runs nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from math import inf
from types import UnionType
from typing import Any, Final, TypeVar

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue

T = TypeVar("T")
MAX_OFFSET: Final = (1 << 63) - 1
F = TypeVar("F", bound=Callable[..., Any])
_MAX_DECORATORS: Final = 100


def check_names(function: str, arguments: Collection[str], kind: type, *named: str) -> None:
    """Check the keyword arguments of a public function, which another one takes.

    `function` is its name, for the error. `kind` is the TypedDict of `**arguments`. `named` are other arguments, which
    may be meant. Raises: TypeError.
    """
    known_names = kind.__annotations__
    for name in arguments:
        if name not in known_names:
            close = get_close_matches(name, [*known_names, *named], n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join([*named, *known_names])}"
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; {hint}")


def check_handler(function: T, instead: str, *, takes: int | None = None) -> T:
    """Check a handler as `check_callable` does; it is no method that waits for its object."""
    if callable(function) and next(iter(_parameters(function)), None) == "self":
        raise ConfigError(
            f"handler={name_of(function)} takes `self`, and no call gives it; write a function outside of a class, or "
            "give the method of an object, as mq.handler(...)(shop.bill)"
        )
    return check_callable("handler", function, instead, takes=takes)


def check_callable(name: str, function: T, instead: str, *, takes: int | None = None) -> T:
    """Return the function, which is no generator, and takes so many arguments. `instead` describes it for the error."""
    if not callable(function):
        raise ConfigError(f"{name}={function!r} cannot be called; give {instead}")
    if is_generator_function(function):
        raise ConfigError(
            f"{name}={name_of(function)} is a generator: a call of it would run nothing; write it without `yield`"
        )
    if takes is not None and not _can_take(function, takes):
        raise ConfigError(f"{name}={name_of(function)} takes other arguments; give {instead}")
    return function


def _can_take(function: Callable[..., object], count: int) -> bool:
    if hasattr(function, "__signature__"):  # It shows other parameters than it has, as @idempotent does.
        return True
    try:
        inspect.signature(function, follow_wrapped=False).bind(*range(count))
    except ValueError:  # Some functions of C have no signature.
        return True
    except TypeError:
        return False
    return True


def _parameters(function: Any) -> Collection[str]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # Some functions of C have no signature.
        return ()


def check_count(name: str, count: object, *, at_least: int = 1, at_most: float = inf) -> int:
    if isinstance(count, int) and not isinstance(count, bool) and at_least <= count <= at_most:
        return count
    bounds = f"at least {at_least}" if at_most == inf else f"from {at_least} to {at_most}"
    raise ConfigError(f"{name}={count!r}: {name} must be a whole number, {bounds}")


def check_seconds(name: str, seconds: object, *, or_zero: bool = False, or_none: bool = False) -> None:
    """Check a time above 0. With `or_zero` it may be 0, with `or_none` it may be None, for no limit."""
    if or_none and seconds is None:
        return
    is_time = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < inf
    if not is_time or not (seconds or or_zero):
        bound = "from 0 on" if or_zero else "above 0"
        raise ConfigError(f"{name}={seconds!r}: give seconds {bound}{', or None for no limit' if or_none else ''}")


def check_offset(offset: object) -> int:
    """Return an offset that a queue can have."""
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise ConfigError(f"offset {offset!r} is no place in a queue; give a whole number, from 0 on")
    if offset < 0:
        raise ConfigError(f"offset {offset} is negative; a queue begins at 0")
    if offset > MAX_OFFSET:
        raise ConfigError(f"offset {offset} is larger than any that a broker keeps, which is {MAX_OFFSET}")
    return offset


def check_time(name: str, time: object) -> int:
    """Return a time in ms, as brokers count it. A time without a zone is local."""
    if not isinstance(time, datetime):
        raise ConfigError(f"{name}={time!r}: give a datetime")
    try:
        return round(time.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # Local time of the first or the last days there are.
        raise ConfigError(f"{name}={time} cannot be counted; give a time of this age") from None


def check_kind(name: str, value: object, kind: type | UnionType, instead: str) -> None:
    """Check the class of a value. `instead` describes the value that is wanted."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name}={value!r}: give {instead}")


def check_flag(name: str, flag: object) -> None:
    """Check that a value is True or False: any text would count as True."""
    check_kind(name, flag, bool, "True or False")


def check_queue(queue: object) -> None:
    """Check a queue, whose fields may have been given by hand."""
    if not isinstance(queue, MessageQueue) or not _are_fields(queue.topic, queue.broker_name, queue.queue_id):
        raise ConfigError(f"queue {queue!r} is no queue of a topic; take one of `queues(topic)`")


def _are_fields(topic: object, broker_name: object, queue_id: object) -> bool:
    return isinstance(topic, str) and isinstance(broker_name, str) and isinstance(queue_id, int)


def check_queues(queues: object) -> None:
    if isinstance(queues, str | MessageQueue) or not isinstance(queues, Iterable):
        raise ConfigError(f"queues={queues!r}: give a list of queues, as `queues(topic)` returns it")


def check_texts(name: str, texts: object) -> None:
    if not isinstance(texts, Collection) or isinstance(texts, str | bytes):
        raise ConfigError(f"{name}={texts!r}: give a list of texts")
    for text in texts:
        check_text(name, text)


def check_text(name: str, text: object, *, or_none: bool = False, or_blank: bool = True) -> None:
    """Check that a value is text; with `or_none` it may be None, and without `or_blank` it may not be blank."""
    if not isinstance(text, str) and not (or_none and text is None):
        raise ConfigError(f"{name}={text!r}: give a text")
    if isinstance(text, str) and not or_blank and not text.strip():
        raise ConfigError(f"{name}={text!r} is blank; give a text{', or leave it out' if or_none else ''}")
    if isinstance(text, str) and not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"{name}={text!r} has half of a surrogate pair, which is no text; fix the program that made it"
            ) from None


@dataclass(frozen=True, slots=True)
class Wrapped:
    """An asynchronous function around a handler. `around` makes one for another handler, as the same in a thread."""

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
    return any(inspect.iscoroutinefunction(layer) for layer in _call_layers(function))


def is_generator_function(function: object) -> bool:
    """Return whether a call makes a generator, whose code does not run; also inside a decorator that is plain."""
    layer = function
    for _ in range(_MAX_DECORATORS):
        called = list(_call_layers(layer))
        if any(
            inspect.isgeneratorfunction(callable_layer) or inspect.isasyncgenfunction(callable_layer)
            for callable_layer in called
        ):
            return True
        if any(inspect.iscoroutinefunction(callable_layer) for callable_layer in called):
            return False  # An asynchronous decorator may well run the generator.
        layer = next(
            (callable_layer.__wrapped__ for callable_layer in called if hasattr(callable_layer, "__wrapped__")), None
        )
        if layer is None:
            return False
    return False


def is_generator(result: object) -> bool:
    """Return whether a call has made a generator, so that it ran nothing."""
    return inspect.isgenerator(result) or inspect.isasyncgen(result)


def annotated_function(function: Callable[..., object]) -> Callable[..., object]:
    """The function with annotations: that of a partial, or an object's `__call__`."""
    called: list[Callable[..., object]] = list(_call_layers(function))
    return called[-1]


def _call_layers(function: Any) -> Iterator[Any]:
    while isinstance(function, partial):
        function = function.func
    yield function
    if not inspect.isroutine(function) and not inspect.isclass(function):
        yield type(function).__call__


def is_stray() -> bool:
    """Return whether a CancelledError is of something that this task awaits: nothing has cancelled the task itself."""
    task = asyncio.current_task()
    return task is not None and not task.cancelling()
