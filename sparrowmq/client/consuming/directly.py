"""Handles one message for an operator, who wants to see the outcome.

The message is of no queue that the consumer owns, so nothing is settled, committed or given back. The answer says what
the handler did. Source: ConsumeMessageConcurrentlyService.consumeMessageDirectly and its orderly
twin, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from sparrowmq.client.arguments import name_of
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.delivered import Outcome
from sparrowmq.client.consuming.handler_thread import in_thread
from sparrowmq.client.consuming.received import ConsumeHooks, Handling, ReceivedMessage
from sparrowmq.client.consuming.retry import text_of
from sparrowmq.client.consuming.workers import finished
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome

log = logging.getLogger(__name__)

# The outcomes, in Java's words.
SUCCESS: Final = "CR_SUCCESS"
LATER: Final = "CR_LATER"
RAISED: Final = "CR_THROW_EXCEPTION"


async def handle_directly(
    handler: Callable[[Any], object],
    message: ReceivedMessage,
    settings: ConsumerSettings,
    clock: Clock,
) -> ConsumeOutcome:
    """Call a consumer's handler for a message, as its workers would, and return the outcome."""
    outcomes: list[Outcome] = []
    message._deliver_to(lambda _, outcome: outcomes.append(outcome))
    rules = replace(settings.rules, handler=name_of(handler), not_retried="an operator had it handled")
    log.info("group %s handles %r, as an operator wants", settings.group, message)
    started = clock.monotonic()
    failure = _Failure()
    call, thread = in_thread(handler, f"handle {settings.group} directly")
    try:
        async with Handling((message,), swallow=True, hooks=[failure], rules=rules):
            work = _call(call, message if settings.batch is None else [message])
            await (clock.wait_for(work, settings.handler_timeout_s) if settings.handler_timeout_s else work)
    finally:
        if thread is not None:
            thread.end()
    result, remark = SUCCESS, None
    if failure.error is not None:
        result, remark = RAISED, f"{type(failure.error).__name__}, {text_of(failure.error)}"
    elif Outcome.RETRY in outcomes or Outcome.REJECTED in outcomes:
        result, remark = LATER, message._wish.reason or None
    spent_ms = round((clock.monotonic() - started) * 1000)
    return ConsumeOutcome(result, remark, order=settings.ordered, spent_time_mills=spent_ms)


async def _call(handler: Callable[[Any], object], delivered: object) -> None:
    await finished(handler(delivered))


class _Failure(ConsumeHooks):
    """Remembers the exception of the handler."""

    error: BaseException | None = None

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        self.error = error
