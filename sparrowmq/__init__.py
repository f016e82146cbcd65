"""SparrowMQ: a message queue in Python, compatible with Apache RocketMQ.

    import asyncio, sparrowmq

    async def main():
        async with sparrowmq.connect("127.0.0.1:9876") as mq:
            result = await mq.send("orders", b"hello", tag="paid", keys=["o-1"])
            print(result.msg_id, result.queue, result.offset)

    asyncio.run(main())

`sparrowmq.sync` has the same without `async`. Names are loaded when they are first used.
pytest leaves these modules as they are: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparrowmq import compiled
from sparrowmq.version import VERSION as __version__

if TYPE_CHECKING:
    from sparrowmq import errors as errors
    from sparrowmq import sync as sync
    from sparrowmq.client.admin.admin import Admin as Admin
    from sparrowmq.client.client import Client as Client
    from sparrowmq.client.client import connect as connect
    from sparrowmq.client.cluster.connection_hooks import Server as Server
    from sparrowmq.client.cluster.credentials import Credentials as Credentials
    from sparrowmq.client.consuming.consumer import Consumer as Consumer
    from sparrowmq.client.consuming.consumer_settings import FlowLimits as FlowLimits
    from sparrowmq.client.consuming.pull_consumer import PullConsumer as PullConsumer
    from sparrowmq.client.consuming.received_message import ReceivedMessage as ReceivedMessage
    from sparrowmq.client.consuming.retry import Reject as Reject
    from sparrowmq.client.consuming.retry import Retry as Retry
    from sparrowmq.client.hooks import Hooks as Hooks
    from sparrowmq.client.popping.simple_consumer import SimpleConsumer as SimpleConsumer
    from sparrowmq.client.sending.producer import Producer as Producer
    from sparrowmq.client.sending.producer_settings import ProducerSettings as ProducerSettings
    from sparrowmq.client.sending.send_result import SendResult as SendResult
    from sparrowmq.client.sending.send_result import SendStatus as SendStatus
    from sparrowmq.client.sending.transaction import Transaction as Transaction
    from sparrowmq.errors import AccessDenied as AccessDenied
    from sparrowmq.errors import BeingHandled as BeingHandled
    from sparrowmq.errors import BrokerUnreachable as BrokerUnreachable
    from sparrowmq.errors import ClientClosed as ClientClosed
    from sparrowmq.errors import ConfigError as ConfigError
    from sparrowmq.errors import ConnectionClosed as ConnectionClosed
    from sparrowmq.errors import InvalidBody as InvalidBody
    from sparrowmq.errors import InvalidFilter as InvalidFilter
    from sparrowmq.errors import InvalidMessage as InvalidMessage
    from sparrowmq.errors import InvalidName as InvalidName
    from sparrowmq.errors import InvalidSchema as InvalidSchema
    from sparrowmq.errors import MessageTooLarge as MessageTooLarge
    from sparrowmq.errors import NameServerUnreachable as NameServerUnreachable
    from sparrowmq.errors import NetworkError as NetworkError
    from sparrowmq.errors import NoRoute as NoRoute
    from sparrowmq.errors import RemoteError as RemoteError
    from sparrowmq.errors import RequestTimeout as RequestTimeout
    from sparrowmq.errors import SendFailed as SendFailed
    from sparrowmq.errors import SendManyFailed as SendManyFailed
    from sparrowmq.errors import SparrowError as SparrowError
    from sparrowmq.errors import TransactionEnded as TransactionEnded
    from sparrowmq.errors import WrongServer as WrongServer
    from sparrowmq.protocol import allocation as allocation
    from sparrowmq.protocol.messages.message import Message as Message
    from sparrowmq.protocol.messages.message import MessageQueue as MessageQueue

compiled.choose()

_HOMES = {
    "AccessDenied": "errors",
    "Admin": "client.admin.admin",
    "BeingHandled": "errors",
    "BrokerUnreachable": "errors",
    "Client": "client.client",
    "ClientClosed": "errors",
    "ConfigError": "errors",
    "ConnectionClosed": "errors",
    "Consumer": "client.consuming.consumer",
    "Credentials": "client.cluster.credentials",
    "FlowLimits": "client.consuming.consumer_settings",
    "Hooks": "client.hooks",
    "InvalidBody": "errors",
    "InvalidFilter": "errors",
    "InvalidMessage": "errors",
    "InvalidName": "errors",
    "InvalidSchema": "errors",
    "Message": "protocol.messages.message",
    "MessageQueue": "protocol.messages.message",
    "MessageTooLarge": "errors",
    "NameServerUnreachable": "errors",
    "NetworkError": "errors",
    "NoRoute": "errors",
    "Producer": "client.sending.producer",
    "ProducerSettings": "client.sending.producer_settings",
    "PullConsumer": "client.consuming.pull_consumer",
    "ReceivedMessage": "client.consuming.received_message",
    "Reject": "client.consuming.retry",
    "RemoteError": "errors",
    "RequestTimeout": "errors",
    "Retry": "client.consuming.retry",
    "SendFailed": "errors",
    "SendManyFailed": "errors",
    "SendResult": "client.sending.send_result",
    "SendStatus": "client.sending.send_result",
    "Server": "client.cluster.connection_hooks",
    "SimpleConsumer": "client.popping.simple_consumer",
    "SparrowError": "errors",
    "Transaction": "client.sending.transaction",
    "TransactionEnded": "errors",
    "WrongServer": "errors",
    "connect": "client.client",
}
# Names that were here once. Version 0.2 drops them.
_MOVED = {
    "AlreadyThere": "errors",
    "BadStore": "errors",
    "BrokerPlace": "client.admin.servers",
    "ChangeFailed": "errors",
    "CorruptRecord": "errors",
    "DiskFull": "errors",
    "EndTransactionTrace": "protocol.messages.trace",
    "EtcdFailed": "errors",
    "Group": "client.admin.groups",
    "GroupLag": "client.admin.groups",
    "LocalProtocolError": "errors",
    "LogsDiffer": "errors",
    "Member": "client.admin.groups",
    "NoBroker": "errors",
    "NoGroup": "errors",
    "NoMessage": "errors",
    "NoSlaveNear": "errors",
    "NotBack": "errors",
    "NotElected": "errors",
    "NotEmpty": "errors",
    "NotSafeInTime": "errors",
    "OutOfResources": "errors",
    "ProtocolError": "errors",
    "PubTrace": "protocol.messages.trace",
    "QueueLag": "client.admin.groups",
    "QueueRange": "client.admin.topics",
    "RemoteProtocolError": "errors",
    "Standing": "client.admin.brokers",
    "StillUnread": "errors",
    "StoreError": "errors",
    "StoreFailed": "errors",
    "StoreLocked": "errors",
    "SubAfterTrace": "protocol.messages.trace",
    "SubBeforeTrace": "protocol.messages.trace",
    "TlsFailed": "errors",
    "Topic": "client.admin.topics",
    "TopicShare": "client.admin.topics",
}
_MODULES = {"allocation": "protocol.allocation", "errors": "errors", "sync": "sync"}

__all__ = [*_HOMES, *_MODULES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sparrowmq.{_MODULES[name]}")
    if name in _HOMES:
        found = getattr(import_module(f"sparrowmq.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    if name in _MOVED:
        home = f"sparrowmq.{_MOVED[name]}"
        text = f"import {name} from {home}: sparrowmq.{name} goes with version 0.2"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(import_module(home), name)
    raise AttributeError(f"module 'sparrowmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
