"""The answers of a name server. Each method handles one request of protocol/requests/request_table.py.

Source of codes and remarks: DefaultRequestProcessor, Java 4.9.8, and the answers of running name servers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, WorkQueue, empty_in_steps
from sparrowmq.namesrv.kv import KeyValues
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.namesrv.route_table import BrokerId, Routes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import CONDITIONS, ORDER_TOPICS, check_broker_name
from sparrowmq.protocol.requests import namesrv_headers as ask
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import GetDiagnosis
from sparrowmq.protocol.requests.bodies import DataVersion, KVTable, TopicConfig, TopicList
from sparrowmq.protocol.requests.registration_bodies import (
    BrokerGroup,
    BrokerMembers,
    RegisterBrokerBody,
    sum_in_steps,
)
from sparrowmq.remoting.diagnosis import diagnosis
from sparrowmq.remoting.handler import LargeAnswers, Reply, encode_in_steps, handles
from sparrowmq.remoting.peer import Peer
from sparrowmq.settings.live_settings import LiveSettings
from sparrowmq.settings.setting_kinds import ADDRESSES


class RouteHandlers:
    def __init__(self, routes: Routes, values: KeyValues, settings: LiveSettings[NamesrvSettings]) -> None:
        self._routes = routes
        self._values = values
        self._settings = settings
        self._large_answers = LargeAnswers()

    @handles(ask.GetRoute)
    def route(self, header: ask.GetRoute, body: bytes, peer: Peer) -> Reply:
        route = self._routes.route(header.topic)
        if route is None:
            raise RemoteError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}\n"
                "Create it, or check that a broker with autoCreateTopicEnable is registered here.",
            )
        if self._settings.current.order_messages:
            route.order_topic_conf = self._values.get(ORDER_TOPICS, header.topic)
        return Reply(body=route)

    @handles(ask.GetBrokerCluster)
    def clusters(self, header: ask.GetBrokerCluster, body: bytes, peer: Peer) -> Reply:
        return Reply(body=self._routes.clusters())

    @handles(ask.GetBrokerMembers)
    def members(self, header: ask.GetBrokerMembers, body: bytes, peer: Peer) -> Reply:
        group = BrokerGroup(header.cluster_name, header.broker_name, self._routes.addresses_of(header.broker_name))
        return Reply(body=BrokerMembers(group))

    @handles(ask.GetAllTopicListFromNameserver)
    def topics(self, header: ask.GetAllTopicListFromNameserver, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large_answers.make(peer, partial(self._topics, None))

    @handles(ask.GetTopicsByCluster)
    def topics_of_cluster(self, header: ask.GetTopicsByCluster, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        return self._large_answers.make(peer, partial(self._topics, header.cluster))

    def _topics(self, cluster: str | None) -> Steps[Reply]:
        names = yield from self._routes.topic_names(cluster)
        return (yield from encode_in_steps(TopicList(names)))

    @handles(ask.GetSystemTopicListFromNs)
    def system_topics(self, header: ask.GetSystemTopicListFromNs, body: bytes, peer: Peer) -> Reply:
        return Reply(body=self._routes.system_topics())

    @handles(ask.DeleteTopicInNamesrv)
    def delete_topic(self, header: ask.DeleteTopicInNamesrv, body: bytes, peer: Peer) -> None:
        self._routes.delete_topic(header.topic, header.cluster_name or None)

    @handles(ask.WipeWritePermOfBroker)
    def drain(self, header: ask.WipeWritePermOfBroker, body: bytes, peer: Peer) -> ask.WipeWritePermOfBrokerReply:
        return ask.WipeWritePermOfBrokerReply(self._routes.drain(header.broker_name))

    @handles(ask.AddWritePermOfBroker)
    def undrain(self, header: ask.AddWritePermOfBroker, body: bytes, peer: Peer) -> ask.AddWritePermOfBrokerReply:
        return ask.AddWritePermOfBrokerReply(self._routes.undrain(header.broker_name))


class BrokerHandlers:
    def __init__(self, routes: Routes, values: KeyValues, clock: Clock) -> None:
        self._routes = routes
        self._values = values
        self._clock = clock
        self._watched_peers: set[Peer] = set()
        self._registrations = WorkQueue()  # of registrations, which are read in slices

    @handles(ask.RegisterBroker)
    def register(self, header: ask.RegisterBroker, body: bytes, peer: Peer) -> Reply | Awaitable[Reply]:
        self._watch(peer)
        return self._registrations.work(self._register(header, body, peer))

    def _register(self, header: ask.RegisterBroker, body: bytes, peer: Peer) -> Steps[Reply]:
        broker = broker_id(header)
        topics = (yield from read_registration(header, body)).topics
        if peer not in self._watched_peers:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, "the broker's connection has ended")
        master = yield from self._routes.register(
            broker,
            _pop_each(topics.topic_config_table),
            topics.data_version,
            ha_address=header.ha_server_addr,
            connection=peer,
            now_s=self._clock.monotonic(),
        )
        yield from empty_in_steps(topics.topic_config_table)  # what a slave said, or what is known
        reply = ask.RegisterBrokerReply(master.ha_address, master.address) if master else ask.RegisterBrokerReply()
        order_topics = self._values.namespace(ORDER_TOPICS)
        return Reply(header=reply, body=KVTable(order_topics) if order_topics else b"")

    @handles(ask.UnregisterBroker)
    def unregister(self, header: ask.UnregisterBroker, body: bytes, peer: Peer) -> None:
        self._routes.unregister(broker_id(header))

    @handles(ask.QueryDataVersion)
    def query_version(self, header: ask.QueryDataVersion, body: bytes, peer: Peer) -> Reply:
        version = DataVersion.of_request(body)
        now_s = self._clock.monotonic()
        has_changed = not self._routes.is_current(broker_id(header), version, connection=peer, now_s=now_s)
        self._watch(peer)
        known_version = self._routes.version_of(header.broker_addr)
        return Reply(header=ask.QueryDataVersionReply(has_changed), body=known_version if known_version else b"")

    def _watch(self, peer: Peer) -> None:
        """Remove the broker when its connection ends, so that clients do not try it for two more minutes."""
        if peer not in self._watched_peers:
            self._watched_peers.add(peer)
            peer.on_end(self._watched_peers.discard)
            peer.on_end(self._routes.forget_connection)


class ValueHandlers:
    """The KV and the name server's own settings. `conditions` says what is wrong, and is asked for as values."""

    def __init__(
        self, values: KeyValues, settings: LiveSettings[NamesrvSettings], conditions: Callable[[], dict[str, str]]
    ) -> None:
        self._values = values
        self._settings = settings
        self._conditions = conditions

    @handles(ask.PutKVConfig)
    async def put(self, header: ask.PutKVConfig, body: bytes, peer: Peer) -> None:
        await self._save(self._values.put(header.namespace, header.key, header.value))

    @handles(ask.DeleteKVConfig)
    async def delete(self, header: ask.DeleteKVConfig, body: bytes, peer: Peer) -> None:
        await self._save(self._values.delete(header.namespace, header.key))

    async def _save(self, change: Awaitable[None]) -> None:
        try:
            await change
        except OSError as error:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"the value could not be saved in {self._values.path} ({error.strerror}) and is not set; have "
                "kvConfigPath name a file that the name server can write",
            ) from error

    @handles(ask.GetKVConfig)
    def get(self, header: ask.GetKVConfig, body: bytes, peer: Peer) -> ask.GetKVConfigReply:
        value = self._values.get(header.namespace, header.key)
        if value is None:
            raise RemoteError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace} Key: {header.key}"
            )
        return ask.GetKVConfigReply(value)

    @handles(ask.GetKVListByNamespace)
    def namespace(self, header: ask.GetKVListByNamespace, body: bytes, peer: Peer) -> Reply:
        is_own = header.namespace == CONDITIONS
        table = self._conditions() if is_own else self._values.namespace(header.namespace)
        if not table:
            raise RemoteError(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return Reply(body=KVTable(table))

    @handles(GetDiagnosis)
    async def diagnosis(self, header: GetDiagnosis, body: bytes, peer: Peer) -> Reply:
        return Reply(body=KVTable(await diagnosis(self._settings.current)))

    @handles(ask.GetNamesrvConfig)
    def settings(self, header: ask.GetNamesrvConfig, body: bytes, peer: Peer) -> Reply:
        return Reply(body=settings_text.render(self._settings.current.as_properties()))

    @handles(ask.UpdateNamesrvConfig)
    async def change(self, header: ask.UpdateNamesrvConfig, body: bytes, peer: Peer) -> None:
        await self._settings.change(settings_text.of_request(body), peer.address)


def broker_id(header: ask.RegisterBroker | ask.UnregisterBroker | ask.QueryDataVersion) -> BrokerId:
    """The identity in a broker's request. Raises: RemoteError, a name or the address is invalid. Go's client splits
    routes as text, so no odd character may pass."""
    try:
        check_broker_name(header.cluster_name)
        check_broker_name(header.broker_name)
        if len(ADDRESSES.parse(header.broker_addr)) != 1:
            raise ValueError("brokerAddr must be one address, host:port")
    except ValueError as error:
        raise RemoteError(ResponseCode.SYSTEM_ERROR, f"this is no broker: {error}") from error
    return BrokerId(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)


def read_registration(header: ask.RegisterBroker, body: bytes) -> Steps[RegisterBrokerBody]:
    """Read the topics of a registration; none if it has no body. Raises: RemoteError, the body does not have the
    checksum of the header; RemoteProtocolError, it cannot be decoded."""
    if header.body_crc32 and (yield from sum_in_steps(body)) != header.body_crc32:
        raise RemoteError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    if not body:
        return RegisterBrokerBody()
    # 5.4.0 declares its compressed bodies as plain, so the first byte decides and not the header.
    if not body.startswith(b"{"):
        return (yield from RegisterBrokerBody.unpack_in_steps(body))
    return (yield from RegisterBrokerBody.decode_in_steps(body))


def _pop_each(table: dict[str, TopicConfig]) -> Iterator[TopicConfig]:
    """Take the topics out one by one: to free all of them at once would be one long step."""
    for name in list(table):
        yield table.pop(name)
