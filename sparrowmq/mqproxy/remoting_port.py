"""The port of `mqproxy` for clients of the remoting protocol, which reach all brokers of a cluster through it.

    client ── one connection ── Relay ── a connection to each broker that it uses ── brokers

All requests go on as the client has signed them, but for the route of a topic, which mqproxy answers. If mqproxy has an
account, it checks each request before that: the signature, and the policies from the client's address, which brokers do
not see. A client whose answers are not read gets no more of them, and with too many waiting requests mqproxy reads no
more from it. When the client leaves, its connections end, so each broker knows at once.

Where a request goes (`Reach`); clients of RocketMQ 5 name the broker in a field, older ones do not:

    ONE       to one broker: the one that a field or the body names, or the only one that has the topic
    ANY       to one of the topic's brokers that answers, as all have the same answer
    ALL       to all of the client's brokers; the answer is the first error, or the first answer
    MEMBERS   to all; the answer has the members that any of them knows
    CONNECTIONS  likewise, with the members at the gRPC port, which no broker knows
    RECORDS   to all brokers of the topic; the answer has the messages of all
    ROUTE, CLUSTER   mqproxy answers, with its own address instead of the brokers'

A request that names a broker goes to this one only. Requests of other kinds are refused: they are for tools.
Source: RemotingProtocolServer and AbstractRemotingActivity of the proxy, Java 5.4.0, which refuses requests without the
field.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConfigError,
    ConnectionClosed,
    NetworkError,
    NoRoute,
    ProtocolError,
    RemoteError,
    RemoteProtocolError,
    SparrowError,
)
from sparrowmq.grpc.port import DRAIN_S, ListenAddress, OpenPort
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Background, wait_until_idle
from sparrowmq.mqproxy.broker_link import CONNECT_S, BrokerLink, connect, frame_of, size_of
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers, Lookups
from sparrowmq.mqproxy.limits import Capacity
from sparrowmq.mqproxy.users import BrokerUsers
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.bodies import BrokerRoute
from sparrowmq.protocol.requests.client_bodies import AssignmentQuery, ConsumerConnections, ConsumerList, LockQueues
from sparrowmq.protocol.requests.headers import QueryMessageReply
from sparrowmq.protocol.requests.pop_headers import BatchAcks
from sparrowmq.protocol.requests.request_table import BY_CODE, Role
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import LANGUAGE, PROTOCOL_VERSION, REPLY_FLAG, Command
from sparrowmq.protocol.wire.connection import BROKER_FIELD
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.server import Server, limits_for
from sparrowmq.remoting.session import Session
from sparrowmq.remoting.tls.contexts import ServerTls

log = logging.getLogger(__name__)

ALL_ANSWERS_S: Final = 2.0  # for the answers of all brokers; clients wait for 3 s
CLIENT_ANSWER_S: Final = 10.0  # for the answer of a client to a broker
ONE_ANSWER_S: Final = 1.0  # for the answer of one broker, if another one can answer, too
LINK_WAIT_S: Final = CONNECT_S + 1  # a request that waits longer for a connection is not sent
HEARTBEAT_BYTES: Final = 64 * 1024  # a larger heartbeat is not kept for new connections
_ANY_CODE: Final = range(-(1 << 31), 1 << 31)
DESCRIPTORS_PER_CLIENT: Final = 4  # of a client: its connection, and its own ones to brokers
REPEAT_WINDOW_S: Final = 1.0  # clients send them in one loop, without waiting for an answer
MAX_QUESTIONS: Final = 1000  # of one client within this time


async def open_remoting_port(
    stack: AsyncExitStack,
    tasks: Background,
    cluster: ClusterBrokers,
    users: BrokerUsers | None,
    clock: Clock,
    tls: ServerTls,
    broker_tls: ssl.SSLContext | None,
    listen_address: ListenAddress,
) -> OpenPort:
    """Serve clients until `stack` is closed. Raises: ConfigError, the port or the certificate cannot be used.
    Connections to brokers have descriptors of the port's share, too."""
    relays: dict[Session, Relay] = {}

    def dispatch(session: Session, command: Command) -> None:
        relay = relays.get(session)
        if relay is None:
            relay = relays[session] = Relay(session, context)
            session.on_end(relays.pop)
        relay.on_request(command)

    limits = limits_for(listen_address.share)
    max_clients = limits.connections // DESCRIPTORS_PER_CLIENT
    capacity = Capacity(max_clients * (DESCRIPTORS_PER_CLIENT - 1))
    server = Server(
        dispatch,
        clock,
        listen_address.host,
        listen_address.port,
        dataclasses.replace(limits, connections=max_clients),
        tls=tls,
    )
    server.bind()
    address = f"{listen_address.advertised_host}:{server.port}"
    context = RelayContext(
        cluster=cluster,
        users=users,
        clock=clock,
        tasks=tasks,
        tls=broker_tls,
        address=address,
        capacity=capacity,
        log_limit=LogLimit(clock),
    )
    await stack.enter_async_context(server)
    stack.push_async_callback(drain, capacity)
    tasks.spawn(server.drop_silent_peers(), "silent remoting clients")
    return OpenPort(address, lambda: server.problem or capacity.problem)


