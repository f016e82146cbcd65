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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sparrowmq import compiled
from sparrowmq.version import VERSION as __version__

if TYPE_CHECKING:
    from sparrowmq import errors as errors
    from sparrowmq import sync as sync
    from sparrowmq.client.admin.admin import Admin as Admin
    from sparrowmq.client.admin.groups import Group as Group
    from sparrowmq.client.admin.groups import GroupLag as GroupLag
    from sparrowmq.client.admin.groups import Member as Member
    from sparrowmq.client.admin.groups import QueueLag as QueueLag
    from sparrowmq.client.admin.servers import BrokerPlace as BrokerPlace
    from sparrowmq.client.admin.standings import Standing as Standing
    from sparrowmq.client.admin.topics import QueueRange as QueueRange
    from sparrowmq.client.admin.topics import Topic as Topic
    from sparrowmq.client.admin.topics import TopicShare as TopicShare
    from sparrowmq.client.client import Client as Client
    from sparrowmq.client.client import connect as connect
    from sparrowmq.client.cluster.connection_hooks import Server as Server
    from sparrowmq.client.cluster.credentials import Credentials as Credentials
    from sparrowmq.client.consuming.consumer import Consumer as Consumer
    from sparrowmq.client.consuming.pull_consumer import PullConsumer as PullConsumer
    from sparrowmq.client.consuming.received import ReceivedMessage as ReceivedMessage
    from sparrowmq.client.consuming.retry import Reject as Reject
    from sparrowmq.client.consuming.retry import Retry as Retry
    from sparrowmq.client.hooks import Hooks as Hooks
    from sparrowmq.client.popping.simple_consumer import SimpleConsumer as SimpleConsumer
    from sparrowmq.client.sending.outcome import SendResult as SendResult
    from sparrowmq.client.sending.outcome import SendStatus as SendStatus
    from sparrowmq.client.sending.producer import Producer as Producer
    from sparrowmq.client.sending.producer_settings import ProducerSettings as ProducerSettings
    from sparrowmq.client.sending.transaction import Transaction as Transaction
    from sparrowmq.errors import AccessDenied as AccessDenied
    from sparrowmq.errors import AlreadyThere as AlreadyThere
    from sparrowmq.errors import BadStore as BadStore
    from sparrowmq.errors import BeingHandled as BeingHandled
    from sparrowmq.errors import BrokerUnreachable as BrokerUnreachable
    from sparrowmq.errors import ChangeFailed as ChangeFailed
    from sparrowmq.errors import ClientClosed as ClientClosed
    from sparrowmq.errors import ConfigError as ConfigError
    from sparrowmq.errors import ConnectionClosed as ConnectionClosed
    from sparrowmq.errors import CorruptRecord as CorruptRecord
    from sparrowmq.errors import DiskFull as DiskFull
    from sparrowmq.errors import EtcdFailed as EtcdFailed
    from sparrowmq.errors import InvalidBody as InvalidBody
    from sparrowmq.errors import InvalidFilter as InvalidFilter
    from sparrowmq.errors import InvalidMessage as InvalidMessage
    from sparrowmq.errors import InvalidName as InvalidName
    from sparrowmq.errors import InvalidSchema as InvalidSchema
    from sparrowmq.errors import LocalProtocolError as LocalProtocolError
    from sparrowmq.errors import LogsDiffer as LogsDiffer
    from sparrowmq.errors import MessageTooLarge as MessageTooLarge
    from sparrowmq.errors import NameServerUnreachable as NameServerUnreachable
    from sparrowmq.errors import NetworkError as NetworkError
    from sparrowmq.errors import NoBroker as NoBroker
    from sparrowmq.errors import NoGroup as NoGroup
    from sparrowmq.errors import NoMessage as NoMessage
    from sparrowmq.errors import NoRoute as NoRoute
    from sparrowmq.errors import NoSlaveNear as NoSlaveNear
    from sparrowmq.errors import NotBack as NotBack
    from sparrowmq.errors import NotElected as NotElected
    from sparrowmq.errors import NotEmpty as NotEmpty
    from sparrowmq.errors import NotSafeInTime as NotSafeInTime
    from sparrowmq.errors import OutOfResources as OutOfResources
    from sparrowmq.errors import ProtocolError as ProtocolError
    from sparrowmq.errors import RemoteError as RemoteError
    from sparrowmq.errors import RemoteProtocolError as RemoteProtocolError
    from sparrowmq.errors import RequestTimeout as RequestTimeout
    from sparrowmq.errors import SendFailed as SendFailed
    from sparrowmq.errors import SendManyFailed as SendManyFailed
    from sparrowmq.errors import SparrowError as SparrowError
    from sparrowmq.errors import StillUnread as StillUnread
    from sparrowmq.errors import StoreError as StoreError
    from sparrowmq.errors import StoreFailed as StoreFailed
    from sparrowmq.errors import StoreLocked as StoreLocked
    from sparrowmq.errors import TlsFailed as TlsFailed
    from sparrowmq.errors import TransactionEnded as TransactionEnded
    from sparrowmq.errors import WrongServer as WrongServer
    from sparrowmq.protocol import allocation as allocation
    from sparrowmq.protocol.messages.message import Message as Message
    from sparrowmq.protocol.messages.message import MessageQueue as MessageQueue
    from sparrowmq.protocol.messages.trace import EndTransactionTrace as EndTransactionTrace
    from sparrowmq.protocol.messages.trace import PubTrace as PubTrace
    from sparrowmq.protocol.messages.trace import SubAfterTrace as SubAfterTrace
    from sparrowmq.protocol.messages.trace import SubBeforeTrace as SubBeforeTrace

