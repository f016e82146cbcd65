"""When the members of a group are notified, and how often."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.broker.notices import Notices


class Member:
    """A connection that counts its notices."""

    def __init__(self):
        self.told = []

    def tell(self, notice):
        self.told.append(notice.consumer_group)


def group(size, name="g") -> Any:
    return SimpleNamespace(name=name, members={Member(): None for _ in range(size)})


def told(it):
    (count,) = {len(member.told) for member in it.members}
    return count


@pytest.mark.guards("Notices.changed: false sent > AT_ONCE", "Notices.round: {}, {} -> self._sent, {}")
async def test_a_small_group_is_notified_at_once_until_it_changes_often():
    notices, small = Notices(), group(40)
    for expected in (1, 2, 2, 2):
        notices.changed(small)
        assert told(small) == expected
    await notices.round()
    assert told(small) == 3
    notices.changed(small)
    assert told(small) == 4
    await notices.round()
    assert told(small) == 4


async def test_a_large_group_is_notified_once_in_a_round():
    notices, large, other = Notices(), group(101), group(1, "h")
    for _ in range(3):
        notices.changed(large)
        notices.changed(other)
    assert (told(large), told(other)) == (0, 3)
    await notices.round()
    assert (told(large), told(other)) == (1, 3)


async def test_who_left_before_the_round_is_not_notified():
    notices, large = Notices(), group(101)
    notices.changed(large)
    gone = next(iter(large.members))
    del large.members[gone]
    await notices.round()
    assert gone.told == [] and told(large) == 1
