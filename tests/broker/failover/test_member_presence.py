"""What etcd has of each member that runs, and who must be compared with others before it leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.broker.failover.etcd import Etcd
from sparrowmq.broker.failover.group_keys import (
    Presence,
    Present,
    compare_first,
    decoded,
    none_can_have_more,
)
from sparrowmq.broker.failover.group_state import GroupState, OwnEpoch
from sparrowmq.loop.clock import SystemClock
from tests.interop.etcd import LiveEtcd, needs_etcd

STATE = GroupState(epoch=5, line="x", leader=1, in_sync=(1, 2, 3), begins=((5, 100),))
ALONE = GroupState(epoch=5, line="x", leader=1, in_sync=(1,), begins=((5, 100),))
PAIR = GroupState(epoch=5, line="x", leader=1, in_sync=(1, 2), begins=((5, 100),))


def own(doubt: str = "") -> OwnEpoch:
    return OwnEpoch(Path("-"), 5, "x", "mark", doubt=doubt)


def member(
    number: int,
    end: int,
    *,
    epoch: int = 5,
    line: str = "x",
    problem: str = "",
    is_proved: bool = False,
) -> Present:
    address = f"127.0.0.1:{number}"
    return Present(
        member=number,
        store="m",
        address=address,
        epoch=epoch,
        line=line,
        end=end,
        problem=problem,
        is_proved=is_proved,
    )


CUT = "20 bytes after offset 180 were cut off the log"


@pytest.mark.parametrize(
    ("doubt", "state", "others", "why"),
    [
        ("", STATE, [], ""),
        ("", STATE, [member(2, 180)], ""),
        ("", STATE, [member(2, 181)], "the log of member 2 ends at 181, and ours at 180"),
        ("", STATE, [member(2, 181, problem="its disk is full")], ""),
        ("", STATE, [member(4, 181)], ""),  # not in sync: none of its bytes was acknowledged
        ("", STATE, [member(2, 181, epoch=4)], ""),
        ("", STATE, [member(2, 181, line="y")], ""),
        ("", STATE, [member(2, -1)], ""),
        (CUT, STATE, [], "no other member in sync runs"),
        (CUT, STATE, [member(4, 170)], "no other member in sync runs"),
        (CUT, STATE, [member(2, 170, epoch=4)], "no other member in sync runs"),
        (CUT, STATE, [member(2, -1)], "no other member in sync runs"),
        (CUT, STATE, [member(2, 180)], ""),
        (CUT, STATE, [member(2, 180), member(3, 200, problem="any")], "the log of member 3 ends at 200"),
        (CUT, STATE, [member(2, 180), member(4, 200)], "the log of member 4 ends at 200"),
        (CUT, ALONE, [], ""),
        (CUT, ALONE, [member(2, 200)], "the log of member 2 ends at 200"),
    ],
)
def test_a_member_leads_once_nobody_who_could_have_more_is_there(
    doubt: str, state: GroupState, others: list[Present], why: str
) -> None:
    found = compare_first(own(doubt), 180, state, others)
    assert (why in found) if why else found == ""
    assert doubt in found or not why


@pytest.mark.parametrize(
    ("others", "has"),
    [
        ([member(2, 180), member(3, 170)], True),
        ([member(2, 180), member(3, 170, problem="its disk is full")], True),
        ([member(2, 180), member(3, 170), member(4, 190)], True),  # 4 is not in sync
        ([member(2, 180)], False),
        ([member(2, 180), member(3, 181)], False),
        ([member(2, 180), member(3, 170, is_proved=True)], False),
        ([member(2, 180), member(3, -1)], False),
        ([member(2, 180), member(3, 170, epoch=4)], False),
        ([member(2, 180), member(3, 170, line="y")], False),
    ],
)
def test_a_member_waits_for_no_other_if_all_in_sync_are_there_and_none_can_have_more(
    others: list[Present], has: bool
) -> None:
    assert none_can_have_more(1, 180, STATE, others) is has


def test_an_older_version_says_nothing_of_its_proof_so_it_goes_first() -> None:
    told = decoded(b'{"member":2,"store":"m","address":"a:1","epoch":5,"line":"x","end":180,"problem":""}')
    assert told is not None and told.is_proved
    assert not none_can_have_more(1, 180, PAIR, [told])


def test_an_entry_of_another_program_is_nobody() -> None:
    assert decoded(member(1, 7).encode()) == member(1, 7)
    assert decoded(b"{}") is None and decoded(b"\xff") is None


@needs_etcd
async def test_etcd_has_a_member_as_long_as_it_runs() -> None:
    with LiveEtcd() as live:
        etcd, key = Etcd([live.endpoint], SystemClock(), 5.0), "/g/member/1"
        presence = Presence(etcd, key, 2)
        await presence.show(member(1, 7))
        first = (await etcd.below("/g/"))[key]
        assert decoded(first.value) == member(1, 7)
        await presence.show(member(1, 7))
        assert (await etcd.below("/g/"))[key] == first  # nothing was written again
        await presence.show(member(1, 8))
        assert decoded((await etcd.below("/g/"))[key].value) == member(1, 8)
        await etcd.revoke(presence._lease)  # as if it had ended
        assert await etcd.below("/g/") == {}
        await presence.show(member(1, 8))
        assert decoded((await etcd.below("/g/"))[key].value) == member(1, 8)
        await presence.end()
        assert await etcd.below("/g/") == {}
