"""`@idempotent(store)`: a handler that skips messages whose effect has happened.

    @mq.handler("orders", group="billing")
    @idempotent(SqlStore(engine), name="billing")
    async def bill(order: Order, connection: AsyncConnection) -> None:
        await connection.execute(...)         commits together with the mark, or not at all

The handler is called with a message only if its mark is new. A mark is made of the handler's name and the message's
identity, which stays the same however often the message is sent and delivered:

    property once_id      the sender's own, such as an outbox's; the same after the sender has crashed and sends again
    UNIQ_KEY              the message id of a producer; the same in its retries, in each delivery and retry topic
    ORIGIN_MESSAGE_ID     of a retried message without UNIQ_KEY: the place where it was stored first
    the offset id         of a first delivery without UNIQ_KEY

Source: MessageClientIDSetter and SendMessageProcessor.consumerSendMsgBack, Java 4.9.8.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from hashlib import sha256
from inspect import Parameter
from itertools import compress
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from sparrowmq.client.arguments import (
    check_callable,
    check_handler,
    check_text,
    is_coroutine_function,
    name_of,
    parameters_of,
)
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.handlers import DECLARED_ATTRIBUTE
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import Property

ONCE_ID: Final = "once_id"
CONNECTION_PARAMETER: Final = "connection"
Key: TypeAlias = Callable[[ReceivedMessage], str]
Function = Callable[..., Any]
V = TypeVar("V", contravariant=True)
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


def identity(message: ReceivedMessage) -> str:
    """Return the id by which duplicates of a message are recognised, see above. Raises: ConfigError, no message."""
    _check_message(message)
    own_id = message.properties.get(ONCE_ID) or message.stored.unique_key
    return own_id or message.properties.get(Property.ORIGIN_MESSAGE_ID) or message.offset_msg_id


def mark_of(message: ReceivedMessage, name: str, key: Key = identity) -> str:
    """Return the mark, 64 characters, that says `name` has handled the message. Raises: ConfigError, not a key."""
    _check_message(message)
    check_text("name", name, or_blank=False)
    if key is not identity:
        check_key(key)
    key_text: object = key(message)
    if not isinstance(key_text, str) or not key_text:
        raise ConfigError(
            f"the key of {message!r} is {shown(key_text)}; key= must return a text of a character or more"
        )
    return sha256("\0".join((name, message.topic, key_text)).encode(errors="surrogatepass")).hexdigest()


def check_key(key: object) -> None:
    """Check a function that identifies messages. Raises: ConfigError, a call of it would return no text."""
    expected = "a plain function of a message that returns the text by which it is recognised"
    check_callable("key", key, expected, takes=1)
    if is_coroutine_function(key):
        raise ConfigError(f"key={name_of(key)} is asynchronous; give {expected}")


def _check_message(message: object) -> None:
    if not isinstance(message, ReceivedMessage):
        raise ConfigError(f"{message!r} is no message of a consumer; give the one that the handler got")


class Idempotent(Protocol[V, P, R]):
    """A handler with marks, as type checkers see it. `__wrapped__` is the handler without marks."""

    __name__: str

    @property
    def __wrapped__(self) -> Callable[Concatenate[V, P], R]: ...

    def __call__(self, value: V, message: Any = None, /) -> R: ...


class Attempt(NamedTuple):
    """The handling of some messages: whether each is new, and the connection whose transaction marks them."""

    is_new: list[bool]
    connection: Any = None


class Store(Protocol):
    """Keeps marks. Leaving an attempt, a context manager, keeps its marks; leaving by an exception drops them."""

    is_async: bool
    has_connection: bool

    def attempt(self, marks: Sequence[str]) -> Any: ...


class Decorator(Protocol):
    """The decorator that `idempotent` makes."""

    def __call__(self, handler: Callable[Concatenate[V, P], R], /) -> Idempotent[V, P, R]: ...


def idempotent(store: Store, *, name: str | None = None, key: Key = identity) -> Decorator:
    """Decorate a handler so that it skips messages that it has handled before. `@mq.handler` goes above it.

    The handler is as any other one. A parameter `connection` gets the store's, in the transaction of the mark.

    Args:
        name: keeps the marks of different handlers apart; by default the module and name of the function. Give the
            name of the group, so that the handler may be renamed.
        key: returns what identifies a message for this handler, such as `lambda message: message.json()["payment"]`.
    Raises: ConfigError, store and handler are not both blocking or both asynchronous; the store has no connection; the
    handler cannot be called with a body, or a body and its message; it is declared already.
    """
    if not hasattr(store, "attempt") or isinstance(store, type):
        raise ConfigError(f"{store!r} keeps no marks; give @idempotent a SqlStore, a RedisStore or a DjangoStore")
    check_key(key)
    check_text("name", name, or_none=True, or_blank=False)

    def decorate(handler: Callable[Concatenate[V, P], R], /) -> Idempotent[V, P, R]:
        argument_names, mark_name = _check_handler(handler, store, name)

        async def handle_async(value: Any, message: Any = None) -> None:
            async with store.attempt(_marks(value, message, mark_name, key)) as attempt:
                if any(attempt.is_new):
                    await _call(handler, argument_names, value, message, attempt)

        def handle(value: Any, message: Any = None) -> None:
            with store.attempt(_marks(value, message, mark_name, key)) as attempt:
                if any(attempt.is_new):
                    _call(handler, argument_names, value, message, attempt)

        idempotent_handler = wraps(handler)(handle_async if store.is_async else handle)
        # Consumers look at it: they give the message to handlers with a second argument.
        parameters = [
            Parameter(parameter_name, Parameter.POSITIONAL_OR_KEYWORD)
            for parameter_name in (argument_names[0], "message_")
        ]
        idempotent_handler.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return cast(Idempotent[V, P, R], idempotent_handler)

    return decorate


def _check_handler(handler: Function, store: Store, name: str | None) -> tuple[list[str], str]:
    """Return the handler's parameters without defaults, `connection` at the end, and the name for its marks."""
    check_handler(handler, "a function; write @idempotent(store) over it")
    if hasattr(handler, DECLARED_ATTRIBUTE):
        raise ConfigError(
            f"{name_of(handler)} is declared as a handler without its marks: "
            "write @mq.handler(...) above @idempotent, not below"
        )
    if is_coroutine_function(handler) != store.is_async:
        kind = "asynchronous, so write `async def`" if store.is_async else "blocking, so write a plain `def`"
        raise ConfigError(
            f"the store of {name_of(handler)} is {kind}; or give the store the other kind of engine or client"
        )
    parameters = parameters_of(handler)
    argument_names = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty and parameter.name != CONNECTION_PARAMETER
    ]
    if not 1 <= len(argument_names) <= 2:
        raise ConfigError(
            f"{name_of(handler)} must take the body, or the body and the message, and perhaps `{CONNECTION_PARAMETER}`"
        )
    if CONNECTION_PARAMETER in parameters and not store.has_connection:
        raise ConfigError(
            f"{name_of(handler)} needs a `{CONNECTION_PARAMETER}`, but {type(store).__name__} does not provide one"
        )
    if not name and not hasattr(handler, "__qualname__"):
        raise ConfigError(f"{name_of(handler)} has no name to mark messages with; give name=")
    mark_name = name or f"{handler.__module__}.{handler.__qualname__}"
    return argument_names + [CONNECTION_PARAMETER] * (CONNECTION_PARAMETER in parameters), mark_name


def _marks(value: Any, message: Any, mark_name: str, key: Key) -> list[str]:
    messages = value if message is None else message
    messages = messages if isinstance(messages, list) else [messages]
    if not all(isinstance(message, ReceivedMessage) for message in messages):
        raise ConfigError(f"{mark_name} was called without its message; a test may call its `__wrapped__` instead")
    return [mark_of(message, mark_name, key) for message in messages]


def _call(handler: Function, argument_names: list[str], value: Any, message: Any, attempt: Attempt) -> Any:
    arguments = [value, value if message is None else message]
    if isinstance(arguments[1], list):
        arguments = [list(compress(argument, attempt.is_new)) for argument in arguments]
    if argument_names[-1] == CONNECTION_PARAMETER:
        return handler(*arguments[: len(argument_names) - 1], connection=attempt.connection)
    return handler(*arguments[: len(argument_names)])
