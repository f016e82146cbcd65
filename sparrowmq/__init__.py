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

from sparrowmq.version import VERSION as __version__

if TYPE_CHECKING:
    from sparrowmq import errors as errors
    from sparrowmq import sync as sync
    from sparrowmq.admin.admin import Admin as Admin
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

_NAMES_BY_MODULE = {
    "admin.admin": "Admin",
    "client.client": "Client connect",
    "client.cluster.connection_hooks": "Server",
    "client.cluster.credentials": "Credentials",
    "client.consuming.consumer": "Consumer",
    "client.consuming.consumer_settings": "FlowLimits",
    "client.consuming.pull_consumer": "PullConsumer",
    "client.consuming.received_message": "ReceivedMessage",
    "client.consuming.retry": "Reject Retry",
    "client.hooks": "Hooks",
    "client.popping.simple_consumer": "SimpleConsumer",
    "client.sending.producer": "Producer",
    "client.sending.producer_settings": "ProducerSettings",
    "client.sending.send_result": "SendResult SendStatus",
    "client.sending.transaction": "Transaction",
    "errors": (
        "AccessDenied BeingHandled BrokerUnreachable ClientClosed ConfigError ConnectionClosed InvalidBody "
        "InvalidFilter InvalidMessage InvalidName InvalidSchema MessageTooLarge NameServerUnreachable "
        "NetworkError NoRoute RemoteError RequestTimeout SendFailed SendManyFailed SparrowError "
        "TransactionEnded WrongServer"
    ),
    "protocol.messages.message": "Message MessageQueue",
}
# Names that were here once. Version 0.2 drops them.
_FORMER_NAMES_BY_MODULE = {
    "admin.brokers": "Standing",
    "admin.groups": "Group GroupLag Member QueueLag",
    "admin.servers": "BrokerPlace",
    "admin.topics": "QueueRange Topic TopicShare",
    "errors": (
        "AlreadyThere BadStore ChangeFailed CorruptRecord DiskFull EtcdFailed LocalProtocolError LogsDiffer "
        "NoBroker NoGroup NoMessage NoSlaveNear NotBack NotElected NotEmpty NotSafeInTime OutOfResources "
        "ProtocolError RemoteProtocolError StillUnread StoreError StoreFailed StoreLocked TlsFailed"
    ),
    "protocol.messages.trace": "EndTransactionTrace PubTrace SubAfterTrace SubBeforeTrace",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}
_MODULE_BY_FORMER_NAME = {name: module for module, names in _FORMER_NAMES_BY_MODULE.items() for name in names.split()}
_MODULES = {"allocation": "protocol.allocation", "errors": "errors", "sync": "sync"}

__all__ = [*_MODULE_BY_NAME, *_MODULES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sparrowmq.{_MODULES[name]}")
    if name in _MODULE_BY_NAME:
        value = getattr(import_module(f"sparrowmq.{_MODULE_BY_NAME[name]}"), name)
        globals()[name] = value
        return value
    if name in _MODULE_BY_FORMER_NAME:
        module = f"sparrowmq.{_MODULE_BY_FORMER_NAME[name]}"
        text = f"import {name} from {module}: sparrowmq.{name} goes with version 0.2"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), name)
    raise AttributeError(f"module 'sparrowmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
