"""The methods of the service `apache.rocketmq.v2.MessagingService`: from the bytes of a call to those of its answer.

    call ── caller ── access ── method ── answer with its status
                                 └ requests to brokers (brokers.py)

A unary method that fails answers with the status of its error, in an answer of its own type. The Telemetry stream of a
client whose settings are refused ends with a status of gRPC. The server in http2/ runs the methods.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from sparrowmq.errors import SparrowError
from sparrowmq.loop.background import Background
from sparrowmq.loop.clock import Clock
from sparrowmq.proxy.acknowledging import Acknowledging
from sparrowmq.proxy.brokers import Brokers
from sparrowmq.proxy.caller import Call, Caller, caller_of, topic_of
from sparrowmq.proxy.grpc_clients import Clients, Send
from sparrowmq.proxy.queues import accepted_types, endpoints_of, queue_messages
from sparrowmq.proxy.receiving import Receiving
from sparrowmq.proxy.renewals import Renewals
from sparrowmq.proxy.sending import Sending
from sparrowmq.proxy.statuses import status, status_of
from sparrowmq.proxy.telemetry import Telemetry
from sparrowmq.proxy.wire_types import SERVICE, message, read

Unary = Callable[[Call, bytes], Awaitable[bytes]]
Stream = Callable[[Call, AsyncIterator[bytes], Send], Awaitable[None]]
Method = Callable[[Caller, Any], Awaitable[Any]]

EXPIRE_S: Final = 10.0


class Methods:
    """The methods of one port.

    Args:
        address: `host:port`, by which clients reach the port.
        tasks: runs what goes on beside the calls.
    """

    def __init__(self, brokers: Brokers, clock: Clock, address: str, tasks: Background) -> None:
        self._brokers = brokers
        self._clock = clock
        self._endpoints = endpoints_of(address)
        self.clients = Clients(clock, brokers.announce)
        self.renewals = Renewals(clock)
        turns = itertools.count(random.randrange(1 << 16))
        self._sending = Sending(brokers, self.clients, clock, lambda: next(turns))
        self._acks = Acknowledging(brokers, self.renewals, clock)
        self._receiving = Receiving(brokers, self.clients, self.renewals, self._acks, clock)
        self._telemetry = Telemetry(brokers, self.clients, tasks.spawn)
        tasks.spawn(self.renewals.run(self._acks.renewed), "renewals")
        tasks.spawn(self._expire(), "silent gRPC clients")

    def unary(self) -> Mapping[str, Unary]:
        """The methods with one answer, by their path."""
        methods: dict[str, Method] = {
            "QueryRoute": self._route,
            "Heartbeat": self._heartbeat,
            "SendMessage": self._sending.send,
            "QueryAssignment": self._assignment,
            "AckMessage": self._acks.ack,
            "ForwardMessageToDeadLetterQueue": self._acks.forward,
            "EndTransaction": self._sending.end_transaction,
            "NotifyClientTermination": self._terminate,
            "ChangeInvisibleDuration": self._acks.change_invisible,
            "RecallMessage": self._sending.recall,
        }
        return {f"/{SERVICE}/{name}": _answering(name, method) for name, method in methods.items()}

    def streams(self) -> Mapping[str, Stream]:
        """The methods with a stream of answers, by their path."""
        return {f"/{SERVICE}/ReceiveMessage": self._receive, f"/{SERVICE}/Telemetry": self._stream}

    async def _route(self, caller: Caller, request: Any) -> Any:
        topic = topic_of(request.topic)
        route = await self._brokers.route(topic)
        types = accepted_types(await self._brokers.topic(topic))
        queues = queue_messages(request.topic, route, types, self._reached_by(request.endpoints))
        return message("QueryRouteResponse")(status=status(), message_queues=queues)

    async def _assignment(self, caller: Caller, request: Any) -> Any:
        return await self._receiving.assignment(caller, request, self._reached_by(request.endpoints))

    async def _heartbeat(self, caller: Caller, request: Any) -> Any:
        self.clients.known(caller.client_id)
        return message("HeartbeatResponse")(status=status())

    async def _terminate(self, caller: Caller, request: Any) -> Any:
        self.clients.known(caller.client_id)
        self.clients.leave(caller.client_id)
        return message("NotifyClientTerminationResponse")(status=status())

    async def _receive(self, call: Call, requests: AsyncIterator[bytes], send: Send) -> None:
        kind = message("ReceiveMessageRequest")
        async for raw in requests:
            try:
                await self._receiving.receive(caller_of(call), read(kind, raw), send)
            except SparrowError as error:
                code, text = status_of(error)
                await send(message("ReceiveMessageResponse")(status=status(code, text)).SerializeToString())

    async def _stream(self, call: Call, requests: AsyncIterator[bytes], send: Send) -> None:
        kind = message("TelemetryCommand")
        await self._telemetry.stream(caller_of(call), (read(kind, raw) async for raw in requests), send)

    def _reached_by(self, endpoints: Any) -> Any:
        return endpoints if endpoints.addresses else self._endpoints

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(EXPIRE_S)
            self.clients.expire()


def _answering(name: str, method: Method) -> Unary:
    """The method with bytes on both sides, whose errors are statuses."""
    asked, answered = message(f"{name}Request"), message(f"{name}Response")

    async def run(call: Call, raw: bytes) -> bytes:
        try:
            answer = await method(caller_of(call), read(asked, raw))
        except SparrowError as error:
            code, text = status_of(error)
            answer = answered(status=status(code, text))
        return bytes(answer.SerializeToString())

    return run
