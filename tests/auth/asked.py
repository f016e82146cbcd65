"""Requests as a broker receives them, signed or not, and who asks."""

from collections.abc import Callable
from typing import Any

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat, LockQueues, ProducerBeat
from sparrowmq.protocol.requests.headers import PullMessage, SendMessageV2
from sparrowmq.protocol.requests.request_table import BY_CODE, Row
from sparrowmq.protocol.signature import signer
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Connection
from sparrowmq.protocol.wire.header import Request
from tests.peers import Asker

SAMPLE = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group is kept as its retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB
  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # an administrator may do everything
    admin: true
"""
USER = ("RocketMQ", "12345678")
ADMIN = ("rocketmq2", "12345678")

Call = tuple[Asker, Command, Row, Request[Any]]


def received(
    request: Request[Any],
    body: bytes = b"",
    credentials: tuple[str, str] | None = None,
    address: str = "127.0.0.1:5000",
    changed: Callable[[bytes], bytes] = lambda frame: frame,
) -> Call:
    """What a guard is called with; `changed` is what somebody on the way makes of the frame."""
    sign = signer(*credentials) if credentials else None
    sender: Connection[None] = Connection(sign=sign)
    frame = sender.request(request, body, None)[1] + body
    (command,) = Connection[None]().receive(changed(frame))
    row = BY_CODE[command.code]
    assert row.header is not None
    return Asker(address=address), command, row, command.header(row.header)


def send(topic: str, group: str = "producers") -> SendMessageV2:
    return SendMessageV2(group, topic, "TBW102", 4, 0, 0, 1_795_144_375_341, 0, "")


def pull(topic: str, group: str) -> PullMessage:
    return PullMessage(group, topic, 0, 0, 32, 4, 0, 0, 0, "*")


def beat(*consumers: tuple[str, str], producers: tuple[str, ...] = ()) -> bytes:
    """Consumers are pairs of group and topic."""
    consuming = [ConsumerBeat(group, subscription_data_set=[Subscription(topic)]) for group, topic in consumers]
    return Heartbeat("me", [ProducerBeat(name) for name in producers], consuming).encode()


def locks(group: str, *topics: str) -> bytes:
    return LockQueues(group, "me", [MessageQueue(topic, "b", 0) for topic in topics]).encode()
