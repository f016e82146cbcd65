"""A cluster for programs without an event loop: blocking calls to name servers and brokers.

    with BlockingNetwork(["127.0.0.1:9876"]) as network:
        route = network.route("orders")
        replies = network.ask({queue: (queue, GetMaxOffset(queue.topic, queue.queue_id)) for queue in route.readable})

It has one connection for each address, with pipelined requests, and sends no heartbeats. When no name server answers,
the last known routes and addresses are used. After a failure only the connections that ended are opened again, and only
the addresses of their brokers are asked for. Requests on other connections go on.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ssl import SSLContext, SSLError
from typing import Any, Final, Self, TypeVar, cast

from sparrowmq.client.cluster.name_servers import NameServerList
from sparrowmq.client.cluster.routes import MASTER, Addresses, Route, address_of, addresses_in
from sparrowmq.errors import (
    BrokerUnreachable,
    ConfigError,
    ConnectionClosed,
    NameServerUnreachable,
    NetworkError,
    NoRoute,
    RemoteError,
    RequestTimeout,
    WrongServer,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import DEFAULT_TOPIC, REPLY_SUFFIX
from sparrowmq.protocol.requests.bodies import ClusterTable, TopicList, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import (
    GetAllTopicListFromNameserver,
    GetBrokerCluster,
    GetRoute,
    if_broker,
)
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.connection import Connection, Sign
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.connection_errors import why_closed, why_tls_failed, why_unconnected
from sparrowmq.remoting.request_in_flight import remote_error

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Header)
T = TypeVar("T")
CALL_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 3.0
_CHUNK_BYTES: Final = 1 << 16  # the rest of a large answer is received where it stays
_LARGE_BYTES: Final = 1 << 16


# Known routes need no long wait. While a name server is away, at most this part of the time is spent on asking it.
_MAX_ASKING_SHARE: Final = 0.1
_KNOWN_TIMEOUT_S: Final = 1.0


# No answers are read while requests are written, so the requests must fit into the socket's buffers.
_BODIES_AT_ONCE: Final = 256
_HEADERS_AT_ONCE: Final = 512  # and as many before


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries of a `BlockingNetwork`, and its pauses between them.

    While a server is away (it has no address, cannot be reached or does not answer), attempts go on for at least
    `outage_s`. After an answer that says "not now" there are `retries` attempts.
    """

    retries: int = 10
    pause_s: float = 1.0
    outage_s: float = 0.0


class BrokersAway(NetworkError):
    """No name server knows the brokers of a topic now. The brokers or the name server may have just started."""


_OUTAGE_ERRORS: Final = (
    BrokersAway,
    BrokerUnreachable,
    NameServerUnreachable,
    ConnectionClosed,
    RequestTimeout,
    NoRoute,
)


