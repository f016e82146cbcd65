"""Long polling: wait until a queue has a message that a consumer wants.

    pull finds nothing ── hold ── queue end rises ── read again ── match? answer : wait on, from where the read stopped

A held pull waits for the Watermark of the queue's end. So it wakes when the consume queue has the entry, not when the
log has the record. While no message arrives, it costs nothing.
Source: PullRequestHoldService, which ReputMessageService calls, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import pause, take_turn
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.queue_reading import Read, Status

T = TypeVar("T")

# If a read scanned entries without a match, the answer at the end of the wait is "retry at once from here".
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
    """Read from `offset` again whenever the queue grows, until a message matches or the time is over.

    Returns:
        The result of `answer` for the last read. Its `next_offset` is after all entries that did not match.
    """
    deadline = clock.monotonic() + timeout_s
    end = store.queues.obtain(topic, queue_id).end
    result = read(offset)
    while result.status not in ANSWERED:
        remaining_s = deadline - clock.monotonic()
        if remaining_s <= 0:
            break
        if result.next_offset < end.value:  # the read stopped after much work
            await pause()
        else:
            try:
                await clock.wait_for(end.reached(max(result.next_offset, end.value) + 1), remaining_s)
            except TimeoutError:
                break
            await take_turn()  # thousands may wake at once
        result = read(max(offset, result.next_offset))
    return answer(result)
