"""When the members of a group are notified, and how often."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.broker.clients import MAX_NOTICES_AT_ONCE, NOTICE_PAUSE_S, NOTICE_SPREAD_S, Notices
from sparrowmq.loop.clock import SystemClock
from sparrowmq.testing.clock import ManualClock


class Member:
    """A connection that counts its notices."""

    def __init__(self):
        self.notices = []

    def tell(self, notice):
        self.notices.append(notice.consumer_group)


def group(size, name="g") -> Any:
    return SimpleNamespace(name=name, members={Member(): None for _ in range(size)})


def told(it):
    (count,) = {len(member.notices) for member in it.members}
    return count


async def test_a_small_group_is_notified_at_once_until_it_changes_often():
    notices, small = Notices(SystemClock()), group(40)
    for expected in (1, 2, 2, 2):
        notices.notify(small)
        assert told(small) == expected
    await notices.send_round()
    assert told(small) == 3
    notices.notify(small)
    assert told(small) == 4
    await notices.send_round()
    assert told(small) == 4


async def test_a_large_group_is_notified_once_in_a_round():
    notices, large, other = Notices(SystemClock()), group(101), group(1, "h")
    for _ in range(3):
        notices.notify(large)
        notices.notify(other)
    assert (told(large), told(other)) == (0, 3)
    await notices.send_round()
    assert (told(large), told(other)) == (1, 3)


async def test_who_left_before_the_round_is_not_notified():
    notices, large = Notices(SystemClock()), group(101)
    notices.notify(large)
    gone = next(iter(large.members))
    del large.members[gone]
    await notices.send_round()
    assert gone.notices == [] and told(large) == 1


@pytest.mark.parametrize(("portions", "pause_s"), [(4, NOTICE_PAUSE_S), (150, NOTICE_SPREAD_S / 150)])
async def test_a_round_of_many_notices_goes_out_in_portions(portions, pause_s):
    clock = ManualClock()
    notices, huge = Notices(clock), group(portions * MAX_NOTICES_AT_ONCE)
    notices.notify(huge)
    round_ = asyncio.create_task(notices.send_round())
    for done in (1, 2, 3):
        await clock.advance(pause_s * 1.001 if done > 1 else 0)
        assert sum(len(member.notices) for member in huge.members) == done * MAX_NOTICES_AT_ONCE
    gone = list(huge.members)[-1]
    del huge.members[gone]
    await clock.advance(NOTICE_SPREAD_S)
    assert round_.done() and told(huge) == 1 and gone.notices == []
