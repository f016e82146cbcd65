"""Fewer queues for a topic, without hiding messages that its groups have not consumed.

    write queues 8 -> 2    at once: no new message goes to the other queues
    read queues  8 -> 2    only once the groups have consumed what is in them; consumers would not see it any more

A broker deletes what is hidden with the files of its log, and no lag counts it. Apache's tools do not look.
"""

from __future__ import annotations

from sparrowmq.client.admin.operations.group_operations import group_progress
from sparrowmq.client.admin.operations.topic_operations import groups_of_topic, topic_offsets
from sparrowmq.client.admin.servers import Masters, Servers
from sparrowmq.errors import SparrowError


async def unread(
    servers: Servers, topic: str, masters: Masters, read_queues: int
) -> tuple[dict[str, int], dict[str, SparrowError]]:
    """Count, by group, the messages that it has not consumed in the queues from number `read_queues` on.

    Returns: the counts; the key "" has the messages of queues that no group has consumed. And the errors of brokers
        that could not be asked.
    """
    tables, failures = await servers.ask_masters(masters, lambda _, at: _at(servers, topic, at, read_queues))
    found: dict[str, int] = {}
    for counts in tables.values():
        for group, count in counts.items():
            found[group] = found.get(group, 0) + count
    return {group: count for group, count in sorted(found.items()) if count}, failures


async def _at(servers: Servers, topic: str, address: str, read_queues: int) -> dict[str, int]:
    ranges = await topic_offsets(servers, address, topic)
    left = {queue: each for queue, each in ranges.items() if queue.queue_id >= read_queues}
    counts: dict[str, int] = {}
    consumed = set()
    for group in await groups_of_topic(servers, address, topic) if left else ():
        progress = (await group_progress(servers, address, group, topic)).offset_table
        for queue in left.keys() & progress.keys():
            counts[group] = counts.get(group, 0) + progress[queue].left(left[queue].min_offset)
            consumed.add(queue)
    counts[""] = sum(left[queue].max_offset - left[queue].min_offset for queue in left.keys() - consumed)
    return counts
