"""Brokers that answer by a script, and messages of clients, for the tests of the gRPC port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparrowmq.errors import NoRoute, RemoteError
from sparrowmq.grpc.brokers import LocalBroker, OnCheck
from sparrowmq.grpc.caller import CLIENT_ID, caller_of
from sparrowmq.grpc.wire_types import message_class
from sparrowmq.http2.calls import Call
from sparrowmq.http2.calls import Caller as Peer
from sparrowmq.protocol.requests.bodies import BrokerRoute, GroupConfig, QueueRoute, TopicConfig, TopicRoute
from sparrowmq.protocol.requests.headers import SendMessageReply
from sparrowmq.protocol.wire.header import NoFields
from sparrowmq.remoting.request_in_flight import Response

OFFSET_ID = "7F00000100002E870000000000000539"  # 127.0.0.1:11911 at 1337


def call(client_id="c1", time_left_s=None, **metadata):
    """A call of a client."""
    known = {CLIENT_ID: client_id} if client_id else {}
    return Call("M", known | metadata, Peer("127.0.0.1", 5000), deadline=time_left_s, now=lambda: 0.0)


def caller(brokers=None, client_id="c1", **options):
    return caller_of(call(client_id, **options), brokers or ScriptedBrokers())


def named(name):
    return message_class("Resource")(name=name)


def outgoing(topic="orders", body=b"hello", message_id="01AB", **system):
    """A message that a client sends."""
    made = message_class("Message")(topic=named(topic), body=body)
    made.system_properties.message_id = message_id
    for name, value in system.items():
        if isinstance(value, list):
            getattr(made.system_properties, name).extend(value)
        else:
            setattr(made.system_properties, name, value)
    return made


def route(*brokers, queues=4, perm=6):
    """The route of a topic."""
    rows = enumerate(brokers, 1)
    return TopicRoute(
        broker_datas=[BrokerRoute("c", name, {0: f"127.0.0.1:{number}"}) for number, name in rows],
        queue_datas=[QueueRoute(name, queues, queues, perm) for name in brokers],
    )


async def ignored(*commands):
    """Sends commands on the stream of a client that does nothing with them."""


class ScriptedBrokers:
    """The brokers of one topic `orders`, and the cluster that they are.

    Attributes:
        asked: each request with its broker and its body.
        announced: the groups of each client, and the clients that have left.
        answers: by the kind of the request, what makes the header of the answer, or the answer.
        lets_go: no broker answers before it is set, if there is one.
    """

    account = ""
    is_known = False
    local_broker: LocalBroker | None = None

    def __init__(self, topic_type=None, **group):
        self.on_check: OnCheck = lambda *_: None
        self.commands = None
        self.asked = []
        self.announced = []
        self.answers: dict[type, Callable] = {}
        self.lets_go: asyncio.Event | None = None
        self.known = route("broker-a", "broker-b")
        self.config = TopicConfig("orders", attributes={"message.type": topic_type} if topic_type else None)
        self.group_config = GroupConfig("g", **group)

    async def check_topic_access(self, topic):
        """Do nothing: there are no accounts."""

    async def check_consumer_access(self, group, topics):
        """Do nothing: there are no accounts."""

    async def route(self, topic):
        if topic != "orders":
            raise NoRoute(topic, "ns")
        return self.known

    async def topic(self, name):
        await self.route(name)
        return self.config

    async def group(self, name):
        return self.group_config if name == "g" else None

    async def ask(self, broker_name, request, body=b"", *, timeout_s=3.0, accepted_codes=()):
        self.asked.append((broker_name, request, body))
        if self.lets_go is not None:
            await self.lets_go.wait()
        make = self.answers.get(type(request))
        answer = make(request) if make else _usual(request, len(self.asked))
        if not isinstance(answer, Response):
            answer = Response(0, answer, None, b"", 0)
        if answer.code and answer.code not in accepted_codes:
            raise RemoteError(answer.code, answer.remark)
        return answer

    def brokers_for(self, call, client_id):
        return self

    def client_left(self, client_id):
        self.announced.append(client_id)

    def announce(self, producers, consumer):
        self.announced.append((producers, consumer))


def _usual(request, number):
    if request.Reply is SendMessageReply:
        return SendMessageReply(msg_id=OFFSET_ID, queue_id=request.queue_id, queue_offset=number)
    return NoFields()


def failing(code, remark="no"):
    return lambda request: Response(code, NoFields(), remark, b"", 0)
