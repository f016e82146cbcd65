"""The master hands the lead over on purpose: to whom, and when that member has everything.

sends refused         as by a slave, so our clients wait and try again
drained               large batches that have begun are stored, the others in their line are refused as sends are
                      all members in sync have the log up to its end, so all sends before are answered
                      etcd has every member that was about to be in sync: the successor is not to be alone
the log ends          offsets, delayed messages and transactions add nothing that the successor would not have
one change in etcd    there is no leader, and the state names the successor, which other members let go first

A master whose disk is full, hangs or is slow hands the lead over by itself (disk_watch.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from sparrowmq.broker.failover.etcd_group import EtcdGroup
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.broker.failover.member_presence import UNKNOWN
from sparrowmq.broker.failover.own_epoch import OwnEpoch
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.appender import LogEnded
from sparrowmq.store.message_store import MessageStore

HAND_OVER_S: Final = 3.0  # the limit of each step
_LOOK_S: Final = 0.01


def next_master(in_sync: InSync, me: int, chosen: int) -> int:
    """Return the member to hand the lead over to: the wanted one, or for 0 the one with most. Raises: RemoteError."""
    others = sorted(in_sync.members - {me}, key=lambda member: (-in_sync.end_of(member), member))
    if not in_sync.is_settled or not others:
        raise refused("no other member is in sync")
    if chosen and chosen not in others:
        raise refused(f"member {chosen} is not in sync; the other members in sync: {_listed(others)}")
    return chosen or others[0]


async def drained(store: MessageStore, settle: Callable[[], Awaitable[None]], in_sync: InSync, clock: Clock) -> None:
    """End the log when no batch is stored in part, and all members in sync, or about to be, have it up to its end.

    Args:
        settle: writes to the log what is in memory alone.
    Raises:
        RemoteError: one of both takes too long, or the store has failed.
    """
    begun = clock.monotonic()
    if store.flushed.error is not None:
        raise refused("the store of this member has failed")
    await settle()
    while store.appender.unfinished:
        if clock.age(begun) > HAND_OVER_S:
            raise refused(f"a large batch is not stored after {HAND_OVER_S:g} s")
        await clock.sleep(_LOOK_S)
    store.publish()
    store.flusher.kick()
    while in_sync.replicated.value < store.end or in_sync.is_changing:
        if clock.age(begun) > HAND_OVER_S:
            raise refused(
                f"the other members do not have the whole log, or etcd does not know it, after {HAND_OVER_S:g} s"
            )
        await clock.sleep(_LOOK_S)
    store.appender.end_log(LogEnded("the lead is handed over to another member"))


async def on_disk(store: MessageStore, end: int) -> None:
    """Return when the log is on disk up to `end`. So an epoch that begins there survives a power cut."""
    if store.flushed.value < end:
        store.flusher.kick()
        await store.flushed.reached(end)


def check_begin(group: EtcdGroup, own: OwnEpoch, end: int, is_forced: bool, unfit: str) -> None:
    """Check that only an operator's decision can give the group a master, and that no other member has more.

    Args:
        own, end: the record of this member, and the end of its log.
        unfit: why it could not start as the master; "" if it could. etcd would have it in sync alone, without a master.
    Raises:
        RemoteError
    """
    if group.leader is not None:
        raise refused(f"member {group.leader.member} is the master; stop it first")
    if unfit:
        raise refused(
            f"this member is not to lead: {unfit}. Remove the cause and try again, or let another member begin with "
            "--member N. Nothing has changed"
        )
    if is_forced:
        return
    if group.state is not None:
        raise refused(
            f"in sync: {_listed(list(group.state.in_sync))}. One of these members leads as soon as it is back with its "
            "store. This member may lack acknowledged messages; --force gives them up"
        )
    for each in group.others:
        if each.end == UNKNOWN and each.epoch >= own.epoch:
            why = each.problem or "it has not said so yet; try again in a second"
            raise refused(f"where the log of member {each.member} ends is not known: {why}")
        if (each.epoch, each.end) > (own.epoch, end):
            raise refused(
                f"member {each.member} has more: its log is of epoch {each.epoch} and ends at {each.end}, and ours of "
                f"epoch {own.epoch} at {end}. Let that member begin; --force gives up what this one lacks"
            )


def refused(reason: str) -> RemoteError:
    """Return the answer to an operator whose order cannot be carried out."""
    return RemoteError(ResponseCode.SYSTEM_ERROR, reason)


def _listed(members: list[int]) -> str:
    return ", ".join(map(str, sorted(members)))
