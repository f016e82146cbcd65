"""What a member makes of the keys of its group."""

from __future__ import annotations

import pytest

from sparrowmq.broker.failover.etcd import EtcdValue
from sparrowmq.broker.failover.group_keys import EtcdGroup, Present, read_group
from sparrowmq.broker.failover.group_state import GroupState, Leader, with_successor
from sparrowmq.errors import EtcdFailed

LEADER = Leader(member=1, epoch=3, store="s", address="a:1", shipping="a:2")
STATE = GroupState(epoch=3, line="x", leader=1, in_sync=(1, 2), begins=((3, 0),))


def present(member: int) -> Present:
    return Present(member=member, store="s", address=f"m{member}:1", epoch=3, line="x")


def test_all_keys_are_found_but_our_own_presence_and_others_are_passed_over() -> None:
    kept = {
        "/g/leader": EtcdValue(LEADER.encode(), 5),
        "/g/state": EtcdValue(STATE.encode(), 6),
        "/g/member/1": EtcdValue(present(1).encode(), 7),
        "/g/member/2": EtcdValue(present(2).encode(), 8),
        "/g/member/3": EtcdValue(b"nonsense", 9),
    }
    assert read_group(kept, "/g/", 2) == EtcdGroup(LEADER, 5, STATE, 6, (present(1),), is_read=True)
    assert read_group({}, "/g/", 2) == EtcdGroup(None, 0, None, 0, (), is_read=True)


def test_the_master_is_missing_only_once_etcd_has_said_so() -> None:
    assert not EtcdGroup().is_vacant, "nothing was read: there may be a master"
    assert read_group({}, "/g/", 2).is_vacant
    assert not read_group({"/g/leader": EtcdValue(LEADER.encode(), 5)}, "/g/", 2).is_vacant


def test_members_in_sync_and_those_that_run_are_expected_but_not_the_master_that_died() -> None:
    found = EtcdGroup(None, 0, STATE, 6, (present(1), present(3)))
    assert found.expected == {2, 3}
    assert found._replace(state=with_successor(STATE, 2, stays=True)).expected == {1, 2, 3}
    assert EtcdGroup(others=(present(3),)).expected == frozenset()


@pytest.mark.parametrize("key", ["leader", "state"])
def test_keys_of_another_program_are_told(key: str) -> None:
    with pytest.raises(EtcdFailed, match="set another etcdPrefix"):
        read_group({f"/g/{key}": EtcdValue(b"nonsense", 1)}, "/g/", 1)
