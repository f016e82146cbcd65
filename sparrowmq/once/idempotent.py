"""`@idempotent(store)`: a handler that skips messages whose effect has happened.

    @mq.handler("orders", group="billing")
    @idempotent(SqlStore(engine), name="billing")
    async def bill(order: Order, connection: AsyncConnection) -> None:
        await connection.execute(...)         commits together with the mark, or not at all

A handler with a parameter `connection` gets the store's, inside the transaction of the mark. All else is as for other
handlers: plain or asynchronous, a body or a batch, with its message as second argument or without.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import wraps
from inspect import Parameter
from itertools import compress
from typing import Any, Final, NamedTuple, Protocol

from sparrowmq.client.arguments import check_callable, check_text
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.functions import is_coroutine_function
from sparrowmq.errors import ConfigError
from sparrowmq.once.identity import Key, identity, mark_of

CONNECTION: Final = "connection"
Function = Callable[..., Any]


class Attempt(NamedTuple):
    """The handling of some messages: whether each is new, and the connection whose transaction marks them."""

    is_new: list[bool]
    connection: Any = None


class Store(Protocol):
    """Keeps marks. Leaving an attempt keeps its marks; leaving by an exception drops them."""

    is_async: bool
    has_connection: bool

    def attempt(
        self, marks: Sequence[str]
    ) -> AbstractContextManager[Attempt] | AbstractAsyncContextManager[Attempt]: ...


def idempotent(
    store: Store, *, name: str | None = None, key: Key = identity
) -> Callable[[Function], Function]:
    """Decorate a handler so that it skips messages that it has handled before. `@mq.handler` goes above it.

    Args:
        name: keeps the marks of different handlers apart; by default the module and name of the function. Give the
            name of the group, so that the handler may be renamed.
        key: returns what identifies a message for this handler, such as `lambda message: message.json()["payment"]`.
    Raises:
        ConfigError: an asynchronous handler has a blocking store or a plain one an asynchronous store; the handler
            wants a connection that the store lacks, or cannot be called with a body, or a body and its message.
    """

    if not hasattr(store, "attempt"):
        raise ConfigError(
            f"{store!r} keeps no marks; give @idempotent a SqlStore, a RedisStore or a DjangoStore"
        )
    check_callable("key", key, "a function that returns the text by which a message is recognised")
    check_text("name", name, or_none=True)

    def decorate(handler: Function) -> Function:
        check_callable("handler", handler, "a function; write @idempotent(store) over it")
        call = _Call(handler, store, name, key)

        async def call_async(value: Any, message: Any = None) -> None:
            async with store.attempt(call.marks(value, message)) as attempt:  # type: ignore[union-attr]
                if any(attempt.is_new):
                    await call(value, message, attempt)

        def call_blocking(value: Any, message: Any = None) -> None:
            with store.attempt(call.marks(value, message)) as attempt:  # type: ignore[union-attr]
                if any(attempt.is_new):
                    call(value, message, attempt)

        once = wraps(handler)(call_async if store.is_async else call_blocking)
        # Consumers look at it: they give the message to handlers with a second argument.
        both = [Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in (call.names[0], "message_")]
        once.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        return once

    return decorate


class _Call:
    """A handler, and what it is called with."""

    def __init__(self, handler: Function, store: Store, name: str | None, key: Key) -> None:
        if is_coroutine_function(handler) != store.is_async:
            kind = (
                "asynchronous, so write `async def`" if store.is_async else "blocking, so write a plain `def`"
            )
            raise ConfigError(
                f"the store of {handler} is {kind}; or give the store the other kind of engine or client"
            )
        given = inspect.signature(handler).parameters
        self.names = [
            each.name for each in given.values() if each.default is each.empty and each.name != CONNECTION
        ]
        if not 1 <= len(self.names) <= 2:
            raise ConfigError(
                f"{handler} must take the body, or the body and the message, and perhaps `{CONNECTION}`"
            )
        if CONNECTION in given and not store.has_connection:
            raise ConfigError(f"{handler} wants a `{CONNECTION}`, which a {type(store).__name__} has not")
        if not name and not hasattr(handler, "__qualname__"):
            raise ConfigError(f"{handler} has no name to mark messages with; give name=")
        self._wants_connection = CONNECTION in given
        self._handler, self._key = handler, key
        self._name = name or f"{handler.__module__}.{handler.__qualname__}"

    def marks(self, value: Any, message: Any) -> list[str]:
        messages = value if message is None else message
        messages = messages if isinstance(messages, list) else [messages]
        if not all(isinstance(each, ReceivedMessage) for each in messages):
            raise ConfigError(
                f"{self._name} was called without its message; a test may call its `__wrapped__` instead"
            )
        return [mark_of(each, self._name, self._key) for each in messages]

    def __call__(self, value: Any, message: Any, attempt: Attempt) -> Any:
        """Call the handler, without those messages of a batch that are not new."""
        both = [value, value if message is None else message]
        if isinstance(both[1], list):
            both = [list(compress(each, attempt.is_new)) for each in both]
        more = {CONNECTION: attempt.connection} if self._wants_connection else {}
        return self._handler(*both[: len(self.names)], **more)
