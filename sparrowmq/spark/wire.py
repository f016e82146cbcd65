"""A small blocking client for Spark's worker processes: one connection per broker, requests pipelined.

Spark runs Python sources in synchronous code, one task after the other in a process that lives on. So there is no event
loop here: `Link` is one socket around the sans-IO `Connection`, on which any number of requests may be under way, and
`Cluster` knows which link a queue needs. Clusters are kept for the life of the process, by name server and credentials:
the next task finds its connections open.
"""

from __future__ import annotations

import ipaddress
import random
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, TypeVar, cast

import msgspec

from sparrowmq.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    NetworkError,
    NoRoute,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.requests.headers import GetMaxOffset, GetMinOffset, OffsetReply
from sparrowmq.protocol.requests.namesrv_headers import GetAllTopicListFromNameserver, GetRoute
from sparrowmq.protocol.signature import signed_fields
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Connection, Sign
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.spark.options import Reach
from sparrowmq.spark.ranges import Bounds

R = TypeVar("R", bound=Header)
T = TypeVar("T")

CALL_TIMEOUT_S: Final = 10.0
_CONNECT_TIMEOUT_S: Final = 3.0
_CHUNK_BYTES: Final = 1 << 20
_MASTER: Final = 0


class Link:
    """A connection to one address. Requests go out at once; replies are kept until somebody waits for them."""

    def __init__(self, address: str, sign: Sign | None = None) -> None:
        """Connects. Raises: BrokerUnreachable."""
        self.address = address
        self._connection: Connection[None] = Connection(sign=sign)
        self._replies: dict[int, Command] = {}
        host, _, port = address.rpartition(":")
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT_S)
        except (OSError, ValueError) as error:
            raise BrokerUnreachable(address, error) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Request[Any], body: bytes = b"") -> int:
        """Send a request; the number is for `wait`. Raises: ConnectionClosed."""
        opaque, head = self._connection.request(request, body, None)
        try:
            self._socket.settimeout(CALL_TIMEOUT_S)
            self._socket.sendall(head + body if body else head)
        except OSError as error:
            raise self._ended(error) from None
        return opaque

    def wait(self, opaque: int, timeout_s: float = CALL_TIMEOUT_S) -> Command:
        """The reply to a request that was sent.

        Raises:
            RequestTimeout: it did not come in time. The link cannot be used any more.
            ConnectionClosed: the connection ended.
            RemoteProtocolError: the peer does not speak the protocol.
        """
        deadline = time.monotonic() + timeout_s
        while opaque not in self._replies:
            self._receive(deadline, timeout_s)
        return self._replies.pop(opaque)

    def call(
        self, request: Request[R], body: bytes = b"", timeout_s: float = CALL_TIMEOUT_S
    ) -> tuple[R, bytes]:
        """Send a request and wait for its reply: header and body. Raises: RemoteError, unless it says success."""
        reply = self.wait(self.send(request, body), timeout_s)
        return answer(request, reply), reply.body

    def close(self) -> None:
        """Give the connection up, with everything that is still under way on it."""
        self._connection.abandon()
        self._replies.clear()
        self._socket.close()

    @property
    def local_ip(self) -> bytes:
        """The address of this side."""
        return ipaddress.ip_address(self._socket.getsockname()[0]).packed

    @property
    def is_idle(self) -> bool:
        """Whether every request has its reply, and every reply was taken."""
        return not self._connection.in_flight and not self._replies

    def _receive(self, deadline: float, timeout_s: float) -> None:
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = self._socket.recv(_CHUNK_BYTES)
        except TimeoutError:
            self.close()
            raise RequestTimeout(self.address, "a request", timeout_s) from None
        except OSError as error:
            raise self._ended(error) from None
        if not chunk:
            raise self._ended(None)
        for command in self._connection.receive(chunk):
            # What a broker asks of its clients (rebalance, transaction checks) does not concern a reader of ranges.
            if command.is_reply:
                self._connection.forget(command.opaque)
                self._replies[command.opaque] = command

    def _ended(self, reason: object) -> ConnectionClosed:
        self.close()
        return ConnectionClosed(self.address, reason)


def answer(request: Request[R], reply: Command) -> R:
    """The reply's header. Raises: RemoteError, if its code is not success."""
    if reply.code != ResponseCode.SUCCESS:
        raise RemoteError(reply.code, reply.remark)
    return cast(R, reply.header(type(request).Reply))


@dataclass(frozen=True, slots=True)
class Route:
    """Where a topic's queues are: readable and writable ones, and each broker's addresses by its id."""

    readable: tuple[MessageQueue, ...]
    writable: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]