async def drain(capacity: Capacity) -> None:
    """Take no more requests, and return when those before have their answers, or after `DRAIN_S`."""
    capacity.is_stopping = True
    await wait_until_idle(lambda: bool(capacity.request_count), DRAIN_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayContext:
    """The parts that all relays of a port share. `users` is None without accounts, where brokers alone decide. `tls`
    encrypts connections to brokers. `address` is the proxy's own, for clients. `capacity` is that of all clients
    together."""

    cluster: ClusterBrokers
    users: BrokerUsers | None
    clock: Clock
    tasks: Background
    tls: ssl.SSLContext | None
    address: str
    capacity: Capacity
    log_limit: LogLimit


class Relay:
    """One client, with its connections to brokers."""

    def __init__(self, session: Session, context: RelayContext) -> None:
        self.links: dict[str, BrokerLink] = {}
        self._session = session
        self._context = context
        self._link_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._broker_names: set[str] = set()  # of the routes that it has asked for
        self._lookups = Lookups(context.cluster)
        self._repeats = Repeats(context.clock)
        self._heartbeat: Command | None = None
        self._held_bytes = 0  # of its requests without an answer
        session.on_end(self._on_session_end)

    def on_request(self, command: Command) -> None:
        size = size_of(command)
        try:
            self._context.capacity.check_bytes(size, self._held_bytes)
        except RemoteError as error:
            self._refuse(command, error)
            return
        try:
            self._context.tasks.spawn(self._serve(command, size), name="request of a remoting client")
        except ClientClosed:
            self._refuse(command, RemoteError(ResponseCode.SERVICE_NOT_AVAILABLE, "mqproxy is stopping"))
            return
        self._count_request(1, size)

    def _count_request(self, sign: int, size: int) -> None:
        self._held_bytes += sign * size
        self._context.capacity.held_bytes += sign * size
        self._context.capacity.request_count += sign
        self._session.hold(sign, sign * size)

    def _refuse(self, command: Command, error: Exception) -> None:
        code, remark = _error_reply(error)
        text = "%s: request %d is refused: %s"
        self._context.log_limit.log(log, logging.INFO, text, self._session.address, command.code, shown(remark))
        self._session.reply(command, code, remark=remark)

    async def _serve(self, command: Command, size: int) -> None:
        session = self._session
        try:
            answer = await self._answer(command)
            if answer is not None and not command.is_oneway:
                session.write([frame_of(answer, command.opaque)])
        except (SparrowError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._refuse(command, error)
        finally:
            self._count_request(-1, size)

    async def _answer(self, command: Command) -> Command | None:
        reach = REACH.get(command.code)
        if reach is None:
            raise RemoteError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"mqproxy does not pass on request code {command.code}: it serves producers and consumers. Tools need "
                "the addresses of the name servers and brokers themselves",
            )
        if self._context.users is not None:
            self._context.users.authenticate(self._session, command)
        if reach is Reach.ROUTE or reach is Reach.CLUSTER:
            return reply_of(await self._answer_route(command, reach))
        names = await self._destinations(command, reach)
        if reach is Reach.CONNECTIONS:
            return await self._connections(names, command)
        if len(names) == 1:
            return await self._ask_broker(names[0], command)
        if reach is Reach.ANY:
            return await self._ask_any(names, command)
        if reach is Reach.RECORDS and self._repeats.is_repeat(command, len(names)):
            reply = reply_of(b"", ResponseCode.QUERY_NOT_FOUND, "mqproxy has answered this for all brokers")
            return replace(reply, fields=QueryMessageReply(0, 0).ext_fields())
        return await self._ask_all(names, command, reach)

    def _note_allowed_request(self, command: Command) -> None:
        if not self._session.is_introduced:
            self._session.introduce(command)
        if command.code == RequestCode.HEART_BEAT:
            self._heartbeat = command if size_of(command) <= HEARTBEAT_BYTES else None
        elif command.code == RequestCode.UNREGISTER_CLIENT:
            self._heartbeat = None

    async def _answer_route(self, command: Command, reach: Reach) -> Body:
        """The answer of a name server, with the proxy's address."""
        cluster, users, own_address = self._context.cluster, self._context.users, self._context.address
        topic = command.ext_fields().get("topic", "")
        if users is not None and reach is Reach.ROUTE:
            users.check_topic_access(self._session, topic)
        self._note_allowed_request(command)
        if reach is Reach.CLUSTER:
            table = await cluster.addresses.cluster_table()
            rows = with_address(table.broker_addr_table.values(), own_address)
            by_name = {row.broker_name: row for row in rows}
            return msgspec.structs.replace(table, broker_addr_table=by_name, names_brokers=True)
        route = await self._lookups.route(topic)
        self._broker_names |= {row.broker_name for row in route.broker_datas}
        rows = with_address(route.broker_datas, own_address)
        return msgspec.structs.replace(route, broker_datas=rows, names_brokers=True)

    async def _destinations(self, command: Command, reach: Reach) -> Sequence[str]:
        """The names of the brokers for a request. Raises: RemoteError, it may be meant for each of several."""
        fields, cluster = command.ext_fields(), self._context.cluster
        name = named_broker(command.code, fields, command.body)
        if name:
            return [name]
        topic = topic_of(command.code, fields, command.body) if reach in TOPIC_REACHES else ""
        if topic:
            names = sorted(row.broker_name for row in (await self._lookups.route(topic)).broker_datas)
        else:
            names = sorted(self._broker_names) or await cluster.addresses.masters()
        if not names:
            raise BrokerUnreachable("any broker", "no name server knows one now")
        if reach is Reach.ONE and len(names) > 1:
            where = f"topic {topic} has" if topic else "the cluster has"
            raise RemoteError(
                ResponseCode.VERSION_NOT_SUPPORTED,
                f"the request names no broker, and {where} brokers {', '.join(names)}. Java clients since 4.9.4 name "
                "it (bname); use such a client, a topic on one broker, or the brokers' own addresses",
            )
        return names

    async def _ask_broker(self, name: str, command: Command) -> Command | None:
        """Send a request to a broker, and return its answer. Raises: NetworkError, AccessDenied."""
        context = self._context
        if context.users is not None:
            context.users.check(name, self._session, command)
        self._note_allowed_request(command)
        try:
            try:
                link = await context.clock.wait_for(self._link(name), LINK_WAIT_S)
            except TimeoutError:
                raise BrokerUnreachable(name, f"no connection within {LINK_WAIT_S:g} s") from None
            if not command.is_oneway:
                answer = await link.call(command)
                if RemoteError(answer.code, answer.remark).is_slaves:
                    context.cluster.addresses.doubt(name)
                return answer
            await link.send(command)
        except NetworkError:
            if not self._session.closed:
                context.cluster.addresses.doubt(name)  # another broker may be the master now
            raise
        return None

    async def _ask_any(self, names: Sequence[str], command: Command) -> Command | None:
        for name in names[:-1]:
            with suppress(NetworkError, TimeoutError):
                return await self._context.clock.wait_for(self._ask_broker(name, command), ONE_ANSWER_S)
        return await self._ask_broker(names[-1], command)

    async def _ask_all(self, names: Sequence[str], command: Command, reach: Reach) -> Command | None:
        """Send a request to several brokers, and join the answers of those that answer in time."""
        calls = (self._context.clock.wait_for(self._ask_broker(name, command), ALL_ANSWERS_S) for name in names)
        answers: list[Command] = []
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, Command):
                answers.append(result)
            elif result is not None and not isinstance(result, NetworkError | TimeoutError):
                raise result
        if not answers and not command.is_oneway:
            raise BrokerUnreachable(", ".join(names), f"none answers within {ALL_ANSWERS_S:g} s")
        return join_answers(reach, answers) if answers else None

    async def _connections(self, names: Sequence[str], command: Command) -> Command | None:
        answer = await self._ask_all(names, command, Reach.CONNECTIONS)
        commands = self._context.cluster.commands
        if answer is None or commands is None:
            return answer
        return with_consumers(answer, commands.consumers(command.ext_fields().get("consumerGroup", "")))

    async def _link(self, name: str) -> BrokerLink:
        """The client's connection to the master of a name. Raises: NetworkError, RemoteError."""
        context = self._context
        if name in self.links and self.links[name].is_mute:
            context.cluster.addresses.doubt(name)  # another broker may be the master now
        address = await context.cluster.addresses.master_address(name)
        async with self._link_locks[name]:  # of an open connection, too: no request passes those that wait for it
            link = self.links.get(name)
            if link is not None and not link.is_closed:
                if link.address == address:
                    return link
                link.close()  # the broker has moved
            self._check_links()
            streams = await connect(address, context.tls, context.clock)
            link = self.links[name] = BrokerLink(name, address, streams, context.clock, self._on_push)
            context.capacity.link_count += 1
            context.tasks.spawn(self._read_link(link), name="connection to a broker")
            if self._session.closed:
                link.close()
            elif (heartbeat := self._heartbeat_for(name)) is not None:
                await link.send(heartbeat)
        return link

    def _check_links(self) -> None:
        if self._session.closed:
            raise ConnectionClosed(self._session.address)
        self._context.capacity.check_links()

    async def _read_link(self, link: BrokerLink) -> None:
        try:
            await link.read(self._is_full)
        finally:
            self._context.capacity.link_count -= 1

    def _heartbeat_for(self, name: str) -> Command | None:
        """The last heartbeat, if the client may send it to this broker: one that was restarted does not know it."""
        heartbeat, users = self._heartbeat, self._context.users
        if heartbeat is not None and users is not None:
            try:
                users.check(name, self._session, heartbeat)
            except SparrowError:
                return None
        return heartbeat

    def _is_full(self) -> bool:
        return self._session.is_full and not self._session.closed

    def _on_session_end(self, _: Session) -> None:
        for name, link in self.links.items():
            if link.is_mute:  # Java's clients end their connection when an answer is late
                self._context.cluster.addresses.doubt(name)
            link.close()

    def _on_push(self, link: BrokerLink, command: Command) -> None:
        """Pass on a request of a broker. What has no answer goes on as it is, and names the broker."""
        if command.is_oneway:
            fields = command.ext_fields() | {BROKER_FIELD: link.name}
            self._session.write([frame_of(command, command.opaque, fields)])
        else:
            with suppress(ClientClosed):  # mqproxy is stopping
                self._context.tasks.spawn(self._ask_client(link, command), name="request of a broker")

    async def _ask_client(self, link: BrokerLink, command: Command) -> None:
        try:
            row = BY_CODE.get(command.code)
            if row is None or row.header is None or Role.CLIENT not in row.served_by:
                raise RemoteError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "mqproxy does not know this request")
            header = command.header(row.header)
            call = self._session.call(header, command.body, timeout_s=CLIENT_ANSWER_S, accept=_ANY_CODE)
            answer: Response[Any] = await call
            reply = reply_of(answer.body, answer.code, answer.remark)
        except SparrowError as error:
            code, remark = _error_reply(error)
            reply = reply_of(b"", code, remark)
        with suppress(ConnectionClosed):  # so the broker does not wait any more
            await link.send(reply, command.opaque)


