"""Long polling: wait until a queue holds something that a consumer wants.

    pull finds nothing ── hold ── queue end rises ── read again ── match? answer : wait on, from where the read stopped

A held poll is a waiter on the queue's end Watermark, so it wakes when the consume queue has the entry, not
when the log has the record (Java: PullRequestHoldService is told by ReputMessageService, 4.9.8), and costs
nothing while nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparrowmq.loop.clock import Clock
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import Read, Status

T = TypeVar("T")

# A read that scanned entries without a match is answered at the end of the wait with "retry at once from here".
ANSWERED = frozenset({Status.FOUND, Status.MESSAGE_WAS_REMOVING})


async def wait_for_match(
    store: MessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    read: Callable[[int], Read],
    clock: Clock,
    timeout_s: float,
    answer: Callable[[Read], T],
) -> T:
    """Read from `offset` again whenever the queue grows, until something matches or the time is over.

    Returns:
        what `answer` makes of the last read, whose `next_offset` is past everything that was seen not to match.
    """
    deadline = clock.monotonic() + timeout_s
    end = store.queues.obtain(topic, queue_id).end
    result = read(offset)
    while result.status not in ANSWERED:
        remaining_s = deadline - clock.monotonic()
        if remaining_s <= 0:
            break
        try:
            await clock.wait_for(end.reached(max(result.next_offset, end.value) + 1), remaining_s)
        except TimeoutError:
            break
        result = read(max(offset, result.next_offset))
    return answer(result)
