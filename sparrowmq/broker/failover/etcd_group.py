"""The keys of a group in etcd, as a member finds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sparrowmq.broker.failover.etcd_client import EtcdValue
from sparrowmq.broker.failover.group_state import GroupState, Leader
from sparrowmq.broker.failover.member_presence import FOLDER, Present, decoded
from sparrowmq.errors import EtcdFailed


class EtcdGroup(NamedTuple):
    """The state of the group in etcd. A version of 0 means that the key does not exist.

    Attributes:
        is_read: etcd has answered; not so at the start, or after the end of our lead.
    """

    leader: Leader | None = None
    leader_version: int = 0
    state: GroupState | None = None
    state_version: int = 0
    others: tuple[Present, ...] = ()
    is_read: bool = False

    @property
    def is_vacant(self) -> bool:
        """Whether there is no master, as etcd said."""
        return self.is_read and self.leader is None

    @property
    def expected(self) -> frozenset[int]:
        """The members that should follow the next master soon: those in sync and those that run.

        A master that died may still be among those that run, so it is left out.
        """
        if self.state is None:
            return frozenset()
        return frozenset((*self.state.in_sync, *(each.member for each in self.others))) - self.state.away


def group_in(values: Mapping[str, EtcdValue], keys: str, me: int) -> EtcdGroup:
    """Return what these keys say; `keys` is the beginning of their names. Raises: EtcdFailed, they are not ours."""
    leader, state = values.get(keys + "leader"), values.get(keys + "state")
    entries = [decoded(each.value) for key, each in values.items() if key.startswith(keys + FOLDER)]
    try:
        return EtcdGroup(
            Leader.decode(leader.value) if leader else None,
            leader.version if leader else 0,
            GroupState.decode(state.value) if state else None,
            state.version if state else 0,
            tuple(each for each in entries if each and each.member != me),
            is_read=True,
        )
    except msgspec.DecodeError as error:
        raise EtcdFailed(f"what etcd has below {keys} is not ours ({error}); set another etcdPrefix") from error
