"""Messages whose handling hooks see. A client without hooks has the plain ones, and pays nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sparrowmq.client.consuming.consume_hooks import ConsumeHooks
from sparrowmq.client.consuming.received import Handling, Owner, ReceivedMessage, Settle
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage

log = logging.getLogger(__name__)


class WatchedHandling(Handling):
    """Tells hooks when a block begins, and how it ended."""

    __slots__ = ("_hooks",)

    def __init__(
        self, messages: Sequence[ReceivedMessage], *, swallow: bool = False, hooks: Sequence[ConsumeHooks]
    ) -> None:
        super().__init__(messages, swallow=swallow)
        self._hooks = hooks

    def __enter__(self) -> None:
        for hook in self._hooks:
            try:
                hook.before_consume(self._messages)
            except Exception:
                log.exception("%r failed before %s was consumed", hook, self._messages)

    async def __aenter__(self) -> None:
        self.__enter__()

    def _end(self, kind: type[BaseException] | None, error: BaseException | None, is_stray: bool) -> bool:
        is_swallowed = super()._end(kind, error, is_stray)
        for hook in reversed(self._hooks):
            try:
                hook.after_consume(self._messages, error)
            except Exception:
                log.exception("%r failed after %s was consumed", hook, self._messages)
        return is_swallowed


class WatchedMessage(ReceivedMessage):
    """A message whose `process()` hooks see."""

    __slots__ = ("_hooks",)

    def __init__(
        self,
        stored: StoredMessage,
        queue: MessageQueue,
        settle: Settle | None = None,
        owner: Owner | None = None,
        namespace: str = "",
        *,
        hooks: Sequence[ConsumeHooks],
    ) -> None:
        super().__init__(stored, queue, settle, owner, namespace)
        self._hooks = hooks

    def process(self, *, swallow: bool = False) -> Handling:
        return WatchedHandling((self,), swallow=swallow, hooks=self._hooks)
