"""SEND_REPLY_MESSAGE (324, 325): forward the answer to a request to the client that asked, and store it as a message.

    requester ── request, REPLY_TO_CLIENT=its id ──> topic ──> replier
    requester <── PUSH_REPLY_MESSAGE_TO_CLIENT (326) ── broker <── SEND_REPLY_MESSAGE ── replier

The replier sends to `<cluster>_REPLY_TOPIC`; Java's replier in a namespace, to this name in its namespace. Unlike Java,
every other topic is refused: an account needs no permission to answer. The send succeeds when the requester has
confirmed the answer. Otherwise the code is 1, whether the answer was stored or not: the replier may try another broker.
A master that was just elected does not know its clients yet: it waits for the requester.
Source: ReplyMessageProcessor, Java 4.9.8.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from sparrowmq.broker.clients import Clients, ReplyWaiters
from sparrowmq.broker.handlers.send_handler import SendHandler
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import DiskFull, NetworkError, RemoteError, StoreFailed
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import await_result
from sparrowmq.protocol import hosts
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import REPLY_SUFFIX
from sparrowmq.protocol.requests.headers import PushReply, SendMessageReply, SendReply, SendReplyV2
from sparrowmq.protocol.wire.header import Header
from sparrowmq.remoting.handler import Reply, ReplyWhenDurable, handles
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)

# The time limit for the asker's confirmation (Java: Broker2Client.callClient).
CONFIRM_TIMEOUT_S: Final = 10.0
ELECTION_GRACE_S: Final = 5.0  # after an election: clients reconnect within 1-2 s
_POLL_S: Final = 0.1


@dataclass(frozen=True)
class ReplyRules:
    cluster: str  # the cluster, whose topic of answers is `<cluster>_REPLY_TOPIC`
    is_stored: bool  # whether the broker also stores answers (storeReplyMessageEnable)
    store_host: bytes  # this broker's address in the format of records
    is_elected: bool = False  # whether clients have just come from another master, and may be on their way


class ReplyHandler:
    def __init__(
        self, sends: SendHandler, clients: Clients, waiters: ReplyWaiters, rules: ReplyRules, clock: Clock
    ) -> None:
        self._sends = sends
        self._clients = clients
        self._rules = rules
        self._topic = rules.cluster + REPLY_SUFFIX
        self._clock = clock
        self._waiters = waiters
        self._lines = LogLimit(clock)
        self._started = clock.monotonic()

    @handles(SendReply, SendReplyV2)
    async def reply(self, header: SendReply | SendReplyV2, body: bytes, peer: Peer) -> Reply:
        """Push the answer to the asker; the reply's code says whether that succeeded."""
        namespace, _, name = header.topic.rpartition("%")
        if name != self._topic or "%" in namespace:
            raise RemoteError(
                ResponseCode.NO_PERMISSION,
                f"answers go to the topic {self._topic}, and not to {shown(header.topic)}; use a send for other topics",
            )
        self._sends.check_request(header, body, peer)
        # Unlike Java, store before the push: otherwise an answer that was pushed but not stored looks like a failure.
        stored_at: Header | None = await self._store(header, body, peer) if self._rules.is_stored else None
        failure = await self._push(header, body, peer)
        if stored_at is None:
            stored_at = SendMessageReply("0", max(header.queue_id, 0), 0)  # Java's values for "not stored"
        if failure is None:
            return Reply(header=stored_at)
        self._lines.log(log, logging.WARNING, "an answer sent by %s is lost: %s", peer.address, shown(failure))
        return Reply(ResponseCode.SYSTEM_ERROR, stored_at, failure)

    async def _store(self, header: SendReply | SendReplyV2, body: bytes, peer: Peer) -> Header | None:
        """Store the answer. The reply does not wait until it is safe; a failure to store does not stop the push."""
        try:
            stored_reply: ReplyWhenDurable = await await_result(self._sends.send(header, body, peer))
        except (StoreFailed, DiskFull) as error:
            self._lines.log(log, logging.WARNING, "an answer sent by %s is not stored: %s", peer.address, error)
            return None
        return stored_reply.reply

    async def _push(self, header: SendReply | SendReplyV2, body: bytes, peer: Peer) -> str | None:
        properties = Properties(header.properties or "")
        client_id = properties.get(Property.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{Property.REPLY_TO_CLIENT}] is null"
        waiting_peer = await self._find_peer(properties.get(Property.CORRELATION_ID), client_id)
        if waiting_peer is None:
            return f"push reply message fail, channel of <{shown(client_id)}> not found."
        now_ms = self._clock.now_ms()
        properties.put(Property.PUSH_REPLY_TIME, str(now_ms))
        push = PushReply(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag & SysFlag.OF_SENDER,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=properties.render(),
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=peer.address,
            store_host=hosts.unpack(self._rules.store_host),
            store_timestamp=now_ms,
        )
        try:
            await waiting_peer.call(push, body, timeout_s=CONFIRM_TIMEOUT_S)
        except (NetworkError, RemoteError) as error:
            return f"push reply message to {shown(client_id)} fail. {error}"
        return None

    async def _find_peer(self, correlation_id: str | None, client_id: str) -> Peer | None:
        while True:
            waiter = self._waiters.find(correlation_id, client_id)
            peer = self._clients.producer_by_id(client_id) if waiter is None else self._clients.peer_for_reply(waiter)
            is_new_master = self._rules.is_elected and self._clock.age(self._started) < ELECTION_GRACE_S
            if peer is not None or not is_new_master:
                return peer
            await self._clock.sleep(_POLL_S)