class Cluster:
    """The brokers behind some name servers. Not for several threads at once."""

    def __init__(self, reach: Reach, sleep: Callable[[float], None] = time.sleep) -> None:
        self._reach = reach
        self._sleep = sleep
        self._sign = _signer(reach)
        self._links: dict[str, Link] = {}
        self._addresses: dict[str, Mapping[int, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.forget()

    def route(self, topic: str) -> Route:
        """A topic's route as it is now. Raises: NoRoute, NetworkError."""
        try:
            _, body = self._ask_name_server(GetRoute(topic=topic, accept_standard_json_only=True))
        except RemoteError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise NoRoute(topic, ";".join(self._reach.name_servers)) from None
            raise
        route = _route(topic, body)
        self._addresses |= route.addresses
        return route

    def topics(self) -> list[str]:
        """The names of all topics. Raises: NetworkError."""
        _, body = self._ask_name_server(GetAllTopicListFromNameserver())
        return sorted(msgspec.json.decode(body)["topicList"])

    def local_ip(self) -> bytes:
        """The address that this side has towards the name servers. Raises: NetworkError, after all retries."""
        return self.retrying(lambda: self._link(random.choice(self._reach.name_servers)).local_ip)

    def link(self, queue: MessageQueue) -> Link:
        """The connection to the broker of a queue: to its master, or else a slave. Raises: NoRoute, NetworkError."""
        if queue.broker_name not in self._addresses:
            self.route(queue.topic)
        addresses = self._addresses.get(queue.broker_name)
        if not addresses:
            raise BrokerUnreachable(
                queue.broker_name, f"no name server knows this broker for topic {queue.topic}"
            )
        return self._link(addresses[min(addresses)])

    def ask(self, requests: Mapping[T, tuple[MessageQueue, Request[R]]]) -> dict[T, R | RemoteError]:
        """Ask the brokers of many queues at once; refusals are given back beside the answers. Raises: NetworkError."""
        sent = []
        for key, (queue, request) in requests.items():
            link = self.link(queue)
            sent.append((key, request, link, link.send(request)))
        return {key: _answer_or_refusal(request, link.wait(opaque)) for key, request, link, opaque in sent}

    def bounds(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, Bounds]:
        """What each queue holds. Raises: NetworkError, RemoteError."""
        kinds: tuple[type[GetMinOffset] | type[GetMaxOffset], ...] = (GetMinOffset, GetMaxOffset)
        found = self.ask(
            {
                (queue, kind): (queue, kind(topic=queue.topic, queue_id=queue.queue_id))
                for queue in queues
                for kind in kinds
            }
        )
        return {queue: Bounds(*(offset_of(found[queue, kind]) for kind in kinds)) for queue in queues}

    def retrying(self, work: Callable[[], T], *, also_without_route: bool = False) -> T:
        """Do `work`, and again with new connections while the network fails, as often as the options say.

        A topic without a route is an answer, not a failure; unless it must be there, and its brokers are on their way
        back.
        """
        passing = (NetworkError, NoRoute) if also_without_route else NetworkError
        failures = 0
        while True:
            try:
                return work()
            except passing as error:
                failures += 1
                self.recover(error, failures)

    def recover(self, error: Exception, failures: int) -> None:
        """Make ready for another attempt after an error, or raise it when there were enough.

        The first attempt follows at once: most failures are kept connections that the broker closed meanwhile.
        """
        self.forget()
        if failures > self._reach.retries:
            raise error
        if failures > 1:
            self._sleep(self._reach.retry_interval_ms / 1000)

    def forget(self) -> None:
        """Close all connections and drop all routes: something is not where it was."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._addresses.clear()

    def release(self) -> None:
        """Close the connections on which answers are still to come that nobody waits for any more."""
        for address in [address for address, link in self._links.items() if not link.is_idle]:
            self._links.pop(address).close()

    def _link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address, self._sign)
        return link

    def _ask_name_server(self, request: Request[R]) -> tuple[R, bytes]:
        servers = random.sample(self._reach.name_servers, len(self._reach.name_servers))
        for address in servers:
            try:
                return self._link(address).call(request)
            except NetworkError:
                if link := self._links.pop(address, None):
                    link.close()
                if address == servers[-1]:
                    raise
        raise AssertionError("there is at least one name server")


def cluster(reach: Reach) -> Cluster:
    """The process's own client for these name servers and credentials."""
    key = (reach.name_servers, reach.access_key, reach.secret_key, reach.retries, reach.retry_interval_ms)
    found = _clusters.get(key)
    if found is None:
        found = _clusters[key] = Cluster(reach)
    return found


_clusters: dict[tuple[object, ...], Cluster] = {}


def offset_of(reply: OffsetReply | RemoteError) -> int:
    """The offset in an answer of `Cluster.ask`. Raises: the refusal, if it is one."""
    if isinstance(reply, RemoteError):
        raise reply
    return reply.offset


def _answer_or_refusal(request: Request[R], reply: Command) -> R | RemoteError:
    try:
        return answer(request, reply)
    except RemoteError as error:
        return error


def _route(topic: str, body: bytes) -> Route:
    try:
        parsed = msgspec.json.decode(body)
        addresses = {
            broker["brokerName"]: {int(number): address for number, address in broker["brokerAddrs"].items()}
            for broker in parsed["brokerDatas"]
        }
        rows = sorted(parsed["queueDatas"], key=lambda row: str(row["brokerName"]))
        return Route(
            _queues(topic, (row for row in rows if row["perm"] & Perm.READ), "readQueueNums"),
            _queues(topic, (row for row in rows if _takes_messages(row, addresses)), "writeQueueNums"),
            addresses,
        )
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"the route of topic {topic!r} cannot be read: {error}") from None


def _takes_messages(row: Mapping[str, Any], addresses: Mapping[str, Mapping[int, str]]) -> bool:
    return bool(row["perm"] & Perm.WRITE) and _MASTER in addresses.get(row["brokerName"], {})


def _queues(topic: str, rows: Iterable[Mapping[str, Any]], count: str) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, row["brokerName"], number) for row in rows for number in range(row[count])
    )


def _signer(reach: Reach) -> Sign | None:
    if not reach.access_key:
        return None
    keys = {
        "access_key": reach.access_key,
        "secret_key": reach.secret_key or "",
        "security_token": reach.security_token,
    }
    return partial(_sign, keys)


def _sign(keys: Mapping[str, Any], request: Request[Any], body: bytes) -> dict[str, str]:
    return signed_fields(request.ext_fields(), body, **keys)