class Reach(Enum):
    ONE = auto()
    ANY = auto()
    ALL = auto()
    MEMBERS = auto()
    CONNECTIONS = auto()
    RECORDS = auto()
    ROUTE = auto()
    CLUSTER = auto()


_CODES_FOR_ONE: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.RECALL_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.STAGE_BATCH,
    RequestCode.COMMIT_BATCH,
    RequestCode.COPY_BATCH,
)
REACH: Final[Mapping[int, Reach]] = {
    **dict.fromkeys(_CODES_FOR_ONE, Reach.ONE),
    RequestCode.QUERY_ASSIGNMENT: Reach.ANY,
    RequestCode.HEART_BEAT: Reach.ALL,
    RequestCode.UNREGISTER_CLIENT: Reach.ALL,
    RequestCode.CHECK_CLIENT_CONFIG: Reach.ALL,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Reach.CONNECTIONS,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Reach.MEMBERS,
    RequestCode.QUERY_MESSAGE: Reach.RECORDS,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Reach.ROUTE,
    RequestCode.GET_BROKER_CLUSTER_INFO: Reach.CLUSTER,
}
TOPIC_REACHES: Final = frozenset({Reach.ONE, Reach.ANY, Reach.RECORDS})  # they go to the brokers that have it
# The topic's one-letter name in requests that have such names.
_ONE_LETTER_CODES: Final = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)


