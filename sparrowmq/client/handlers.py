"""Handlers that a decorator declares where they are defined, and that all run together.

    mq = sparrowmq.connect("127.0.0.1:9876")

    @mq.handler("orders", group="billing")
    async def bill(order: Order) -> None:
        ...

    mq.run()                          # until Ctrl-C or SIGTERM; or `await mq.serve()` inside a program of your own

The annotation of a handler's first argument chooses its value: the `ReceivedMessage` itself (also without annotation),
`bytes`, `str`, a type with a model of pydantic in it, or a type that msgspec makes from JSON. Those are dataclasses,
TypedDicts, Structs, dict, list[int], and so on. With `batch=` it is a list of these. A second argument gets the
message, or the list of messages. A body that does not fit fails like a handler that raises: it is logged, tried again,
and ends in the dead-letter queue; at once with `retry=Retry(..., never=InvalidMessage)`. A plain function runs in
threads.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import signal
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from sparrowmq.client.arguments import (
    Wrapped,
    annotated_function,
    check_callable,
    check_handler,
    is_coroutine_function,
    name_of,
    named_as,
    parameters_of,
)
from sparrowmq.client.consuming.consumer_settings import Topics, Tuning
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.consuming.workers import await_result
from sparrowmq.errors import ConfigError, InvalidMessage
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.messages.typed_bodies import decoder

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., object])
C = TypeVar("C")
Delivered: TypeAlias = ReceivedMessage | list[ReceivedMessage]
Call: TypeAlias = Callable[[Any], Any]
Next: TypeAlias = Callable[[Delivered], Awaitable[None]]
Middleware: TypeAlias = Callable[[Delivered, Next], Awaitable[None]]
BlockingMiddleware: TypeAlias = Callable[[Delivered, Callable[[Delivered], object]], object]
MakeValue: TypeAlias = Callable[[ReceivedMessage], object]
ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
DECLARED_ATTRIBUTE: Final = "_sparrowmq_declared"  # the attribute of a function that is a declared handler
_MAX_ARGUMENTS: Final = 2


class Options(Tuning, total=False):
    """The arguments of `Client.subscribe` for a declared handler."""

    tag: str | None
    where: str | None
    batch: int | None


class DeclaredHandlers(Generic[C]):
    """The handlers declared for one client. Those of the blocking client are plain functions."""

    def __init__(self, *, is_blocking: bool = False) -> None:
        self._is_blocking = is_blocking
        self._middleware: list[Callable[..., Any]] = []
        self._subscribe_calls: list[Callable[[], C]] = []
        self._unserved_names: list[str] = []

    def warn_if_forgotten(self, client: object) -> None:
        """Warn if the program ends, or drops the client, and has never served the handlers."""
        weakref.finalize(client, _warn_of_unserved, os.getpid(), self._unserved_names)

    def handler(self, subscribe: Callable[..., C], topics: Topics, group: str, options: Options) -> Callable[[F], F]:
        """A decorator. `consumers` then calls `subscribe(topics, call, group=, ...)` for the decorated function."""

        def declare(function: F) -> F:
            check_handler(function, "a function; write @mq.handler(...) over it")
            self._check_kind(function)
            call = adapt(function, options.get("batch") is not None)
            self._subscribe_calls.append(lambda: subscribe(topics, self._wrap_handler(call), group=group, **options))
            self._unserved_names.append(name_of(function))
            with suppress(AttributeError, TypeError):  # Methods and some objects take no attributes.
                setattr(function, DECLARED_ATTRIBUTE, True)
            return function

        return declare

    def add_middleware(self, middleware: Callable[..., Any]) -> None:
        """Call `middleware(delivered, call_next)` around each handler, the first one outermost. Raises: ConfigError."""
        check_callable("middleware", middleware, "a function of a message and `call_next`", takes=2)
        self._check_kind(middleware)
        self._middleware.append(middleware)

    def check_work(self, work: Callable[..., object]) -> None:
        """Check what runs beside the handlers. Raises: ConfigError, as `add_middleware`."""
        check_callable("work", work, "a function of a client and an event, as `relay` of an outbox", takes=2)
        self._check_kind(work)

    def _check_kind(self, function: Callable[..., object]) -> None:
        if self._is_blocking and is_coroutine_function(function):
            raise ConfigError(f"{name_of(function)} is asynchronous; a client without async calls plain functions")

    def consumers(self, *, or_none: bool = False) -> list[C]:
        """A consumer for each handler, to be entered. Raises: ConfigError, there is none."""
        if not self._subscribe_calls and not or_none:
            raise ConfigError("no handler was declared; write @mq.handler(topic, group=...) over a function")
        self._unserved_names.clear()
        return [subscribe() for subscribe in self._subscribe_calls]

    def _wrap_handler(self, call: Call) -> Call:
        """The handler with the middleware around it. Asynchronous middleware runs in the loop, around a thread."""
        if self._is_blocking or not self._middleware:
            return self._wrap_in_middleware(call)
        return Wrapped(call, self._wrap_in_middleware)

    def _wrap_in_middleware(self, call: Call) -> Call:
        name = name_of(call)
        for middleware in reversed(self._middleware):
            call = named_as(
                partial(_call_middleware if self._is_blocking else _await_middleware, middleware, call), name
            )
        return call


def _warn_of_unserved(process: int, handlers: list[str]) -> None:
    if handlers and os.getpid() == process:  # A forked child has other work.
        log.warning(
            "handlers were declared and never served, so they got no message: %s; call run(), serve() or "
            "start(serve=True)",
            ", ".join(handlers),
        )


def _call_middleware(middleware: Callable[..., Any], call_next: Call, delivered: Delivered) -> Any:
    return middleware(delivered, call_next)


async def _await_middleware(middleware: Callable[..., Any], call: Call, delivered: Delivered) -> None:
    """Run middleware to its end. Raises: ConfigError, it did not await `call_next`, so the handler never ran."""
    calls: list[Coroutine[Any, Any, None]] = []

    def call_next(delivered: Delivered) -> Awaitable[None]:
        calls.append(_await_call(call, delivered))
        return calls[-1]

    await await_result(middleware(delivered, call_next))
    unawaited = [coroutine for coroutine in calls if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED]
    for coroutine in unawaited:
        coroutine.close()  # otherwise Python warns of it later, wherever the program is then
    if unawaited:
        raise ConfigError(
            f"{name_of(middleware)} did not await call_next, so no handler ran: write `await call_next(...)`"
        )


async def _await_call(call: Call, delivered: Delivered) -> None:
    await await_result(call(delivered))


def adapt(handler: Callable[..., object], is_batch: bool) -> Call:
    """A function that calls `handler` for a delivered message or batch, and returns its result.
    Raises: ConfigError, the handler takes no argument, more than two, a type that cannot be made from JSON, or a batch
    that is not annotated as a list.
    """
    argument_names = _argument_names(handler)
    make_value, wants_message = (
        _reader_of(_value_type(handler, argument_names[0], is_batch)),
        len(argument_names) == _MAX_ARGUMENTS,
    )
    if wants_message:
        _check_second_argument(handler, argument_names[1])

    def call(delivered: Delivered) -> Any:
        values = (
            [make_value(message) for message in delivered] if isinstance(delivered, list) else make_value(delivered)
        )
        return handler(values, delivered) if wants_message else handler(values)

    async def call_in_loop(delivered: Delivered) -> object:
        return await call(delivered)

    return named_as(call_in_loop if is_coroutine_function(handler) else call, name_of(handler))


async def run_until_signalled(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Do the work. Ctrl-C or SIGTERM sets its event, so that it ends in order; a second signal cancels it."""
    asked_to_end, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.ensure_future(work(asked_to_end))

    def on_signal() -> None:
        if asked_to_end.is_set():
            task.cancel()
        asked_to_end.set()

    for number in ENDING_SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        with suppress(asyncio.CancelledError):
            await task
    finally:
        for number in ENDING_SIGNALS:
            loop.remove_signal_handler(number)


