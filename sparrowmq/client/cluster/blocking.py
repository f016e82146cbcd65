"""A cluster for programs without an event loop: blocking calls to name servers and brokers.

    with BlockingNetwork(["127.0.0.1:9876"]) as network:
        route = network.route("orders")
        found = network.ask({queue: (queue, GetMaxOffset(queue.topic, queue.queue_id)) for queue in route.readable})

It has one connection for each address, with pipelined requests, and sends no heartbeats. Routes, new topics and the
choice of a name server are those of `Network`.

When no name server answers, the last known routes and addresses are used. After a failure only the connections that
ended are opened again, and only the addresses of their brokers are asked for. Requests on other connections go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final, Self, TypeVar

from sparrowmq.client.cluster.blocking_link import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S, Link, answer
from sparrowmq.client.cluster.namesrv_addresses import NameServerList
from sparrowmq.client.cluster.outages import Outages
from sparrowmq.client.cluster.route import MASTER, Addresses, Route, address_of, addresses_in
from sparrowmq.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    NameServerUnreachable,
    NetworkError,
    NoRoute,
    RemoteError,
    RequestTimeout,
    WrongServer,
)
from sparrowmq.protocol.codes import ResponseCode
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
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.header import Header, Request

R = TypeVar("R", bound=Header)
T = TypeVar("T")

# Known routes need no long wait. While a name server is away, at most this part of the time is spent on asking it.
_PART_SPENT_ON_ASKING: Final = 0.1
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


_AWAY: Final = (
    BrokersAway,
    BrokerUnreachable,
    NameServerUnreachable,
    ConnectionClosed,
    RequestTimeout,
    NoRoute,
)


class BlockingNetwork:
    """The brokers of some name servers. It connects when it needs a connection. Use it in one thread.

    Args:
        name_servers: each as host:port; one at least.
        sign: adds the fields of a signed request.
        tls: encrypts connections.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        *,
        sign: Sign | None = None,
        tls: SSLContext | None = None,
        patience: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name_servers = NameServerList(name_servers)
        self._sign = sign
        self._tls = tls
        self._patience = patience or RetryPolicy()
        self._sleep = sleep
        self._monotonic = monotonic
        self._waits = Outages(monotonic)  # of `recover`
        self._silences = Outages(monotonic)  # of name servers that are not needed for the moment
        self._failing_since_s = 0.0
        self._links: dict[str, Link] = {}
        self._routes: dict[str, Route] = {}  # as last answered, for outages of name servers
        self._topics: list[str] | None = None
        self.registered: frozenset[str] = frozenset()  # the brokers at the last answer to `topics`, by name
        self._own_topics: set[str] = set()  # of brokers, also of absent ones
        self._brokers: dict[str, Addresses] = {}
        self._doubtful: set[str] = set()  # brokers that may have moved
        self._names_due_s = 0.0  # name servers are asked again for known routes after this time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.forget()

    # Routes ---------------------------------------------------------------------------------------------------------

    def route(self, topic: str) -> Route:
        """A topic's present route, or the last known one if no name server answers.

        Raises: NoRoute, NetworkError, RemoteProtocolError.
        """

        def ask(timeout_s: float) -> Route:
            route = self._ask_for_route(topic, timeout_s)
            if route is None:
                raise NoRoute(topic, str(self._name_servers))
            return route

        return self._remembering(ask, self._routes.get(topic))

    def route_for_sending(self, topic: str) -> Route:
        """As `route`; for a topic that does not exist the template's, if brokers create topics by themselves.

        Raises:
            BrokersAway: the topic had a route before, or no broker is known at all: it may come back.
            NoRoute: the topic does not exist, and brokers do not create it.
        """
        try:
            return self._own_or_template(topic)
        except NoRoute:
            if topic in self._routes or not self.has_brokers():
                raise BrokersAway(f"no name server knows a broker of topic {topic} now") from None
            return self._own_or_template(topic)  # The brokers may have come after the request for the topic.

    def topics(self) -> list[str]:
        """The names of all topics, or the last known ones if no name server answers. Raises: NetworkError.

        The topics that brokers make for themselves, as that of their own name, are left out.
        """

        def ask(timeout_s: float) -> list[str]:
            _, body = self.call_name_server(GetAllTopicListFromNameserver(), timeout_s)
            table = self._cluster_table(timeout_s)
            clusters = table.cluster_addr_table
            self.registered = frozenset(table.broker_addr_table)
            self._own_topics.update(table.broker_addr_table, clusters, (name + REPLY_SUFFIX for name in clusters))
            self._topics = sorted(set(TopicList.decode(body).topic_list) - self._own_topics)
            return self._topics

        return self._remembering(ask, self._topics)

    def has_brokers(self) -> bool:
        """Return whether a name server knows any broker. Raises: NetworkError."""
        return bool(self._all_brokers())

    def call_name_server(self, request: Request[R], timeout_s: float = CALL_TIMEOUT_S) -> tuple[R, bytes]:
        """The header and body of the first name server's answer. Raises: NameServerUnreachable, RemoteError."""
        failure: NetworkError | None = None
        wrong: WrongServer | None = None
        for address in self._name_servers.in_turn():
            try:
                link = self._link(address, min(timeout_s, CONNECT_TIMEOUT_S))
                return link.call(request, timeout_s=timeout_s)
            except NetworkError as error:
                failure = error
                if ended := self._links.pop(address, None):
                    ended.close()
            except RemoteError as remote:
                refused = if_broker(remote, request, address)
                if not isinstance(refused, WrongServer):
                    raise
                wrong = refused
        if wrong is not None and failure is None:
            raise wrong
        assert failure is not None, "there is at least one name server"
        reason = failure.reason if isinstance(failure, BrokerUnreachable) else failure
        raise NameServerUnreachable(str(self._name_servers), reason)

    # Brokers --------------------------------------------------------------------------------------------------------

    def link(self, queue: MessageQueue, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> Link:
        """The connection to the master of a queue's broker, or to a slave. Raises: NoRoute, NetworkError."""
        self._locate(queue.broker_name, lambda: self.route(queue.topic))
        return self._link(self._address(queue.broker_name, f" for topic {queue.topic}"), connect_timeout_s)

    def link_to(self, broker_name: str) -> Link:
        """As `link`, for a broker of which no topic is known. Raises: NetworkError."""
        self._locate(broker_name, lambda: self._brokers.update(self._all_brokers()))
        return self._link(self._address(broker_name))

    def link_to_master(self, queue: MessageQueue) -> Link:
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
        found: dict[T, R | RemoteError] = {}
        for key, reply in self._ask_each(requests, CALL_TIMEOUT_S, CONNECT_TIMEOUT_S).items():
            if isinstance(reply, NetworkError | NoRoute):
                raise reply
            found[key] = reply
        return found

    def ask_for_bodies(self, requests: Mapping[T, tuple[MessageQueue, Request[R]]]) -> dict[T, bytes | RemoteError]:
        """As `ask`, but returns the bodies of the answers. Raises: NetworkError, NoRoute."""
        found: dict[T, bytes | RemoteError] = {}
        waiting = list(requests.items())
        for begin in range(0, len(waiting), _BODIES_AT_ONCE):
            sent = [
                (key, request, link := self.link(queue), link.send(request))
                for key, (queue, request) in waiting[begin : begin + _BODIES_AT_ONCE]
            ]
            for key, request, link, opaque in sent:
                reply = link.wait(opaque, CALL_TIMEOUT_S)
                try:
                    answer(request, reply)
                    found[key] = reply.body
                except RemoteError as error:
                    found[key] = error
        return found

    def ask_those_there(
        self, requests: Mapping[T, tuple[MessageQueue, Request[R]]], timeout_s: float
    ) -> dict[T, R | RemoteError | NetworkError | NoRoute]:
        """As `ask`, but if a broker is away, only its own queues have its error instead of an answer.

        A connection that has ended is opened again once. The call takes at most about twice `timeout_s`.
        """
        found = self._ask_each(requests, timeout_s, timeout_s)
        again = {key: requests[key] for key, reply in found.items() if isinstance(reply, ConnectionClosed)}
        return (found | self._ask_each(again, timeout_s, timeout_s)) if again else found

    def _ask_each(
        self,
        requests: Mapping[T, tuple[MessageQueue, Request[R]]],
        timeout_s: float,
        connect_timeout_s: float,
    ) -> dict[T, R | RemoteError | NetworkError | NoRoute]:
        keys: dict[str, list[T]] = {}
        for key, (queue, _) in requests.items():
            keys.setdefault(queue.broker_name, []).append(key)
        failures: dict[str, NetworkError | NoRoute] = {}
        found: dict[T, R | RemoteError | NetworkError | NoRoute] = {}
        under_way: list[tuple[str, Link, list[T], list[int]]] = []
        most = max(map(len, keys.values()), default=0)
        for begin in range(0, most + _HEADERS_AT_ONCE, _HEADERS_AT_ONCE):  # in the last round nothing is sent
            before, under_way = under_way, []
            for broker, all_keys in keys.items():
                some = all_keys[begin : begin + _HEADERS_AT_ONCE]
                if some and broker not in failures:
                    try:
                        link = self.link(requests[some[0]][0], connect_timeout_s)
                        opaques = link.send_all(requests[key][1] for key in some)
                        under_way.append((broker, link, some, opaques))
                    except (NetworkError, NoRoute) as error:
                        failures[broker] = error
            for broker, link, some, opaques in before:
                try:
                    for key, reply in zip(some, link.wait_for_all(opaques, timeout_s), strict=True):
                        found[key] = _answer_or_refusal(requests[key][1], reply)
                except NetworkError as error:
                    failures[broker] = error
        for broker, why in failures.items():
            found |= {key: why for key in keys[broker] if key not in found}
        self._doubtful |= failures.keys()
        self._drop_ended()
        return found

    # Failures -------------------------------------------------------------------------------------------------------

    def retrying(self, work: Callable[[], T]) -> T:
        """Do `work`, and repeat it while the network fails, as `RetryPolicy` allows.

        A topic without a route is an answer, not a failure.
        """
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
        """Prepare another attempt after an error, or raise the error after the last one.

        The first attempt follows at once: most failures are kept connections that the broker closed meanwhile.
        """
        self._drop_ended()
        self._doubtful |= self._brokers.keys()
        if failures == 1:
            self._failing_since_s = self._monotonic()
        is_away = isinstance(error, _AWAY)
        patient = is_away and self._monotonic() - self._failing_since_s < self._patience.outage_s
        if failures > self._patience.retries and not patient:
            raise error
        if failures > 1:
            if is_away and self._patience.outage_s:
                self._waits.begin(str(getattr(error, "address", self._name_servers)), error)
            self._sleep(self._patience.pause_s)

    def recovered(self) -> None:
        """Note that an attempt has succeeded."""
        self._waits.end_all()

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

    def _link(self, address: str, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> Link:
        link = self._links.get(address)
        if link is None or link.has_ended:
            link = self._links[address] = Link(address, self._sign, self._tls, connect_timeout_s)
        return link

    def _address(self, broker_name: str, purpose: str = "") -> str:
        address = address_of(self._brokers.get(broker_name, {}))
        if address is None:
            raise BrokerUnreachable(broker_name, f"no name server knows this broker{purpose}")
        return address

    def _locate(self, name: str, ask: Callable[[], object]) -> None:
        """Ask for the address of a broker, if it is in doubt. Raises: as `ask`, if it was never known."""
        if name in self._brokers and name not in self._doubtful:
            return
        try:
            ask()
        except (NetworkError, NoRoute):
            if name not in self._brokers:
                raise
        self._doubtful.discard(name)

    def _remembering(self, ask: Callable[[float], T], cached: T | None) -> T:
        """The answer of a name server, or the last known one if none answers."""
        begun_s = self._monotonic()
        if cached is not None and begun_s < self._names_due_s:
            return cached
        try:
            answered = ask(CALL_TIMEOUT_S if cached is None else _KNOWN_TIMEOUT_S)
        except NetworkError as error:
            if cached is None:
                raise
            spent_s = self._monotonic() - begun_s
            self._names_due_s = begun_s + max(self._patience.pause_s, spent_s / _PART_SPENT_ON_ASKING)
            self._silences.begin(f"name server {self._name_servers}", error, "known routes are used")
            return cached
        self._names_due_s = 0.0
        self._silences.end(f"name server {self._name_servers}")
        return answered

    def _own_or_template(self, topic: str) -> Route:
        try:
            return self.route(topic)
        except NoRoute:
            template = self._ask_for_route(DEFAULT_TOPIC)
            if template is None:
                raise
            return template.for_new_topic(topic)

    def _all_brokers(self) -> dict[str, Addresses]:
        """Ask for the addresses of all brokers. Raises: NetworkError."""
        table = self._cluster_table()
        return addresses_in(table.broker_addr_table.values(), names_brokers=table.names_brokers)

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
        route = Route.build(topic, TopicRoute.decode(body)).after(self._routes.get(topic))
        self._routes[topic] = route
        self._brokers |= route.brokers
        self._doubtful -= route.brokers.keys()
        return route


def _answer_or_refusal(request: Request[R], reply: Command) -> R | RemoteError:
    try:
        return answer(request, reply)
    except RemoteError as error:
        return error
