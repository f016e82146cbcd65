"""Hooks see every message before and after it is sent or consumed.

    class Counting(Hooks):
        def after_send(self, message, outcome):
            failed.inc() if isinstance(outcome, BaseException) else sent.inc()

    async with sparrowmq.connect("127.0.0.1:9876", hooks=[Counting()]) as mq: ...

Hooks are plain functions that run where the message passes, so they must be quick and must not block. The `before_`
functions are called in the order in which the hooks were given, the `after_` functions in the opposite order. If
`before_send` raises, nothing is sent, and the sender gets the error. Errors of the other functions are logged.
Source: SendMessageHook and ConsumeMessageHook, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.client.consuming.received import ConsumeHooks
from sparrowmq.client.sending.send_hooks import SendHooks


class Hooks(SendHooks, ConsumeHooks):
    """Does nothing; override what you want. One instance may serve several clients."""