def named_broker(code: int, fields: Mapping[str, str], body: bytes) -> str:
    """The broker that a request names, in a field, a handle or its body; "" if it names none."""
    name = fields.get(BROKER_FIELD) or (fields.get("n") if code in _ONE_LETTER_CODES else None)
    try:
        return name or _broker_in_content(code, fields, body)
    except (ConfigError, RemoteProtocolError):
        return ""


def _broker_in_content(code: int, fields: Mapping[str, str], body: bytes) -> str:
    match code:
        case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
            return next((queue.broker_name for queue in LockQueues.of_request(body).mq_set), "")
        case RequestCode.ACK_MESSAGE | RequestCode.CHANGE_MESSAGE_INVISIBLETIME:
            return ReceiptHandle.parse(fields.get("extraInfo", "")).broker_name
        case RequestCode.BATCH_ACK_MESSAGE:
            return BatchAcks.of_request(body).broker_name
        case RequestCode.RECALL_MESSAGE:
            return RecallHandle.parse(fields.get("recallHandle", "")).broker_name
    return ""


def topic_of(code: int, fields: Mapping[str, str], body: bytes) -> str:
    if code == RequestCode.QUERY_ASSIGNMENT:
        try:
            return AssignmentQuery.of_request(body).topic
        except RemoteProtocolError:
            return ""
    return fields.get("b" if code in _ONE_LETTER_CODES else "topic") or fields.get("originTopic") or ""