class BlockingLink:
    """A blocking connection to one address, on which any number of requests may be in flight. Use it in one thread.

    It is one socket around the sans-IO `Connection`: requests are sent at once, and replies are kept until `wait` takes
    them. A program that reads millions of messages requests the next ones before the last ones have arrived.
    """

    def __init__(
        self,
        address: str,
        sign: Sign | None = None,
        tls: SSLContext | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """Connect. Raises: BrokerUnreachable."""
        self.address = address
        self.has_ended = False  # by either side, so that no request can be sent
        self._connection: Connection[None] = Connection(sign=sign)
        self._replies: dict[int, Command] = {}
        try:
            host, port = split_address(address)
            self._socket = _connect(host, port, tls, connect_timeout_s)
        except (OSError, ConfigError) as error:
            raise BrokerUnreachable(address, why_tls_failed(error) if tls else why_unconnected(error)) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: Request[Any], body: bytes = b"") -> int:
        """Send a request; the number is for `wait`. Raises: ConnectionClosed."""
        opaque, head = self._connection.request(request, body, None)
        if len(body) > _LARGE_BYTES:  # to copy it would cost more than another write
            self._send(head)
            self._send(body)
        else:
            self._send(head + body if body else head)
        return opaque

    def send_all(self, requests: Iterable[Request[Any]]) -> list[int]:
        """Send requests without bodies by one write. Raises: ConnectionClosed."""
        frames = [self._connection.request(request, b"", None) for request in requests]
        self._send(b"".join(head for _, head in frames))
        return [opaque for opaque, _ in frames]

    def wait(self, opaque: int, timeout_s: float = CALL_TIMEOUT_S) -> Command:
        """Wait for the reply to a request, also after the end of the connection if the reply came before.
        Raises: RequestTimeout, it did not come in time, and the link cannot be used any more; ConnectionClosed;
        RemoteProtocolError, the peer does not speak the protocol.
        """
        deadline = time.monotonic() + timeout_s
        while opaque not in self._replies:
            self._receive(deadline, timeout_s)
        return self._replies.pop(opaque)

    def wait_for_all(self, opaques: Iterable[int], timeout_s: float = CALL_TIMEOUT_S) -> Iterator[Command]:
        replies = self._replies
        for opaque in opaques:
            reply = replies.pop(opaque, None)
            yield self.wait(opaque, timeout_s) if reply is None else reply

    def call(self, request: Request[R], body: bytes = b"", timeout_s: float = CALL_TIMEOUT_S) -> tuple[R, bytes]:
        """Send a request, and return the header and body of its reply. Raises: RemoteError, unless it succeeded."""
        reply = self.wait(self.send(request, body), timeout_s)
        return reply_header(request, reply), reply.body

    def close(self) -> None:
        """Close the connection, and drop requests under way and replies that came."""
        self._replies.clear()
        self._hang_up()

    @property
    def is_idle(self) -> bool:
        """Return whether every request has its reply, and every reply was taken."""
        return not self._connection.in_flight and not self._replies

    def _send(self, frames: bytes) -> None:
        try:
            self._socket.settimeout(CALL_TIMEOUT_S)
            self._socket.sendall(frames)
        except OSError as error:
            raise self._end(error) from None

    def _receive(self, deadline: float, timeout_s: float) -> None:
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            commands = self._receive_commands()
        except TimeoutError:
            self._hang_up()
            raise RequestTimeout(self.address, "a request", timeout_s) from None
        except OSError as error:
            raise self._end(error) from None
        if commands is None:
            raise self._end(None)
        for command in commands:
            # Requests of the broker to its clients (rebalance, transaction checks) do not concern this connection.
            if command.is_reply:
                self._connection.forget(command.opaque)
                self._replies[command.opaque] = command

    def _receive_commands(self) -> list[Command] | None:
        """The commands that the next bytes complete; None if the peer has ended the connection."""
        room = self._connection.room()
        if room is None:
            chunk = self._socket.recv(_CHUNK_BYTES)
            return self._connection.receive(chunk) if chunk else None
        with room:
            size_bytes = self._socket.recv_into(room)
        return self._connection.received(size_bytes) if size_bytes else None

    def _end(self, reason: object) -> ConnectionClosed:
        self._hang_up()
        return ConnectionClosed(self.address, why_closed(reason) if isinstance(reason, SSLError) else reason)

    def _hang_up(self) -> None:
        self.has_ended = True
        self._connection.abandon()
        self._socket.close()


def _connect(host: str, port: int, tls: SSLContext | None, timeout_s: float) -> socket.socket:
    plain = socket.create_connection((host, port), timeout_s)
    if tls is None:
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def reply_header(request: Request[R], reply: Command) -> R:
    """The reply's header. Raises: RemoteError, if its code is not success."""
    if reply.code != ResponseCode.SUCCESS:
        raise remote_error(reply.code, reply.remark)
    return cast(R, reply.header(type(request).Reply))


