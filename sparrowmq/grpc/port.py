"""A gRPC port: the methods of the service `apache.rocketmq.v2.MessagingService` in front of brokers, behind a server.

    call ── caller ── access ── method ── answer with its status
                                 └ requests to brokers (brokers.py)

A unary method that fails answers with the status of its error. The Telemetry stream of a client whose settings are not
accepted ends with a status of gRPC. The server in http2/ runs the methods.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from sparrowmq.core.descriptors import Share
from sparrowmq.errors import SparrowError
from sparrowmq.grpc.ack_methods import AckMethods
from sparrowmq.grpc.brokers import Cluster, accepted_types, endpoints_of, message_queues
from sparrowmq.grpc.call_limits import check_call
from sparrowmq.grpc.caller import Caller, caller_of, topic_of
from sparrowmq.grpc.clients import Clients, Send
from sparrowmq.grpc.local_calls import LocalCalls
from sparrowmq.grpc.receive_methods import ReceiveMethods
from sparrowmq.grpc.renewals import Renewals
from sparrowmq.grpc.send_methods import SendMethods
from sparrowmq.grpc.statuses import Status, status, status_of
from sparrowmq.grpc.telemetry import Commands, Telemetry
from sparrowmq.grpc.wire_types import SERVICE, message_class, read
from sparrowmq.http2 import calls as http2
from sparrowmq.http2.calls import Call, GrpcError, Pending, Streaming
from sparrowmq.http2.calls import Status as GrpcStatus
from sparrowmq.http2.limits import Limits
from sparrowmq.http2.server import GrpcServer
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import run_to_end
from sparrowmq.loop.tasks import Background
from sparrowmq.loop.turn import Turn
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.tls.contexts import ServerTls

DRAIN_S: Final = 1.0
EXPIRE_S: Final = 10.0
Method = Callable[[Caller, Any], Awaitable[Any]]
LocalMethod = Callable[[Caller, bytes], Pending | None]
_GRPC_STATUS_BY_CODE: Final[dict[int, GrpcStatus]] = {
    Status.UNAUTHORIZED: GrpcStatus.UNAUTHENTICATED,
    Status.INTERNAL_SERVER_ERROR: GrpcStatus.INTERNAL,
    Status.HA_NOT_AVAILABLE: GrpcStatus.UNAVAILABLE,
}


class ListenAddress(NamedTuple):
    """The address on which a port listens, and the host by which clients reach it. Port 0 takes a free one. `share` are
    the descriptors for this port. With `is_behind_proxy` each connection begins with a PROXY header, which names the
    client."""

    host: str
    port: int
    advertised_host: str
    share: Share
    is_behind_proxy: bool = False


class OpenPort(NamedTuple):
    """A port that serves clients at `address`. `problem` returns why it closes new connections; "" if it does not."""

    address: str
    problem: Callable[[], str]


async def open_port(
    stack: AsyncExitStack,
    tasks: Background,
    cluster: Cluster,
    clock: Clock,
    tls: ServerTls,
    listen: ListenAddress,
    turn: Turn | None = None,
    quotas: Quotas | None = None,
) -> OpenPort:
    """Serve clients until `stack` is closed. Raises: ConfigError, the port or the certificate cannot be used."""
    methods = Methods(cluster, clock, tasks)
    limits = Limits(connections=min(Limits.connections, listen.share.connections), backlog=listen.share.backlog)
    server = await stack.enter_async_context(
        GrpcServer(
            methods.by_path(),
            limits,
            tls=tls,
            is_behind_proxy=listen.is_behind_proxy,
            clock=clock,
            turn=turn,
            quotas=quotas,
        )
    )
    port = await server.start(listen.host, listen.port)
    stack.push_async_callback(server.drain, DRAIN_S)
    methods.address = f"{listen.advertised_host}:{port}"
    return OpenPort(methods.address, lambda: server.problem)


class Methods:
    """The methods of one port. `address` is known once the port is open."""

    def __init__(self, cluster: Cluster, clock: Clock, tasks: Background, address: str = "") -> None:
        self.address = address
        self._cluster = cluster
        self._clock = clock
        self.clients = Clients(clock, cluster.client_left)
        self.renewals = Renewals(clock)
        turns = itertools.count(random.randrange(1 << 16))
        self._send_methods = SendMethods(self.clients, clock, lambda: next(turns))
        self._local_calls = LocalCalls(self.clients, self.renewals, clock, lambda: next(turns))
        self._ack_methods = AckMethods(self.renewals, clock)
        self._receive_methods = ReceiveMethods(self.clients, self.renewals, self._ack_methods, clock)
        self._telemetry = Telemetry(cluster, self.clients, Commands(self.clients, clock), tasks.spawn)
        tasks.spawn(self.renewals.run(self._ack_methods.renew), "renewals")
        tasks.spawn(self._expire(), "silent gRPC clients")

    def by_path(self) -> Mapping[str, http2.Method]:
        methods: dict[str, Method] = {
            "QueryRoute": self._route,
            "Heartbeat": self._heartbeat,
            "SendMessage": self._send_methods.send,
            "QueryAssignment": self._assignment,
            "AckMessage": self._ack_methods.ack,
            "ForwardMessageToDeadLetterQueue": self._ack_methods.forward_to_dlq,
            "EndTransaction": self._send_methods.end_transaction,
            "NotifyClientTermination": self._terminate,
            "ChangeInvisibleDuration": self._ack_methods.change_invisible,
            "RecallMessage": self._send_methods.recall,
        }
        local: dict[str, LocalMethod] = {"SendMessage": self._local_calls.send, "AckMessage": self._local_calls.ack}
        unary = {name: self._make_unary(name, method, local.get(name)) for name, method in methods.items()}
        # Python's client sends nothing on a stream that it opens again; its settings come minutes later.
        telemetry = Streaming(self._serve_telemetry, may_be_silent=True)
        streams = {"ReceiveMessage": Streaming(self._receive), "Telemetry": telemetry}
        return {f"/{SERVICE}/{name}": method for name, method in (unary | streams).items()}

    async def _route(self, caller: Caller, request: Any) -> Any:
        topic = topic_of(request.topic)
        await caller.brokers.check_topic_access(topic)
        route = await caller.brokers.route(topic)
        types = accepted_types(await caller.brokers.topic(topic))
        queues = message_queues(request.topic, route, types, self._endpoints_or_own(request.endpoints))
        return message_class("QueryRouteResponse")(status=status(), message_queues=queues)

    async def _assignment(self, caller: Caller, request: Any) -> Any:
        return await self._receive_methods.assignment(caller, request, self._endpoints_or_own(request.endpoints))

    async def _heartbeat(self, caller: Caller, request: Any) -> Any:
        self.clients.with_settings(caller.client_id).announce()
        return message_class("HeartbeatResponse")(status=status())

    async def _terminate(self, caller: Caller, request: Any) -> Any:
        self.clients.with_settings(caller.client_id)
        self.clients.remove(caller.client_id)
        return message_class("NotifyClientTerminationResponse")(status=status())

    async def _receive(self, call: Call, requests: AsyncIterator[bytes], send: Send) -> None:
        request_class = message_class("ReceiveMessageRequest")
        async for raw in requests:
            try:
                check_call("ReceiveMessage", raw)
                await self._receive_methods.receive(caller_of(call, self._cluster), read(request_class, raw), send)
            except SparrowError as error:
                code, text = status_of(error)
                await send(message_class("ReceiveMessageResponse")(status=status(code, text)).SerializeToString())

    async def _serve_telemetry(self, call: Call, requests: AsyncIterator[bytes], send: Send) -> None:
        command_class = message_class("TelemetryCommand")

        def command(raw: bytes) -> Any:
            check_call("Telemetry", raw)
            return read(command_class, raw)

        try:
            commands = (command(raw) async for raw in requests)
            await self._telemetry.stream(caller_of(call, self._cluster), commands, send)
        except SparrowError as error:
            code, text = status_of(error)
            raise GrpcError(_GRPC_STATUS_BY_CODE.get(code, GrpcStatus.INVALID_ARGUMENT), text) from None

    def _endpoints_or_own(self, endpoints: Any) -> Any:
        return endpoints if endpoints.addresses else endpoints_of(self.address)

    async def _expire(self) -> None:
        while True:
            await self._clock.sleep(EXPIRE_S)
            await run_to_end(self.clients.expire())

    def _make_unary(self, name: str, method: Method, local_method: LocalMethod | None) -> http2.Unary:
        """The method with bytes on both sides, whose errors are statuses. `local_method` is tried first."""
        request_class, response_class = message_class(f"{name}Request"), message_class(f"{name}Response")

        def error_response(error: SparrowError) -> bytes:
            code, text = status_of(error)
            return bytes(response_class(status=status(code, text)).SerializeToString())

        async def run_method(caller: Caller, request: Any) -> bytes:
            try:
                answer = await method(caller, request)
            except SparrowError as error:
                return error_response(error)
            return bytes(answer.SerializeToString())

        def run(call: Call, raw: bytes) -> bytes | Pending | Awaitable[bytes]:
            try:
                check_call(name, raw)
                caller = caller_of(call, self._cluster)
                pending = local_method(caller, raw) if local_method is not None else None
                return run_method(caller, read(request_class, raw)) if pending is None else pending
            except SparrowError as error:
                return error_response(error)

        return run
