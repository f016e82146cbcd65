"""Threads for the listeners of a consumer that may block: they hear which queues it has."""

from __future__ import annotations

from typing import Any

from sparrowmq.client.arguments import is_coroutine_function
from sparrowmq.client.consuming.consumer_settings import QueuesChanged, check_changed
from sparrowmq.client.consuming.handler_thread import HandlerThread
from sparrowmq.protocol.messages.message import MessageQueue


def with_listening_threads(options: Any) -> Any:
    """Options of a consumer whose listeners may call the blocking client."""
    listeners = {name: options[name] for name in ("on_assigned", "on_revoked") if options.get(name) is not None}
    return {**options, **{name: listening_in_thread(name, changed) for name, changed in listeners.items()}}


def listening_in_thread(name: str, changed: QueuesChanged) -> QueuesChanged:
    """A listener that calls a plain one in a thread, where it may call the blocking client. Raises: ConfigError."""
    check_changed(name, changed)
    if is_coroutine_function(changed):
        return changed

    async def tell(queues: list[MessageQueue]) -> None:
        thread = HandlerThread(changed, "queues changed")
        try:
            await thread(queues)
        finally:
            thread.end()

    return tell
