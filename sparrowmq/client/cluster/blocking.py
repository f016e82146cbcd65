"""The blocking face of a cluster: name servers, routes and brokers for programs without an event loop.

    with BlockingNetwork(["127.0.0.1:9876"]) as network:
        route = network.route("orders")
        found = network.ask({queue: (queue, GetMaxOffset(queue.topic, queue.queue_id)) for queue in route.readable})

One connection per address, requests pipelined. Brokers do not know it, as it sends no heartbeats. What a route means,
how a new topic is sent to and which name server is asked is the same as for `Network`; only the waiting is another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ssl import SSLContext
from typing import Self, TypeVar

from sparrowmq.client.cluster.addresses import NameServerList
from sparrowmq.client.cluster.link import Link, answer
from sparrowmq.client.cluster.route import Addresses, Route, address_of
from sparrowmq.errors import BrokerUnreachable, NameServerUnreachable, NetworkError, NoRoute, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import DEFAULT_TOPIC
from sparrowmq.protocol.requests.bodies import TopicList, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import GetAllTopicListFromNameserver, GetRoute
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.protocol.wire.header import Header, Request

R = TypeVar("R", bound=Header)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often `BlockingNetwork.retrying` tries again, and what it waits between two attempts."""

    retries: int = 10
    pause_s: float = 1.0


class BlockingNetwork:
    """The brokers behind some name servers; connections are made when they are needed. Not for several threads at once.

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
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._name_servers = NameServerList(name_servers)
        self._sign = sign
        self._tls = tls
        self._patience = patience or Patience()
        self._sleep = sleep
        self._links: dict[str, Link] = {}
        self._brokers: dict[str, Addresses] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.forget()

    # Routes ---------------------------------------------------------------------------------------------------------

    def route(self, topic: str) -> Route:
        """A topic's route as it is now. Raises: NoRoute, NetworkError, RemoteProtocolError."""
        route = self._ask_for_route(topic)
        if route is None:
            raise NoRoute(topic, str(self._name_servers))
        return route

    def route_for_sending(self, topic: str) -> Route:
        """As `route`; for a topic that does not exist the template's, if brokers create topics by themselves."""
        try:
            return self.route(topic)
        except NoRoute:
            template = self._ask_for_route(DEFAULT_TOPIC)
            if template is None:
                raise
            return template.for_new_topic(topic)

    def topics(self) -> list[str]:
        """The names of all topics. Raises: NetworkError."""
        _, body = self.call_name_server(GetAllTopicListFromNameserver())
        return sorted(TopicList.decode(body).topic_list)

    def call_name_server(self, request: Request[R]) -> tuple[R, bytes]:
        """The header and body of the first name server's answer. Raises: NameServerUnreachable, RemoteError."""
        failure: NetworkError | None = None
        for address in self._name_servers.in_turn():
            try:
                return self._link(address).call(request)
            except NetworkError as error:
                failure = error
                if link := self._links.pop(address, None):
                    link.close()
        assert failure is not None, "there is at least one name server"
        reason = failure.reason if isinstance(failure, BrokerUnreachable) else failure
        raise NameServerUnreachable(str(self._name_servers), reason) from failure

    # Brokers --------------------------------------------------------------------------------------------------------

    def link(self, queue: MessageQueue) -> Link:
        """The connection to the broker of a queue: to its master, or else a slave. Raises: NoRoute, NetworkError."""
        if queue.broker_name not in self._brokers:
            self.route(queue.topic)
        address = address_of(self._brokers.get(queue.broker_name, {}))
        if address is None:
            raise BrokerUnreachable(
                queue.broker_name, f"no name server knows this broker for topic {queue.topic}"
            )
        return self._link(address)

    def ask(self, requests: Mapping[T, tuple[MessageQueue, Request[R]]]) -> dict[T, R | RemoteError]:
        """Ask the brokers of many queues at once; refusals are given back beside the answers. Raises: NetworkError."""
        sent = []
        for key, (queue, request) in requests.items():
            link = self.link(queue)
            sent.append((key, request, link, link.send(request)))
        return {key: _answer_or_refusal(request, link, opaque) for key, request, link, opaque in sent}

    # Failures -------------------------------------------------------------------------------------------------------

    def retrying(self, work: Callable[[], T], *, also_without_route: bool = False) -> T:
        """Do `work`, and again with new connections while the network fails, as often as our patience allows.

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
        if failures > self._patience.retries:
            raise error
        if failures > 1:
            self._sleep(self._patience.pause_s)

    def forget(self) -> None:
        """Close all connections and drop all routes: something is not where it was."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._brokers.clear()

    def release(self) -> None:
        """Close the connections on which answers are still to come that nobody waits for any more."""
        for address in [address for address, link in self._links.items() if not link.is_idle]:
            self._links.pop(address).close()

    def _link(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address, self._sign, self._tls)
        return link

    def _ask_for_route(self, topic: str) -> Route | None:
        try:
            _, body = self.call_name_server(GetRoute(topic=topic, accept_standard_json_only=True))
        except RemoteError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise
        route = Route.build(topic, TopicRoute.decode(body))
        self._brokers |= route.brokers
        return route


def _answer_or_refusal(request: Request[R], link: Link, opaque: int) -> R | RemoteError:
    reply = link.wait(opaque)
    try:
        return answer(request, reply)
    except RemoteError as error:
        return error
