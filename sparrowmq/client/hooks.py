"""Hooks see every message before and after it is sent or consumed, and connections to servers begin and end.

    class Counting(Hooks):
        def after_send(self, message, outcome):
            failed.inc() if isinstance(outcome, BaseException) else sent.inc()

    async with sparrowmq.connect("127.0.0.1:9876", hooks=[Counting()]) as mq: ...

Hooks are plain functions that run where the message passes, so they must be quick and must not block. The `before_`
functions are called in the order in which the hooks were given, the `after_` functions in the opposite order. If
`before_send` raises, nothing is sent, and the sender gets the error. Errors of the other functions are logged.
Source: SendMessageHook and ConsumeMessageHook, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparrowmq.client.arguments import check_kind, is_coroutine_function, is_generator_function
from sparrowmq.client.cluster.connection_hooks import ConnectionHooks
from sparrowmq.client.consuming.received_message import ConsumeHooks
from sparrowmq.client.sending.send_hooks import SendHooks
from sparrowmq.errors import ConfigError


class Hooks(SendHooks, ConsumeHooks, ConnectionHooks):
    """Does nothing; override what you want. One instance may serve several clients.

    Raises: ConfigError, a hook of a class is asynchronous or a generator, so that a call would run nothing.
    """

    def __init_subclass__(cls) -> None:
        for name, method in vars(cls).items():
            if hasattr(Hooks, name) and (is_coroutine_function(method) or is_generator_function(method)):
                raise ConfigError(f"{cls.__name__}.{name} is no plain function, so a call of it would run nothing")


def check_hooks(hooks: object) -> tuple[Hooks, ...]:
    """The hooks that a program gives. Raises: ConfigError, they are no list of hooks."""
    if not isinstance(hooks, Iterable) or isinstance(hooks, str | bytes | Mapping):
        raise ConfigError(f"hooks={hooks!r}: give a list of Hooks, as in hooks=[Counting()]")
    checked = tuple(hooks)
    for hook in checked:
        check_kind(
            "hooks", hook, Hooks, "a list of Hooks, as in hooks=[Counting()], where Counting is a class of Hooks"
        )
    return checked
