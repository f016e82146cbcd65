"""Listeners of blocking clients run in threads of their own, where they may block."""

import threading
from collections.abc import Awaitable
from typing import cast

import pytest

from sparrowmq.client.consuming.handler_thread import listening_in_thread, with_listening_threads
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue


async def test_a_plain_listener_runs_in_a_thread():
    queue, called = MessageQueue("orders", "broker-a", 0), list[tuple[list[MessageQueue], int]]()
    listening = listening_in_thread("changed", lambda queues: called.append((queues, threading.get_ident())))
    await cast(Awaitable[object], listening([queue]))
    [(queues, thread)] = called
    assert queues == [queue] and thread != threading.get_ident()


async def test_an_async_listener_stays_in_the_loop():
    async def changed(queues): ...

    assert listening_in_thread("changed", changed) is changed


async def test_only_the_listeners_among_the_options_are_replaced():
    def listen(queues): ...

    made = with_listening_threads({"batch": 3, "on_assigned": listen, "on_revoked": None})
    assert made["batch"] == 3 and made["on_revoked"] is None and made["on_assigned"] is not listen


def test_what_cannot_listen_is_refused():
    with pytest.raises(ConfigError, match="on_assigned"):
        with_listening_threads({"on_assigned": 7})
