"""The values of arguments: a right one for each name, and wrong ones for all."""

import math
import random
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from sparrowmq import Credentials, Hooks, Message, MessageQueue, ProducerSettings
from sparrowmq.client.consuming.consumer_settings import FlowLimits
from sparrowmq.loop.clock import SystemClock

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-0", 0)
_numbers = count()

WRONG: list[Any] = [
    *(None, "", " ", "a b", "a||b", "\ud800", "\x01", "%", "x" * 300, "10 s", "nobody:1"),
    *(0, -1, 1, 30, 2**31, 2**63, 2**70, -(2**70), True, False),
    *(0.0, -1.5, 1e300, math.nan, math.inf, -math.inf),
    *(b"", b"x", bytearray(b"x"), object(), object, print, Ellipsis, 1j),
    *([], [None], ["a", 5], [b"a"], (), ("a",), {}, {"a": 5}, {5: "a"}, {None: None}, set(), {"a"}, range(3)),
    *(datetime(2026, 1, 1), datetime.min, datetime.max.replace(tzinfo=UTC), timedelta(0), timedelta.max),
    *(timedelta(days=-1), Path(), QUEUE, MessageQueue("other", "nobody", -1), [QUEUE]),
    *(MessageQueue(5, None, "x"), [MessageQueue(None, 5, [])], {QUEUE: -1}, {QUEUE: "x"}),  # type: ignore[arg-type]
    *(Message(TOPIC, b"x"), [Message(TOPIC, b"x")], (each for each in [5]), lambda: None, ValueError("x")),
]


def _name() -> str:
    return f"n{next(_numbers)}"


def _plain(*_: object) -> None:
    """A handler, listener or check."""


class Marks:
    """A store of `@idempotent`."""

    is_async = has_connection = False
    attempt = nullcontext


# The right values of arguments; a function makes a new one for each call.
RIGHT: dict[str, Any] = {
    **dict.fromkeys(("topic", "topics"), TOPIC),
    **dict.fromkeys(("group", "instance", "client_id", "msg_id", "key", "name"), _name),
    **dict.fromkeys(("queue",), QUEUE),
    **dict.fromkeys(("queues", "offsets"), lambda: [QUEUE]),
    **dict.fromkeys(("handler", "function", "changed", "check", "on_assigned", "on_revoked", "fn"), lambda: _plain),
    **dict.fromkeys(("timeout_s", "grace_s", "suspend_s"), 0.05),
    **dict.fromkeys(("broker", "cluster"), "nobody"),
    **dict.fromkeys(("max_count", "limit", "concurrency", "waiting", "batch", "pull_batch"), 4),
    **dict.fromkeys(("since", "until", "time", "start"), datetime(2026, 1, 1)),
    "namesrv": "127.0.0.1:1",
    "body": b"x",
    "messages": lambda: [Message(TOPIC, b"x")],
    "message": lambda: Message(TOPIC, b"x"),
    "sent": "nothing",
    "offset": 0,
    "to": "latest",
    "member": 1,
    "changes": lambda: {"fileReservedTime": "48"},
    "dead_letter": lambda: None,
    "settings": ProducerSettings,
    "credentials": lambda: Credentials("key", "secret"),
    "hooks": lambda: [Hooks()],
    "flow": FlowLimits,
    "clock": SystemClock,
    "path": lambda: Path("/dev/null/at/all"),
    "access_key": "key",
    "secret_key": "secret",
    "seconds": 5,
    "store": Marks,
    "broker_name": "broker-0",
    "queue_id": 0,
}


def right(name: str) -> Any:
    value = RIGHT[name]
    return value() if isinstance(value, Callable) else value  # type: ignore[arg-type]


def wrong(chance: random.Random) -> Any:
    return chance.choice(WRONG)
