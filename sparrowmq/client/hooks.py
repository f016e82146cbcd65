"""What a program wants to see of every message, before and after it is sent or consumed.

    class Counting(Hooks):
        def after_send(self, message, outcome):
            failed.inc() if isinstance(outcome, BaseException) else sent.inc()

    async with sparrowmq.connect("127.0.0.1:9876", hooks=[Counting()]) as mq: ...

Hooks are plain functions that run where the message passes, so they must be quick and must not block. Those `before_`
are called in the order in which hooks were given, those `after_` in the opposite one. What `before_send` raises is the
sender's, and nothing is sent; what the others raise is logged.
Source: SendMessageHook and ConsumeMessageHook, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.client.consuming.received import ConsumeHooks
from sparrowmq.client.sending.send_hooks import SendHooks


class Hooks(SendHooks, ConsumeHooks):
    """Does nothing; override what you want. One instance may serve several clients."""
