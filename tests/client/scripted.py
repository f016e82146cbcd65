"""A peer on a real socket that answers what a test tells it to: name server and broker in one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Self

from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.requests.bodies import BrokerRoute, ClusterTable, QueueRoute, TopicRoute
from sparrowmq.protocol.requests.client_bodies import ConsumerList
from sparrowmq.protocol.requests.headers import HeartBeatReply, SendMessageReply
from sparrowmq.protocol.wire.body import Body
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Session

Responder = Callable[[Command], Reply | None]
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class Scripted:
    """Answers requests by their code; `None` as an answer leaves the request open.

    `script(code, ...)` gives answers for the next requests of a code; after those the usual one comes again.
    """

    def __init__(self, name: str = "broker-a") -> None:
        self.name = name
        self.received: list[Command] = []
        self.routes: dict[str, TopicRoute] = {}
        self.brokers: dict[str, str] = {}
        self.usual: dict[int, Responder] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._brokers,
            RequestCode.GET_KV_CONFIG: lambda _: Reply(ResponseCode.QUERY_NOT_FOUND),
            RequestCode.HEART_BEAT: lambda _: Reply(header=HeartBeatReply()),
            RequestCode.UNREGISTER_CLIENT: lambda _: Reply(),
            RequestCode.SEND_MESSAGE_V2: lambda _: stored(),
            RequestCode.SEND_BATCH_MESSAGE: lambda command: stored(count=messages_in(command)),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda _: Reply(body=ConsumerList(["me"]).encode()),
        }
        self._scripts: dict[int, deque[Reply | None]] = {}
        self._server = Server(self._dispatch, SystemClock(), "127.0.0.1", 0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.port}"

    @property
    def sessions(self) -> list[Session]:
        return list(self._server.sessions)

    def has(
        self,
        topic: str,
        queues: int = 4,
        others: Mapping[str, str] | None = None,
        perm: int = 6,
        cluster: str = "",
    ) -> None:
        """Let the topic have queues here, and on other brokers by name and address."""
        brokers = {self.name: self.address, **(others or {})}
        self.routes[topic] = TopicRoute(
            broker_datas=[
                BrokerRoute(cluster=cluster, broker_name=name, broker_addrs={0: address})
                for name, address in brokers.items()
            ],
            queue_datas=[
                QueueRoute(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
                for name in brokers
            ],
        )

    def script(self, code: int, *answers: Reply | None) -> None:
        self._scripts.setdefault(code, deque()).extend(answers)

    def script_anew(self, code: int, *answers: Reply | None) -> None:
        """As `script`, forgetting what was scripted for the code before."""
        self._scripts[code] = deque(answers)

    def requests(self, code: int) -> list[Command]:
        return [command for command in self.received if command.code == code]

    @property
    def sent(self) -> list[Command]:
        """The sends that came in."""
        return [command for command in self.received if command.code in SENDS]

    async def __aenter__(self) -> Self:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()

    def _dispatch(self, session: Session, command: Command) -> None:
        self.received.append(command)
        script = self._scripts.get(command.code)
        answer = script.popleft() if script else self.usual[command.code](command)
        if answer is not None:
            body = answer.body.encode() if isinstance(answer.body, Body) else answer.body
            session.reply(command, answer.code, answer.header, answer.remark, body)

    def _route(self, command: Command) -> Reply:
        route = self.routes.get(command.ext_fields()["topic"])
        if route is None:
            return Reply(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        return Reply(body=route.encode())

    def _brokers(self, command: Command) -> Reply:
        table = {
            name: BrokerRoute(broker_name=name, broker_addrs={0: address}) for name, address in self.brokers.items()
        }
        return Reply(body=ClusterTable(broker_addr_table=table).encode())


def stored(code: int = 0, queue_id: int = 0, queue_offset: int = 7, count: int = 1) -> Reply:
    """The answer to a send, or to a batch of so many messages."""
    msg_id = ",".join(f"7F00000100002A9F{at:016X}" for at in range(count))
    return Reply(code, SendMessageReply(msg_id=msg_id, queue_id=queue_id, queue_offset=queue_offset))


def messages_in(command: Command) -> int:
    """The number of messages that a send has."""
    return len(batch.decode(command.body)) if command.code == RequestCode.SEND_BATCH_MESSAGE else 1