async def wait_for_first(*awaitables: Awaitable[object]) -> None:
    """Return or raise as the first one that ends; cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _argument_names(handler: Callable[..., object]) -> list[str]:
    parameters = parameters_of(handler).values()
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if not 1 <= len(required) <= _MAX_ARGUMENTS or any(
        parameter.kind is parameter.KEYWORD_ONLY for parameter in required
    ):
        raise ConfigError(
            f"{name_of(handler)} must take the body, or the body and the message, not {len(required)} arguments"
        )
    return [parameter.name for parameter in required]


def _check_second_argument(handler: Callable[..., object], name: str) -> None:
    annotation = get_type_hints(annotated_function(handler)).get(name, ReceivedMessage)
    accepted_types = (Any, *ReceivedMessage.__mro__, *list.__mro__)
    if (
        isinstance(annotation, type)
        and annotation not in accepted_types
        and not getattr(annotation, "_is_protocol", False)
    ):
        raise ConfigError(
            f"{name_of(handler)}: its second argument gets the message, and {name} is a {annotation.__name__}; "
            "if that comes from @idempotent, put @mq.handler above it"
        )


def _value_type(handler: Callable[..., object], name: str, is_batch: bool) -> Any:
    try:
        annotation = get_type_hints(annotated_function(handler)).get(name, ReceivedMessage)
    except NameError as error:
        raise ConfigError(f"{name_of(handler)}: {error}; define that type above it, at the module's top") from error
    if not is_batch or annotation is ReceivedMessage:
        return annotation
    if get_origin(annotation) not in (list, Sequence):
        raise ConfigError(f"{name_of(handler)} gets batches: annotate its {name} as a list, such as list[dict]")
    return get_args(annotation)[0]


def _reader_of(value_type: Any) -> MakeValue:
    """A function that makes a value of a type from a message. Raises: ConfigError, no value can be made."""
    if value_type in (ReceivedMessage, Any):
        return lambda message: message
    if value_type in (bytes, bytearray, memoryview):
        return lambda message: value_type(message.body)
    if value_type is str:
        return ReceivedMessage.text
    if value_type is Message:
        raise ConfigError("a handler gets a ReceivedMessage: annotate that; a Message is one to send")
    return partial(_decode, decoder(value_type))


def _decode(from_json: Callable[[bytes], object], message: ReceivedMessage) -> object:
    try:
        return from_json(message.body)
    except (ValueError, RecursionError) as error:  # The errors of msgspec and pydantic are ValueErrors.
        raise InvalidMessage(f"the body of {message!r} is not what its handler takes: {error}") from error
