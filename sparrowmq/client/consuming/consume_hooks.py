"""What a program wants to see of the messages that it consumes; `client/hooks.py` tells the theory."""

from __future__ import annotations

from collections.abc import Sequence

from sparrowmq.client.consuming.received import ReceivedMessage


class ConsumeHooks:
    """Does nothing; override what you want."""

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """A handler, or a `process()` block, is about to see the messages."""

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        """They were handled; or handling them raised `error`, and they come again."""