def _error_reply(error: Exception) -> tuple[int, str]:
    if isinstance(error, RemoteError):
        return error.code, error.remark
    if isinstance(error, NoRoute):
        return ResponseCode.TOPIC_NOT_EXIST, str(error)
    if isinstance(error, NetworkError):
        return ResponseCode.SERVICE_NOT_AVAILABLE, str(error)
    text = str(error) if isinstance(error, ProtocolError) else f"the request cannot be read: {error}"
    return ResponseCode.SYSTEM_ERROR, text


def join_answers(reach: Reach, answers: list[Command]) -> Command:
    """The answer to a request that went to several brokers, of which at least one has answered."""
    successful = [answer for answer in answers if answer.code == 0]
    try:
        if reach is Reach.MEMBERS and successful:
            lists = [ConsumerList.decode(answer.body).consumer_id_list for answer in successful]
            members = sorted({member for clients in lists for member in clients})
            return replace(successful[0], body=ConsumerList(members).encode())
        if reach is Reach.CONNECTIONS and successful:
            merged = merge_connections(ConsumerConnections.decode(answer.body) for answer in successful)
            return replace(successful[0], body=merged.encode())
        if reach is Reach.RECORDS and successful:
            latest = max(successful, key=lambda answer: answer.header(QueryMessageReply).index_last_update_timestamp)
            return replace(latest, body=b"".join(answer.body for answer in successful))
    except RemoteProtocolError:
        pass  # the first answer goes on as it is
    if reach is Reach.ALL and len(successful) < len(answers):
        return next(answer for answer in answers if answer.code)
    return (successful or answers)[0]


