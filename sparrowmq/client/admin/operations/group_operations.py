"""Requests to one broker about consumer groups: settings, members, offsets."""

from __future__ import annotations

import msgspec

from sparrowmq.client.admin.operations.asker import PATIENT, Asker
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import (
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroup,
    GetConsumerConnectionList,
    GetConsumeStats,
    ResetOffset,
    UpdateAndCreateSubscriptionGroup,
)
from sparrowmq.protocol.requests.bodies import GroupConfig, GroupConfigTable
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerConnections, ConsumerRunning, RequestMode
from sparrowmq.protocol.requests.headers import (
    ConsumeMessageDirectly,
    GetConsumerRunning,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.requests.offset_bodies import ConsumeStats, ResetOffsets
from sparrowmq.protocol.requests.pop_headers import SetRequestMode


async def group_table(asker: Asker, address: str) -> dict[str, GroupConfig]:
    answer = await asker.ask(address, GetAllSubscriptionGroup())
    return GroupConfigTable.decode(answer.body).subscription_group_table


async def put_group(asker: Asker, address: str, group: GroupConfig) -> None:
    """Create a group, or replace its settings. Attributes that it does not have stay as they are."""
    signed = {f"+{name}": value for name, value in (group.attributes or {}).items()} or None
    body = msgspec.structs.replace(group, attributes=signed).encode()
    await asker.ask(address, UpdateAndCreateSubscriptionGroup(), body)


async def put_request_mode(asker: Asker, address: str, mode: RequestMode) -> None:
    """Let a group pull or pop a topic, where the broker shares queues. Brokers of 4.9 do not know the request."""
    await asker.ask(address, SetRequestMode(), mode.encode())


async def delete_group(asker: Asker, address: str, group: str, *, with_offsets: bool) -> None:
    # Brokers of 4.9 read `remove_offset`, those of 5.x `clean_offset`.
    request = DeleteSubscriptionGroup(group, remove_offset=with_offsets, clean_offset=with_offsets)
    await asker.ask(address, request)


async def group_progress(asker: Asker, address: str, group: str, topic: str | None = None) -> ConsumeStats:
    """Return the offsets of a group in one topic or in all, and its messages per second."""
    request = GetConsumeStats(consumer_group=group, topic=topic)
    return ConsumeStats.decode((await asker.ask(address, request, patience=PATIENT)).body)


async def group_connections(asker: Asker, address: str, group: str) -> ConsumerConnections:
    """Return the online members; without any a broker answers CONSUMER_NOT_ONLINE (206)."""
    request = GetConsumerConnectionList(consumer_group=group)
    return ConsumerConnections.decode((await asker.ask(address, request)).body)


async def running_member(
    asker: Asker, address: str, group: str, client_id: str, *, jstack: bool = False
) -> ConsumerRunning:
    """Return what a member reports of itself; the broker asks it."""
    request = GetConsumerRunning(consumer_group=group, client_id=client_id, jstack_enable=jstack)
    return ConsumerRunning.decode((await asker.ask(address, request, patience=PATIENT)).body)


async def consume_directly(
    asker: Asker,
    address: str,
    group: str,
    client_id: str,
    offset_id: str,
    broker_name: str | None = None,
) -> ConsumeOutcome:
    """Let one member handle a message now, independent of its offsets; return the outcome."""
    request = ConsumeMessageDirectly(
        consumer_group=group, client_id=client_id, msg_id=offset_id, broker_name=broker_name
    )
    return ConsumeOutcome.decode((await asker.ask(address, request, patience=PATIENT)).body)


async def reset_members(
    asker: Asker, address: str, group: str, topic: str, timestamp: int, *, force: bool = True
) -> dict[MessageQueue, int]:
    """Reset the online members to a time; -1 is the end. Returns the new offsets.

    Args:
        force: also forward; without it only back.
    """
    request = ResetOffset(topic=topic, group=group, timestamp=timestamp, is_force=force)
    return ResetOffsets.decode((await asker.ask(address, request)).body).offset_table


async def commit_offset(asker: Asker, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """Commit an offset in place of a group."""
    request = UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await asker.ask(address, request)