compiled.choose()

_HOMES = {
    "AccessDenied": "errors",
    "Admin": "client.admin.admin",
    "AlreadyThere": "errors",
    "BadStore": "errors",
    "BeingHandled": "errors",
    "BrokerPlace": "client.admin.servers",
    "BrokerUnreachable": "errors",
    "ChangeFailed": "errors",
    "Client": "client.client",
    "ClientClosed": "errors",
    "ConfigError": "errors",
    "ConnectionClosed": "errors",
    "Consumer": "client.consuming.consumer",
    "CorruptRecord": "errors",
    "Credentials": "client.cluster.credentials",
    "DiskFull": "errors",
    "EndTransactionTrace": "protocol.messages.trace",
    "EtcdFailed": "errors",
    "Group": "client.admin.groups",
    "GroupLag": "client.admin.groups",
    "Hooks": "client.hooks",
    "InvalidBody": "errors",
    "InvalidFilter": "errors",
    "InvalidMessage": "errors",
    "InvalidName": "errors",
    "InvalidSchema": "errors",
    "LocalProtocolError": "errors",
    "LogsDiffer": "errors",
    "Member": "client.admin.groups",
    "Message": "protocol.messages.message",
    "MessageQueue": "protocol.messages.message",
    "MessageTooLarge": "errors",
    "NameServerUnreachable": "errors",
    "NetworkError": "errors",
    "NoBroker": "errors",
    "NoGroup": "errors",
    "NoMessage": "errors",
    "NoRoute": "errors",
    "NoSlaveNear": "errors",
    "NotBack": "errors",
    "NotElected": "errors",
    "NotEmpty": "errors",
    "NotSafeInTime": "errors",
    "OutOfResources": "errors",
    "Producer": "client.sending.producer",
    "ProducerSettings": "client.sending.producer_settings",
    "ProtocolError": "errors",
    "PubTrace": "protocol.messages.trace",
    "PullConsumer": "client.consuming.pull_consumer",
    "QueueLag": "client.admin.groups",
    "QueueRange": "client.admin.topics",
    "ReceivedMessage": "client.consuming.received",
    "Reject": "client.consuming.retry",
    "RemoteError": "errors",
    "RemoteProtocolError": "errors",
    "RequestTimeout": "errors",
    "Retry": "client.consuming.retry",
    "SendFailed": "errors",
    "SendManyFailed": "errors",
    "SendResult": "client.sending.outcome",
    "SendStatus": "client.sending.outcome",
    "Server": "client.cluster.connection_hooks",
    "SimpleConsumer": "client.popping.simple_consumer",
    "SparrowError": "errors",
    "Standing": "client.admin.standings",
    "StillUnread": "errors",
    "StoreError": "errors",
    "StoreFailed": "errors",
    "TlsFailed": "errors",
    "StoreLocked": "errors",
    "SubAfterTrace": "protocol.messages.trace",
    "SubBeforeTrace": "protocol.messages.trace",
    "Topic": "client.admin.topics",
    "TopicShare": "client.admin.topics",
    "Transaction": "client.sending.transaction",
    "TransactionEnded": "errors",
    "WrongServer": "errors",
    "connect": "client.client",
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
    raise AttributeError(f"module 'sparrowmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
