"""How fast a run goes.

DENSE    a fault every few seconds, for minutes: what happens while others happen
CALM     a fault every ten minutes, which may last for an hour, for a day of light traffic: what only time brings. Old
         messages are deleted at each member, also while it is away for longer than they are kept; timers wait for
         longer than that, and files of logs, queues and indexes begin and end
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from sparrowmq.broker import member, part
from sparrowmq.broker.failover import in_sync
from sparrowmq.broker.part import Chore
from sparrowmq.loop import clock
from sparrowmq.loop.clock import Clock
from sparrowmq.remoting import session
from sparrowmq.store import upkeep

# Periodic looks of the product that are more frequent, and their time in a calm run.
_LOOKS: Final = (
    (session, "EXPIRY_PERIOD_S", 1.0),
    (upkeep, "_TEND_PERIOD_S", 0.5),
    (member, "POLL_S", 2.0),
    (in_sync, "_LOOK_S", 1.0),
    (clock, "TICK_S", 0.9),
)
_CHORE_S: Final = 3.0  # the least period of a broker's chores


@dataclass(frozen=True)
class Pace:
    """The times of a run.

    Attributes:
        minutes: simulated minutes with faults.
        fault_s: the mean time between two faults.
        waits: how many times longer than in a dense run a client waits before its next operation.
        lasts: how many times longer a fault lasts, drawn for each.
        retention_h: how long messages are kept, drawn for each run.
        delays: of delayed messages.
        quiet_s: after the last fault, until all that was delayed has come.
        look_s: between two looks at who leads.
        poll_s: how long a client that polls waits for messages.
    """

    minutes: float = 5.0
    fault_s: float = 6.0
    waits: float = 1.0
    lasts: tuple[float, ...] = (1.0,)
    retention_h: tuple[int, ...] = (72,)
    delays: tuple[str, ...] = ("1s", "5s", "2s", "7s", "10s")
    quiet_s: float = 80.0
    look_s: float = 0.05
    poll_s: float = 2.0

    @property
    def deletes(self) -> bool:
        """Whether messages are deleted while a run lasts."""
        return min(self.retention_h) * 60 < self.minutes

    def length_of_fault(self, rng: random.Random) -> float:
        """How many times longer the next fault lasts."""
        return rng.choice(self.lasts) if len(self.lasts) > 1 else self.lasts[0]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let frequent looks of the product be less frequent, in a calm run: they are most of its cost."""
        with ExitStack() as stack:
            if self.waits > 1:
                for module, name, period_s in _LOOKS:
                    stack.enter_context(patch.object(module, name, period_s))
                stack.enter_context(patch.object(part, "_repeat", partial(_seldom, part._repeat)))
            yield


DENSE: Final = Pace()
CALM: Final = Pace(
    minutes=24 * 60.0,
    fault_s=600.0,
    waits=100.0,
    lasts=(1.0, 1.0, 1.0, 10.0, 100.0),
    retention_h=(1, 3, 12),
    delays=("10s", "1m", "30m", "2h", "47m", "7h"),
    quiet_s=7.1 * 3600,
    look_s=1.0,
    poll_s=20.0,
)


_Repeat: TypeAlias = Callable[[Chore, Clock], Coroutine[Any, Any, None]]


def _seldom(repeat: _Repeat, chore: Chore, clock: Clock) -> Coroutine[Any, Any, None]:
    return repeat(replace(chore, period_s=max(chore.period_s, _CHORE_S)), clock)