class Outages:
    """Logs one line when a server is away, and one when it is back, however often it was tried."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._since_s: dict[str, float] = {}

    def begin(self, server: str, reason: object, meanwhile: str = "it is waited for") -> None:
        if server not in self._since_s:
            self._since_s[server] = self._monotonic()
            log.warning("%s is away; %s: %s", server, meanwhile, reason)

    def end(self, server: str) -> None:
        if self._since_s and (since_s := self._since_s.pop(server, None)) is not None:
            log.warning("%s is back after %.0f s", server, self._monotonic() - since_s)

    def end_all(self) -> None:
        for server in list(self._since_s):
            self.end(server)


class BlockingNetwork:
    """The brokers of some name servers, each as host:port. It connects when it needs to. Use it in one thread."""

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        sign: Sign | None = None,
        tls: SSLContext | None = None,
        retry_policy: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name_servers = NameServerList(name_servers)
        self._sign = sign
        self._tls = tls
        self._retry_policy = retry_policy or RetryPolicy()
        self._sleep = sleep
        self._monotonic = monotonic
        self._broker_outages = Outages(monotonic)  # of `recover`
        self._name_server_outages = Outages(monotonic)  # of name servers that are not needed for the moment
        self._failing_since_s = 0.0
        self._links: dict[str, BlockingLink] = {}
        self._routes: dict[str, Route] = {}  # as last answered, for outages of name servers
        self._topics: list[str] | None = None
        self.registered: frozenset[str] = frozenset()  # the brokers at the last answer to `topics`, by name
        self._broker_topics: set[str] = set()  # of brokers, also of absent ones
        self._brokers: dict[str, Addresses] = {}
        self._doubtful_brokers: set[str] = set()  # brokers that may have moved
        self._name_servers_due_s = 0.0  # name servers are asked again for known routes after this time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.forget()

    def route(self, topic: str) -> Route:
        """A topic's route, or the last known one if no name server answers. Raises: NoRoute, NetworkError."""

        def ask(timeout_s: float) -> Route:
            route = self._ask_for_route(topic, timeout_s)
            if route is None:
                raise NoRoute(topic, str(self._name_servers))
            return route

        return self._ask_or_cached(ask, self._routes.get(topic))

    def route_for_sending(self, topic: str) -> Route:
        """As `route`; for a topic that does not exist the template's, if brokers create topics by themselves.
        Raises: BrokersAway, the topic had a route before, or no broker is known at all: it may come back; NoRoute, the
        topic does not exist, and brokers do not create it.
        """
        try:
            return self._own_or_template(topic)
        except NoRoute:
            if topic in self._routes or not self.has_brokers():
                raise BrokersAway(f"no name server knows a broker of topic {topic} now") from None
            return self._own_or_template(topic)  # The brokers may have come after the request for the topic.

    def topics(self) -> list[str]:
        """The names of all topics without brokers' own ones, also if no name server answers. Raises: NetworkError."""

        def ask(timeout_s: float) -> list[str]:
            _, body = self.call_name_server(GetAllTopicListFromNameserver(), timeout_s)
            table = self._cluster_table(timeout_s)
            clusters = table.cluster_addr_table
            self.registered = frozenset(table.broker_addr_table)
            self._broker_topics.update(table.broker_addr_table, clusters, (name + REPLY_SUFFIX for name in clusters))
            self._topics = sorted(set(TopicList.decode(body).topic_list) - self._broker_topics)
            return self._topics

        return self._ask_or_cached(ask, self._topics)

    def has_brokers(self) -> bool:
        """Return whether a name server knows any broker. Raises: NetworkError."""
        return bool(self._all_brokers())

    def call_name_server(self, request: Request[R], timeout_s: float = CALL_TIMEOUT_S) -> tuple[R, bytes]:
        """The header and body of the first name server's answer. Raises: NameServerUnreachable, RemoteError."""
        failure: NetworkError | None = None
        wrong_server: WrongServer | None = None
        for address in self._name_servers.in_turn():
            try:
                link = self._link(address, min(timeout_s, CONNECT_TIMEOUT_S))
                return link.call(request, timeout_s=timeout_s)
            except NetworkError as error:
                failure = error
                if closed_link := self._links.pop(address, None):
                    closed_link.close()
            except RemoteError as remote:
                error_or_wrong_server = if_broker(remote, request, address)
                if not isinstance(error_or_wrong_server, WrongServer):
                    raise
                wrong_server = error_or_wrong_server
        if wrong_server is not None and failure is None:
            raise wrong_server
        assert failure is not None, "there is at least one name server"
        reason = failure.reason if isinstance(failure, BrokerUnreachable) else failure
        raise NameServerUnreachable(str(self._name_servers), reason)

    def link(self, queue: MessageQueue, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> BlockingLink:
        """The connection to the master of a queue's broker, or to a slave. Raises: NoRoute, NetworkError."""
        self._locate(queue.broker_name, lambda: self.route(queue.topic))
        return self._link(self._address(queue.broker_name, f" for topic {queue.topic}"), connect_timeout_s)

    def link_to(self, broker_name: str) -> BlockingLink:
        """As `link`, for a broker of which no topic is known. Raises: NetworkError."""
        self._locate(broker_name, lambda: self._brokers.update(self._all_brokers()))
        return self._link(self._address(broker_name))

    def link_to_master(self, queue: MessageQueue) -> BlockingLink:
        """The link to the master of a queue. Raises: as `link`; BrokerUnreachable, it has none now."""
        link = self.link(queue)
        if not self.has_master(queue.broker_name):
            raise BrokerUnreachable(queue.broker_name, "it has no master now")
        return link

    def addresses_of(self, broker_names: Collection[str]) -> dict[str, Addresses]:
        """The known addresses of these brokers, for `learn` of another network."""
        return {name: self._brokers[name] for name in sorted(broker_names) if name in self._brokers}

    def learn(self, brokers: Mapping[str, Addresses]) -> None:
        """Add addresses that another network has asked for."""
        self._brokers |= brokers

    def has_master(self, broker_name: str) -> bool:
        """Return whether requests to a broker go to its master. A slave may lag, and end before offsets read."""
        return MASTER in self._brokers.get(broker_name, {})

    def ask(self, requests: Mapping[T, tuple[MessageQueue, Request[R]]]) -> dict[T, R | RemoteError]:
        """Ask the brokers of many queues at once. Return answers and refusals. Raises: NetworkError."""
        replies: dict[T, R | RemoteError] = {}
        for key, reply in self._ask_each(requests, CALL_TIMEOUT_S, CONNECT_TIMEOUT_S).items():
            if isinstance(reply, NetworkError | NoRoute):
                raise reply
            replies[key] = reply
        return replies

    def ask_for_bodies(self, requests: Mapping[T, tuple[MessageQueue, Request[R]]]) -> dict[T, bytes | RemoteError]:
        """As `ask`, but returns the bodies of the answers."""
        bodies: dict[T, bytes | RemoteError] = {}
        pending = list(requests.items())
        for begin in range(0, len(pending), _BODIES_AT_ONCE):
            in_flight = [
                (key, request, link := self.link(queue), link.send(request))
                for key, (queue, request) in pending[begin : begin + _BODIES_AT_ONCE]
            ]
            for key, request, link, opaque in in_flight:
                reply = link.wait(opaque, CALL_TIMEOUT_S)
                try:
                    reply_header(request, reply)
                    bodies[key] = reply.body
                except RemoteError as error:
                    bodies[key] = error
        return bodies

    def ask_reachable(
        self, requests: Mapping[T, tuple[MessageQueue, Request[R]]], timeout_s: float
    ) -> dict[T, R | RemoteError | NetworkError | NoRoute]:
        """As `ask`, but if a broker is away, only its own queues have its error instead of an answer. A connection that
        has ended is opened again once. The call takes at most about twice `timeout_s`.
        """
        replies = self._ask_each(requests, timeout_s, timeout_s)
        retried = {key: requests[key] for key, reply in replies.items() if isinstance(reply, ConnectionClosed)}
        return (replies | self._ask_each(retried, timeout_s, timeout_s)) if retried else replies

    def _ask_each(
        self, requests: Mapping[T, tuple[MessageQueue, Request[R]]], timeout_s: float, connect_timeout_s: float
    ) -> dict[T, R | RemoteError | NetworkError | NoRoute]:
        keys: dict[str, list[T]] = {}
        for key, (queue, _) in requests.items():
            keys.setdefault(queue.broker_name, []).append(key)
        failures: dict[str, NetworkError | NoRoute] = {}
        replies: dict[T, R | RemoteError | NetworkError | NoRoute] = {}
        in_flight: list[tuple[str, BlockingLink, list[T], list[int]]] = []
        max_count = max(map(len, keys.values()), default=0)
        for begin in range(0, max_count + _HEADERS_AT_ONCE, _HEADERS_AT_ONCE):  # in the last round nothing is sent
            in_flight_before, in_flight = in_flight, []
            for broker, keys_of_broker in keys.items():
                keys_of_round = keys_of_broker[begin : begin + _HEADERS_AT_ONCE]
                if keys_of_round and broker not in failures:
                    try:
                        link = self.link(requests[keys_of_round[0]][0], connect_timeout_s)
                        opaques = link.send_all(requests[key][1] for key in keys_of_round)
                        in_flight.append((broker, link, keys_of_round, opaques))
                    except (NetworkError, NoRoute) as error:
                        failures[broker] = error
            for broker, link, keys_of_round, opaques in in_flight_before:
                try:
                    for key, reply in zip(keys_of_round, link.wait_for_all(opaques, timeout_s), strict=True):
                        try:
                            replies[key] = reply_header(requests[key][1], reply)
                        except RemoteError as error:
                            replies[key] = error
                except NetworkError as network_error:
                    failures[broker] = network_error
        for broker, failure in failures.items():
            replies |= {key: failure for key in keys[broker] if key not in replies}
        self._doubtful_brokers |= failures.keys()
        self._drop_ended()
        return replies

    def retrying(self, work: Callable[[], T]) -> T:
        """Do `work`, and repeat it while the network fails. A topic without a route is an answer, not a failure."""
        failures = 0
        while True:
            try:
                result = work()
            except NetworkError as error:
                failures += 1
                self.recover(error, failures)
            else:
                if failures:
                    self.recovered()
                return result

    def recover(self, error: Exception, failures: int) -> None:
        """Prepare another attempt after an error, or raise the error after the last one. The first attempt follows at
        once: most failures are kept connections that the broker closed meanwhile.
        """
        self._drop_ended()
        self._doubtful_brokers |= self._brokers.keys()
        if failures == 1:
            self._failing_since_s = self._monotonic()
        is_away = isinstance(error, _OUTAGE_ERRORS)
        is_patient = is_away and self._monotonic() - self._failing_since_s < self._retry_policy.outage_s
        if failures > self._retry_policy.retries and not is_patient:
            raise error
        if failures > 1:
            if is_away and self._retry_policy.outage_s:
                self._broker_outages.begin(str(getattr(error, "address", self._name_servers)), error)
            self._sleep(self._retry_policy.pause_s)

    def recovered(self) -> None:
        """Note that an attempt has succeeded."""
        self._broker_outages.end_all()

    def forget(self) -> None:
        """Close all connections and drop all routes."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._brokers.clear()
        self._routes.clear()
        self._topics = None

    def release(self) -> None:
        """Close the connections with answers under way that are not needed."""
        for address in [address for address, link in self._links.items() if not link.is_idle]:
            self._links.pop(address).close()

    def _drop_ended(self) -> None:
        for address in [address for address, link in self._links.items() if link.has_ended]:
            del self._links[address]

    def _link(self, address: str, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> BlockingLink:
        link = self._links.get(address)
        if link is None or link.has_ended:
            link = self._links[address] = BlockingLink(address, self._sign, self._tls, connect_timeout_s)
        return link

    def _address(self, broker_name: str, purpose: str = "") -> str:
        address = address_of(self._brokers.get(broker_name, {}))
        if address is None:
            raise BrokerUnreachable(broker_name, f"no name server knows this broker{purpose}")
        return address

    def _locate(self, name: str, ask_for_address: Callable[[], object]) -> None:
        """Ask for the address of a broker, if it is in doubt. Raises: as `ask`, if it was never known."""
        if name in self._brokers and name not in self._doubtful_brokers:
            return
        try:
            ask_for_address()
        except (NetworkError, NoRoute):
            if name not in self._brokers:
                raise
        self._doubtful_brokers.discard(name)

    def _ask_or_cached(self, ask: Callable[[float], T], cached: T | None) -> T:
        """The answer of a name server, or the last known one if none answers."""
        began_s = self._monotonic()
        if cached is not None and began_s < self._name_servers_due_s:
            return cached
        try:
            answer = ask(CALL_TIMEOUT_S if cached is None else _KNOWN_TIMEOUT_S)
        except NetworkError as error:
            if cached is None:
                raise
            spent_s = self._monotonic() - began_s
            self._name_servers_due_s = began_s + max(self._retry_policy.pause_s, spent_s / _MAX_ASKING_SHARE)
            self._name_server_outages.begin(f"name server {self._name_servers}", error, "known routes are used")
            return cached
        self._name_servers_due_s = 0.0
        self._name_server_outages.end(f"name server {self._name_servers}")
        return answer

    def _own_or_template(self, topic: str) -> Route:
        try:
            return self.route(topic)
        except NoRoute:
            template = self._ask_for_route(DEFAULT_TOPIC)
            if template is None:
                raise
            return template.for_new_topic(topic)

    def _all_brokers(self) -> dict[str, Addresses]:
        return addresses_in(self._cluster_table().broker_addr_table.values())

    def _cluster_table(self, timeout_s: float = CALL_TIMEOUT_S) -> ClusterTable:
        return ClusterTable.decode(self.call_name_server(GetBrokerCluster(), timeout_s)[1])

    def _ask_for_route(self, topic: str, timeout_s: float = CALL_TIMEOUT_S) -> Route | None:
        request = GetRoute(topic=topic, accept_standard_json_only=True)
        try:
            _, body = self.call_name_server(request, timeout_s)
        except RemoteError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        route = Route.build(topic, TopicRoute.decode(body)).with_order_of(self._routes.get(topic))
        self._routes[topic] = route
        self._brokers |= route.brokers
        self._doubtful_brokers -= route.brokers.keys()
        return route
