"""Deaths of masters beside changes of their state, and double deaths: see state_history.py and failover.py."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from tests.crash.failover import FailoverRig
from tests.crash.state_history import StateHistory

_DUE_S: Final = 5.0  # after which each delayed message was due
_LIMIT_S: Final = 60.0

Say = Callable[[str], object]


async def die_beside_changes(rig: FailoverRig, history: StateHistory, deaths: int, say: Say = print) -> None:
    """Kill the master so often while its state changes. Compare the state after each death, and at the end all."""
    for number in rig.numbers:
        await asyncio.to_thread(rig.start, number)
    for number in range(1, deaths + 1):
        leader = await rig.all_in_sync()
        changing = asyncio.ensure_future(history.run())
        await asyncio.sleep(random.uniform(0.5, 2))
        rig.members[leader.member].kill()
        changing.cancel()
        with suppress(asyncio.CancelledError):
            await changing
        await rig.led_above(leader.epoch)
        rig.tally.violations += await _checked(history.wrong_state)
        await asyncio.to_thread(rig.start, leader.member)
        rig.tally.rounds += 1
        say(f"{number} deaths, {history.acknowledged} changes, {history.delayed} delayed messages")
    await rig.all_in_sync()
    await asyncio.sleep(_DUE_S)
    rig.tally.violations += await _checked(history.wrong_delays)


async def die_twice(rig: FailoverRig, rounds: int, say: Say = print) -> None:
    """The master of three members dies, and its successor at its election: the third leads soon."""
    for number in rig.numbers:
        await asyncio.to_thread(rig.start, number)
    for number in range(1, rounds + 1):
        first = await rig.all_in_sync()
        rig.members[first.member].kill()
        second = await rig.led_above(first.epoch)
        rig.members[second.member].kill()
        began = time.monotonic()
        await rig.led_above(second.epoch)
        rig.tally.gaps_s.append(time.monotonic() - began)
        rig.tally.rounds += 1
        say(f"{number} double deaths, the next master after {rig.tally.gaps_s[-1]:.1f} s")
        for member in (first.member, second.member):
            await asyncio.to_thread(rig.start, member)


async def _checked(check: Callable[[], object]) -> list[str]:
    """Check as soon as the new master answers."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        try:
            return await check()  # type: ignore[misc,no-any-return]
        except Exception:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)