def with_consumers(answer: Command, grpc_consumers: ConsumerConnections) -> Command:
    """The brokers' answer about the members of a group, with the members at the gRPC port."""
    if not grpc_consumers.connection_set or answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE):
        return answer
    parts = [] if answer.code else [ConsumerConnections.decode(answer.body)]
    merged = merge_connections([*parts, grpc_consumers])
    return replace(answer, code=ResponseCode.SUCCESS, remark=None, body=merged.encode())


def merge_connections(parts: Iterable[ConsumerConnections]) -> ConsumerConnections:
    """One group of several, of which the first decides how it consumes."""
    merged, *further_parts = parts
    for part in further_parts:
        known = {row.client_id for row in merged.connection_set}
        merged = replace(
            merged,
            connection_set=merged.connection_set + [row for row in part.connection_set if row.client_id not in known],
            subscription_table=part.subscription_table | merged.subscription_table,
        )
    return merged


def with_address(rows: Iterable[BrokerRoute], address: str) -> list[BrokerRoute]:
    return [replace(row, broker_addrs=dict.fromkeys(row.broker_addrs, address)) for row in rows]


def reply_of(body: Body | bytes, code: int = 0, remark: str | None = None) -> Command:
    raw = body if isinstance(body, bytes) else body.encode()
    return Command(code=code, flag=REPLY_FLAG, version=PROTOCOL_VERSION, language=LANGUAGE, remark=remark, body=raw)


@dataclass(slots=True)
class _Question:
    asked_s: float
    repeats_left: int


class Repeats:
    """Questions that a client asks once for each broker of a topic, and all of them at mqproxy.

    Java's clients and tools ask each broker of the topic for the messages with a key, and name no broker. All these
    questions arrive at mqproxy, and are the same. Its answer to the first has the messages of all brokers. The others
    find nothing, so the client gets each message once. Source: MQAdminImpl.queryMessage, Java 5.4.0.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._questions: dict[int, _Question] = {}  # the oldest first

    def is_repeat(self, question: Command, broker_count: int) -> bool:
        """Return whether a question for so many brokers repeats one whose answer is for all of them."""
        now_s = self._clock.monotonic()
        for old_key, old in list(self._questions.items()):
            if now_s - old.asked_s < REPEAT_WINDOW_S and len(self._questions) < MAX_QUESTIONS:
                break
            del self._questions[old_key]
        key = hash((question.code, *sorted(question.ext_fields().items())))
        asked_question = self._questions.get(key)
        if asked_question is None:
            self._questions[key] = _Question(now_s, broker_count - 1)
            return False
        asked_question.repeats_left -= 1
        if asked_question.repeats_left <= 0:
            del self._questions[key]
        return True
