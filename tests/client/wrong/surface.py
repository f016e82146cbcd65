"""Every public function and method of the client, found by looking, with the arguments that it takes."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import sparrowmq
import sparrowmq.sync
from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.once import idempotent
from sparrowmq.testing import Cluster, ManualClock

# They wait for messages, for the end of the consumer, or for a signal, as they should.
WAITING = {"receive", "take", "closed", "serve", "run", "batches"}

LIVING = [
    sparrowmq.Client,
    sparrowmq.Producer,
    sparrowmq.Consumer,
    sparrowmq.PullConsumer,
    sparrowmq.SimpleConsumer,
    sparrowmq.Admin,
    sparrowmq.ReceivedMessage,
    sparrowmq.sync.SyncClient,
    sparrowmq.sync.SyncProducer,
    sparrowmq.sync.SyncConsumer,
    sparrowmq.sync.SyncPullConsumer,
    sparrowmq.sync.SyncSimpleConsumer,
    sparrowmq.sync.SyncAdmin,
]
MADE: list[Callable[..., Any]] = [
    sparrowmq.connect,
    sparrowmq.Client,
    sparrowmq.Admin,
    sparrowmq.sync.connect,
    sparrowmq.sync.admin,
    sparrowmq.Credentials,
    sparrowmq.Message,
    sparrowmq.MessageQueue,
    sparrowmq.ProducerSettings,
    FlowLimits,
    sparrowmq.Retry,
    idempotent,
    Cluster,
    ManualClock,
]


@dataclass(frozen=True)
class Target:
    """A function, or a method of a class.

    Attributes:
        owner: the class; None for a function that makes something.
        needed, names: the arguments without default, and all.
    """

    owner: type | None
    name: str
    function: Callable[..., Any]
    needed: tuple[str, ...]
    names: tuple[str, ...]
    several: str | None

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}" if self.owner else self.name

    @property
    def is_blocking(self) -> bool:
        return self.owner is not None and self.owner.__name__.startswith("Sync")


def targets() -> list[Target]:
    """All of them."""
    methods = [
        _target(owner, name, function)
        for owner in LIVING
        for name, function in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
    ]
    return [*methods, *(_target(None, made.__name__, made) for made in MADE)]


def _target(owner: type | None, name: str, function: Callable[..., Any]) -> Target:
    parameters = list(inspect.signature(function).parameters.values())[1 if owner else 0 :]
    several = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), None)
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    needed = tuple(each.name for each in named if each.default is each.empty)
    return Target(owner, name, function, needed, (*(each.name for each in named), *_unpacked(function)), several)


def _unpacked(function: Callable[..., Any]) -> Iterator[str]:
    """The names of `**arguments: Unpack[...]`."""
    hint = next(
        (each.annotation for each in inspect.signature(function).parameters.values() if each.kind is each.VAR_KEYWORD),
        None,
    )
    if hint is None:
        return
    wanted = hint
    if isinstance(hint, str):
        plain = inspect.unwrap(function)
        wanted = get_type_hints(plain, include_extras=True).get("arguments") or next(
            (each for each in get_type_hints(plain).values() if get_origin(each) is Unpack), None
        )
    if get_origin(wanted) is Unpack:
        yield from get_type_hints(get_args(wanted)[0])
