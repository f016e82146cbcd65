"""SparrowMQ: a message queue in Python, compatible with Apache RocketMQ.

    import asyncio, sparrowmq

    async def main():
        async with sparrowmq.connect("127.0.0.1:9876") as mq:
            result = await mq.send("orders", b"hello", tag="paid", keys=["o-1"])
            print(result.msg_id, result.queue, result.offset)

    asyncio.run(main())

`sparrowmq.sync` has the same without `async`. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparrowmq import compiled

if TYPE_CHECKING:
    from sparrowmq import errors as errors
    from sparrowmq import sync as sync
    from sparrowmq.client.client import Client as Client
    from sparrowmq.client.client import connect as connect
    from sparrowmq.client.consuming.consumer import Consumer as Consumer
    from sparrowmq.client.consuming.pull_consumer import PullConsumer as PullConsumer
    from sparrowmq.client.consuming.received import ReceivedMessage as ReceivedMessage
    from sparrowmq.client.sending.outcome import SendResult as SendResult
    from sparrowmq.client.sending.outcome import SendStatus as SendStatus
    from sparrowmq.client.sending.producer import Producer as Producer
    from sparrowmq.client.sending.settings import ProducerSettings as ProducerSettings
    from sparrowmq.errors import NoRoute as NoRoute
    from sparrowmq.errors import SendFailed as SendFailed
    from sparrowmq.errors import SparrowError as SparrowError
    from sparrowmq.protocol.messages.message import Message as Message
    from sparrowmq.protocol.messages.message import MessageQueue as MessageQueue

compiled.choose()

_HOMES = {
    "Client": "client.client",
    "Consumer": "client.consuming.consumer",
    "Message": "protocol.messages.message",
    "MessageQueue": "protocol.messages.message",
    "NoRoute": "errors",
    "Producer": "client.sending.producer",
    "ProducerSettings": "client.sending.settings",
    "PullConsumer": "client.consuming.pull_consumer",
    "ReceivedMessage": "client.consuming.received",
    "SendFailed": "errors",
    "SendResult": "client.sending.outcome",
    "SendStatus": "client.sending.outcome",
    "SparrowError": "errors",
    "connect": "client.client",
}
_MODULES = ("errors", "sync")

__all__ = [*_HOMES, *_MODULES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sparrowmq.{name}")
    if name in _HOMES:
        found = getattr(import_module(f"sparrowmq.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'sparrowmq' has no attribute {name!r}")
