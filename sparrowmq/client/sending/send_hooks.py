"""What a program wants to see of the messages that it sends; `client/hooks.py` tells the theory."""

from __future__ import annotations

from sparrowmq.client.sending.outcome import SendResult
from sparrowmq.protocol.messages.message import Message


class SendHooks:
    """Does nothing; override what you want."""

    def before_send(self, message: Message) -> None:
        """The message is about to be packed; its `properties` may be changed here."""

    def before_half(self, message: Message) -> None:
        """The message that begins a transaction is about to be packed; what it is told by default is `before_send`."""
        self.before_send(message)

    def after_send(self, message: Message, outcome: SendResult | BaseException | None) -> None:
        """The message was stored, or sending it has failed or was cancelled; None for a one-way message."""
