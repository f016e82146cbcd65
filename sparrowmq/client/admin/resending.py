"""Send stored messages again that a cluster lacks, such as those of `set-aside`: `sparrowmq store resend`.

    prepare     routes of the topics, settings of their masters
    standing    each master of the topic is asked for the unique id: is the message there already?
    send        to the queue from which it came, or always to the same other one; waits for SEND_OK

A send says that the message may be stored already (MAY_BE_STORED). So our brokers store it once even if two programs
send it at the same time. Brokers of Apache ignore that.

A message is not recognised if its record has expired at the cluster, or has left the index of keys. A broker without an
index (messageIndexEnable=false) is refused. A broker whose index lacks keys answers searches with an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

from sparrowmq.client.admin.operations.broker_operations import broker_settings
from sparrowmq.client.admin.operations.message_operations import PAGE, query_messages
from sparrowmq.client.admin.resent_message import Resent
from sparrowmq.client.admin.servers import BrokerPlace, Servers
from sparrowmq.client.admin.topic_reading import FOR_EVER_MS
from sparrowmq.client.cluster.route import MASTER, Route
from sparrowmq.client.sending.outcome import LESS_SAFE, SendStatus
from sparrowmq.errors import AccessDenied, BrokerUnreachable, NoBroker, NoRoute, RemoteError, SendFailed
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay_levels import JAVA_LEVELS, DelayLevels
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, TOOLS_GROUP, group_of
from sparrowmq.protocol.requests.headers import QueryMessage

_DAY_MS: Final = 86_400_000  # clocks of brokers may differ by so much


class Standing(Enum):
    """The state of a message at a cluster."""

    MISSING = "missing"
    THERE = "there"
    OPEN = "open"  # its transaction is: its producer will be asked for the result


class Resending:
    """Stored messages that are sent to a cluster again.

    Args:
        is_checked: whether messages that are there already are looked for.
        is_dry: nothing will be sent, so an account without the right to read settings of brokers is enough.
    """

    def __init__(self, servers: Servers, *, is_checked: bool = True, is_dry: bool = False) -> None:
        self._servers = servers
        self._is_dry = is_dry
        self._is_checked = is_checked
        self._routes: dict[str, Route] = {}
        self._settings: dict[str, Mapping[str, str]] = {}  # by the address of a master
        self._homes: dict[str, str] = {}  # the brokers' names by their addresses

    async def prepare(self, topics: Iterable[str]) -> list[str]:
        """Ask for what `standing` and `send` need; return the topics that do not exist.

        Raises:
            NoBroker: there is none; BrokerUnreachable: a broker of a topic has no master.
            AccessDenied: the account may not read settings of brokers.
            NoRoute: no queue of a topic takes messages.
        """
        lacking = []
        brokers = await self._servers.brokers()
        if not brokers:
            raise NoBroker(self._servers.namesrv)
        self._homes = {address: each.name for each in brokers for address in each.addresses.values()}
        for topic in topics:
            try:
                route = Route.build(topic, await self._servers.route(topic))
            except NoRoute:
                if group_of(topic) is None:
                    lacking.append(topic)
                    continue
                route = _of_group(topic, brokers)
            if not route.writable and not route.lacks_master:
                raise NoRoute(topic, None)
            self._routes[topic] = route
            for address in _masters(route):
                if address not in self._settings:
                    self._settings[address] = await self._settings_of(address)
        return lacking

    async def _settings_of(self, address: str) -> Mapping[str, str]:
        try:
            return await broker_settings(self._servers, address)
        except AccessDenied:
            if not self._is_dry:
                raise
            return {}

    def without_index(self) -> list[str]:
        """Return the addresses of masters that cannot find messages by their ids."""
        settings = self._settings.items()
        return sorted(address for address, each in settings if each.get("messageIndexEnable") == "false")

    async def standing(self, message: Resent) -> Standing:
        """Return whether a message is at the cluster. Raises: RemoteError, a broker cannot find out."""
        if not self._is_checked:
            return Standing.MISSING
        for topic in message.topics:
            if await self._has(message, topic):
                return Standing.THERE
        if message.is_committed and await self._has(message, HALF_TOPIC):
            # A transaction that was given up is not asked for any more, and this message was committed.
            return Standing.MISSING if await self._has(message, CHECK_MAX_TIME_TOPIC) else Standing.OPEN
        return Standing.MISSING

    def queue_of(self, message: Resent) -> MessageQueue:
        """Return the queue for a message: the same one for all messages of one queue, so that they keep their order."""
        route = self._routes[message.topic]
        home = self._homes.get(message.stored.store_host, "")
        queue = MessageQueue(message.topic, home, message.queue_id)
        return queue if queue in route.writable else route.writable[message.queue_id % len(route.writable)]

    async def send(self, message: Resent) -> None:
        """Send a message; return when it is as safe as its broker promises.

        Raises: SendFailed, it is stored, but less safely; NetworkError, RemoteError.
        """
        queue = self.queue_of(message)
        address = self._routes[message.topic].brokers[queue.broker_name][MASTER]
        settings = self._settings[address]
        delays = DelayLevels.parse(settings.get("messageDelayLevel") or JAVA_LEVELS)
        has_timers = settings.get("timerWheelEnable") == "true"
        packed = message.packed(self._servers.network.clock.now_ms(), delays, has_timers=has_timers)
        header = packed.request(TOOLS_GROUP, queue, message.stored.born_timestamp_ms)
        header.may_be_stored = True if self._is_checked else None
        answer = await self._servers.ask(address, header, packed.body, accept=LESS_SAFE)
        if answer.code != ResponseCode.SUCCESS:
            raise SendFailed(
                f"{queue.broker_name} stored message {message.unique_id}, but a crash there could lose it: "
                f"{SendStatus(answer.code).name}. First do what `sparrowmq doctor` says about its disk or its slaves"
            )

    async def _has(self, message: Resent, topic: str) -> bool:
        for address in _masters(self._routes[message.topic]):
            begin_ms = min(message.stored.born_timestamp_ms, message.stored.store_timestamp_ms) - _DAY_MS
            request = QueryMessage(
                *(topic, message.unique_id, PAGE, max(begin_ms, 0), FOR_EVER_MS), unique_key_query=True
            )
            try:
                found = await query_messages(self._servers, address, request)
            except RemoteError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                continue
            if any(map(message.is_in, found)):
                return True
        return False


def _of_group(topic: str, brokers: Sequence[BrokerPlace]) -> Route:
    """Return a route for a retry or dead-letter topic that a broker makes with the first message for it."""
    queues = tuple(MessageQueue(topic, each.name, 0) for each in brokers if each.master is not None)
    return Route(topic, queues, (), {each.name: each.addresses for each in brokers})


def _masters(route: Route) -> list[str]:
    """Return the addresses of a topic's masters. Raises: BrokerUnreachable, a broker has none."""
    for name, addresses in route.brokers.items():
        if MASTER not in addresses:
            raise BrokerUnreachable(name, "it has no master now")
    return [addresses[MASTER] for addresses in route.brokers.values()]
